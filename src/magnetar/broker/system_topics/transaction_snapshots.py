"""Snapshots of transaction buffers, in each namespace's topic ``__transaction_buffer_snapshot``.

Records and schema are Apache Pulsar's (PIP-160), so that its brokers go on with our topics, and this one with
theirs. The latest record with a topic's name as key counts; the topic is compacted.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import cache
from io import BytesIO
from struct import error as StructError
from typing import TYPE_CHECKING, Any, Protocol

from magnetar.broker.schemas.data import SchemaData, SchemaType, version_bytes
from magnetar.broker.serving.topics import ServedTopics
from magnetar.broker.topics.any_topic import persistent
from magnetar.broker.topics.within import TopicWriter, read_on
from magnetar.broker.transactions.buffer import Snapshot
from magnetar.errors import NotAllowed, ServiceNotReady
from magnetar.io.locks import Mutex
from magnetar.io.waiting import settle
from magnetar.ledger.interface import EntryRun
from magnetar.managed_ledger.position import EARLIEST, Position
from magnetar.managed_ledger.records import ROOT
from magnetar.metadata.following import MetadataCache
from magnetar.metadata.interface import MetadataStore
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import Domain, TopicName
from magnetar.protocol.compression import decompress
from magnetar.protocol.errors import EntryError, ProtocolError
from magnetar.protocol.metadata import build_entry, parse_entry, split_batch
from magnetar.protocol.pulsar_api_pb2 import CompressionType, MessageMetadata

if TYPE_CHECKING:
    from magnetar.client.client import Client
    from magnetar.client.producer import Producer
    from magnetar.client.reader import Reader

log = logging.getLogger(__name__)

SNAPSHOTS = "__transaction_buffer_snapshot"
SCHEMA_PROPERTIES = {"__alwaysAllowNull": "true", "__jsr310ConversionEnabled": "false"}
DEFINITION = json.dumps(
    {
        "type": "record",
        "name": "TransactionBufferSnapshot",
        "namespace": "org.apache.pulsar.broker.transaction.buffer.metadata",
        "fields": [
            {
                "name": "aborts",
                "type": [
                    "null",
                    {
                        "type": "array",
                        "items": {
                            "type": "record",
                            "name": "AbortTxnMetadata",
                            "fields": [
                                {"name": "entryId", "type": "long"},
                                {"name": "ledgerId", "type": "long"},
                                {"name": "txnIdLeastBits", "type": "long"},
                                {"name": "txnIdMostBits", "type": "long"},
                            ],
                        },
                        "java-class": "java.util.List",
                    },
                ],
                "default": None,
            },
            {"name": "maxReadPositionEntryId", "type": "long"},
            {"name": "maxReadPositionLedgerId", "type": "long"},
            {"name": "topicName", "type": ["null", "string"], "default": None},
        ],
    },
    separators=(",", ":"),
)
"""The schema as Apache Pulsar registers it, type AVRO."""
_MAX_KNOWN = 100_000
_READ_ENTRIES = 100
_FRAME = 10 * 1024
"""What metadata and frame take of the largest message."""


@cache
def _schema() -> Any:
    import fastavro

    return fastavro.parse_schema(json.loads(DEFINITION))


def encode_snapshot(topic: str, snapshot: Snapshot) -> bytes:
    """Returns the payload of a record."""
    import fastavro

    out = BytesIO()
    fastavro.schemaless_writer(
        out,
        _schema(),
        {
            "aborts": [
                {"entryId": at[1], "ledgerId": at[0], "txnIdLeastBits": txn[1], "txnIdMostBits": txn[0]}
                for txn, at in snapshot.aborted.items()
            ],
            "maxReadPositionEntryId": snapshot.max_read[1],
            "maxReadPositionLedgerId": snapshot.max_read[0],
            "topicName": topic,
        },
    )
    return out.getvalue()


def decode_snapshot(payload: bytes) -> Snapshot:
    """:raises EntryError: the payload is not such a record"""
    import fastavro

    try:
        found: Any = fastavro.schemaless_reader(BytesIO(payload), _schema(), None)
    except (ValueError, LookupError, EOFError, TypeError, OverflowError, MemoryError, StructError) as error:
        raise EntryError(f"not a snapshot of transactions: {error}") from error
    return Snapshot(
        (found["maxReadPositionLedgerId"], found["maxReadPositionEntryId"]),
        {
            (each["txnIdMostBits"], each["txnIdLeastBits"]): (each["ledgerId"], each["entryId"])
            for each in found["aborts"] or ()
        },
    )


def record_entry(
    topic: str, payload: bytes | None, producer: str, sequence_id: int, publish_time_ms: int, version: bytes
) -> bytes:
    """Returns a record as it is stored.

    :param payload: None: the topic was deleted
    """
    metadata = MessageMetadata(
        producer_name=producer,
        sequence_id=sequence_id,
        publish_time=publish_time_ms,
        partition_key=topic,
        partition_key_b64_encoded=False,
        uncompressed_size=len(payload or b""),
        schema_version=version,
    )
    if payload is None:
        metadata.null_value = True
    return build_entry(metadata, payload or b"")


def apply_record(known: dict[str, Snapshot], topic: str, entry: bytes, max_bytes: int) -> None:
    """Applies the records of an entry of the topic ``topic``; others leave a warning."""
    try:
        parsed = parse_entry(entry)
        metadata, payload = parsed.metadata, bytes(parsed.payload)
        if metadata.compression != CompressionType.NONE:
            payload = decompress(metadata.compression, payload, metadata.uncompressed_size, max_bytes)
        if metadata.HasField("num_messages_in_batch"):
            for message in split_batch(payload, metadata.num_messages_in_batch):
                single = message.metadata
                _apply(known, single.partition_key, bytes(message.payload), null=single.null_value)
        else:
            _apply(known, metadata.partition_key, payload, null=metadata.null_value)
    except (ProtocolError, EntryError) as error:
        log.warning(
            "message ignored: it is not a snapshot of transactions",
            extra={"topic": topic, "error": str(error)},
        )


def _apply(known: dict[str, Snapshot], key: str, payload: bytes, *, null: bool) -> None:
    if null or not payload:
        known.pop(key, None)
    else:
        known[key] = decode_snapshot(payload)


class SystemTopic(Protocol):
    """The topic with the snapshots of a namespace, wherever it is served."""

    async def read(self, after: Position, take: Callable[[bytes], None]) -> Position:
        """Passes the entries behind a position to ``take``; returns the last position read.

        :raises BrokerError: the topic cannot be read now
        :raises LedgerError: likewise
        """
        ...

    async def append(self, key: str, payload: bytes | None, version: bytes) -> None:
        """Stores a record; creates the topic if it is missing.

        :raises BrokerError: it cannot be stored now
        """
        ...


class _Here:
    """Served by this broker, as by every standalone one."""

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

    async def append(self, key: str, payload: bytes | None, version: bytes) -> None:
        topic = persistent(await self._topics.create_topic(self._name))
        number, now = self._sequence_id, self._topics.io.clock.wall_ms()
        self._sequence_id += 1
        entry = record_entry(key, payload, self._producer, number, now, version)
        await TopicWriter(topic, self._producer).append(entry, number)


class _Anywhere:
    """Served by any broker of the cluster, which the broker's own client finds."""

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

    async def append(self, key: str, payload: bytes | None, version: bytes) -> None:
        from magnetar.client.exceptions import PulsarException
        from magnetar.client.outgoing_message import PreparedEntry
        from magnetar.client.producer import Producer

        try:
            if self._producer is None:
                made = await self._client().create_producer(self._name, batching_enabled=False)
                assert isinstance(made, Producer)
                self._producer, self._sequence_id = made, made.last_sequence_id() + 1
            producer = self._producer
        except PulsarException as error:
            raise ServiceNotReady(f"{self._name} cannot be written: {error}") from error
        entry = parse_entry(record_entry(key, payload, "", 0, 0, version))
        metadata = entry.metadata
        for field in ("producer_name", "sequence_id", "publish_time"):
            metadata.ClearField(field)
        number = self._sequence_id
        self._sequence_id += 1
        prepared = PreparedEntry(number, number, 1, metadata.SerializePartialToString(), bytes(entry.payload))
        done = self._topics.io.loop.create_future()
        producer.enqueue_prepared(prepared, lambda stored, error: settle(done, error))
        failure = await done
        if failure is not None:
            self._producer = None
            raise ServiceNotReady(f"{self._name} cannot be written: {failure}") from failure


