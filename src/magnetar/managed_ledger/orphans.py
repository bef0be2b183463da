"""Orphaned ledgers, which no record names because of a crash between their creation and listing.

A broker with an embedded store first sets them aside, which means that it records them in the metadata store,
and deletes them when their retention has passed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import NamedTuple

from magnetar.io.interfaces import Clock
from magnetar.ledger.interface import LedgerMetadata, LedgerState, LedgerStore, NoSuchLedger
from magnetar.ledger.journal.records import COMPONENT
from magnetar.managed_ledger.records import ROOT, decode_cursor, decode_managed_ledger, decode_position
from magnetar.managed_ledger.side_ledgers import COMPACTION_CURSOR, ledgers_named, owned_ledgers
from magnetar.metadata.interface import MetadataStore, NodeMissing
from magnetar.naming.topic_name import TopicName, encode_path_piece

_MANAGED_LEDGER = "pulsar/managed-ledger"
_CURSOR = "pulsar/cursor"
COMPACTED_TOPIC = "pulsar/compactedTopic"
"""The key in the custom metadata of a compacted ledger for the name of its topic."""
_SCHEMA = "pulsar/schemaId"
_PACKAGE = "magnetar/package"
_OTHERS = {_SCHEMA: "schema of", _PACKAGE: "package", COMPACTED_TOPIC: "compacted topic"}
"""By custom metadata key: the name, in log messages, of a kind of object with ledgers that is neither a topic
nor a cursor.
"""
log = logging.getLogger(__name__)
SET_ASIDE_ROOT = "/magnetar/orphaned-ledgers"
"""The parent of one node for each ledger that was set aside; the node's name is the id, its value a JSON
object."""
_REASON = "no metadata record of a topic, subscription, schema or package refers to it"


def owner_of(metadata: LedgerMetadata) -> str:
    """Returns a description, for log messages, of the object for which a ledger was created."""
    told = _texts(metadata)
    if (name := told.get(_MANAGED_LEDGER)) is not None:
        return f"subscription {told[_CURSOR]} of {name}" if _CURSOR in told else f"topic {name}"
    for key, kind in _OTHERS.items():
        if key in told:
            return f"{kind} {told[key]}"
    return "unknown"


def _texts(metadata: LedgerMetadata) -> dict[str, str]:
    """Returns a ledger's custom metadata, with the values as strings."""
    return {key: value.decode("utf-8", "replace") for key, value in metadata.custom.items()}


