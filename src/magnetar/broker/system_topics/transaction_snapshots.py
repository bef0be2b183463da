"""Snapshots of transaction buffers, stored like Apache Pulsar's in system topics of each namespace.

The latest record of a key is valid; the topics are compacted. Depending on the settings, a snapshot is either
one record, or several: segments of aborted transactions, which do not change, and one record with the
segments and the transactions that are in no segment. Both forms can be read under any settings.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from magnetar.broker.schemas.data import SchemaData, SchemaType, version_bytes
from magnetar.broker.serving.topics import ServedTopics
from magnetar.broker.system_topics import transaction_records as records
from magnetar.broker.system_topics.transaction_records import (
    INDEXES,
    SEGMENTS,
    SNAPSHOTS,
    SnapshotIndex,
    SnapshotSegment,
)
from magnetar.broker.topics.any_topic import persistent
from magnetar.broker.topics.within import TopicWriter, read_on
from magnetar.broker.transactions import TransactionSettings, TxnId, txn_text
from magnetar.broker.transactions.buffer import BufferSnapshot, Json, SnapshotStore
from magnetar.errors import NotAllowed, ServiceNotReady, TopicNotFound
from magnetar.io.locks import Mutex
from magnetar.io.waiting import settle
from magnetar.ledger.interface import EntryRun, LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.managed_ledger.position import EARLIEST, Position, format_position
from magnetar.managed_ledger.records import ROOT
from magnetar.metadata.following import MetadataCache
from magnetar.metadata.interface import MetadataError, MetadataStore
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import Domain, TopicName
from magnetar.protocol.errors import EntryError, ProtocolError
from magnetar.protocol.metadata import parse_entry

if TYPE_CHECKING:
    from magnetar.client.client import Client
    from magnetar.client.producer import Producer
    from magnetar.client.reader import Reader

log = logging.getLogger(__name__)

R = TypeVar("R")

_MAX_KNOWN = 100_000
_READ_ENTRIES = 100
_FRAME = 10 * 1024
"""The part of ``maxMessageSize``, in bytes, that is reserved for the metadata and the frame of a message."""
_BYTES_OF_ID = 3
"""The size of one transaction id in a segment as Apache Pulsar counts it, in bytes."""


class SystemTopic(ABC):
    """A system topic with the snapshots of a namespace; this or another broker serves the topic."""

    @abstractmethod
    async def read(self, after: Position, take: Callable[[bytes], None]) -> Position:
        """Passes the entries after a position to ``take``; returns the last position read.

        :raises BrokerError: the topic cannot be read now
        :raises LedgerError: the topic cannot be read now
        """

    @abstractmethod
    async def append(self, key: str, payload: bytes | None, version: bytes) -> Position:
        """Stores a record, after creating the topic if it is missing; returns the record's position.

        :raises BrokerError: the record cannot be stored now
        """


class _Here(SystemTopic):
    """A topic that this broker serves; a standalone broker serves all topics."""

    def __init__(self, topics: ServedTopics, name: TopicName, producer: str) -> None:
        self._topics = topics
        self._name = name
        self._producer = producer
        self._sequence_id = 0

    async def read(self, after: Position, take: Callable[[bytes], None]) -> Position:
        topic = persistent(await self._topics.load(self._name, create=False))

        def take_run(run: EntryRun) -> None:
            for index in range(run.count):
                take(run.entry(index))

        return await read_on(topic, after, take_run)

    async def append(self, key: str, payload: bytes | None, version: bytes) -> Position:
        topic = persistent(await self._topics.create_topic(self._name))
        number, now = self._sequence_id, self._topics.io.clock.wall_ms()
        self._sequence_id += 1
        entry = records.record_entry(key, payload, self._producer, number, now, version)
        return await TopicWriter(topic, self._producer).append(entry, number)


class _Anywhere(SystemTopic):
    """A topic that any broker of the cluster may serve, accessed by this broker's own client."""

    def __init__(self, topics: ServedTopics, name: TopicName, client: Callable[[], Client]) -> None:
        self._topics = topics
        self._name = str(name)
        self._client = client
        self._reader: Reader | None = None
        self._producer: Producer | None = None
        self._sequence_id = 0

    async def read(self, after: Position, take: Callable[[bytes], None]) -> Position:
        from magnetar.client.exceptions import PulsarException
        from magnetar.client.message_id import MessageId

        try:
            if self._reader is None:
                self._reader = await self._client().create_reader(
                    self._name,
                    MessageId(-1, after[0], after[1], -1) if after != EARLIEST else MessageId.earliest,
                    is_read_compacted=True,
                    reader_name=self._topics.settings.broker_id,
                )
            while await self._reader.has_message_available():
                for entry in await self._reader.read_entries(_READ_ENTRIES):
                    take(entry.data)
                    after = (entry.ledger_id, entry.entry_id)
        except PulsarException as error:
            self._reader = None
            raise ServiceNotReady(f"{self._name} cannot be read: {error}") from error
        return after

    async def append(self, key: str, payload: bytes | None, version: bytes) -> Position:
        from magnetar.client.exceptions import PulsarException
        from magnetar.client.outgoing_message import PreparedEntry
        from magnetar.client.producer import Producer

        try:
            if self._producer is None:
                made = await self._client().create_producer(self._name, batching_enabled=False)
                if not isinstance(made, Producer):
                    raise ServiceNotReady(
                        f"{self._name} is partitioned, but must not be: delete it, and it is created again"
                    )
                self._producer, self._sequence_id = made, made.last_sequence_id() + 1
            producer = self._producer
        except PulsarException as error:
            raise ServiceNotReady(f"{self._name} cannot be written: {error}") from error
        entry = parse_entry(records.record_entry(key, payload, "", 0, 0, version))
        metadata = entry.metadata
        for field in ("producer_name", "sequence_id", "publish_time"):
            metadata.ClearField(field)
        number = self._sequence_id
        self._sequence_id += 1
        prepared = PreparedEntry(number, number, 1, metadata.SerializePartialToString(), bytes(entry.payload))
        done = self._topics.io.loop.create_future()
        producer.enqueue_prepared(prepared, lambda stored, error: settle(done, (stored, error)))
        stored, failure = await done
        if failure is not None:
            self._producer = None
            raise ServiceNotReady(f"{self._name} cannot be written: {failure}") from failure
        return stored.ledger_id(), stored.entry_id()


