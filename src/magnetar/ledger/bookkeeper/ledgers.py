"""Where the metadata of ledgers lies: new ones get ids that nobody else has, old ones change by version.

Pulsar's brokers, BookKeeper's own clients, bookies and AutoRecovery share the layout, and the counters from
which ids come.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

from magnetar.io.in_progress import InProgress
from magnetar.io.interfaces import Loop
from magnetar.ledger.bookkeeper.failures import MetadataFailed
from magnetar.ledger.bookkeeper.ledger_record import (
    LedgerRecord,
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
"""What ``LAYOUT`` says, behind the version of its own format; without it, as Pulsar leaves it, the first."""
_LAYOUT_VERSION = "2"
_HALF = (1 << 31) - 1
"""As many numbers a counter of ZooKeeper's gives; whoever gets this one goes on in another."""
_TRIES = 20
"""How often an id is found taken, or a counter full."""


class UnknownLayout(LedgerError):
    """The metadata of ledgers lies otherwise than this release knows."""


class Versioned(NamedTuple):
    """A ledger's metadata as it was read or written; a change names the version that it changes."""

    record: LedgerRecord
    version: int


class LedgerRecords:
    """The metadata of ledgers below ``root``, in a store that answers for certain (``ResolvingStore``).

    :raises MetadataFailed: from every operation: the store does not answer, and a change may have happened
    """

    def __init__(self, metadata: MetadataStore, loop: Loop, root: str = "/ledgers") -> None:
        self._metadata = _FailingStore(metadata)
        self._root = root
        self._loop = loop
        self._path_below: Callable[[int], str] | None = None
        self._long_ids = False
        """The first 2³¹ ids are used up, or somebody decided to go on without them."""
        self._making = InProgress(loop)

    async def close(self) -> None:
        """Waits for ledgers that are being made. The store of the metadata stays open."""
        await self._making.none()

    async def check_layout(self) -> None:
        """Needs to be called once, before all else.

        :raises UnknownLayout: nothing may be read or written here
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
                f"{path} is {said!r}; this release knows version {_LAYOUT_VERSION} of {known}"
            )
        self._path_below = found

    def path(self, ledger_id: int) -> str:
        """Of a ledger's node."""
        assert self._path_below is not None, "the layout was not checked"
        return self._root + self._path_below(ledger_id)

    async def make(self, record: LedgerRecord) -> tuple[int, Versioned]:
        """A new ledger, with an id above those that were given before."""
        value = encoded(record)
        with self._making:
            for _ in range(_TRIES):
                ledger_id = await self._new_id()
                # A node that is there was made by somebody who counts otherwise.
                with suppress(BadVersion):
                    node = await self._metadata.put(self.path(ledger_id), value, MUST_NOT_EXIST)
                    return ledger_id, Versioned(record, node.version)
                log.warning("the id for a new ledger is taken already", extra={"ledger": ledger_id})
        raise LedgerError(f"{_TRIES} ids for a new ledger were taken already, below {self._root}")

    async def new_id(self) -> int:
        """An id that no ledger gets."""
        with self._making:
            return await self._new_id()

    async def read(self, ledger_id: int) -> Versioned:
        """:raises NoSuchLedger: it was never made, or is deleted

        :raises DataDamaged: that is no metadata of a ledger
        """
        path = self.path(ledger_id)
        node = await self._metadata.get(path)
        if node is None:
            raise NoSuchLedger(ledger_id)
        return Versioned(decoded(node.value, path), node.version)

    async def write(self, ledger_id: int, record: LedgerRecord, version: int) -> Versioned:
        """Replaces ``version``.

        :raises BadVersion: somebody else has changed it, or the ledger is deleted
        """
        node = await self._metadata.put(self.path(ledger_id), encoded(record), version)
        return Versioned(record, node.version)

    async def delete(self, ledger_id: int) -> None:
        """One that does not exist is fine. Bookies find out for themselves, and drop the entries."""
        with suppress(NodeMissing):
            await self._metadata.delete(self.path(ledger_id))

    async def ledger_ids(self) -> Sequence[int]:
        """All that exist, in ascending order; a read for each ten thousand ids."""
        found: list[int] = []
        for name in await self._metadata.children(self._root):
            if name.isascii() and name.isdigit() and len(name) in (2, 3):
                await self._walk(f"/{name}", 1 if len(name) == 2 else 3, found)
        return sorted(found)

    def listen(self, listener: Callable[[int], None]) -> None:
        """Calls ``listener`` in the loop with each ledger whose metadata somebody changes or deletes."""

        def changed(change: Change) -> None:
            ledger_id = ledger_id_of(change.path[len(self._root) :])
            if ledger_id is not None:
                listener(ledger_id)

        self._metadata.listen(self._root, changed)

    async def _walk(self, path: str, levels: int, found: list[int]) -> None:
        """:param levels: of nodes between ``path`` and those of ledgers"""
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
        raise LedgerError(f"{long_ids} has no counter with room")

    async def _high_half(self, path: str) -> int:
        """The last one that somebody began."""
        names = await self._metadata.children(path)
        begun = [int(name[4:]) for name in names if name.startswith("HOB-") and name[4:].isdigit()]
        if begun:
            return max(begun)
        with suppress(BadVersion):
            await self._metadata.put(_high_path(path, 1), b"", MUST_NOT_EXIST)
        return 1

    async def _count(self, counter: str) -> int:
        """The next number below a node; negative where ZooKeeper has counted over its end."""
        prefix = f"{counter}/ID-"
        node = await self._metadata.put(prefix, b"", ephemeral=True, sequential=True)
        self._loop.create_task(self._release(node.path))
        try:
            return int(node.path[len(prefix) :])
        except ValueError as error:
            raise NodeDamaged(f"{node.path} has no number") from error

    async def _release(self, path: str) -> None:
        """The number is taken; its node would else stay as long as the session."""
        with self._making:
            try:
                await self._metadata.delete(path)
            except (MetadataFailed, NodeMissing) as error:
                log.warning("the node of an id stays", extra={"path": path, "reason": str(error)})


class _FailingStore(PassingOnStore):
    """What the store has is passed on as a failure of ledgers, but for conditions that do not hold."""

    async def _do(self, call: str, work: Callable[[], Awaitable[T]]) -> T:
        try:
            return await work()
        except (BadVersion, NodeMissing):
            raise
        except MetadataError as error:
            raise MetadataFailed(f"the metadata of ledgers, {call}: {error}") from error


def _high_path(long_ids: str, high: int) -> str:
    return f"{long_ids}/HOB-{high:010d}"
