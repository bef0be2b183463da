"""Administration of partitioned topics, and checks of shadow topics (PIP-180)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from magnetar.broker.ownership.contract import Asked
from magnetar.broker.ownership.peers import PeerRefused, ask
from magnetar.broker.service import BrokerService
from magnetar.broker.subscriptions.non_persistent import NonPersistentSubscription
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.broker.topics.persistent import Topic
from magnetar.errors import (
    AlreadyExists,
    AuthorizationFailure,
    BrokerError,
    Conflict,
    InUse,
    NotAllowed,
    PreconditionFailed,
    TopicNotFound,
    Unprocessable,
)
from magnetar.io.waiting import finished
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.managed_ledger.position import EARLIEST
from magnetar.metadata.interface import MetadataError
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.replicators import SHADOW_SOURCE, shadow_source
from magnetar.naming.topic_name import TopicName, subscription_piece

T = TypeVar("T")
_NOT_FOUND = 404
_FROM_THE_START = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}


class _Kept(NamedTuple):
    """A subscription of the first partition, to create on new partitions."""

    properties: dict[str, str]
    replicated: bool
    """Whether the subscription is replicated."""


def is_used(topic: AnyTopic) -> bool:
    """Whether clients are connected to a topic or are connecting."""
    return bool(topic.producers or topic.subscriptions.consumer_count() or topic.is_awaited)


def check_not_replicated(topic: AnyTopic) -> None:
    """Checks that a topic to be deleted without force is not replicated.

    :raises Unprocessable: the topic is replicated: the other clusters keep it, and would create it again here
    """
    if isinstance(topic, Topic) and topic.replicators:
        clusters = ", ".join(sorted(topic.replicators))
        raise Unprocessable(f"Delete forbidden topic is replicated on clusters [{clusters}]")


def in_use() -> InUse:
    return InUse("Topic has active producers/subscriptions")


async def marked(made: Subscription | NonPersistentSubscription, *, replicated: bool) -> None:
    """Marks a new subscription as replicated if ``replicated`` is true; durable when this returns."""
    if replicated and isinstance(made, Subscription):
        made.replicate(True)
        await made.cursor.flush()


async def check_room(broker: BrokerService, name: TopicName, more: int) -> None:
    """Checks that a namespace has room for ``more`` further topics.

    :raises PreconditionFailed: the namespace would exceed its limit of topics
    """
    try:
        await broker.topics.creation.check_room(name, more)
    except NotAllowed as error:
        raise PreconditionFailed(str(error)) from error


class PartitionAdmin:
    """Administration of partitioned topics. Topics are given by their full names."""

    def __init__(self, broker: BrokerService) -> None:
        self._broker = broker
        self._namespaces = broker.namespaces

    async def elsewhere(self, topic: str) -> Sequence[TopicName]:
        """Returns the partitions of a topic if other brokers may serve some of them; empty otherwise."""
        name = self._broker.parse_topic(topic)
        if self._broker.beside is None:
            return []
        return [name.partition(index) for index in range(await self._namespaces.partitions(name))]

    async def at_owner(
        self,
        name: TopicName,
        here: Callable[[], Awaitable[object]],
        method: str,
        suffix: str = "",
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Any:
        """Carries out an operation on a topic at its owner; see :func:`at_owner_of`."""
        return await at_owner_of(self._broker, name, here, method, suffix, query, body)

    async def at_each_owner(
        self,
        names: Iterable[TopicName],
        here: Callable[[TopicName], Awaitable[T]],
        method: str,
        suffix: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> tuple[dict[str, T], BrokerError | None]:
        """Carries out an operation on several topics, each at its owner; see :func:`at_owner_of`.

        :returns: the results by full name, without topics that answer 404, for example because they lack the
            subscription, or because no client has created them yet; and the last error with that status
        :raises BrokerError: another error of a topic, which ends the operation
        """
        found: dict[str, T] = {}
        missing: BrokerError | None = None
        for name in names:
            try:
                found[str(name)] = await self.at_owner(name, partial(here, name), method, suffix, query, body)
            except BrokerError as error:
                if error.http_status != _NOT_FOUND:
                    raise
                missing = error
        return found, missing

    async def count(self, topic: str, *, create: bool) -> int:
        """Returns the number of partitions, 0 for a topic that is not partitioned.

        :param create: create a missing topic if the settings allow it
        :raises TopicNotFound: no such topic
        """
        name = self._broker.parse_topic(topic)
        if create:
            return await self._broker.topics.creation.partitions_or_create(name)
        await self._namespaces.check(name.namespace_name)
        count = await self._namespaces.partitions(name)
        if not count and not await self._exists(name):
            raise TopicNotFound(f"Topic {name} not found")
        return count

    async def create(self, topic: str, partitions: int, properties: Mapping[str, str]) -> None:
        """Creates a partitioned topic and its partitions.

        :raises AlreadyExists: a topic of that name exists
        :raises PartitionCountRefused: the number is below 1, or above ``maxNumPartitionsPerPartitionedTopic``
            or ``magnetarMaxPartitionsPerTopic``
        :raises PreconditionFailed: the namespace would exceed its limit of topics; or ``properties`` name a
            source whose shadow the topic cannot be
        :raises NamespaceNotFound: no such namespace
        """
        name = self._broker.parse_topic(topic)
        self._broker.topics.creation.check_partitions(partitions)
        await self._namespaces.check(name.namespace_name)
        if await self._namespaces.partitions(name) or await self._exists(name):
            raise AlreadyExists("This topic already exists")
        if SHADOW_SOURCE in properties:
            await check_source(self._broker, name, properties[SHADOW_SOURCE], partitions)
        await check_room(self._broker, name, partitions)
        await self._namespaces.create_partitioned(name, partitions, properties)
        await self._make(name, range(partitions))

    async def _exists(self, name: TopicName) -> bool:
        return await self._broker.topics.creation.exists(name)

    async def _make(self, name: TopicName, indexes: Sequence[int]) -> None:
        """Creates partitions, each with the subscriptions of the first partition."""
        if not name.persistent:
            # Non-persistent partitions exist only while clients use them.
            return
        subscriptions = await self._subscriptions(name)
        for index in indexes:
            partition = name.partition(index)
            await self.at_owner(partition, partial(self._broker.topics.create_topic, partition), "PUT")
            for subscription, kept in subscriptions.items():
                await self.at_owner(
                    partition,
                    partial(self._subscribe, partition, subscription, kept),
                    "PUT",
                    f"/subscription/{subscription_piece(subscription)}",
                    {"replicated": "true"} if kept.replicated else None,
                    body=json.dumps({**_FROM_THE_START, "properties": kept.properties}).encode(),
                )

    async def _subscribe(self, name: TopicName, subscription: str, kept: _Kept) -> None:
        topic = await self._broker.topics.load(name, create=False)
        made = await topic.subscriptions.subscribe(
            subscription, EARLIEST, kept.properties, durable=True, create=True
        )
        await marked(made, replicated=kept.replicated)

    async def _subscriptions(self, name: TopicName) -> dict[str, _Kept]:
        """Returns the durable subscriptions of the first partition, by subscription name."""
        first = name.partition(0)
        if not await self._exists(first):
            return {}

        async def here() -> tuple[tuple[str, _Kept], ...]:
            topic = await self._broker.topics.load(first, create=False)
            return tuple(
                (each.name, _Kept(dict(each.properties), each.replicated))
                for each in topic.subscriptions.values()
                if isinstance(each, Subscription) and each.durable
            )

        found = await self.at_owner(first, here, "GET", "/stats")
        if isinstance(found, tuple):
            return dict(found)
        # If another broker owns the partition, its answer is the topic's statistics.
        return {
            text: _Kept(dict(stats.get("subscriptionProperties") or {}), bool(stats.get("isReplicated")))
            for text, stats in found["subscriptions"].items()
            if stats.get("durable", True)
        }

    async def update(self, topic: str, partitions: int, *, force: bool) -> None:
        """Raises the number of partitions to ``partitions``; new partitions get the subscriptions of the
        first partition.

        :param force: add partitions even if topics with their names exist
        :raises Conflict: the topic is not partitioned, or topics with the names of new partitions exist
        :raises PreconditionFailed: the namespace would exceed its limit of topics
        :raises Unprocessable: the topic has more than ``partitions`` partitions
        :raises PartitionCountRefused: the number is above ``maxNumPartitionsPerPartitionedTopic`` or
            ``magnetarMaxPartitionsPerTopic``
        """
        name = self._broker.parse_topic(topic)
        await self._namespaces.check(name.namespace_name)
        count = await self._namespaces.partitions(name)
        if not count:
            raise Conflict(f"Topic {name} is not the partitioned topic.")
        if partitions < count:
            raise Unprocessable(
                f"Desired partitions {partitions} can't be less than the current partitions {count}."
            )
        self._broker.topics.creation.check_partitions(partitions)
        if not force:
            for index in range(count, partitions):
                if await self._exists(name.partition(index)):
                    raise Conflict(
                        f"Partition {name.partition(index)} already exists although the topic has {count} "
                        "partitions: delete it first"
                    )
        await check_room(self._broker, name, partitions - count)
        await self._namespaces.change_partitioned(name, partitions=partitions)
        await self._make(name, range(count, partitions))

    async def create_missing(self, topic: str) -> None:
        """Creates the missing partitions of a partitioned topic.

        :raises TopicNotFound: no such partitioned topic
        """
        name = self._broker.parse_topic(topic)
        count = await self._count(name, f"Topic {name} does not exist")
        missing = [index for index in range(count) if not await self._exists(name.partition(index))]
        await self._make(name, missing)

    async def _count(self, name: TopicName, otherwise: str) -> int:
        await self._namespaces.check(name.namespace_name)
        count = await self._namespaces.partitions(name)
        if not count:
            raise TopicNotFound(otherwise)
        return count

    async def delete(self, topic: str, *, force: bool) -> None:
        """Deletes a partitioned topic and all partitions.

        :param force: delete the topic even if it has producers or consumers
        :raises TopicNotFound: no such topic
        :raises InUse: the topic has producers or consumers. If a partition got clients during the deletion,
            unused partitions may have been deleted; they are created again on use
        """
        name = self._broker.parse_topic(topic)
        count = await self._count(name, f"Topic {name} not found.")
        partitions = [name.partition(index) for index in range(count)]
        if not force:
            await self._check_unused(partitions)
        # From here on reconnecting clients do not create partitions again.
        await self._namespaces.mark_deleted(name, deleted=True)
        try:
            await self._delete_partitions(partitions, force=force)
        except (BrokerError, LedgerError, ManagedLedgerError, MetadataError):
            await self._namespaces.mark_deleted(name, deleted=False)
            raise
        # While the record is marked as deleted no client can create a topic of that name with a new schema.
        await self._broker.schemas.delete(name.schema_path)
        await self._broker.policies.forget(name)
        await self._namespaces.delete_partitioned(name)

    async def delete_data(self, name: TopicName) -> None:
        """Deletes all partitions of a topic, even partitions with clients; the record of the topic stays."""
        count = await self._namespaces.partitions(name)
        await self._delete_partitions([name.partition(index) for index in range(count)], force=True)

    async def _check_unused(self, partitions: Sequence[TopicName]) -> None:
        """Checks that no partition has producers or consumers, before any partition is deleted.

        :raises InUse: a partition has producers or consumers
        """
        for partition in partitions:
            if not await self._is_there(partition):
                continue
            try:
                found = await self.at_owner(partition, partial(self._is_used, partition), "GET", "/stats")
            except (TopicNotFound, PeerRefused) as error:
                if error.http_status == _NOT_FOUND:
                    # An interrupted deletion left the record marked, so the partition cannot be loaded.
                    continue
                raise
            used = found if isinstance(found, bool) else _shows_clients(found)
            if used:
                raise in_use()

    async def _is_used(self, partition: TopicName) -> bool:
        topic = await self._broker.topics.load(partition, create=False)
        check_not_replicated(topic)
        return is_used(topic)

    async def _delete_partitions(self, partitions: Sequence[TopicName], *, force: bool) -> None:
        for loading in self._broker.topics.loading_in(partitions[0].namespace_name):
            # A load that began before may still create the partition.
            await finished(self._broker.io.loop, loading)
        query = {"force": "true" if force else "false", "deleteSchema": "false"}
        for partition in partitions:
            if await self._is_there(partition):
                await self.at_owner(
                    partition, partial(self._delete, partition, force=force), "DELETE", query=query
                )

    async def _delete(self, partition: TopicName, *, force: bool) -> None:
        if not await self._is_there_still(partition):
            return
        topic = await self._broker.topics.load(partition, create=False)
        # Clients may have connected since the check of all partitions; from here to the closing none can.
        if not force and is_used(topic):
            raise in_use()
        await self._broker.topics.delete_topic(topic)

    async def _is_there_still(self, partition: TopicName) -> bool:
        return partition.persistent or str(partition) in self._broker.topics.loaded

    async def _is_there(self, partition: TopicName) -> bool:
        """Whether a partition exists; true also if another broker may have loaded a non-persistent
        partition."""
        if partition.persistent:
            return await self._exists(partition)
        return str(partition) in self._broker.topics.loaded or self._broker.beside is not None

    async def terminate(self, topic: str) -> Mapping[int, tuple[int, int]]:
        """Terminates all partitions; returns the last position of each, by partition index.

        :raises TopicNotFound: no such topic
        :raises NotAllowed: the topic is not partitioned
        """
        name = self._broker.parse_topic(topic)
        await self._namespaces.check(name.namespace_name)
        count = await self._namespaces.partitions(name)
        if not count:
            if not await self._exists(name):
                raise TopicNotFound(f"Topic {name} not found")
            raise NotAllowed(
                "Termination of a non-partitioned topic is not allowed using partitioned-terminate, "
                "please use terminate commands"
            )
        ends = {}
        for index in range(count):
            partition = name.partition(index)
            found = await self.at_owner(partition, partial(self._terminate, partition), "POST", "/terminate")
            ends[index] = (found["ledgerId"], found["entryId"]) if isinstance(found, dict) else found
        return ends

    async def _terminate(self, partition: TopicName) -> tuple[int, int]:
        return await (await self._broker.topics.persistent_topic(partition)).terminate()

    async def describe(self, topic: str) -> Mapping[str, Any]:
        """Returns the stored ``PartitionedTopicMetadata``.

        :raises TopicNotFound: no such partitioned topic
        """
        name = self._broker.parse_topic(topic)
        await self._count(name, f"Partitioned Topic {name} not found")
        return await self._namespaces.partitioned(name)


def _shows_clients(stats: Mapping[str, Any]) -> bool:
    consumers = (each.get("consumers") for each in (stats.get("subscriptions") or {}).values())
    return bool(stats.get("publishers")) or any(consumers)


async def at_owner_of(
    broker: BrokerService,
    name: TopicName,
    here: Callable[[], Awaitable[object]],
    method: str,
    suffix: str = "",
    query: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> object:
    """Carries out an operation on a topic at its owner; returns the result, parsed from JSON if another
    broker is the owner.

    :param here: carries out the operation if this broker is the owner
    :param method: HTTP method of the request to another broker
    :param suffix: the end of that request's path, after the topic
    :raises ServiceNotReady: the owner cannot be determined or does not answer
    :raises PeerRefused: the owner refuses
    """
    owner = await broker.lookups.owner_of(name, Asked.PLACE)
    if owner.here:
        return await here()
    answer = await ask(broker.beside, owner, method, name.admin_path + suffix, query, body)
    return answer.json()


async def check_source(broker: BrokerService, name: TopicName, text: str, partitions: int = 0) -> None:
    """Checks that a new topic may be the shadow of another topic.

    :param text: name of the source
    :param partitions: the number of partitions of the new topic; 0: not partitioned
    :raises PreconditionFailed: the source is missing, is a shadow itself, or has another number of partitions
    """
    try:
        source = TopicName.parse(text)
    except InvalidName as error:
        raise PreconditionFailed(
            f"{SHADOW_SOURCE} is {text!r}, which is not the name of a topic: {error}"
        ) from error
    if not source.persistent or source == name:
        raise PreconditionFailed(f"{source} cannot be the source of {name}: use another persistent topic")
    properties = await _properties(broker, source)
    if properties is None:
        raise PreconditionFailed(
            f"The source {source} of shadow topic {name} does not exist: create it first"
        )
    if SHADOW_SOURCE in properties:
        raise PreconditionFailed(
            f"{source} is itself a shadow topic, of {properties[SHADOW_SOURCE]}: use that topic as the source"
        )
    count = await broker.namespaces.partitions(source)
    if count != partitions:
        raise PreconditionFailed(
            f"The source {source} has {count} partitions, but its shadow {name} would have {partitions}: "
            "both must have the same number"
        )
    await _check_no_transactions(broker, source)


async def _check_no_transactions(broker: BrokerService, source: TopicName) -> None:
    """Checks that a topic can be the source of a shadow topic.

    :raises PreconditionFailed: the topic, or a partition of it, has had transactions
    """
    snapshots = broker.topics.snapshots
    if snapshots is None:
        return
    count = await broker.namespaces.partitions(source)
    for each in [source.partition(index) for index in range(count)] or [source]:
        if await snapshots.load(each) is not None:
            raise PreconditionFailed(
                f"{each} has had transactions, and a shadow topic would show messages of aborted ones"
            )


async def check_shadows(broker: BrokerService, source: TopicName, shadows: Sequence[str]) -> None:
    """Checks that ``shadows`` can be the shadow topics of ``source``.

    :raises PreconditionFailed: the list is empty; a topic in it is missing or not a shadow topic of
        ``source``
    :raises AuthorizationFailure: a name is not the name of a persistent topic, as in Pulsar
    """
    if not shadows:
        raise PreconditionFailed("Cannot specify empty shadow topics, please use remove command instead.")
    for text in shadows:
        try:
            name = TopicName.parse(text)
        except InvalidName as error:
            raise AuthorizationFailure(f"Invalid topic name: {text}") from error
        if not name.persistent:
            raise AuthorizationFailure(f"Only persistent topics can be shadow topics, not {name}")
        if name == source:
            raise PreconditionFailed(f"{name} cannot be a shadow topic of itself")
        properties = await _properties(broker, name)
        if properties is None:
            raise PreconditionFailed(
                f"Shadow topic {name} does not exist: create it with create-shadow-topic"
            )
        if shadow_source(properties, name) != source:
            raise PreconditionFailed(
                f"{name} is not a shadow topic of {source}: create one with create-shadow-topic -s {source}"
            )
    await _check_no_transactions(broker, source)


async def _properties(broker: BrokerService, name: TopicName) -> Mapping[str, str] | None:
    """Returns the properties of a topic, on any broker; None if the topic does not exist."""
    if await broker.namespaces.partitions(name):
        found: Mapping[str, str] = (await broker.namespaces.partitioned(name)).get("properties") or {}
        return found
    return await broker.managed_ledgers.properties(name.path)
