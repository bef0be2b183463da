"""Detects that ZooKeeper assigns ledger ids a second time.

ZooKeeper counts the ids. If its data is lost or restored from an old copy, it continues from the end of the
copy. Bookies may still have entries under the next ids, and would store new ones beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from magnetar.io.interfaces import Loop
from magnetar.io.waiting import outcome, settle
from magnetar.ledger.bookkeeper.bookie import Bookie
from magnetar.ledger.bookkeeper.frames import Status
from magnetar.ledger.interface import LedgerError

_LAST = -1
_SECONDS = 2.0
"""A bookie without an answer after this time is skipped."""
_HAVE_IT = frozenset((Status.OK, Status.NO_ENTRY))


class LedgerIdUsed(LedgerError):
    """ZooKeeper assigned an id that it had assigned before."""


async def holders_of(
    loop: Loop, ledger_id: int, bookies: Iterable[str], bookie: Callable[[str], Bookie]
) -> list[str]:
    """Returns the bookies that have entries of a ledger, or where it was fenced.

    :param bookies: ids of the bookies to ask
    :param bookie: returns the connection to a bookie
    """
    waiting = set(bookies)
    found: list[str] = []
    answered = loop.create_future()

    def told(bookie_id: str, status: int, _bodies: list[bytes]) -> None:
        waiting.discard(bookie_id)
        if status in _HAVE_IT:
            found.append(bookie_id)
        if not waiting:
            settle(answered)

    for bookie_id in sorted(waiting):
        bookie(bookie_id).read(ledger_id, _LAST, partial(told, bookie_id))
    timer = loop.call_later(_SECONDS, settle, answered)
    if waiting:
        await outcome(loop, answered)
    timer.cancel()
    return sorted(found)


def used_before(ledger_id: int, bookies: Iterable[str]) -> LedgerIdUsed:
    return LedgerIdUsed(
        f"ZooKeeper gives out ledger id {ledger_id}, of which {', '.join(bookies)} already has entries: "
        "the metadata in ZooKeeper are older than the data of the bookies. Stop brokers and bookies, and "
        "restore the newest copy of ZooKeeper's data. Bookies delete entries of ledgers that it does not know"
    )