class _Records(Generic[R]):
    """The records of one system topic: the latest record of each key, as far as the topic was read."""

    def __init__(
        self,
        topics: ServedTopics,
        name: TopicName,
        where: SystemTopic,
        decode: Callable[[bytes], R],
        largest: int,
    ) -> None:
        self._topics = topics
        self._name = name
        self._where = where
        self._decode = decode
        self._largest = largest
        self._mutex = Mutex(topics.io.loop)
        """Locked while records are read."""
        self._position: Position = EARLIEST
        self._version = b""
        """The version of the records' schema; empty: this broker has not registered the schema yet."""
        self.known: dict[str, R] = {}

    async def read(self) -> dict[str, R]:
        """Reads to the end of the topic, and returns the latest record of each key.

        :raises BrokerError: the topic cannot be read now
        :raises LedgerError: the topic cannot be read now
        """
        async with self._mutex:
            try:
                self._position = await self._where.read(self._position, self._apply)
            except TopicNotFound:
                # An operator has deleted it.
                self.known, self._position = {}, EARLIEST
        return self.known

    def _apply(self, entry: bytes) -> None:
        try:
            for key, payload in records.records_of(entry, self._largest):
                if payload:
                    self.known[key] = self._decode(payload)
                else:
                    self.known.pop(key, None)
        except (ProtocolError, EntryError) as error:
            # Any client that may publish there can write anything: what is not a record changes nothing.
            log.warning(
                "message ignored: it is not a record of transactions",
                extra={"topic": str(self._name), "error": str(error)},
            )

    async def append(self, key: str, payload: bytes | None) -> Position:
        """Stores a record; returns its position.

        :raises NotAllowed: the record is larger than ``maxMessageSize``
        :raises BrokerError: the record cannot be stored now
        """
        if payload is not None and len(payload) > self._largest:
            raise NotAllowed(
                f"The state of transactions of {key} takes {len(payload)} bytes, more than maxMessageSize "
                "permits: set transactionBufferSegmentedSnapshotEnabled=true"
            )
        if not self._version:
            definition = records.definition(self._name.local)
            schema = SchemaData(SchemaType.AVRO, definition.encode(), dict(records.SCHEMA_PROPERTIES))
            strategy = (
                await self._topics.policies.of_namespace(self._name.namespace_name)
            ).schema_compatibility
            version = await self._topics.schemas.put_if_absent(self._name.schema_path, schema, strategy)
            self._version = version_bytes(version)
        return await self._where.append(key, payload, self._version)


