"""Administration of topics, and lists of non-persistent topics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from magnetar.broker.admin.brokers import elsewhere
from magnetar.broker.admin.bundles import BundleAdmin
from magnetar.broker.admin.partitions import (
    PartitionAdmin,
    check_not_replicated,
    check_room,
    check_source,
    in_use,
    is_used,
)
from magnetar.broker.policies.records import Record
from magnetar.broker.service import BrokerService
from magnetar.broker.serving.live_topics import LiveTopics
from magnetar.broker.stats.assembled import StatsSelection, internal_stats_of, stats_of, total_stats
from magnetar.broker.topics.any_topic import AnyTopic, persistent, still_open
from magnetar.broker.topics.entries import first_published_at, last_message
from magnetar.broker.topics.persistent import Topic
from magnetar.broker.upkeep.inactivity import seconds_unused
from magnetar.errors import (
    AlreadyExists,
    BrokerError,
    Conflict,
    InvalidRequest,
    NotAllowed,
    PersistentTopicRequired,
    PreconditionFailed,
    TopicNotFound,
)
from magnetar.managed_ledger.errors import NoOwnLedgers, OffloadInProgress
from magnetar.managed_ledger.position import Position
from magnetar.naming.replicators import SHADOW_SOURCE
from magnetar.naming.topic_name import TopicName
from magnetar.security.authentication import BROKER

T = TypeVar("T")
Json = Mapping[str, object]


class TopicAdmin:
    """Administration of topics; each partition is a topic. Topics are given by their full names."""

    def __init__(self, broker: BrokerService, partitions: PartitionAdmin) -> None:
        self._broker = broker
        self._partitions = partitions

    async def existing(self, topic: str) -> AnyTopic:
        """Returns a topic that exists, and loads it if necessary.

        :raises TopicNotFound: no such topic
        """
        name = self._broker.parse_topic(topic)
        await self._broker.namespaces.check(name.namespace_name)
        if await self._broker.namespaces.partitions(name):
            raise TopicNotFound(f"Topic {name} not found")
        return await self._broker.topics.load(name, create=False)

    async def persistent(self, topic: str) -> Topic:
        """Returns a persistent topic that exists.

        :raises TopicNotFound: no such topic
        :raises PersistentTopicRequired: the topic is non-persistent
        """
        return persistent(await self.existing(topic))

    async def parts(self, topic: str) -> Sequence[TopicName]:
        """Returns the partitions of a topic, or the topic itself.

        :raises NamespaceNotFound: no such namespace
        """
        name = self._broker.parse_topic(topic)
        await self._broker.namespaces.check(name.namespace_name)
        count = await self._broker.namespaces.partitions(name)
        return [name.partition(index) for index in range(count)] if count else [name]

    async def existing_parts(self, topic: str) -> Sequence[AnyTopic]:
        """Returns the topic, or its existing partitions, and loads them if necessary.

        :raises NamespaceNotFound: no such namespace
        :raises TopicNotFound: the topic is not partitioned and does not exist
        :raises ServiceNotReady: a partition was unloaded while the next partition was loaded
        """
        names = await self.parts(topic)
        if names[0] == self._broker.parse_topic(topic):
            return [await self._broker.topics.load(names[0], create=False)]
        found = []
        for name in names:
            try:
                found.append(await self._broker.topics.load(name, create=False))
            except TopicNotFound:
                # The partition's first client creates it, or createMissedPartitions.
                continue
        return still_open(found)

    async def of_each(
        self,
        topic: str,
        here: Callable[[TopicName], Awaitable[T]],
        suffix: str,
        query: Mapping[str, str] | None = None,
    ) -> tuple[dict[str, T], BrokerError | None]:
        """Carries out an operation with a result on a topic that this broker serves, or on each partition of
        a partitioned topic at the partition's owner.

        :param here: carries out the operation on a topic that this broker serves
        :param suffix: the end of the path of a GET request to another broker, after the topic
        :returns: the results by full name, without partitions that answer 404; and the last error with that
            status
        :raises NamespaceNotFound: no such namespace
        :raises BrokerError: the error of a topic that is not partitioned, or another error of a partition
        """
        names = await self.parts(topic)
        if names[0] == self._broker.parse_topic(topic):
            return {str(names[0]): await here(names[0])}, None
        return await self._partitions.at_each_owner(names, here, "GET", suffix, query)

    async def create(self, topic: str, properties: Mapping[str, str]) -> None:
        """Creates a topic that is not partitioned.

        :raises AlreadyExists: the topic, or a partitioned topic of that name, exists
        :raises PreconditionFailed: the name is a partition's, but the partitioned topic has no such
            partition; or a limit of topics is reached
        :raises PersistentTopicRequired: properties are given, and a non-persistent topic cannot store them
        """
        name = self._broker.parse_topic(topic)
        await self._broker.namespaces.check(name.namespace_name)
        if properties and not name.persistent:
            raise PersistentTopicRequired("Need to provide a persistent topic name")
        if await self._broker.namespaces.partitions(name) or await self._broker.topics.creation.exists(name):
            raise AlreadyExists("This topic already exists")
        if name.partition_index >= 0 and not await self._broker.namespaces.partitions(name.base):
            raise PreconditionFailed(
                f'Can\'t create topic {name.local} with "-partition-" followed by numeric value if there '
                f"isn't a partitioned topic {name.base.local} created."
            )
        if await self._broker.topics.creation.is_beyond(name):
            raise PreconditionFailed(
                f"Can't create topic {name.local}: partitioned topic {name.base.local} has no such partition"
            )
        if SHADOW_SOURCE in properties:
            await check_source(self._broker, name, properties[SHADOW_SOURCE])
        await check_room(self._broker, name, 1)
        await self._broker.topics.create_topic(name, properties)

    async def seconds_unused(self, topic: str) -> float:
        """Returns the seconds after which the topic is deleted if it is unused; infinity: the topic is not
        deleted.

        :raises NamespaceNotFound: no such namespace
        """
        name = self._broker.parse_topic(topic)
        policies = await self._broker.policies.of_topic(name)
        return seconds_unused(policies, persistent=name.persistent)

    async def unload(self, topic: str) -> None:
        """Closes a topic or all its partitions, and disconnects the clients, which reconnect.

        :raises TopicNotFound: no such topic
        """
        for name in await self.parts(topic):
            loaded = self._broker.topics.loaded.get(str(name))
            if loaded is not None:
                await self._broker.topics.unload_topic(loaded)
            elif not await self._broker.topics.creation.exists(name):
                raise TopicNotFound(f"Topic {name} not found")

    async def terminate(self, topic: str) -> Position:
        """Terminates a topic; returns the position of its last message.

        :raises TopicNotFound: no such topic
        :raises PersistentTopicRequired: the topic is non-persistent
        :raises NotAllowed: the topic is partitioned
        """
        name = self._broker.parse_topic(topic)
        if await self._broker.namespaces.partitions(name):
            raise NotAllowed("Termination of a partitioned topic is not allowed")
        return await (await self.persistent(topic)).terminate()

    async def compact(self, topic: str) -> None:
        """Starts the compaction of a topic, or of all its partitions.

        :raises TopicNotFound: no such topic
        :raises PersistentTopicRequired: the topic is non-persistent
        :raises Conflict: the topic is being compacted
        """
        for part in await self.parts(topic):
            (await self._broker.topics.persistent_topic(part)).compaction.start()

    async def compaction_status(self, topic: str) -> tuple[str, str]:
        """Returns NOT_RUN (since the topic was loaded), RUNNING, SUCCESS or ERROR, and the last error (empty:
        no error).

        :raises TopicNotFound: no such topic
        :raises PersistentTopicRequired: the topic is non-persistent
        """
        compaction = (await self.persistent(topic)).compaction
        return compaction.status.value, compaction.last_error

    async def offload(self, topic: str, position: tuple[int, int]) -> None:
        """Starts offloading the closed ledgers before the ledger that contains ``position``. A missing
        offload policy is reported in the status of the offload, where scripts for Apache Pulsar look for
        errors.

        :raises TopicNotFound: no such topic
        :raises PersistentTopicRequired: the topic is non-persistent
        :raises Conflict: an earlier request is still being carried out
        :raises PreconditionFailed: the topic is a shadow topic, whose ledgers belong to its source
        """
        ledger = (await self.persistent(topic)).managed_ledger
        try:
            ledger.offload_before(position)
        except NoOwnLedgers as error:
            raise PreconditionFailed(str(error)) from error
        except OffloadInProgress as error:
            raise Conflict(str(error)) from error

    async def offload_status(self, topic: str) -> tuple[str, str, tuple[int, int]]:
        """Returns NOT_RUN (since the topic was loaded), RUNNING, SUCCESS or ERROR; the last error (empty: no
        error); and, after SUCCESS, the position before which all ledgers are offloaded, otherwise (-1, -1).

        :raises TopicNotFound: no such topic
        :raises PersistentTopicRequired: the topic is non-persistent
        """
        offloader = (await self.persistent(topic)).managed_ledger.offloader
        if offloader is None:
            return "NOT_RUN", "", (-1, -1)
        ended = offloader.first_not_offloaded if offloader.status.value == "SUCCESS" else (-1, -1)
        return offloader.status.value, offloader.last_error, ended

    async def delete(self, topic: str, *, force: bool) -> None:
        """Deletes a topic. A non-persistent topic that does not exist counts as deleted.

        :raises TopicNotFound: no such topic
        :raises Conflict: the topic is partitioned
        :raises Unprocessable: the topic is replicated and ``force`` is false
        :raises InUse: the topic has producers or consumers and ``force`` is false
        """
        name = self._broker.parse_topic(topic)
        await self._broker.namespaces.check(name.namespace_name)
        if await self._broker.namespaces.partitions(name):
            raise Conflict(
                f"{name} is a partitioned topic, instead of calling delete topic, "
                "please call delete-partitioned-topic."
            )
        if not name.persistent and not await self._broker.topics.creation.exists(name):
            return
        found = await self._broker.topics.load(name, create=False)
        if not force:
            check_not_replicated(found)
            if is_used(found):
                raise in_use()
        await self._broker.topics.delete_topic(found)
        if name.partition_index < 0:
            await self._broker.policies.forget(name)

    # Properties

    async def properties(self, topic: str) -> Mapping[str, str]:
        """Returns the properties of a topic.

        :raises TopicNotFound: no such topic
        :raises PersistentTopicRequired: the topic is non-persistent and not partitioned
        """
        name = self._broker.parse_topic(topic)
        if await self._broker.namespaces.partitions(name):
            found: Mapping[str, str] = (await self._partitions.describe(topic)).get("properties") or {}
            return found
        return dict((await self.persistent(topic)).managed_ledger.properties)

    async def set_properties(self, topic: str, properties: Mapping[str, str | None]) -> None:
        """Merges properties into the properties of a topic; None removes a property.

        :raises TopicNotFound: no such topic
        :raises PersistentTopicRequired: the topic is non-persistent and not partitioned
        :raises PreconditionFailed: the topic would become a shadow topic, or the shadow of another source.
            Messages published to the topic itself would be lost, because a shadow topic only has the messages
            of its source
        """
        name = self._broker.parse_topic(topic)
        await self._broker.namespaces.check(name.namespace_name)
        if SHADOW_SOURCE in properties:
            source = (await self.properties(topic)).get(SHADOW_SOURCE)
            if properties[SHADOW_SOURCE] != source:
                raise PreconditionFailed(
                    f"{SHADOW_SOURCE} of {name} is {source} and cannot be changed: create another topic "
                    "with create-shadow-topic"
                )
        if await self._broker.namespaces.partitions(name):
            await self._broker.namespaces.change_partitioned(name, properties=properties)
            return
        await (await self.persistent(topic)).managed_ledger.set_properties(properties)

    # Permissions

    async def permissions(self, topic: str) -> Mapping[str, Sequence[str]]:
        """Returns the actions that each role may perform on a topic, granted on the topic or on its
        namespace.

        :raises TopicNotFound: no such topic
        """
        name = self._broker.parse_topic(topic)
        await self._broker.topics.creation.existing_partitions(name, BROKER)
        grants = (await self._broker.policies.namespaces.get(name.namespace_name)).get("auth_policies") or {}
        found = {role: list(actions) for role, actions in (grants.get("namespace_auth") or {}).items()}
        own = (grants.get("destination_auth") or {}).get(str(name)) or {}
        for role, actions in own.items():
            found[role] = list(dict.fromkeys([*found.get(role, ()), *actions]))
        return found

    async def set_permissions(self, topic: str, role: str, actions: Sequence[str] | None) -> None:
        """Sets the actions that a role may perform on a topic, in addition to the namespace's permissions;
        None revokes all actions granted on the topic.

        :raises TopicNotFound: no such topic
        """
        name = self._broker.parse_topic(topic)
        count = await self._broker.topics.creation.existing_partitions(name, BROKER)
        # Revoking on a partitioned topic also revokes what was granted on single partitions.
        parts = await self._granted_parts(name) if count and actions is None else []
        await self._change_permissions([(each, role, actions) for each in (name, *parts)])

    async def _granted_parts(self, name: TopicName) -> list[TopicName]:
        """Returns the partitions of a topic that have permissions of their own, without a loop over all
        partitions."""
        policies = await self._broker.policies.namespaces.get(name.namespace_name)
        topics = (policies.get("auth_policies") or {}).get("destination_auth") or {}
        begin = f"{name}-partition-"
        named = [TopicName.parse(each) for each in topics if each.startswith(begin)]
        return [each for each in named if each.base == name]

    async def set_all_permissions(
        self, changes: Sequence[tuple[TopicName, str, Sequence[str] | None]]
    ) -> None:
        """Sets permissions on several topics of one namespace, in one change.

        :param changes: topics, each with a role and its actions; None revokes all actions granted on the
            topic
        :raises InvalidRequest: the list is empty, or the topics are in several namespaces
        :raises TopicNotFound: a topic does not exist
        """
        if len({topic.namespace_name for topic, _role, _actions in changes}) != 1:
            raise InvalidRequest("All topics must belong to the same namespace")
        for topic, _role, _actions in changes:
            await self._broker.topics.creation.existing_partitions(topic, BROKER)
        await self._change_permissions(changes)

    async def _change_permissions(
        self, changes: Sequence[tuple[TopicName, str, Sequence[str] | None]]
    ) -> None:
        def work(record: Record) -> None:
            grants = dict(record.get("auth_policies") or {})
            topics = dict(grants.get("destination_auth") or {})
            for name, role, actions in changes:
                roles = dict(topics.pop(str(name), None) or {})
                roles.pop(role, None)
                if actions is not None:
                    roles[role] = list(actions)
                if roles:
                    topics[str(name)] = roles
            record["auth_policies"] = {**grants, "destination_auth": topics}

        await self._broker.policies.change_namespace(changes[0][0].namespace_name, work)

    # Positions

    async def last_message(self, topic: str) -> tuple[tuple[int, int], int]:
        """Returns the position of a topic's last message and the number of messages in its batch; 0 if the
        message is not in a batch. The entry id is -1 when nothing is stored.

        :raises TopicNotFound: no such topic
        :raises PersistentTopicRequired: the topic is non-persistent
        """
        found = await self.persistent(topic)
        return await last_message(found.managed_ledger, found.transactions)

    async def position_at(self, topic: str, publish_time_ms: int) -> tuple[int, int]:
        """Returns the position of the first message published at or after a time (ms since 1970); the
        position after the last message if all are older.

        :raises TopicNotFound: no such topic
        :raises PersistentTopicRequired: the topic is non-persistent
        """
        return await first_published_at((await self.persistent(topic)).managed_ledger, publish_time_ms)

    async def backlog_size(self, topic: str, position: tuple[int, int]) -> int:
        """Returns the size in bytes of the entries after a position; for the ledger that contains the
        position, the size is an estimate.

        :raises TopicNotFound: no such topic
        :raises PersistentTopicRequired: the topic is non-persistent
        """
        ledgers = (await self.persistent(topic)).managed_ledger.ledgers
        return ledgers.total_size() if position < (0, 0) else ledgers.size_after(position)

    # Statistics

    async def stats(self, topic: str, wanted: StatsSelection) -> Json:
        """Returns ``TopicStats``, the statistics of a topic.

        :param wanted: the optional parts of the statistics to include
        :raises TopicNotFound: no such topic
        """
        return await stats_of(
            self._broker.io, await self.existing(topic), self._broker.settings.broker_id, wanted
        )

    async def internal_stats(self, topic: str, *, metadata: bool) -> Json:
        """Returns ``PersistentTopicInternalStats``: the ledgers and cursors of a topic.

        :param metadata: add the metadata of each ledger
        :raises TopicNotFound: no such topic
        """
        found = await self.existing(topic)
        return await internal_stats_of(
            self._broker.io, found, self._broker.schemas.storage, metadata=metadata
        )

    async def partitioned_stats(self, topic: str, wanted: StatsSelection, *, per_partition: bool) -> Json:
        """Returns ``PartitionedTopicStats``: the sums over all partitions and, with ``per_partition``, the
        statistics of each partition.

        :raises TopicNotFound: no such partitioned topic
        """
        metadata = await self._partitions.describe(topic)
        each, _ = await self.of_each(topic, partial(self._stats, wanted), "/stats", wanted.query())
        total = total_stats(list(each.values()))
        return {**total, "metadata": metadata, "partitions": each if per_partition else {}}

    async def partitioned_internal_stats(self, topic: str) -> Json:
        """Returns ``PartitionedTopicInternalStats``: the ledgers and cursors of each partition.

        :raises TopicNotFound: no such partitioned topic
        """
        metadata = await self._partitions.describe(topic)
        each, _ = await self.of_each(topic, self._internal_stats, "/internalStats")
        return {"metadata": metadata, "partitions": each}

    async def _stats(self, wanted: StatsSelection, name: TopicName) -> Json:
        found = await self._broker.topics.load(name, create=False)
        return await stats_of(self._broker.io, found, self._broker.settings.broker_id, wanted)

    async def _internal_stats(self, name: TopicName) -> Json:
        found = await self._broker.topics.load(name, create=False)
        return await internal_stats_of(self._broker.io, found, self._broker.schemas.storage, metadata=False)

    # Storage

    async def trim(self, topic: str) -> None:
        """Deletes those ledgers of a topic that are no longer needed.

        :raises TopicNotFound: no such topic
        """
        for part in await self.parts(topic):
            (await self._broker.topics.persistent_topic(part)).managed_ledger.trimmer.schedule()


class TopicListAdmin:
    """Lists of non-persistent topics, of all brokers or of one bundle."""

    def __init__(self, broker: BrokerService, bundles: BundleAdmin) -> None:
        self._broker = broker
        self._bundles = bundles
        self._live = LiveTopics(broker.topics, broker.beside)

    async def non_persistent(self, namespace: str, *, system: bool) -> Sequence[str]:
        """Returns the full names of a namespace's non-persistent topics on all brokers, sorted.

        :param system: include system topics
        :raises NamespaceNotFound: no such namespace
        :raises BrokerError: a broker that serves a part of the namespace does not answer
        """
        name = self._broker.parse_namespace(namespace)
        await self._broker.namespaces.check(name)
        if self._broker.beside is None:
            return await self._broker.topic_names(namespace, mode="NON_PERSISTENT", system=system)
        found = await self._live.of_namespace(name)
        return sorted(each for each in found if system or not TopicName.parse(each).reserved)

    async def within(self, namespace: str, text: str, topics: Sequence[str]) -> Sequence[str]:
        """Returns the topics in ``topics`` that belong to a bundle, whichever broker owns it.

        :param text: the hash range of the bundle, ``0xSTART_0xEND``
        :raises PreconditionFailed: no such bundle
        """
        bundle = await self._bundles.named(self._broker.parse_namespace(namespace), text)
        return [each for each in topics if TopicName.parse(each) in bundle]

    async def of_bundle(self, namespace: str, text: str) -> Sequence[str] | None:
        """Returns the full names of a bundle's non-persistent topics, sorted; None if the bundle has no
        owner.

        :param text: the hash range of the bundle, ``0xSTART_0xEND``
        :raises NamespaceNotFound: no such namespace
        :raises PreconditionFailed: no such bundle
        :raises ServedElsewhere: another broker owns the bundle
        """
        name = self._broker.parse_namespace(namespace)
        await self._broker.namespaces.check(name)
        bundle = await self._bundles.named(name, text)
        owner = await self._live.owner(bundle)
        if owner is not None and not owner.here:
            raise elsewhere(f"{bundle} is served by {owner.broker_id}", owner)
        return None if owner is None else await self._live.here(bundle)
