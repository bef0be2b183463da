"""Topic policies, stored like Pulsar's in the namespace's topic ``__change_events``."""

from __future__ import annotations

import copy
import logging
from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType

from magnetar.broker.policies.records import Record
from magnetar.broker.policies.store import CHANGE_EVENTS
from magnetar.broker.publishing.producer import ProducerNames
from magnetar.broker.schemas.data import SchemaData, SchemaType, version_bytes
from magnetar.broker.serving.topics import ServedTopics
from magnetar.broker.topics.any_topic import persistent
from magnetar.broker.topics.persistent import Topic
from magnetar.broker.topics.within import TopicWriter, read_on
from magnetar.errors import TopicNotFound
from magnetar.io.interfaces import Io, Task
from magnetar.io.locks import Mutex
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.ledger.interface import EntryRun
from magnetar.managed_ledger.position import EARLIEST, Position
from magnetar.managed_ledger.records import ROOT
from magnetar.metadata.following import MetadataCache
from magnetar.metadata.interface import MetadataStore
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import Domain, TopicName
from magnetar.protocol.errors import ProtocolError

log = logging.getLogger(__name__)

_READ_ENTRIES = 100
_READ_BYTES = 1 << 20
_MAX_KNOWN = 100_000


def codec() -> ModuleType:
    """Returns the module that encodes records. The module, and Avro with it, is imported when the first
    policies are loaded, because most namespaces have no topic policies.
    """
    from magnetar.broker.system_topics import change_events

    return change_events


def change_events_of(namespace: NamespaceName) -> TopicName:
    """Returns the topic with the policies of a namespace's topics."""
    return TopicName(Domain.PERSISTENT, namespace, CHANGE_EVENTS)


class _Namespace:
    """The records of a namespace that were read so far."""

    def __init__(self, io: Io, producer: str) -> None:
        self.mutex = Mutex(io.loop)
        self.topic: Topic | None = None
        self.read: Topic | None = None
        """The topic, once it was read to its end; None: not read yet, so the policies are incomplete."""
        self.writer: TopicWriter | None = None
        """A writer for the topic; None until the topic is opened."""
        self.position: Position = EARLIEST
        self.policies: dict[str, Record] = {}
        self.untold: set[str] = set()
        """Keys of changes that were not reported yet."""
        self.producer = producer
        self.sequence_id = 0
        self.schema_version = b""
        """The version of the records' schema; empty: this broker has not registered the schema yet."""
        self.following: Task[None] | None = None


