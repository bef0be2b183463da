"""The stores of an export's source and target, and the stored state of a topic in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from magnetar.broker.service import BrokerService
from magnetar.io.interfaces import Io
from magnetar.io.wheel import TimerWheel
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.interface import LedgerStore
from magnetar.managed_ledger.acknowledged import AcknowledgedState
from magnetar.managed_ledger.current_ledger import custom_metadata
from magnetar.managed_ledger.cursor_storage import CursorStorage
from magnetar.managed_ledger.factory import ManagedLedgerFactory
from magnetar.managed_ledger.orphans import stored_properties
from magnetar.managed_ledger.records import (
    ROOT,
    LedgerSizes,
    ManagedLedgerRecord,
    decode_cursor,
    decode_managed_ledger,
)
from magnetar.managed_ledger.settings import ManagedLedgerSettings
from magnetar.managed_ledger.side_ledgers import COMPACTED_LEDGER, COMPACTION_CURSOR, owned_ledgers
from magnetar.metadata.interface import MetadataStore
from magnetar.naming.topic_name import TopicName, decode_path_piece

_BUCKETS = "#pulsar.internal.delayed.bucket"
"""The prefix of properties in which Apache Pulsar stores the ledgers of its delayed message index, which is
only a cache.
"""


@dataclass
class Unit:
    """A topic with all its partitions, which are exported together."""

    name: TopicName
    managed_ledgers: list[str] = field(default_factory=list)
    """The names of the topic's managed ledgers, in the order of the partitions."""

    @property
    def path(self) -> str:
        return self.name.path


@dataclass
class StoredCursor:
    piece: str
    """The name of the cursor, encoded as in metadata paths."""
    storage: CursorStorage
    state: AcknowledgedState

    @property
    def own_properties(self) -> dict[str, str]:
        """Returns the properties set by users."""
        found = self.storage.cursor_properties
        return {name: value for name, value in found.items() if not name.startswith(_BUCKETS)}

    @property
    def compacted_ledger(self) -> int | None:
        if decode_path_piece(self.piece) != COMPACTION_CURSOR:
            return None
        return self.storage.properties.get(COMPACTED_LEDGER)

    def ledgers(self) -> Sequence[int]:
        """Returns the ids of all ledgers of the cursor.

        The ledger with the cursor's state is last, because it contains the ids of the other ledgers.
        """
        found = {*self.storage.side.all, *owned_ledgers(self.storage.properties)}
        for name, value in self.storage.cursor_properties.items():
            if name.startswith(_BUCKETS) and value.isascii() and value.isdigit():
                found.add(int(value))
        found.discard(self.storage.ledger_id)
        last = self.storage.ledger_id
        return [*sorted(found), *([last] if last >= 0 else [])]


@dataclass
class ExportedTopic:
    """One managed ledger of an exported topic."""

    name: str
    version: int
    """The version of the managed ledger's record."""
    record: ManagedLedgerRecord
    cursors: list[StoredCursor] = field(default_factory=list)


def cursor_storage(
    side: OpenStores, store: LedgerStore, settings: ManagedLedgerSettings, name: str, piece: str
) -> CursorStorage:
    return CursorStorage(
        side.io,
        side.wheel,
        store,
        side.metadata,
        settings,
        f"{ROOT}/{name}/{piece}",
        custom_metadata(name, decode_path_piece(piece)),
        side.managed.deletions,
    )


async def managed_ledgers_of(side: OpenStores, topic: TopicName) -> list[str]:
    """Returns the names of a topic's managed ledgers, including those of its partitions, in order."""
    below = f"{topic.namespace_name.path}/{topic.domain.value}"
    found = []
    for piece in await side.metadata.children(f"{ROOT}/{below}"):
        name = TopicName(topic.domain, topic.namespace_name, decode_path_piece(piece))
        if name.base == topic:
            found.append((name.partition_index, f"{below}/{piece}"))
    return [name for _index, name in sorted(found)]


async def read_record(side: OpenStores, name: str) -> ExportedTopic | None:
    """Returns a managed ledger with its record, but without cursors; None: the record does not exist.

    :raises MetadataDamaged: the record cannot be read
    """
    path = f"{ROOT}/{name}"
    node = await side.metadata.get(path)
    return (
        None if node is None else ExportedTopic(name, node.version, decode_managed_ledger(node.value, path))
    )


