"""Finding out that ZooKeeper gives out ledger ids a second time.

ZooKeeper counts the ids. When its data are lost, or put back from an old copy, it counts again from where the
copy ends. Bookies may still have entries under the ids that come next, and would take new ones beside them.
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
"""A bookie that has not answered by then is passed over."""
_HAVE_IT = frozenset((Status.OK, Status.NO_ENTRY))


class LedgerIdUsed(LedgerError):
    """ZooKeeper gave out an id that it had given out before."""


async def holders_of(
    loop: Loop, ledger_id: int, bookies: Iterable[str], bookie: Callable[[str], Bookie]
) -> list[str]:
    """The bookies that say they have entries of a ledger, or that it was fenced there.

    :param bookies: ids of those that are asked
    :param bookie: gives the connection with one
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
