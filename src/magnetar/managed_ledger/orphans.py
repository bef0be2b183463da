"""Ledgers that nothing names: what a crash left between making one and listing it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence

from magnetar.ledger.interface import LedgerMetadata, LedgerState, LedgerStore, NoSuchLedger
from magnetar.managed_ledger.owned_ledgers import COMPACTION_CURSOR, owned_ledgers
from magnetar.managed_ledger.records import ROOT, decode_cursor, decode_managed_ledger
from magnetar.managed_ledger.side_ledgers import ledgers_named
from magnetar.managed_ledger.stored_properties import stored_properties
from magnetar.metadata.interface import MetadataStore
from magnetar.naming.topic_name import TopicName, encode_path_piece

_MANAGED_LEDGER = "pulsar/managed-ledger"
_CURSOR = "pulsar/cursor"
COMPACTED_TOPIC = "pulsar/compactedTopic"
"""Of a ledger's custom metadata: the topic that was compacted into it."""
_SCHEMA = "pulsar/schemaId"
_PACKAGE = "magnetar/package"
_OTHERS = {_SCHEMA: "schema of", _PACKAGE: "package", COMPACTED_TOPIC: "compacted topic"}
"""What else ledgers are made for, in words."""


def owner_of(metadata: LedgerMetadata) -> str:
    """What a ledger was made for, in words, as its own metadata says."""
    told = _texts(metadata)
    if (name := told.get(_MANAGED_LEDGER)) is not None:
        return f"subscription {told[_CURSOR]} of {name}" if _CURSOR in told else f"topic {name}"
    for key, kind in _OTHERS.items():
        if key in told:
            return f"{kind} {told[key]}"
    return "unknown"


def _texts(metadata: LedgerMetadata) -> dict[str, str]:
    """A ledger's custom metadata."""
    return {key: value.decode("utf-8", "replace") for key, value in metadata.custom.items()}


class NamedLedgers:
    """What the records of managed ledgers and cursors name, ours or those of Apache Pulsar's brokers."""

    def __init__(self, store: LedgerStore, metadata: MetadataStore) -> None:
        self._store = store
        self._metadata = metadata

    async def collect(self, path: str = ROOT) -> set[int]:
        """
        :raises MetadataDamaged: a record cannot be read
        """
        found: set[int] = set()
        await self._collect(path, found)
        return found

    async def _collect(self, path: str, named: set[int]) -> None:
        """Walks down to the records: the first node with a value on the way is a managed ledger's."""
        for child in await self._metadata.children(path):
            below = f"{path}/{child}"
            node = await self._metadata.get(below)
            if node is None:
                continue
            if not node.value:
                await self._collect(below, named)
            else:
                await self._collect_of(below, node.value, named)

    async def _collect_of(self, path: str, value: bytes, named: set[int]) -> None:
        named.update(s.ledger_id for s in decode_managed_ledger(value, path).ledgers)
        for cursor in await self._metadata.children(path):
            record = await self._metadata.get(f"{path}/{cursor}")
            if record is not None and record.value:
                found = decode_cursor(record.value, record.path)
                named.add(found.ledger_id)
                named.update(ledgers_named(found.cursor_properties))

    async def named_by(self, managed_ledger: str) -> set[int]:
        """What one managed ledger and its cursors name now. :raises MetadataDamaged: it cannot be read"""
        found: set[int] = set()
        path = f"{ROOT}/{managed_ledger}"
        node = await self._metadata.get(path)
        if node is not None and node.value:
            await self._collect_of(path, node.value, found)
        return found

    async def is_compacted(self, ledger_id: int, topic: str, *, written: bool = False) -> bool:
        """Whether a topic's compaction names a ledger, as far as it is stored.

        What a cursor in this process has in memory may not be stored yet: then a crash needs the other one.

        :param written: the cursor may be written by another process: then so is what it names, unless all of
            its states are in the metadata, or in a ledger that is closed
        """
        path = f"{ROOT}/{TopicName.parse(topic).path}/{encode_path_piece(COMPACTION_CURSOR)}"
        gone_at: int | None = None
        while (node := await self._metadata.get(path)) is not None:
            record = decode_cursor(node.value, path)
            if record.ledger_id < 0 or node.version == gone_at:
                # It has no ledger, or has lost it: then it goes on from here, too.
                return ledger_id in owned_ledgers(record.properties)
            if written and await self._may_have_more(record.ledger_id):
                # Of an open ledger the last state is not known to those who only read.
                return True
            properties = await stored_properties(self._store, record.ledger_id, path)
            if properties is not None:
                return ledger_id in owned_ledgers(properties)
            # The cursor has gone on in another ledger, if its record is another one now.
            gone_at = node.version
        return False

    async def _may_have_more(self, ledger_id: int) -> bool:
        try:
            reader = await self._store.open(ledger_id, recover=False)
        except NoSuchLedger:
            return False
        state = reader.metadata.state
        reader.close()
        return state is not LedgerState.CLOSED


class OrphanSearch:
    """Where ledgers of others are, too, and brokers serve meanwhile.

    Only a ledger that says for whom it was made, and when, is taken for an orphan.

    :param of_schemas: the ledgers that schemas name now
    :param of_packages: likewise of packages
    """

    def __init__(
        self,
        store: LedgerStore,
        metadata: MetadataStore,
        of_schemas: Callable[[], Awaitable[Collection[int]]],
        of_packages: Callable[[], Awaitable[Collection[int]]],
    ) -> None:
        self._store = store
        self._named = NamedLedgers(store, metadata)
        self._of_schemas = of_schemas
        self._of_packages = of_packages

    async def find(self, candidates: Sequence[int], made_before_ms: int) -> list[LedgerMetadata]:
        """
        :param candidates: the ledgers there were before this was asked
        :param made_before_ms: what is younger may be named any moment
        :raises MetadataDamaged: a record cannot be read; nobody knows what it names
        :raises LedgerError: a ledger cannot be looked at
        """
        of_others = (*await self._of_schemas(), *await self._of_packages())
        named = {*await self._named.collect(), *of_others}
        found = []
        for ledger_id in candidates:
            metadata = None if ledger_id in named else await self._look(ledger_id)
            if metadata is None or not 0 < metadata.ctime_ms < made_before_ms:
                continue
            if await self.is_orphan(metadata):
                found.append(metadata)
        return found

    async def _look(self, ledger_id: int) -> LedgerMetadata | None:
        try:
            reader = await self._store.open(ledger_id, recover=False)
        except NoSuchLedger:
            return None
        reader.close()
        return reader.metadata

    async def is_orphan(self, metadata: LedgerMetadata) -> bool:
        """Whether a ledger says what it was made for and nothing names it; raises as :meth:`find` does."""
        ledger_id, told = metadata.ledger_id, _texts(metadata)
        if told.get("application") != "pulsar":
            return False
        if (name := told.get(_MANAGED_LEDGER)) is not None:
            named: Collection[int] = await self._named.named_by(name)
        elif _SCHEMA in told:
            named = await self._of_schemas()
        elif _PACKAGE in told:
            named = await self._of_packages()
        elif (topic := told.get(COMPACTED_TOPIC)) is not None:
            return not await self._named.is_compacted(ledger_id, topic, written=True)
        else:
            return False
        return ledger_id not in named
