"""Orphaned ledgers of an embedded store: set aside first, and deleted only when their retention has passed.

A crash between creating a ledger and naming it leaves such a ledger. But after a loss of the metadata, or
their restoration from an old copy, ledgers with acknowledged messages look the same. The broker cannot
distinguish the two, so it gives the operator time to find out.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Sequence
from typing import NamedTuple

from magnetar.io.interfaces import Clock
from magnetar.ledger.interface import LedgerMetadata, LedgerStore, NoSuchLedger
from magnetar.ledger.journal.records import COMPONENT
from magnetar.managed_ledger.orphans import COMPACTED_TOPIC, NamedLedgers, owner_of
from magnetar.metadata.interface import MetadataStore, NodeMissing

log = logging.getLogger(__name__)

ROOT = "/magnetar/orphaned-ledgers"
"""Has a node for each ledger that was set aside, named by its id: a JSON object."""

_REASON = "no metadata record of a topic, subscription, schema or package refers to it"


class SetAside(NamedTuple):
    """An orphaned ledger that still exists."""

    ledger_id: int
    found_ms: int
    """When it was set aside; ms since 1970."""
    owner: str
    """What it was created for, for display."""
    made_ms: int
    entries: int
    bytes: int


class OrphanedLedgers:
    """Finds orphaned ledgers, where the ledger store belongs to this process alone."""

    def __init__(self, clock: Clock, store: LedgerStore, metadata: MetadataStore, retention_ms: int) -> None:
        """:param retention_ms: how long an orphaned ledger is kept"""
        self._clock = clock
        self._store = store
        self._metadata = metadata
        self.retention_ms = retention_ms
        self.known: list[SetAside] = []
        """As of the last look."""

    async def look(self, candidates: Sequence[int], named: Collection[int] = ()) -> int:
        """Sets aside candidates that no record names, and deletes those whose retention has passed.

        May run while topics are served.

        :param candidates: the ledgers that existed before anything was opened since the start: later ones may
            not be listed yet
        :param named: ledgers that belong to something else
        :return: how many were deleted
        :raises MetadataDamaged: a record cannot be parsed; nothing is set aside or deleted then
        :raises MetadataError: the metadata store does not answer
        :raises LedgerError: the metadata of a ledger cannot be read
        """
        names = NamedLedgers(self._store, self._metadata)
        known = {*named, *await names.collect()}
        noted = await self._noted()
        found: list[SetAside] = []
        deleted = 0
        for ledger_id in candidates:
            metadata = None if ledger_id in known else await self._unnamed(names, ledger_id)
            if metadata is None:
                continue
            orphan = noted.pop(ledger_id, None) or await self._set_aside(metadata)
            if self._clock.wall_ms() - orphan.found_ms < self.retention_ms:
                found.append(orphan)
                continue
            await self._store.delete(ledger_id)
            await self._forget(ledger_id)
            log.warning("deleted an orphaned ledger", extra=_fields(orphan))
            deleted += 1
        for ledger_id in noted:
            # A record names it again, or it was deleted.
            await self._forget(ledger_id)
        self.known = found
        return deleted

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the retention of the first one has passed; None: there are none."""
        if not self.known:
            return None
        due_ms = min(orphan.found_ms for orphan in self.known) + self.retention_ms
        return max(0.0, (due_ms - self._clock.wall_ms()) / 1000)

    async def _noted(self) -> dict[int, SetAside]:
        found: dict[int, SetAside] = {}
        for name in await self._metadata.children(ROOT):
            node = await self._metadata.get(f"{ROOT}/{name}")
            if node is not None and name.isascii() and name.isdigit():
                found[int(name)] = _decoded(int(name), node.value, node.created_ms)
        return found

    async def _unnamed(self, names: NamedLedgers, ledger_id: int) -> LedgerMetadata | None:
        """None: the ledger was deleted, needs no record, or is named by one."""
        try:
            reader = await self._store.open(ledger_id, recover=False)
        except NoSuchLedger:
            return None
        metadata = reader.metadata
        reader.close()
        if metadata.custom.get("component") == COMPONENT:
            return None
        topic = metadata.custom.get(COMPACTED_TOPIC)
        if topic is not None and await names.is_compacted(ledger_id, topic.decode()):
            return None
        return metadata

    async def _set_aside(self, metadata: LedgerMetadata) -> SetAside:
        orphan = SetAside(
            metadata.ledger_id,
            self._clock.wall_ms(),
            owner_of(metadata),
            metadata.ctime_ms,
            metadata.last_entry_id + 1,
            metadata.length,
        )
        await self._metadata.put(f"{ROOT}/{orphan.ledger_id}", _encoded(orphan))
        log.warning("set an orphaned ledger aside", extra=_fields(orphan))
        return orphan

    async def _forget(self, ledger_id: int) -> None:
        try:
            await self._metadata.delete(f"{ROOT}/{ledger_id}")
        except NodeMissing:
            log.debug("record of an orphaned ledger already deleted", extra={"ledger": ledger_id})


def _fields(orphan: SetAside) -> dict[str, object]:
    return {"ledger": orphan.ledger_id, "owner": orphan.owner, "entries": orphan.entries, "reason": _REASON}


def _encoded(orphan: SetAside) -> bytes:
    fields = {
        "foundMs": orphan.found_ms,
        "reason": _REASON,
        "owner": orphan.owner,
        "madeMs": orphan.made_ms,
        "entries": orphan.entries,
        "bytes": orphan.bytes,
    }
    return json.dumps(fields).encode()


def _decoded(ledger_id: int, value: bytes, created_ms: int) -> SetAside:
    """Parses a note; one that is damaged counts from the time of its creation."""
    try:
        fields = json.loads(value)
        numbers = [int(fields[name]) for name in ("foundMs", "madeMs", "entries", "bytes")]
        owner = str(fields["owner"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return SetAside(ledger_id, created_ms, "unknown", 0, 0, 0)
    return SetAside(ledger_id, numbers[0], owner, *numbers[1:])