class _OfNamespace:
    """The state of the transactions of a namespace's topics."""

    def __init__(
        self,
        snapshots: _Records[BufferSnapshot],
        indexes: _Records[SnapshotIndex],
        segments: _Records[SnapshotSegment],
        capacity: Callable[[str], int],
        wall_ms: Callable[[], int],
    ) -> None:
        self.snapshots = snapshots
        self.indexes = indexes
        self.segments = segments
        self._capacity = capacity
        self._wall_ms = wall_ms
        self._sealed: dict[str, list[SnapshotSegment]] = {}
        """The stored segments of each loaded topic, by the topic's name."""
        self._sealed_ms: dict[str, int] = {}
        """The time when this broker last stored a segment of a topic, in ms since 1970, by the topic's
        name."""

    async def load_whole(self, topic: str) -> BufferSnapshot | None:
        return (await self.snapshots.read()).get(topic)

    async def load_segmented(self, topic: str) -> BufferSnapshot | None:
        index = (await self.indexes.read()).get(topic)
        if index is None:
            return None
        known = await self.segments.read() if index.segments else {}
        aborted: dict[TxnId, Position] = {}
        sealed = self._sealed[topic] = []
        for each in index.segments:
            segment = known.get(records.segment_key(topic, each.number))
            if segment is None:
                # The ledgers that it is about are deleted, and so is the segment.
                continue
            sealed.append(SnapshotSegment(each.number, segment.ids, segment.last_marker, each.stored_at))
            aborted |= dict.fromkeys(segment.ids, segment.last_marker)
        # The markers of the others are not known, but at the latest there.
        aborted |= dict.fromkeys(index.ids, index.max_read)
        return BufferSnapshot(index.max_read, aborted)

    async def store_segmented(self, topic: str, snapshot: BufferSnapshot) -> None:
        """Stores the snapshot of a topic: first new full segments, then the index; then deletes segments that
        are no longer needed."""
        sealed = self._sealed.setdefault(topic, [])
        gone = [each for each in sealed if not any(txn in snapshot.aborted for txn in each.ids)]
        known = {txn for each in sealed for txn in each.ids}
        rest = [txn for txn in snapshot.aborted if txn not in known]
        capacity = self._capacity(topic)
        while len(rest) >= capacity:
            ids, rest = tuple(rest[:capacity]), rest[capacity:]
            number = sealed[-1].number + 1 if sealed else 0
            segment = SnapshotSegment(number, ids, max(snapshot.aborted[txn] for txn in ids))
            payload = records.encode_segment(topic, segment)
            at = await self.segments.append(records.segment_key(topic, number), payload)
            sealed.append(SnapshotSegment(number, ids, segment.last_marker, at))
            self._sealed_ms[topic] = self._wall_ms()
        left = tuple(each for each in sealed if each not in gone)
        index = SnapshotIndex(left, snapshot.max_read, tuple(rest))
        await self.indexes.append(topic, records.encode_index(topic, index))
        for each in gone:
            await self.segments.append(records.segment_key(topic, each.number), None)
            sealed.remove(each)

    def described(self, topic: str, aborted: Collection[TxnId], *, each: bool) -> Json:
        sealed = self._sealed.get(topic, [])
        stats: Json = {
            "segmentsSize": len(sealed),
            "currentSegmentCapacity": self._capacity(topic),
            "unsealedAbortTxnIDSize": len(aborted) - sum(len(segment.ids) for segment in sealed),
            "lastTookSnapshotSegmentTimestamp": self._sealed_ms.get(topic, 0),
        }
        if each:
            stats["segmentStats"] = [
                {
                    "lastTxnID": txn_text(segment.ids[-1]),
                    "persistentPosition": format_position(segment.last_marker),
                }
                for segment in sealed
            ]
        return stats

    async def delete(self, topic: str) -> None:
        self._sealed_ms.pop(topic, None)
        for number in [each.number for each in self._sealed.pop(topic, ())]:
            await self.segments.append(records.segment_key(topic, number), None)
        await self.indexes.append(topic, None)


