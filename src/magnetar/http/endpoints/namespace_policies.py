"""Endpoints for the policies of namespaces, including those that topics can have as well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from magnetar.http.engine.message import Request, Response, json_response, nothing
from magnetar.http.routing import Application, Endpoint, Handler, Parameter
from magnetar.http.shapes.fields import always
from magnetar.http.shapes.names import namespace_of
from magnetar.http.shapes.namespace_policies import POLICIES, Policy
from magnetar.security.authorization import BROKER_ITSELF, BrokerOperation, PolicyOperation
from magnetar.security.authorization import PolicyName as P

_OF_SUPERUSERS = BrokerOperation.SHUT_DOWN


class PolicyKind(NamedTuple):
    policy: P
    body: str
    """The type of the request body, by Pulsar's name."""


KINDS: Mapping[str, PolicyKind] = {
    "antiAffinity": PolicyKind(P.ANTI_AFFINITY, "string"),
    "autoSubscriptionCreation": PolicyKind(P.AUTO_SUBSCRIPTION_CREATION, "AutoSubscriptionCreationOverride"),
    "autoTopicCreation": PolicyKind(P.AUTO_TOPIC_CREATION, "AutoTopicCreationOverride"),
    "compactionThreshold": PolicyKind(P.COMPACTION, "long"),
    "deduplication": PolicyKind(P.DEDUPLICATION, "bool"),
    "deduplicationEnabled": PolicyKind(P.DEDUPLICATION, "bool"),
    "deduplicationSnapshotInterval": PolicyKind(P.DEDUPLICATION_SNAPSHOT, "int"),
    "delayedDelivery": PolicyKind(P.DELAYED_DELIVERY, "DelayedDeliveryPolicies"),
    "dispatchRate": PolicyKind(P.RATE, "DispatchRate"),
    "dispatcherPauseOnAckStatePersistent": PolicyKind(P.DISPATCHER_PAUSE_ON_ACK_STATE_PERSISTENT, ""),
    "encryptionRequired": PolicyKind(P.ENCRYPTION, "bool"),
    "entryFilters": PolicyKind(P.ENTRY_FILTERS, "EntryFilters"),
    "inactiveTopicPolicies": PolicyKind(P.INACTIVE_TOPIC, "InactiveTopicPolicies"),
    "isAllowAutoUpdateSchema": PolicyKind(P.SCHEMA_COMPATIBILITY_STRATEGY, "bool"),
    "maxConsumers": PolicyKind(P.MAX_CONSUMERS, "int"),
    "maxConsumersPerSubscription": PolicyKind(P.MAX_CONSUMERS, "int"),
    "maxConsumersPerTopic": PolicyKind(P.MAX_CONSUMERS, "int"),
    "maxMessageSize": PolicyKind(P.MAX_MESSAGE_SIZE, "int"),
    "maxProducers": PolicyKind(P.MAX_PRODUCERS, "int"),
    "maxProducersPerTopic": PolicyKind(P.MAX_PRODUCERS, "int"),
    "maxSubscriptionsPerTopic": PolicyKind(P.MAX_SUBSCRIPTIONS, "int"),
    "maxTopicsPerNamespace": PolicyKind(P.MAX_TOPICS, "int"),
    "maxUnackedMessagesOnConsumer": PolicyKind(P.MAX_UNACKED, "int"),
    "maxUnackedMessagesOnSubscription": PolicyKind(P.MAX_UNACKED, "int"),
    "maxUnackedMessagesPerConsumer": PolicyKind(P.MAX_UNACKED, "int"),
    "maxUnackedMessagesPerSubscription": PolicyKind(P.MAX_UNACKED, "int"),
    "messageTTL": PolicyKind(P.TTL, "int"),
    "offloadDeletionLagMs": PolicyKind(P.OFFLOAD, "long"),
    "offloadPolicies": PolicyKind(P.OFFLOAD, "OffloadPolicies"),
    "offloadThreshold": PolicyKind(P.OFFLOAD, "long"),
    "offloadThresholdInSeconds": PolicyKind(P.OFFLOAD, "long"),
    "persistence": PolicyKind(P.PERSISTENCE, "PersistencePolicies"),
    "persistence/bookieAffinity": PolicyKind(P.BOOKIE_AFFINITY, "BookieAffinityGroupData"),
    "publishRate": PolicyKind(P.RATE, "PublishRate"),
    "replication": PolicyKind(P.REPLICATION, "array<string>"),
    "replicatorDispatchRate": PolicyKind(P.REPLICATION_RATE, "DispatchRate"),
    "resourcegroup": PolicyKind(P.RESOURCEGROUP, ""),
    "retention": PolicyKind(P.RETENTION, "RetentionPolicies"),
    "schemaAutoUpdateCompatibilityStrategy": PolicyKind(
        P.SCHEMA_COMPATIBILITY_STRATEGY, "SchemaAutoUpdateCompatibilityStrategy"
    ),
    "schemaCompatibilityStrategy": PolicyKind(P.SCHEMA_COMPATIBILITY_STRATEGY, "SchemaCompatibilityStrategy"),
    "schemaValidationEnforced": PolicyKind(P.SCHEMA_COMPATIBILITY_STRATEGY, "bool"),
    "shadowTopics": PolicyKind(P.SHADOW_TOPIC, "array<string>"),
    "subscribeRate": PolicyKind(P.RATE, "SubscribeRate"),
    "subscriptionAuthMode": PolicyKind(P.SUBSCRIPTION_AUTH_MODE, "SubscriptionAuthMode"),
    "subscriptionDispatchRate": PolicyKind(P.RATE, "DispatchRate"),
    "subscriptionExpirationTime": PolicyKind(P.SUBSCRIPTION_EXPIRATION_TIME, "int"),
    "subscriptionTypesEnabled": PolicyKind(P.SUBSCRIPTION_TYPES, "array<SubscriptionType>"),
}
NOT_THERE = {501: "this release does not support the value"}
"""Error status, with its reason, of a request that sets a policy to a value that is not supported."""
QUOTA_TYPE = Parameter("backlogQuotaType", "text", "destination_storage")