async def read_topic(side: OpenStores, name: str) -> ExportedTopic:
    """Returns a managed ledger with its record and all cursors; fences the writer of the last ledger, and
    closes this ledger.

    :raises NotExported: the topic no longer exists
    :raises ManagedLedgerError: a record cannot be read
    :raises LedgerError: a ledger cannot be read
    """
    topic = await read_record(side, name)
    if topic is None:
        raise NotExported(f"{name} was deleted in the meantime")
    await _close_last(side, topic.record)
    topic.cursors = await read_cursors(side, name, LedgerSizes(topic.record.ledgers))
    return topic


async def read_cursors(side: OpenStores, name: str, sizes: LedgerSizes) -> list[StoredCursor]:
    """Returns the cursors of a managed ledger.

    :param sizes: the numbers of entries in the managed ledger's ledgers
    """
    found = []
    for piece in await side.metadata.children(f"{ROOT}/{name}"):
        storage = cursor_storage(side, side.ledgers, side.managed.settings, name, piece)
        found.append(StoredCursor(piece, storage, await storage.recover(sizes)))
    return found


async def compacted_ledger_of(side: OpenStores, name: str) -> int | None:
    """Returns the id of a topic's compacted ledger, without fencing its writer; None: the topic has no
    compacted ledger.

    :raises ManagedLedgerError: the record of the compaction cursor cannot be read
    :raises LedgerError: the ledger with the cursor's state cannot be read
    """
    path = f"{ROOT}/{name}/{COMPACTION_CURSOR}"
    node = await side.metadata.get(path)
    if node is None:
        return None
    cursor = decode_cursor(node.value, path)
    properties: Mapping[str, int] | None = cursor.properties
    if cursor.ledger_id >= 0:
        properties = await stored_properties(side.ledgers, cursor.ledger_id, path)
    return (properties or {}).get(COMPACTED_LEDGER)


async def _close_last(side: OpenStores, record: ManagedLedgerRecord) -> None:
    """Closes the last ledger as a broker does when it opens a topic; updates ``record``, but not the stored
    record.
    """
    if not record.ledgers or record.ledgers[-1].closed_ms:
        return
    last = record.ledgers[-1]
    reader = await side.ledgers.open(last.ledger_id, recover=True)
    last.entries, last.size = reader.metadata.last_entry_id + 1, reader.metadata.length
    reader.close()
    if last.entries or record.terminated is not None:
        last.closed_ms = max(side.io.clock.wall_ms(), 1)
    elif len(record.ledgers) > 1:
        record.ledgers.pop()

    # A topic's only ledger stays in the record, because a record without ledgers is an empty node: a broker
    # that opens it finds that it has no entries.


def mapped_properties(properties: Mapping[str, int], ledgers: Mapping[int, int]) -> dict[str, int]:
    """Returns the properties of a cursor for the target: without Magnetar's own properties, and with the id
    of the copy instead of the id of a compacted ledger.
    """
    found = {name: value for name, value in properties.items() if not name.startswith("magnetar.")}
    if COMPACTED_LEDGER in found:
        found[COMPACTED_LEDGER] = ledgers[found[COMPACTED_LEDGER]]
    return found


class NotExported(Exception):
    """A topic or namespace cannot be exported; the message names it and gives the reason."""


@dataclass
class OpenStores:
    """The open stores of an export's source or target, without a broker that serves clients."""

    name: str
    """The name of the stores in texts for the user."""
    identity: str
    """A permanent unique id of the stores."""
    cluster: str
    io: Io
    wheel: TimerWheel
    metadata: MetadataStore
    managed: ManagedLedgerFactory
    broker: BrokerService
    """A broker that does not serve clients, for access to policies."""
    one_copy: bool
    """Whether each entry is stored once, regardless of the policies."""
    still_alone: Callable[[], None]
    """Checks that no broker serves; raises NotExported if a broker may serve the topics by now."""
    served_by: Sequence[str] = ()
    """Descriptions of running processes that must be stopped before an export; empty if they were excluded
    already.
    """
    bookies: str = ""
    """The id of the bookies, which is the same for all clusters that share them; empty: not shared."""

    @property
    def ledgers(self) -> LedgerStore:
        return self.managed.store
