"""The metadata of ledgers: new ledgers get unused ids, and changes are conditional on a version.

Pulsar's brokers, BookKeeper's clients, bookies and AutoRecovery share the layout, and the counters from which
ids are taken.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeVar

from magnetar.io.interfaces import Loop
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.io.waiting import InProgress, outcome, settle
from magnetar.ledger.bookkeeper.bookie import Bookie
from magnetar.ledger.bookkeeper.frames import Status
from magnetar.ledger.bookkeeper.ledger_record import (
    LedgerRecord,
    MetadataFailed,
    decoded,
    encoded,
    ledger_id_of,
    ledger_path,
    long_ledger_path,
)
from magnetar.ledger.interface import LedgerError, NoSuchLedger
from magnetar.metadata.interface import (
    MUST_NOT_EXIST,
    BadVersion,
    Change,
    MetadataError,
    MetadataStore,
    NodeDamaged,
    NodeMissing,
)
from magnetar.metadata.passing_on import PassingOnStore

T = TypeVar("T")
log = logging.getLogger(__name__)
_LAYOUTS: dict[str, Callable[[int], str]] = {
    "org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1": ledger_path,
    "org.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory:1": long_ledger_path,
}
"""The function that returns the path of a ledger's node, by the layout name in the node ``LAYOUT``."""
_LAYOUT_VERSION = "2"
_HALF = (1 << 31) - 1
"""The last number of a ZooKeeper counter; a client that gets this number switches to the next counter."""
_TRIES = 20
"""The maximum number of attempts to find a free ledger id."""
_LAST = -1
_SECONDS = 2.0
"""The time in seconds after which a bookie that does not answer is skipped."""
_HAVE_IT = frozenset((Status.OK, Status.NO_ENTRY))


class UnknownLayout(LedgerError):
    """The metadata of ledgers has a layout that this release does not know."""


class Versioned(NamedTuple):
    """A ledger's metadata with its version in the store; a write is refused if the version has changed."""

    record: LedgerRecord
    version: int


