"""Orphaned ledgers, which no record names: left by a crash between their creation and listing."""

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
"""Key in the custom metadata of a compacted ledger: its topic."""
_SCHEMA = "pulsar/schemaId"
_PACKAGE = "magnetar/package"
_OTHERS = {_SCHEMA: "schema of", _PACKAGE: "package", COMPACTED_TOPIC: "compacted topic"}
"""The other purposes of ledgers, for display."""


def owner_of(metadata: LedgerMetadata) -> str:
    """Returns what a ledger was created for according to its metadata, for display."""
    told = _texts(metadata)
    if (name := told.get(_MANAGED_LEDGER)) is not None:
        return f"subscription {told[_CURSOR]} of {name}" if _CURSOR in told else f"topic {name}"
    for key, kind in _OTHERS.items():
        if key in told:
            return f"{kind} {told[key]}"
    return "unknown"


def _texts(metadata: LedgerMetadata) -> dict[str, str]:
    """Returns a ledger's custom metadata as texts."""
    return {key: value.decode("utf-8", "replace") for key, value in metadata.custom.items()}


class NamedLedgers:
    """The ledgers named by records of managed ledgers and cursors, also Apache Pulsar's."""

    def __init__(self, store: LedgerStore, metadata: MetadataStore) -> None:
        self._store = store
        self._metadata = metadata

    async def collect(self, path: str = ROOT) -> set[int]:
        """Returns all ledgers named below a path.

        :raises MetadataDamaged: a record cannot be parsed
        """
        found: set[int] = set()
        await self._collect(path, found)
        return found

    async def _collect(self, path: str, named: set[int]) -> None:
        """Walks down to the records: the first node with a value on a path is that of a managed ledger."""
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
        """Returns the ledgers that one managed ledger and its cursors name now.

        :raises MetadataDamaged: a record cannot be parsed
        """
        found: set[int] = set()
        path = f"{ROOT}/{managed_ledger}"
        node = await self._metadata.get(path)
        if node is not None and node.value:
            await self._collect_of(path, node.value, found)
        return found

    async def is_compacted(self, ledger_id: int, topic: str, *, written: bool = False) -> bool:
        """Whether the stored state of a topic's compaction names a ledger.

        The state in memory of this process may not be stored yet: after a crash the former ledger is needed.

        :param written: another process may be writing the cursor: then the answer is true unless its states
            are all in the metadata, or in a closed ledger
        """
        path = f"{ROOT}/{TopicName.parse(topic).path}/{encode_path_piece(COMPACTION_CURSOR)}"
        gone_at: int | None = None
        while (node := await self._metadata.get(path)) is not None:
            record = decode_cursor(node.value, path)
            if record.ledger_id < 0 or node.version == gone_at:
                # Without a ledger, or with a lost one, the cursor starts from the record.
                return ledger_id in owned_ledgers(record.properties)
            if written and await self._may_have_more(record.ledger_id):
                # The last state in an open ledger is not known to other readers.
                return True
            properties = await stored_properties(self._store, record.ledger_id, path)
            if properties is not None:
                return ledger_id in owned_ledgers(properties)
            # If the record has changed, the cursor has a new ledger.
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
    """Searches for orphans in a store with ledgers of other systems, while brokers serve.

    Only a ledger that says what it was created for, and when, can count as an orphan.

    :param of_schemas: returns the ledgers that schemas name now
    :param of_packages: the same for packages
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
        """Returns those of the candidates that are orphans.

        :param candidates: the ledgers that existed before this call
        :param made_before_ms: younger ledgers are left out, as they may be named at any moment
        :raises MetadataDamaged: a record cannot be parsed, so that the ledgers it names are unknown
        :raises LedgerError: the metadata of a ledger cannot be read
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
        """Whether a ledger says what it is for and no record names it; raises as :meth:`find` does."""
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