class TransactionSnapshots(SnapshotStore):
    """The snapshots of all topics that this broker serves."""

    def __init__(
        self,
        topics: ServedTopics,
        metadata: MetadataStore,
        settings: TransactionSettings,
        producer: Callable[[], str],
        client: Callable[[], Client] | None,
        max_message_size: int,
    ) -> None:
        """:param producer: returns a new name for a producer

        :param client: returns a client that may use all system topics; None: this broker serves all topics
        """
        self._topics = topics
        self._settings = settings
        self._producer = producer
        self._make_client = client
        self._client: Client | None = None
        self._largest = max_message_size - _FRAME
        self._known: dict[NamespaceName, _OfNamespace] = {}
        # Of system topics, not of topics: the cache grows with the number of namespaces.
        self._stored = MetadataCache(metadata, ROOT, metadata.exists, most=_MAX_KNOWN)

    async def close(self) -> None:
        """Closes the client's connections to other brokers."""
        if self._client is not None:
            from magnetar.client.exceptions import PulsarException

            try:
                await self._client.close()
            except PulsarException as error:
                log.warning("cannot close the readers of snapshots", extra={"error": str(error)})

    async def load(self, topic: TopicName) -> BufferSnapshot | None:
        """Returns a topic's latest snapshot; None if the topic has never had transactions.

        :raises BrokerError: the snapshots of the namespace cannot be read now
        :raises LedgerError: the snapshots of the namespace cannot be read now
        """
        found: list[BufferSnapshot | None] = []
        if await self._exists(topic.namespace_name, SNAPSHOTS):
            found.append(await self._of(topic).load_whole(str(topic)))
        if await self._exists(topic.namespace_name, INDEXES):
            found.append(await self._of(topic).load_segmented(str(topic)))
        # Only one of them is newer than the last change of the settings.
        return max((each for each in found if each is not None), key=lambda each: each.max_read, default=None)

    async def _exists(self, namespace: NamespaceName, kind: str) -> bool:
        return await self._stored.get(f"{ROOT}/{_system_topic(namespace, kind).path}")

    def _of(self, topic: TopicName) -> _OfNamespace:
        namespace = topic.namespace_name
        state = self._known.get(namespace)
        if state is None:
            state = self._known[namespace] = _OfNamespace(
                self._records(namespace, SNAPSHOTS, records.decode_snapshot),
                self._records(namespace, INDEXES, records.decode_index),
                self._records(namespace, SEGMENTS, records.decode_segment),
                lambda name: max(1, (self._settings.segment_bytes - len(name) - 8) // _BYTES_OF_ID),
                self._topics.io.clock.wall_ms,
            )
        return state

    def _records(self, namespace: NamespaceName, kind: str, decode: Callable[[bytes], R]) -> _Records[R]:
        name = _system_topic(namespace, kind)
        where: SystemTopic
        make = self._make_client
        if make is None:
            where = _Here(self._topics, name, self._producer())
        else:
            where = _Anywhere(self._topics, name, lambda: self._connected(make))
        return _Records(self._topics, name, where, decode, self._largest)

    def _connected(self, make: Callable[[], Client]) -> Client:
        if self._client is None:
            self._client = make()
        return self._client

    async def store(self, topic: TopicName, snapshot: BufferSnapshot) -> None:
        """Stores the snapshot of a topic.

        :raises NotAllowed: the snapshot is larger than ``maxMessageSize``
        :raises BrokerError: the snapshot cannot be stored now
        """
        state = self._of(topic)
        try:
            if self._settings.segmented_snapshots:
                await state.store_segmented(str(topic), snapshot)
                self._appeared(topic.namespace_name, INDEXES)
                self._appeared(topic.namespace_name, SEGMENTS)
            else:
                await state.snapshots.append(str(topic), records.encode_snapshot(str(topic), snapshot))
                self._appeared(topic.namespace_name, SNAPSHOTS)
        except (LedgerError, ManagedLedgerError, MetadataError) as error:
            raise ServiceNotReady(f"The state of transactions cannot be stored now: {error}") from error

    def _appeared(self, namespace: NamespaceName, kind: str) -> None:
        self._stored.forget(f"{ROOT}/{_system_topic(namespace, kind).path}")

    async def delete(self, topic: TopicName) -> None:
        """Deletes the snapshots of a deleted topic.

        :raises BrokerError: a topic with snapshots cannot be written now
        """
        name, namespace = str(topic), topic.namespace_name
        state = self._of(topic)
        if await self._exists(namespace, SNAPSHOTS) and await state.load_whole(name) is not None:
            await state.snapshots.append(name, None)
        if await self._exists(namespace, INDEXES) and await state.load_segmented(name) is not None:
            await state.delete(name)

    def system_topics(self, namespace: NamespaceName) -> Mapping[str, TopicName]:
        """Returns the topics to which new snapshots are written, by their fields in
        ``TransactionBufferInternalStats``."""
        if not self._settings.segmented_snapshots:
            return {"singleSnapshotSystemTopicInternalStats": _system_topic(namespace, SNAPSHOTS)}
        return {
            "segmentInternalStats": _system_topic(namespace, SEGMENTS),
            "segmentIndexInternalStats": _system_topic(namespace, INDEXES),
        }

    def segments(self, topic: TopicName, aborted: Collection[TxnId], *, each: bool) -> Json | None:
        """Returns ``SegmentsStats`` of a loaded topic; None if its snapshots are not segmented."""
        if not self._settings.segmented_snapshots:
            return None
        return self._of(topic).described(str(topic), aborted, each=each)

    def forget(self, namespace: NamespaceName) -> None:
        """Drops the state of a deleted namespace."""
        self._known.pop(namespace, None)
        for kind in (SNAPSHOTS, INDEXES, SEGMENTS):
            self._appeared(namespace, kind)


def _system_topic(namespace: NamespaceName, kind: str) -> TopicName:
    return TopicName(Domain.PERSISTENT, namespace, kind)
