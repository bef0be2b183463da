"""Administration of the policies of single topics."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from magnetar.broker.admin.namespaces import check_filters
from magnetar.broker.admin.partitions import PartitionAdmin, check_shadows
from magnetar.broker.admin.topics import TopicAdmin
from magnetar.broker.policies.effective import APPLIED, counting, of_topic
from magnetar.broker.policies.offload import shown, unmasked
from magnetar.broker.policies.records import Record
from magnetar.broker.policies.rules import check_allowed, check_topic, check_within_namespace
from magnetar.broker.policies.store import TopicPolicies
from magnetar.broker.policies.values import Json
from magnetar.broker.service import BrokerService
from magnetar.errors import (
    AuthorizationFailure,
    InvalidRequest,
    MetadataFailure,
    NotAllowed,
    PreconditionFailed,
    TopicNotFound,
)
from magnetar.naming.topic_name import TopicName

_OFFLOAD = "offloadPolicies"
log = logging.getLogger(__name__)


class TopicPolicyAdmin:
    """Administration of the policies of single topics. Topics are given by their full names. The policies of
    a partitioned topic apply to its partitions.

    The methods raise PreconditionFailed if the topic is a partition, and NotAllowed if topic policies are
    disabled.
    """

    def __init__(self, broker: BrokerService, topics: TopicAdmin, partitions: PartitionAdmin) -> None:
        self._broker = broker
        self._topics = topics
        self._partitions = partitions

    async def _named(self, topic: str) -> tuple[TopicName, TopicPolicies]:
        """Returns the parsed name of a topic, and its policies.

        :raises TopicNotFound: no such topic
        :raises PreconditionFailed: the topic is a partition
        :raises NotAllowed: topic policies are disabled
        """
        name = self._broker.parse_topic(topic)
        await self._broker.namespaces.check(name.namespace_name)
        topics = self._broker.policies.topics
        if topics is None:
            raise NotAllowed("Topic level policies is disabled, to enable the topic level policy and retry.")
        count = await self._broker.namespaces.partitions(name)
        if not count and not await self._broker.topics.creation.exists(name):
            raise TopicNotFound(f"Topic {name} not found")
        if name.partition_index >= 0 and await self._broker.namespaces.partitions(name.base):
            raise PreconditionFailed("Not allowed to set/get topic policy for a partition")
        return name, topics

    async def policies(self, topic: str, *, everywhere: bool) -> Mapping[str, Any]:
        """Returns ``TopicPolicies``; empty if none are set.

        :param everywhere: return the policies for all clusters instead of the policies for the local cluster
        :raises TopicNotFound: no such topic
        """
        name, topics = await self._named(topic)
        return _shown(await topics.own(name, everywhere=everywhere))

    async def applied(self, topic: str, field: str) -> object:
        """Returns the policy in effect for a topic; None if neither the topic nor its namespace nor the
        broker sets this policy.

        :param field: the field of ``TopicPolicies`` that contains the policy; the result has the format of
            this field
        :raises TopicNotFound: no such topic
        """
        name, topics = await self._named(topic)
        render = APPLIED.get(field)
        if render is None:
            return _shown(await topics.of(name)).get(field)
        return render(await self._broker.policies.of_topic(name))

    async def all_of(self, topic: str) -> Mapping[str, object]:
        """Returns ``own``, the policies set for the topic, and ``counting``, the policies in effect, whether
        the topic, its namespace or the broker sets them.

        :raises TopicNotFound: no such topic
        """
        name, topics = await self._named(topic)
        own = _shown(await topics.of(name))
        return {"own": own, "counting": counting(await self._broker.policies.of_topic(name))}

    async def set_policy(
        self, topic: str, changes: Mapping[str, Any], *, everywhere: bool, field: str, key: str | None = None
    ) -> None:
        """Sets fields of ``TopicPolicies``; the value None removes a field. Loaded topics have applied the
        change when this returns.

        :param everywhere: set the policy for all clusters
        :param field: the field whose rules are checked
        :param key: the key of the entry to set if the field is a map; None: set the whole field
        :raises TopicNotFound: no such topic
        :raises PreconditionFailed: other policies forbid the value, or the broker cannot apply it
        :raises InvalidRequest: the policy contradicts itself
        """
        name, topics = await self._named(topic)
        check_filters(self._broker, field, changes.get(field))
        policies = self._broker.policies
        above = await policies.of_namespace(name.namespace_name)
        if field == "shadowTopics" and changes.get(field) is not None:
            await check_shadows(self._broker, name, changes[field])
        if field == "replicationClusters" and changes.get(field):
            if not everywhere:
                self._check_clusters(changes[field])
            await self._check_known(name.tenant, changes[field])
            check_within_namespace(str(name.namespace_name), changes[field], above.allowed_clusters)

        def work(record: Record) -> None:
            for changed, value in changes.items():
                if changed == _OFFLOAD:
                    value = unmasked(value, record.get(_OFFLOAD))
                _put(record, changed, value, key)
            if changes.get(field) is None:
                return
            try:
                counting = of_topic(above, record)
            except MetadataFailure as error:
                raise InvalidRequest(str(error)) from error
            one_copy = self._broker.settings.one_copy
            check_topic(counting, field, self._broker.limits.max_message_size, one_copy=one_copy)

        await topics.change(name, work, everywhere=everywhere)
        await policies.tell(name.namespace_name, name)
        if everywhere and field == "replicationClusters" and changes.get(field):
            await self._delete_unless_listed(name)

    async def _delete_unless_listed(self, name: TopicName) -> None:
        """Deletes a topic's local data and policies if its lists of clusters no longer contain the local
        cluster.

        Pulsar does the same. The record of a partitioned topic and the policies in other clusters stay.
        """
        own = self._broker.settings.cluster
        counting = await self._broker.policies.of_topic(name)
        if own in counting.replication_clusters or own in counting.allowed_clusters:
            return
        log.warning(
            "topic deleted: its global list of clusters no longer includes the local cluster",
            extra={"topic": str(name), "cluster": own},
        )
        if await self._broker.namespaces.partitions(name):
            await self._partitions.delete_data(name)
            await self._broker.policies.forget(name)
        else:
            await self._topics.delete(str(name), force=True)

    async def _check_known(self, tenant: str, clusters: Sequence[str]) -> None:
        """Checks the clusters of a policy.

        :raises AuthorizationFailure: a cluster does not exist, or the tenant may not use it
        :raises Conflict: two of the clusters are peers
        """
        policies = self._broker.policies
        for cluster in clusters:
            if not await policies.clusters.exists(cluster):
                raise AuthorizationFailure(f"Invalid cluster id: {cluster}")
        await policies.clusters.check_peers(clusters)
        check_allowed(tenant, clusters, await policies.tenants.get(tenant))

    def _check_clusters(self, clusters: Sequence[str]) -> None:
        """Checks that a list of clusters includes the local cluster.

        :raises PreconditionFailed: the list lacks the local cluster
        """
        own = self._broker.settings.cluster
        if own not in clusters:
            raise PreconditionFailed(
                "Can not remove local cluster from the local topic-level replication clusters policy"
            )

    async def delete(self, topic: str) -> None:
        """Removes all policies of a topic, in this cluster and in others.

        :raises TopicNotFound: no such topic
        """
        name, topics = await self._named(topic)
        await topics.delete(name, elsewhere=True)
        await self._broker.policies.tell(name.namespace_name, name)


def _shown(own: Json) -> Json:
    """Returns a topic's policies without the secrets in them."""
    return {**own, _OFFLOAD: shown(own[_OFFLOAD])} if own.get(_OFFLOAD) else own


def _put(record: Record, field: str, value: object, key: str | None) -> None:
    if key is not None:
        table = dict(record.get(field) or {})
        _put(table, key, value, None)
        record[field] = table
    elif value is None:
        record.pop(field, None)
    else:
        record[field] = value
