"""Topic policies in a cluster of several brokers, which read and write the records like clients.

One broker can serve a topic while another broker serves ``__change_events``, the topic with the policies.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from magnetar.broker.policies.records import Record
from magnetar.broker.schemas.data import SchemaData, SchemaType, version_bytes
from magnetar.broker.serving.topics import ServedTopics
from magnetar.broker.system_topics.topic_policies import apply_records, change_events_of, codec, new_record
from magnetar.client.client import Client
from magnetar.client.exceptions import PulsarException
from magnetar.client.message import RawEntry
from magnetar.client.message_id import MessageId
from magnetar.client.outgoing_message import PreparedEntry
from magnetar.client.producer import Producer
from magnetar.client.reader import Reader
from magnetar.errors import BrokerError, ServiceNotReady
from magnetar.io.interfaces import Future, Io, Task
from magnetar.io.locks import Mutex
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.io.waiting import finished, settle, sleep
from magnetar.managed_ledger.position import EARLIEST, Position
from magnetar.managed_ledger.records import ROOT
from magnetar.metadata.following import MetadataCache
from magnetar.metadata.interface import MetadataError, MetadataStore
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.metadata import parse_entry

log = logging.getLogger(__name__)

_MAX_KNOWN = 100_000
_READ_ENTRIES = 100
_RETRY_SECONDS, _LONGEST_PAUSE = 1.0, 30.0
_LAST_SECONDS = 5.0
"""The maximum time to wait for the delivery of the last record once its position is known, in seconds."""


class _Namespace:
    """The records of a namespace that were read so far."""

    def __init__(self, io: Io) -> None:
        self.mutex = Mutex(io.loop)
        """Locked while the namespace is opened or changed."""
        self.reader: Reader | None = None
        self.producer: Producer | None = None
        self.sequence_id = 0
        self.schema_version = b""
        """The version of the records' schema; empty: this broker has not registered the schema yet."""
        self.position: Position = EARLIEST
        self.policies: dict[str, Record] = {}
        self.following: Task[None] | None = None
        self.waiting: list[tuple[Position, Future[None]]] = []
        """Futures that are completed when the reader has read up to a position, each with that position."""