class SystemTopicPolicies:
    """Topic policies in a standalone broker. The records of a namespace are read at the first request; from
    then on, new records are read as they are written."""

    def __init__(
        self,
        topics: ServedTopics,
        cluster: str,
        tell: Callable[[NamespaceName, TopicName], Awaitable[None]],
        metadata: MetadataStore,
        names: ProducerNames,
    ) -> None:
        """:param tell: called and awaited for each topic whose policies another writer has changed"""
        self._topics = topics
        self._tasks = TaskScope(topics.io.loop, "topic policies", owner_goes_on)
        self._names = names
        self._cluster = cluster
        self._tell = tell
        self._known: dict[NamespaceName, _Namespace] = {}
        # Of namespaces, not of topics: the cache grows with their number.
        self._stored = MetadataCache(metadata, ROOT, metadata.exists, most=_MAX_KNOWN)

    async def close(self) -> None:
        """Does nothing, because the followed topics belong to this broker and are closed with it."""

    # Reading

    async def of(self, topic: TopicName) -> Mapping[str, object]:
        """Returns the effective policies of a topic: policies for this cluster take precedence over policies
        for all clusters."""
        state = await self._read(topic.namespace_name)
        if state is None or not state.policies:
            return {}
        keys = codec().key_of
        everywhere = state.policies.get(keys(topic, everywhere=True), {})
        here = state.policies.get(keys(topic, everywhere=False), {})
        return {**everywhere, **{field: value for field, value in here.items() if value not in ([], {})}}

    async def own(self, topic: TopicName, *, everywhere: bool) -> Mapping[str, object]:
        """Returns the policies of a topic that were set for this cluster or, with ``everywhere``, for all
        clusters."""
        state = await self._read(topic.namespace_name)
        if state is None or not state.policies:
            return {}
        return state.policies.get(codec().key_of(topic, everywhere=everywhere), {})

    async def _read(self, namespace: NamespaceName) -> _Namespace | None:
        """Returns the state of a namespace, read to the end of its topic; None if it has never had topic
        policies."""
        state = self._known.get(namespace)
        if state is not None and state.read is not None and not state.read.closing:
            return state
        name = change_events_of(namespace)
        if not await self._stored.get(f"{ROOT}/{name.path}"):
            self._known.pop(namespace, None)
            return None
        state = self._state(namespace)
        async with state.mutex:
            await self._open(state, persistent(await self._topics.load(name, create=False)))
        return state

    def _state(self, namespace: NamespaceName) -> _Namespace:
        state = self._known.get(namespace)
        if state is None:
            state = self._known[namespace] = _Namespace(self._topics.io, self._names.next())
        return state

    async def _open(self, state: _Namespace, topic: Topic) -> None:
        if state.topic is not topic:
            state.topic = topic
            state.writer = TopicWriter(topic, state.producer)
            topic.followers.add(lambda: self._follow(state))
        first = state.read is None
        await self._read_on(state, topic)
        state.read = topic
        if first:
            # No topic has applied older policies yet.
            state.untold.clear()
        elif state.untold:
            self._follow(state)

    async def _read_on(self, state: _Namespace, topic: Topic) -> None:
        """Reads and applies the records after the last record that was read."""

        def take(run: EntryRun) -> None:
            for index in range(run.count):
                state.untold |= apply_records(state.policies, topic.full_name, run.entry(index))

        state.position = await read_on(topic, state.position, take)

    # Following

    def appeared(self, namespace: NamespaceName) -> None:
        """Reports that a namespace's topic of records was just created."""
        self._stored.forget(f"{ROOT}/{change_events_of(namespace).path}")

    def forget(self, namespace: NamespaceName) -> None:
        """Drops the state of a deleted namespace."""
        self._known.pop(namespace, None)
        self.appeared(namespace)

    def _follow(self, state: _Namespace) -> None:
        if state.following is None:
            state.following = self._tasks.start(self._catch_up(state), "reading changes")

    async def _catch_up(self, state: _Namespace) -> None:
        try:
            async with state.mutex:
                state.following = None
                topic = state.topic
                if topic is not None and not topic.closing:
                    await self._read_on(state, topic)
        except Exception:
            log.exception("cannot read topic policies")
        changed, state.untold = state.untold, set()
        for key in sorted(changed):
            name = codec().topic_of(key)
            try:
                await self._tell(name.namespace_name, name)
            except Exception:
                log.exception("cannot apply a change of topic policies", extra={"topic": str(name)})

    # Changing

    async def change(self, topic: TopicName, work: Callable[[Record], None], *, everywhere: bool) -> None:
        """Applies ``work`` to the policies of a topic. When this returns, the changed policies are durable,
        and requests to this object return them.

        :param everywhere: whether to change the policies for all clusters; False: those for this cluster
        :raises ServiceNotReady: the topic of the records is being closed
        :raises PersistenceFailure: the record cannot be stored
        """
        namespace = topic.namespace_name
        state = self._state(namespace)
        async with state.mutex:
            events = persistent(await self._topics.create_topic(change_events_of(namespace)))
            self.appeared(namespace)
            await self._open(state, events)
            known = state.policies.get(codec().key_of(topic, everywhere=everywhere))
            record = copy.deepcopy(known) if known is not None else new_record()
            work(record)
            await self._write(state, events, topic, record, everywhere=everywhere)
            await self._read_on(state, events)
            # The caller of this method reports the change.
            state.untold.discard(codec().key_of(topic, everywhere=everywhere))

    async def delete(self, topic: TopicName, *, elsewhere: bool = False) -> None:
        """Deletes the policies of a topic in this cluster: those for this cluster and those for all clusters.

        :param elsewhere: whether other clusters delete the policies for all clusters, too
        """
        state = await self._read(topic.namespace_name)
        if state is None:
            return
        async with state.mutex:
            events = state.topic
            if events is None:
                raise TopicNotFound(f"{change_events_of(topic.namespace_name)} is being deleted")
            for everywhere in (False, True):
                if codec().key_of(topic, everywhere=everywhere) in state.policies:
                    await self._write(
                        state, events, topic, None, everywhere=everywhere, stays_here=not elsewhere
                    )
            await self._read_on(state, events)

    async def _register(self, events: Topic) -> bytes:
        """Registers the records' schema in their topic if it is new; returns its version."""
        schema = SchemaData(SchemaType.AVRO, codec().definition().encode(), dict(codec().SCHEMA_PROPERTIES))
        strategy = events.policies.schema_compatibility
        version = await self._topics.schemas.put_if_absent(events.name.schema_path, schema, strategy)
        return version_bytes(version)

    async def _write(
        self,
        state: _Namespace,
        events: Topic,
        topic: TopicName,
        record: Record | None,
        *,
        everywhere: bool,
        stays_here: bool = False,
    ) -> None:
        io = self._topics.io
        if not state.schema_version:
            state.schema_version = await self._register(events)
        entry = codec().encode(
            topic,
            record,
            everywhere=everywhere,
            cluster=self._cluster,
            producer=state.producer,
            sequence_id=state.sequence_id,
            publish_time_ms=io.clock.wall_ms(),
            schema_version=state.schema_version,
            stays_here=stays_here,
        )
        assert state.writer is not None
        sequence_id = state.sequence_id
        state.sequence_id += 1
        await state.writer.append(entry, sequence_id)


def new_record() -> Record:
    """Returns empty ``TopicPolicies``, as Pulsar writes them."""
    return {"backLogQuotaMap": {}, "subscriptionTypesEnabled": [], "subscriptionPolicies": {}}


def apply_records(policies: dict[str, Record], topic: str, entry: bytes) -> set[str]:
    """Applies the changes in an entry to ``policies``; returns the keys of the changed policies."""
    changed = set()
    try:
        for change in codec().decode(entry):
            codec().topic_of(change.key)
            if change.policies is None:
                policies.pop(change.key, None)
            else:
                policies[change.key] = change.policies
            changed.add(change.key)
    except (ProtocolError, InvalidName) as error:
        # Any client that may publish there can write anything: an entry that is not a record changes nothing.
        log.warning("message ignored: it is not a record of topic policies topic=%s: %s", topic, error)
    return changed