def reads(policy: P) -> PolicyOperation:
    return PolicyOperation(policy, write=False)


def writes(policy: P) -> PolicyOperation:
    return PolicyOperation(policy, write=True)


def _getter(policy: Policy) -> Handler:
    async def get_policy(application: Application, request: Request) -> Response:
        namespace = namespace_of(request.variables)
        admin = application.admin.namespaces
        found = await (admin.local_policies(namespace) if policy.local else admin.policies(namespace))
        value = found.get(policy.field)
        if policy.per_cluster and value is not None:
            value = value.get(application.cluster)
        if value is None:
            value = policy.unset
        return json_response(value) if value is not None else Response(policy.unset_status)

    return get_policy


async def _set(application: Application, request: Request, policy: Policy, value: object) -> Response:
    namespace = namespace_of(request.variables)
    admin = application.admin.namespaces
    if policy.local:
        await admin.set_local_policy(namespace, policy.field, value)
    else:
        if value is None and policy.unset is not None:
            value = policy.unset if policy.field in _ALWAYS_THERE else None
        await admin.set_policy(namespace, policy.field, value, per_cluster=policy.per_cluster, key=None)
    return nothing()


_ALWAYS_THERE = frozenset(("subscription_types_enabled", "schema_compatibility_strategy"))
"""Fields of ``Policies`` that are set for every namespace."""


def _setter(policy: Policy) -> Handler:
    async def set_policy(application: Application, request: Request) -> Response:
        value = policy.shape(request)
        if policy.field == "resource_group_name":
            await application.admin.resource_groups.check(value)
        return await _set(application, request, policy, value)

    return set_policy


def _remover(policy: Policy) -> Handler:
    async def remove_policy(application: Application, request: Request) -> Response:
        return await _set(application, request, policy, always(None)(request))

    return remove_policy


def _of_policy(policy: Policy) -> Iterator[Endpoint]:
    rest, name = f"/{policy.path}", policy.path
    kind = KINDS[policy.path]
    reading, writing = reads(kind.policy), writes(kind.policy)
    unset = {204: "the policy is not set"} if policy.unset_status == 204 else {}
    yield Endpoint("GET", rest, _getter(policy), f"{name} of a namespace", reading, refusals=unset)
    yield Endpoint(
        policy.method,
        f"{rest}/{{{policy.named}}}" if policy.named else rest,
        _setter(policy),
        f"set {name} of a namespace",
        writing,
        body=kind.body,
        refusals=NOT_THERE,
        sets=policy.field,
    )
    if policy.removable:
        yield Endpoint("DELETE", rest, _remover(policy), f"remove {name} of a namespace", writing)


async def _offloaded_objects(application: Application, request: Request) -> Response:
    # The bucket may hold objects of other tenants, and their names are names of topics.
    refusal = await application.access.authorizer.refusal(request.principal, _OF_SUPERUSERS, BROKER_ITSELF)
    namespace = namespace_of(request.variables)
    found = await application.admin.namespaces.offloaded_objects(namespace, others=refusal is None)
    return Response(200, content_type="application/json", streamed=found)


NAMESPACE_POLICIES: Sequence[Endpoint] = (
    *chain.from_iterable(map(_of_policy, POLICIES)),
    Endpoint(
        "GET",
        "/scanOffloadedLedgers",
        _offloaded_objects,
        "objects in the tiered storage of a namespace, compared with the records of topics",
        reads(P.OFFLOAD),
        refusals={412: "the namespace has no tiered storage", 501: "the driver cannot list its objects"},
    ),
)
"""Endpoints for policies; their paths are relative to the path of the namespace."""