class LedgerRecords:
    """The metadata of ledgers below ``root``, in a store that finds out the outcome of each unanswered change
    (``ResolvingStore``).

    :raises MetadataFailed: from every operation: the store does not answer, and a change may have happened
    """

    def __init__(self, metadata: MetadataStore, loop: Loop, root: str = "/ledgers") -> None:
        self._metadata = _FailingStore(metadata)
        self._root = root
        self._loop = loop
        self._tasks = TaskScope(loop, "the ids of ledgers", owner_goes_on)
        self._path_below: Callable[[int], str] | None = None
        self._long_ids = False
        """Whether new ids have 64 bits: the first 2³¹ ids are used up, or another client uses such ids."""
        self._making = InProgress(loop)

    async def close(self) -> None:
        """Waits until ledgers in creation are complete. The metadata store stays open."""
        await self._making.none()

    async def check_layout(self) -> None:
        """Checks the layout; must be called once, before all other methods.

        :raises UnknownLayout: this release cannot read or write the metadata
        """
        path = f"{self._root}/LAYOUT"
        node = await self._metadata.get(path)
        said = node.value.decode(errors="replace") if node is not None else ""
        version, _, layout = said.strip().partition("\n")
        found = _LAYOUTS.get(layout.strip()) if version == _LAYOUT_VERSION else None
        if node is None:
            found = ledger_path
        if found is None:
            known = ", ".join(_LAYOUTS)
            raise UnknownLayout(
                f"{path} holds the unknown ledger layout {said!r}; this release reads version "
                f"{_LAYOUT_VERSION} of {known}"
            )
        self._path_below = found

    def path(self, ledger_id: int) -> str:
        """Returns the path of a ledger's node."""
        assert self._path_below is not None, "the layout was not checked"
        return self._root + self._path_below(ledger_id)

    async def make(self, record: LedgerRecord) -> tuple[int, Versioned]:
        """Creates a ledger with an id above all ids assigned before."""
        value = encoded(record)
        with self._making:
            for _ in range(_TRIES):
                ledger_id = await self._new_id()
                # An existing node was created by a client that assigns ids in another way.
                with suppress(BadVersion):
                    node = await self._metadata.put(self.path(ledger_id), value, MUST_NOT_EXIST)
                    return ledger_id, Versioned(record, node.version)
                log.warning(
                    "id for a new ledger already in use; trying another one", extra={"ledger": ledger_id}
                )
        raise LedgerError(f"all {_TRIES} ids tried for a new ledger below {self._root} were already taken")

    async def new_id(self) -> int:
        """Returns the next ledger id without creating a ledger; no ledger will get this id."""
        with self._making:
            return await self._new_id()

    async def read(self, ledger_id: int) -> Versioned:
        """Returns the metadata of a ledger with its version.

        :raises NoSuchLedger: the ledger was never created, or was deleted
        :raises DataDamaged: the value is not the metadata of a ledger
        """
        path = self.path(ledger_id)
        node = await self._metadata.get(path)
        if node is None:
            raise NoSuchLedger(ledger_id)
        return Versioned(decoded(node.value, path), node.version)

    async def write(self, ledger_id: int, record: LedgerRecord, version: int) -> Versioned:
        """Replaces the record of a ledger if it still has ``version``.

        :raises BadVersion: the record was changed, or the ledger was deleted
        """
        node = await self._metadata.put(self.path(ledger_id), encoded(record), version)
        return Versioned(record, node.version)

    async def delete(self, ledger_id: int) -> None:
        """Deletes the metadata of a ledger, if there is any. The bookies notice the deletion, and delete the
        ledger's entries."""
        with suppress(NodeMissing):
            await self._metadata.delete(self.path(ledger_id))

    async def ledger_ids(self) -> Sequence[int]:
        """Returns the ids of all existing ledgers in ascending order, with one read per ten thousand ids."""
        found: list[int] = []
        for name in await self._metadata.children(self._root):
            if name.isascii() and name.isdigit() and len(name) in (2, 3):
                await self._walk(f"/{name}", 1 if len(name) == 2 else 3, found)
        return sorted(found)

    def listen(self, listener: Callable[[int], None]) -> None:
        """Registers ``listener``, called on the loop for each ledger whose metadata any client has changed or
        deleted."""

        def changed(change: Change) -> None:
            ledger_id = ledger_id_of(change.path[len(self._root) :])
            if ledger_id is not None:
                listener(ledger_id)

        self._metadata.listen(self._root, changed)

    async def _walk(self, path: str, levels: int, found: list[int]) -> None:
        """Adds the ledgers below a node to ``found``.

        :param levels: the number of levels between ``path`` and the nodes of ledgers
        """
        for name in await self._metadata.children(self._root + path):
            below = f"{path}/{name}"
            if levels:
                await self._walk(below, levels - 1, found)
                continue
            ledger_id = ledger_id_of(below)
            if ledger_id is not None and self._root + below == self.path(ledger_id):
                found.append(ledger_id)

    async def _new_id(self) -> int:
        long_ids = f"{self._root}/idgen-long"
        if not self._long_ids and not await self._metadata.exists(long_ids):
            number = await self._count(f"{self._root}/idgen")
            if 0 <= number < _HALF:
                return number
            with suppress(BadVersion):
                await self._metadata.put(long_ids, b"", MUST_NOT_EXIST)
        self._long_ids = True
        for _ in range(_TRIES):
            high = await self._high_half(long_ids)
            low = await self._count(_high_path(long_ids, high))
            if 0 <= low < _HALF:
                return high << 32 | low
            with suppress(BadVersion):
                await self._metadata.put(_high_path(long_ids, high + 1), b"", MUST_NOT_EXIST)
        raise LedgerError(
            f"no free ledger id found: the counters below {long_ids} that were tried are used up"
        )

    async def _high_half(self, path: str) -> int:
        """Returns the highest value of the upper 32 bits of ledger ids that any client has begun to use."""
        names = await self._metadata.children(path)
        begun = [int(name[4:]) for name in names if name.startswith("HOB-") and name[4:].isdigit()]
        if begun:
            return max(begun)
        with suppress(BadVersion):
            await self._metadata.put(_high_path(path, 1), b"", MUST_NOT_EXIST)
        return 1

    async def _count(self, counter: str) -> int:
        """Returns the next number of the counter at a path.

        :returns: the number; negative if ZooKeeper's counter has overflowed
        """
        prefix = f"{counter}/ID-"
        node = await self._metadata.put(prefix, b"", ephemeral=True, sequential=True)
        self._tasks.start(self._release(node.path), "the deletion of a number's node")
        try:
            return int(node.path[len(prefix) :])
        except ValueError as error:
            raise NodeDamaged(f"the name of {node.path} does not end with a number") from error

    async def _release(self, path: str) -> None:
        """Deletes the node that assigned a number; otherwise it would exist as long as the session."""
        with self._making:
            try:
                await self._metadata.delete(path)
            except (MetadataFailed, NodeMissing) as error:
                log.warning(
                    "cannot delete the node of a ledger id", extra={"path": path, "reason": str(error)}
                )


class _FailingStore(PassingOnStore):
    """A metadata store that raises MetadataFailed for all errors except BadVersion and NodeMissing."""

    async def _do(self, call: str, work: Callable[[], Awaitable[T]]) -> T:
        try:
            return await work()
        except (BadVersion, NodeMissing):
            raise
        except MetadataError as error:
            raise MetadataFailed(f"operation {call} on the metadata of ledgers failed: {error}") from error


def _high_path(long_ids: str, high: int) -> str:
    return f"{long_ids}/HOB-{high:010d}"


class LedgerIdUsed(LedgerError):
    """ZooKeeper assigned an id that it had assigned before.

    ZooKeeper counts the ids. If its data is lost or restored from an old copy, it counts on from the old
    number, and assigns ids again. Bookies may still have entries of the earlier ledgers with these ids, and
    would add the entries of the new ledgers to them.
    """


async def holders_of(
    loop: Loop, ledger_id: int, bookies: Iterable[str], bookie: Callable[[str], Bookie]
) -> list[str]:
    """Returns the bookies that have entries of a ledger, or on which the ledger was fenced.

    :param bookies: the ids of the bookies to ask
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
        "the metadata in ZooKeeper is older than the data of the bookies. Stop brokers and bookies, and "
        "restore the newest copy of ZooKeeper's data. Bookies delete entries of ledgers that it does not know"
    )