class NamedLedgers:
    """The ledgers named by records of managed ledgers and cursors, including records that Apache Pulsar
    wrote.
    """

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
        """Walks down to the records: the first node with a value on a path is the record of a managed
        ledger."""
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
        for summary in decode_managed_ledger(value, path).ledgers:
            # A crash may have come before the deletion of the local copy of an offloaded ledger.
            if summary.offload is None or not summary.offload.local_deleted:
                named.add(summary.ledger_id)
        for cursor in await self._metadata.children(path):
            record = await self._metadata.get(f"{path}/{cursor}")
            if record is not None and record.value:
                found = decode_cursor(record.value, record.path)
                named.add(found.ledger_id)
                named.update(ledgers_named(found.cursor_properties))

    async def named_by(self, managed_ledger: str) -> set[int]:
        """Returns the ledgers that the records of one managed ledger and its cursors name now.

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

        Ignores this process's state in memory: it may not be stored yet, and after a crash the stored state's
        ledger is needed.

        :param written: whether another process may be writing the compaction's cursor. If so, the result is
            also True while the ledger with the cursor's states is open, because its last state is unknown
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
    """Searches for orphans in a store that other systems also use, while brokers serve.

    Only a ledger whose metadata gives its purpose and its time of creation can count as an orphan.

    :param of_schemas: returns the ledgers that schemas name now
    :param of_packages: returns the ledgers that packages name now
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
        """Returns the candidates that are orphans.

        :param candidates: the ledgers that existed before this call
        :param made_before_ms: ledgers created later are left out, because a record may name them at any
            moment
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
        """Whether the metadata of a ledger gives its purpose and no record names it; raises as :meth:`find`
        does."""
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


class SetAside(NamedTuple):
    """An orphaned ledger that was set aside and still exists."""

    ledger_id: int
    found_ms: int
    """The time when the ledger was set aside, in ms since 1970."""
    owner: str
    """A description, for log messages, of the topic, subscription or other object that the ledger was created
    for.
    """
    made_ms: int
    entries: int
    bytes: int


class OrphanedLedgers:
    """Finds orphaned ledgers if the ledger store belongs to this process alone.

    A crash between creating a ledger and naming it leaves an orphan. But if the metadata is lost, or restored
    from an old copy, ledgers whose messages were confirmed to producers look the same. The broker cannot
    distinguish the two cases, so it gives the operator time to intervene.
    """

    def __init__(self, clock: Clock, store: LedgerStore, metadata: MetadataStore, retention_ms: int) -> None:
        """:param retention_ms: how long an orphaned ledger is kept"""
        self._clock = clock
        self._store = store
        self._metadata = metadata
        self.retention_ms = retention_ms
        self.known: list[SetAside] = []
        """The ledgers that were set aside at the last search."""

    async def look(self, candidates: Sequence[int], named: Collection[int] = ()) -> int:
        """Sets aside candidates that no record names; deletes ledgers set aside longer than the retention.

        May run while topics are served.

        :param candidates: the ledgers that existed at the start, before any managed ledger was opened,
            because later ledgers may not be listed yet
        :param named: ledgers to keep, because objects other than managed ledgers and cursors need them
        :return: how many ledgers were deleted
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
        """Returns the seconds until the retention of the first ledger has passed; None if no ledger is set
        aside."""
        if not self.known:
            return None
        due_ms = min(orphan.found_ms for orphan in self.known) + self.retention_ms
        return max(0.0, (due_ms - self._clock.wall_ms()) / 1000)

    async def _noted(self) -> dict[int, SetAside]:
        found: dict[int, SetAside] = {}
        for name in await self._metadata.children(SET_ASIDE_ROOT):
            node = await self._metadata.get(f"{SET_ASIDE_ROOT}/{name}")
            if node is not None and name.isascii() and name.isdigit():
                found[int(name)] = _decoded(int(name), node.value, node.created_ms)
        return found

    async def _unnamed(self, names: NamedLedgers, ledger_id: int) -> LedgerMetadata | None:
        """Returns the metadata of an orphan; None if the ledger was deleted, needs no record, or is named by
        a record.
        """
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
        await self._metadata.put(f"{SET_ASIDE_ROOT}/{orphan.ledger_id}", _encoded(orphan))
        log.warning("set an orphaned ledger aside", extra=_fields(orphan))
        return orphan

    async def _forget(self, ledger_id: int) -> None:
        try:
            await self._metadata.delete(f"{SET_ASIDE_ROOT}/{ledger_id}")
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
    """Returns a ledger that was set aside; the time in a damaged note is replaced by ``created_ms``."""
    try:
        fields = json.loads(value)
        numbers = [int(fields[name]) for name in ("foundMs", "madeMs", "entries", "bytes")]
        owner = str(fields["owner"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return SetAside(ledger_id, created_ms, "unknown", 0, 0, 0)
    return SetAside(ledger_id, numbers[0], owner, *numbers[1:])


async def stored_properties(store: LedgerStore, ledger_id: int, path: str) -> dict[str, int] | None:
    """Returns the properties in the newest state in a cursor's ledger, without owning the cursor; None if the
    ledger does not exist.

    The ledger is not fenced. A ledger without a state has no properties.

    :raises LedgerError: the ledger cannot be read
    """
    try:
        reader = await store.open(ledger_id, recover=False)
    except NoSuchLedger:
        return None
    try:
        last = await reader.last_add_confirmed()
        runs = await reader.read(last, last, 1) if last >= 0 else []
    except NoSuchLedger:
        return None
    finally:
        reader.close()
    return decode_position(runs[0].entry(0), f"{path} ledger {ledger_id}:{last}")[1] if runs else {}