class ClusterTopicPolicies:
    """Implements :class:`magnetar.broker.policies.store.TopicPolicies` in a cluster.

    A namespace is followed from the first request on.
    """

    def __init__(
        self,
        topics: ServedTopics,
        cluster: str,
        tell: Callable[[NamespaceName, TopicName | None], Awaitable[None]],
        metadata: MetadataStore,
        client: Callable[[], Client],
    ) -> None:
        """:param tell: called and awaited for each topic whose policies were changed, with the namespace and
            the topic; None instead of the topic: the policies of any topic of the namespace may have changed

        :param client: returns a client that may read and write all system topics; called after the broker has
            started to serve
        """
        self._topics = topics
        self._loop = topics.io.loop
        self._tasks = TaskScope(topics.io.loop, "topic policies of the cluster", owner_goes_on)
        self._cluster = cluster
        self._tell = tell
        self._make_client = client
        self._client: Client | None = None
        self._known: dict[NamespaceName, _Namespace] = {}
        self._anew: dict[NamespaceName, Task[None]] = {}
        """Tasks that read a namespace again, after its records could not be followed."""
        self._stored = MetadataCache(metadata, ROOT, metadata.exists, most=_MAX_KNOWN)

    async def close(self) -> None:
        for state in self._known.values():
            self._end(state)
        self._known.clear()
        for reading in self._anew.values():
            reading.cancel()
        if self._client is not None:
            try:
                await self._client.close()
            except PulsarException as error:
                log.warning("cannot close the readers of topic policies", extra={"error": str(error)})

    # Reading

    async def of(self, topic: TopicName) -> Mapping[str, object]:
        state = await self._read(topic.namespace_name)
        if state is None or not state.policies:
            return {}
        everywhere = state.policies.get(codec().key_of(topic, everywhere=True), {})
        here = state.policies.get(codec().key_of(topic, everywhere=False), {})
        return {**everywhere, **{field: value for field, value in here.items() if value not in ([], {})}}

    async def own(self, topic: TopicName, *, everywhere: bool) -> Mapping[str, object]:
        state = await self._read(topic.namespace_name)
        if state is None or not state.policies:
            return {}
        return state.policies.get(codec().key_of(topic, everywhere=everywhere), {})

    async def _read(self, namespace: NamespaceName) -> _Namespace | None:
        """Returns the state of a namespace, with all records that its topic had at the time of the call; None
        if the namespace has never had topic policies.

        :raises ServiceNotReady: the records of the namespace cannot be read now
        """
        state = self._known.get(namespace)
        if state is not None and state.following is not None:
            return state
        if not await self._stored.get(f"{ROOT}/{change_events_of(namespace).path}"):
            return None
        state = self._state(namespace)
        async with state.mutex:
            await self._open(namespace, state)
        return state

    def _state(self, namespace: NamespaceName) -> _Namespace:
        state = self._known.get(namespace)
        if state is None:
            state = self._known[namespace] = _Namespace(self._topics.io)
        return state

    async def _open(self, namespace: NamespaceName, state: _Namespace) -> None:
        if state.following is not None:
            return
        name = str(change_events_of(namespace))
        reader: Reader | None = None
        try:
            reader = await self._connected().create_reader(
                name, MessageId.earliest, is_read_compacted=True, reader_name=self._topics.settings.broker_id
            )
            while await reader.has_message_available():
                self._take(state, name, await reader.read_entries(_READ_ENTRIES))
        except BaseException as error:
            if reader is not None:
                # Otherwise each attempt would leave a reader behind that reconnects forever.
                self._tasks.start(_closed(reader), "closing a reader")
            if isinstance(error, PulsarException):
                raise ServiceNotReady(f"{name} cannot be read: {error}") from error
            raise
        state.reader = reader
        state.following = self._tasks.start(self._follow(namespace, state, reader), "following changes")

    def _connected(self) -> Client:
        if self._client is None:
            self._client = self._make_client()
        return self._client

    def _take(self, state: _Namespace, name: str, entries: Sequence[RawEntry]) -> set[str]:
        """Applies the records in entries; returns the keys of the changed policies."""
        changed: set[str] = set()
        for entry in entries:
            changed |= apply_records(state.policies, name, entry.data)
            state.position = max(state.position, (entry.ledger_id, entry.entry_id))
        return changed

    # Following

    async def _follow(self, namespace: NamespaceName, state: _Namespace, reader: Reader) -> None:
        try:
            await self._take_changes(namespace, state, reader)
        except Exception:
            # A record may be applied in part, and the next ones would be unknown.
            self._read_again(namespace, state)
            raise
        self._read_again(namespace, state)

    async def _take_changes(self, namespace: NamespaceName, state: _Namespace, reader: Reader) -> None:
        name = str(change_events_of(namespace))
        while self._known.get(namespace) is state:
            try:
                changed = self._take(state, name, await reader.read_entries(_READ_ENTRIES))
            except PulsarException as error:
                log.warning(
                    "reading topic policies failed; reading them again",
                    extra={"topic": name, "error": str(error)},
                )
                return
            for key in sorted(changed):
                topic = codec().topic_of(key)
                await self._told(topic.namespace_name, topic)
            self._wake(state)

    def _read_again(self, namespace: NamespaceName, state: _Namespace) -> None:
        state.following = None
        if self._known.get(namespace) is not state:
            # The namespace was dropped during the first read: its present state belongs to another task.
            self._end(state)
            return
        self.forget(namespace)
        if namespace not in self._anew:
            self._anew[namespace] = self._tasks.start(self._read_anew(namespace), "reading a namespace again")

    async def _read_anew(self, namespace: NamespaceName) -> None:
        """Reads the records of a namespace again, repeatedly until that succeeds; then loaded topics apply
        the changes."""
        pause = _RETRY_SECONDS
        try:
            while True:
                await sleep(self._loop, pause)
                try:
                    await self._read(namespace)
                    break
                except (BrokerError, MetadataError) as error:
                    log.warning(
                        "cannot read topic policies; trying again later",
                        extra={"namespace": str(namespace), "error": str(error)},
                    )
                    pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            del self._anew[namespace]
        await self._told(namespace, None)

    async def _told(self, namespace: NamespaceName, topic: TopicName | None) -> None:
        try:
            await self._tell(namespace, topic)
        except Exception:
            log.exception("cannot apply a change of topic policies", extra={"topic": str(topic or namespace)})

    def _wake(self, state: _Namespace) -> None:
        waiting, state.waiting = state.waiting, []
        for position, waiter in waiting:
            if position <= state.position:
                settle(waiter)
            else:
                state.waiting.append((position, waiter))

    async def _read_up_to(self, state: _Namespace, position: Position) -> None:
        if position[1] < 0 or position <= state.position or state.following is None:
            return
        waiter = self._loop.create_future()
        state.waiting.append((position, waiter))
        if not await finished(self._loop, waiter, partial(self._loop.call_later, _LAST_SECONDS)):
            # A deletion of policies may have been compacted away: it is never delivered.
            log.info("last record of topic policies not delivered; it may have been compacted away")

    def appeared(self, namespace: NamespaceName) -> None:
        self._stored.forget(f"{ROOT}/{change_events_of(namespace).path}")

    def forget(self, namespace: NamespaceName) -> None:
        state = self._known.pop(namespace, None)
        if state is not None:
            self._end(state)
        self.appeared(namespace)

    def _end(self, state: _Namespace) -> None:
        if state.following is not None:
            state.following.cancel()
            state.following = None
        for _, waiter in state.waiting:
            settle(waiter)
        for each in (state.reader, state.producer):
            if each is not None:
                self._tasks.start(_closed(each), "closing a reader or producer")

    # Changing

    async def change(self, topic: TopicName, work: Callable[[Record], None], *, everywhere: bool) -> None:
        """Changes the policies of a topic.

        :raises ServiceNotReady: the records can be neither read nor written now
        """
        namespace = topic.namespace_name
        state = self._state(namespace)
        async with state.mutex:
            await self._prepare(namespace, state)
            known = state.policies.get(codec().key_of(topic, everywhere=everywhere))
            record = copy.deepcopy(known) if known is not None else new_record()
            work(record)
            await self._write(state, topic, record, everywhere=everywhere)

    async def delete(self, topic: TopicName, *, elsewhere: bool = False) -> None:
        state = await self._read(topic.namespace_name)
        if state is None:
            return
        async with state.mutex:
            for everywhere in (False, True):
                if codec().key_of(topic, everywhere=everywhere) in state.policies:
                    await self._prepare(topic.namespace_name, state)
                    await self._write(state, topic, None, everywhere=everywhere, stays_here=not elsewhere)

    async def _prepare(self, namespace: NamespaceName, state: _Namespace) -> None:
        """Prepares a change: creates the producer if necessary, and reads all records, including those of
        other brokers."""
        name = change_events_of(namespace)
        try:
            if state.producer is None:
                made = await self._connected().create_producer(str(name), batching_enabled=False)
                assert isinstance(made, Producer)
                state.producer, state.sequence_id = made, made.last_sequence_id() + 1
            self.appeared(namespace)
            await self._open(namespace, state)
            assert state.reader is not None
            last = await state.reader.get_last_message_id()
        except PulsarException as error:
            raise ServiceNotReady(f"{name} cannot be reached: {error}") from error
        await self._read_up_to(state, (last.ledger_id(), last.entry_id()))
        if not state.schema_version:
            properties = dict(codec().SCHEMA_PROPERTIES)
            schema = SchemaData(SchemaType.AVRO, codec().definition().encode(), properties)
            strategy = (await self._topics.policies.of_namespace(namespace)).schema_compatibility
            version = await self._topics.schemas.put_if_absent(name.schema_path, schema, strategy)
            state.schema_version = version_bytes(version)

    async def _write(
        self,
        state: _Namespace,
        topic: TopicName,
        record: Record | None,
        *,
        everywhere: bool,
        stays_here: bool = False,
    ) -> None:
        producer = state.producer
        assert producer is not None
        entry = parse_entry(
            codec().encode(
                topic,
                record,
                everywhere=everywhere,
                cluster=self._cluster,
                producer=producer.producer_name(),
                sequence_id=state.sequence_id,
                publish_time_ms=self._topics.io.clock.wall_ms(),
                schema_version=state.schema_version,
                stays_here=stays_here,
            )
        )
        metadata = entry.metadata
        for field in ("producer_name", "sequence_id", "publish_time"):
            metadata.ClearField(field)
        prepared = PreparedEntry(
            state.sequence_id, state.sequence_id, 1, metadata.SerializePartialToString(), bytes(entry.payload)
        )
        state.sequence_id += 1
        done = self._loop.create_future()
        producer.enqueue_prepared(prepared, lambda stored, error: settle(done, (stored, error)))
        stored, error = await done
        if error is not None:
            state.producer = None
            self._tasks.start(_closed(producer), "closing a producer")
            raise ServiceNotReady(f"The policies of {topic} cannot be written: {error}") from error
        await self._read_up_to(state, (stored.ledger_id(), stored.entry_id()))


async def _closed(each: Reader | Producer) -> None:
    try:
        await each.close()
    except PulsarException as error:
        log.debug("cannot close a reader or producer of topic policies", extra={"error": str(error)})