class _Namespace:
    """The snapshots of a namespace that were read so far."""

    def __init__(self, topics: ServedTopics, where: SystemTopic) -> None:
        self.mutex = Mutex(topics.io.loop)
        """Held while records are read."""
        self.where = where
        self.known: dict[str, Snapshot] = {}
        self.position: Position = EARLIEST
        self.version = b""
        """The version of the schema; empty: not registered yet."""


class TransactionSnapshots:
    """The snapshots of all topics that this broker serves."""

    def __init__(
        self,
        topics: ServedTopics,
        metadata: MetadataStore,
        producer: Callable[[], str],
        client: Callable[[], Client] | None,
        max_message_size: int,
    ) -> None:
        """:param producer: returns a name for a producer

        :param client: makes a client that may use all system topics; None: this broker serves all topics
        """
        self._topics = topics
        self._producer = producer
        self._make_client = client
        self._client: Client | None = None
        self._largest = max_message_size - _FRAME
        self._known: dict[NamespaceName, _Namespace] = {}
        # Of namespaces, not of topics: the cache grows with their number.
        self._stored = MetadataCache(metadata, ROOT, metadata.exists, most=_MAX_KNOWN)

    async def close(self) -> None:
        """Closes the client's connections to other brokers."""
        if self._client is not None:
            from magnetar.client.exceptions import PulsarException

            try:
                await self._client.close()
            except PulsarException as error:
                log.warning("cannot close the readers of snapshots", extra={"error": str(error)})

    async def load(self, topic: TopicName) -> Snapshot | None:
        """Returns a topic's latest snapshot; None: it has never had transactions.

        :raises BrokerError: the snapshots of the namespace cannot be read now
        :raises LedgerError: likewise
        """
        namespace = topic.namespace_name
        if not await self._stored.get(f"{ROOT}/{snapshots_of(namespace).path}"):
            return None
        state = self._state(namespace)
        async with state.mutex:
            await self._read(namespace, state)
        return state.known.get(str(topic))

    async def _read(self, namespace: NamespaceName, state: _Namespace) -> None:
        name = str(snapshots_of(namespace))
        state.position = await state.where.read(
            state.position, lambda entry: apply_record(state.known, name, entry, self._largest)
        )

    def _state(self, namespace: NamespaceName) -> _Namespace:
        state = self._known.get(namespace)
        if state is None:
            name = snapshots_of(namespace)
            where: SystemTopic
            if self._make_client is None:
                where = _Here(self._topics, name, self._producer())
            else:
                where = _Anywhere(self._topics, name, self._connected)
            state = self._known[namespace] = _Namespace(self._topics, where)
        return state

    def _connected(self) -> Client:
        if self._client is None:
            assert self._make_client is not None
            self._client = self._make_client()
        return self._client

    async def store(self, topic: TopicName, snapshot: Snapshot) -> None:
        """Stores the snapshot of a topic.

        :raises NotAllowed: it is larger than a message may be
        :raises BrokerError: it cannot be stored now
        """
        payload = encode_snapshot(str(topic), snapshot)
        if len(payload) > self._largest:
            raise NotAllowed(
                f"The snapshot of {len(snapshot.aborted)} aborted transactions of {topic} takes "
                f"{len(payload)} bytes, more than maxMessageSize permits"
            )
        await self._append(topic, payload)

    async def delete(self, topic: TopicName) -> None:
        """Forgets the snapshot of a deleted topic.

        :raises BrokerError: the topic with the snapshots cannot be written now
        """
        if await self.load(topic) is not None:
            await self._append(topic, None)

    async def _append(self, topic: TopicName, payload: bytes | None) -> None:
        namespace = topic.namespace_name
        state = self._state(namespace)
        if not state.version:
            schema = SchemaData(SchemaType.AVRO, DEFINITION.encode(), dict(SCHEMA_PROPERTIES))
            strategy = (await self._topics.policies.of_namespace(namespace)).schema_compatibility
            name = snapshots_of(namespace)
            version = await self._topics.schemas.put_if_absent(name.schema_path, schema, strategy)
            state.version = version_bytes(version)
        await state.where.append(str(topic), payload, state.version)
        self._stored.forget(f"{ROOT}/{snapshots_of(namespace).path}")

    def forget(self, namespace: NamespaceName) -> None:
        """Called when a namespace was deleted."""
        self._known.pop(namespace, None)
        self._stored.forget(f"{ROOT}/{snapshots_of(namespace).path}")


def snapshots_of(namespace: NamespaceName) -> TopicName:
    """Returns the topic with the snapshots of a namespace's topics."""
    return TopicName(Domain.PERSISTENT, namespace, SNAPSHOTS)
