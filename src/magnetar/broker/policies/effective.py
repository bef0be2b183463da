"""The policies in effect for a topic. Each policy is taken from the topic; if it is not set there, from the
namespace; otherwise from the broker's settings.

No other module decides which level takes precedence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any, TypeVar

from magnetar.broker.policies import offload
from magnetar.broker.policies.values import (
    AGE_QUOTA,
    STORAGE_QUOTA,
    AutoTopics,
    BacklogQuota,
    DelayedDelivery,
    DispatchRate,
    InactiveTopics,
    Json,
    Persistence,
    PublishRate,
    Retention,
    SubscribeRate,
    fields,
    number,
    text,
    texts,
    truth,
    whole,
)
from magnetar.errors import MetadataFailure
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.interface import Groups, Quorums

SUBSCRIPTION_TYPES = ("Exclusive", "Shared", "Failover", "Key_Shared")
_Rate = TypeVar("_Rate", PublishRate, DispatchRate, SubscribeRate)


@dataclass(frozen=True, slots=True)
class EffectivePolicies:
    """All policies that apply to one topic; a limit of 0 means that there is no limit.

    The defaults are Pulsar's.
    """

    retention: Retention = field(default_factory=Retention)
    message_ttl_seconds: int = 0
    """The age at which unconsumed messages expire, in seconds; 0: never."""
    subscription_expiration_minutes: int = 0
    """The time without consumers after which a subscription is deleted, in minutes; 0: never."""
    storage_quota: BacklogQuota = field(default_factory=BacklogQuota)
    age_quota: BacklogQuota = field(default_factory=BacklogQuota)
    deduplication: bool = False
    deduplication_snapshot_seconds: int = 120
    """The time between two deduplication snapshots, in seconds; 0: a snapshot is taken only after a number of
    entries, and when the topic is closed."""
    max_producers: int = 0
    max_consumers: int = 0
    max_consumers_per_subscription: int = 0
    max_subscriptions: int = 0
    max_unacked_per_consumer: int = 50_000
    max_unacked_per_subscription: int = 200_000
    max_message_size: int = 0
    """The maximum size of a message in bytes; 0: only the broker's own limit applies."""
    publish_rate: PublishRate = field(default_factory=PublishRate)
    dispatch_rate: DispatchRate = field(default_factory=DispatchRate)
    subscription_dispatch_rate: DispatchRate = field(default_factory=DispatchRate)
    subscription_dispatch_rates: Mapping[str, DispatchRate] = field(default_factory=dict)
    """Dispatch rates of single subscriptions, by name; they take precedence over the topic's rate for
    subscriptions."""
    replicator_dispatch_rate: DispatchRate = field(default_factory=DispatchRate)
    subscribe_rate: SubscribeRate = field(default_factory=SubscribeRate)
    resource_group: str = ""
    """The resource group whose limits the namespace shares with other namespaces; empty: no group."""
    inactive_topics: InactiveTopics = field(default_factory=InactiveTopics)
    subscription_types: tuple[str, ...] = SUBSCRIPTION_TYPES
    auto_topics: AutoTopics = field(default_factory=AutoTopics)
    auto_subscriptions: bool = True
    schema_compatibility: str = "FULL"
    system_schema_compatibility: str = "ALWAYS_COMPATIBLE"
    """The schema compatibility strategy of system topics."""
    schema_validation: bool = False
    """Whether producers must have a schema."""
    auto_update_schema: bool = True
    """Whether producers may add versions of the schema."""
    delayed_delivery: DelayedDelivery = field(default_factory=DelayedDelivery)
    encryption_required: bool = False
    compaction_threshold: int = 0
    """The backlog in bytes at which a topic is compacted; 0: topics are not compacted automatically."""
    persistence: Persistence = field(default_factory=Persistence)
    bookie_groups: Groups | None = None
    """The bookie groups that store the ledgers of the namespace's topics; None: the ledger store's
    configuration applies."""
    offload: Json = field(default_factory=dict)
    """Fields of ``OffloadPolicies`` (:mod:`magnetar.broker.policies.offload`)."""
    offload_on_load: bool = False
    """Whether ledgers that are due are offloaded when a topic is loaded."""
    entry_filters: tuple[str, ...] = ()
    pause_on_ack_state: bool = False
    replication_clusters: tuple[str, ...] = ()
    allowed_clusters: tuple[str, ...] = ()
    """Clusters that may serve the namespace's topics besides its replication clusters (PIP-321)."""
    max_topics: int = 0
    """The maximum number of topics of the namespace; 0: no limit."""
    shadow_topics: tuple[str, ...] = ()
    """Full names of this topic's shadow topics, as written by the client that set them."""

    @property
    def quorums(self) -> Quorums:
        """The quorums of ledgers that are created from now on."""
        persistence = self.persistence
        return Quorums(
            persistence.ensemble, persistence.write_quorum, persistence.ack_quorum, self.bookie_groups
        )


def _unless(nothing: object, read: Callable[[object], object]) -> Callable[[object], object]:
    return lambda value: None if value == nothing else read(value)


def _cap(value: object) -> int | None:
    """Returns a limit; None for a value below 0, which counts as not set, so that the level above applies.
    Older versions of Pulsar write -1."""
    given = whole(value)
    return given if given >= 0 else None


def _most(value: object) -> int:
    """Returns a limit; 0 (no limit) for a value below 0, even if the broker's settings have a limit."""
    return max(0, whole(value))


def _rate(read: Callable[[object], _Rate]) -> Callable[[object], _Rate | None]:
    """Returns a reader of rates that returns None for a rate without any limit, so that the level above
    applies, as in Pulsar."""

    def bounded(value: object) -> _Rate | None:
        rate = read(value)
        return rate if rate.limited else None

    return bounded


def filter_names(value: object) -> tuple[str, ...]:
    """Returns the names in an ``EntryFilters``."""
    names = text(fields(value).get("entryFilterNames", ""))
    return tuple(name.strip() for name in names.split(",") if name.strip())


def _auto_subscriptions(value: object) -> bool:
    return truth(fields(value).get("allowAutoSubscriptionCreation", False))


@dataclass(frozen=True, slots=True)
class _Source:
    """The source of one policy: the names of its field in the JSON of a namespace and of a topic.

    None: the policy cannot be set at that level.
    """

    namespace: str | None
    topic: str | None
    read: Callable[[object], object]
    per_cluster: bool = False
    """Whether the namespace's field is a map with a value for each cluster."""
    older: str | None = None
    """The field that older versions of Pulsar write, a map with a value for each cluster; None: no such
    field.
    """


_SOURCES: dict[str, _Source] = {
    "retention": _Source("retention_policies", "retentionPolicies", Retention.read),
    "message_ttl_seconds": _Source("message_ttl_in_seconds", "messageTTLInSeconds", _cap),
    "subscription_expiration_minutes": _Source("subscription_expiration_time_minutes", None, whole),
    "deduplication": _Source("deduplicationEnabled", "deduplicationEnabled", truth),
    "deduplication_snapshot_seconds": _Source(
        "deduplicationSnapshotIntervalSeconds", "deduplicationSnapshotIntervalSeconds", whole
    ),
    "max_producers": _Source("max_producers_per_topic", "maxProducerPerTopic", _cap),
    "max_consumers": _Source("max_consumers_per_topic", "maxConsumerPerTopic", _cap),
    "max_consumers_per_subscription": _Source(
        "max_consumers_per_subscription", "maxConsumersPerSubscription", _cap
    ),
    "max_subscriptions": _Source("max_subscriptions_per_topic", "maxSubscriptionsPerTopic", _cap),
    "max_unacked_per_consumer": _Source(
        "max_unacked_messages_per_consumer", "maxUnackedMessagesOnConsumer", _cap
    ),
    "max_unacked_per_subscription": _Source(
        "max_unacked_messages_per_subscription", "maxUnackedMessagesOnSubscription", _cap
    ),
    "max_message_size": _Source(None, "maxMessageSize", whole),
    "publish_rate": _Source("publishMaxMessageRate", "publishRate", _rate(PublishRate.read), True),
    "dispatch_rate": _Source(
        "topicDispatchRate", "dispatchRate", _rate(DispatchRate.read), True, "clusterDispatchRate"
    ),
    "subscription_dispatch_rate": _Source(
        "subscriptionDispatchRate", "subscriptionDispatchRate", _rate(DispatchRate.read), True
    ),
    "replicator_dispatch_rate": _Source(
        "replicatorDispatchRate", "replicatorDispatchRate", _rate(DispatchRate.read), True
    ),
    "resource_group": _Source("resource_group_name", None, text),
    "subscribe_rate": _Source("clusterSubscribeRate", "subscribeRate", _rate(SubscribeRate.read), True),
    "inactive_topics": _Source("inactive_topic_policies", "inactiveTopicPolicies", InactiveTopics.read),
    "subscription_types": _Source(
        "subscription_types_enabled", "subscriptionTypesEnabled", _unless([], texts)
    ),
    "auto_topics": _Source("autoTopicCreationOverride", None, AutoTopics.read),
    "auto_subscriptions": _Source(
        "autoSubscriptionCreationOverride", "autoSubscriptionCreationOverride", _auto_subscriptions
    ),
    "schema_compatibility": _Source(
        "schema_compatibility_strategy", "schemaCompatibilityStrategy", _unless("UNDEFINED", text)
    ),
    "schema_validation": _Source(
        "schema_validation_enforced", "schemaValidationEnforced", _unless(False, truth)
    ),
    "auto_update_schema": _Source("is_allow_auto_update_schema", None, truth),
    "delayed_delivery": _Source("delayed_delivery_policies", None, DelayedDelivery.read),
    "encryption_required": _Source("encryption_required", None, _unless(False, truth)),
    "compaction_threshold": _Source("compaction_threshold", "compactionThreshold", whole),
    "persistence": _Source("persistence", "persistence", Persistence.read),
    "entry_filters": _Source("entryFilters", "entryFilters", filter_names),
    "pause_on_ack_state": _Source(
        "dispatcherPauseOnAckStatePersistentEnabled", "dispatcherPauseOnAckStatePersistentEnabled", truth
    ),
    "replication_clusters": _Source("replication_clusters", "replicationClusters", texts),
    "allowed_clusters": _Source("allowed_clusters", None, texts),
    "shadow_topics": _Source(None, "shadowTopics", texts),
    "max_topics": _Source("max_topics_per_namespace", None, _most),
}
_AUTO_UPDATE_STRATEGIES = {
    "AutoUpdateDisabled": "ALWAYS_INCOMPATIBLE",
    "Backward": "BACKWARD",
    "Forward": "FORWARD",
    "Full": "FULL",
    "AlwaysCompatible": "ALWAYS_COMPATIBLE",
    "BackwardTransitive": "BACKWARD_TRANSITIVE",
    "ForwardTransitive": "FORWARD_TRANSITIVE",
    "FullTransitive": "FULL_TRANSITIVE",
}
"""The schema compatibility strategies by the values of the older field, which applies if the newer field is
undefined.
"""


def of_namespace(defaults: EffectivePolicies, policies: Json, cluster: str) -> EffectivePolicies:
    """Returns the policies in effect for topics of a namespace that have no policies of their own.

    :raises MetadataFailure: a value is not in Pulsar's form; the message names the field
    """
    found: dict[str, Any] = {}
    for name, source in _SOURCES.items():
        if source.namespace is None:
            continue
        value = policies.get(source.namespace)
        if source.per_cluster and value is not None:
            value = fields(value).get(cluster)
        if value is None and source.older is not None:
            value = fields(policies.get(source.older) or {}).get(cluster)
        _take(found, name, source, value, source.namespace)
    if "schema_compatibility" not in found:
        former = _AUTO_UPDATE_STRATEGIES.get(str(policies.get("schema_auto_update_compatibility_strategy")))
        if former is not None:
            found["schema_compatibility"] = former
    _take_quotas(found, policies.get("backlog_quota_map"))
    found["offload"] = offload.of_namespace(defaults.offload, policies)
    return replace(defaults, **found)


def in_this_cluster(policies: EffectivePolicies, local: Json) -> EffectivePolicies:
    """Returns the policies of a namespace with its ``LocalPolicies`` applied.

    :raises MetadataFailure: a value is not in Pulsar's form; the message names the field
    """
    field_name = "bookieAffinityGroup"
    given = local.get(field_name)
    if given is None:
        return policies
    try:
        names = fields(given)
        first, further = (
            frozenset(filter(None, map(str.strip, text(names.get(key) or "").split(","))))
            for key in ("bookkeeperAffinityGroupPrimary", "bookkeeperAffinityGroupSecondary")
        )
    except MetadataFailure as error:
        raise MetadataFailure(f"{field_name}: {error}") from error
    return replace(policies, bookie_groups=Groups(first, further) if first else None)


def of_topic(policies: EffectivePolicies, own: Json) -> EffectivePolicies:
    """Returns the policies in effect for a topic.

    :param policies: the policies in effect for its namespace
    :param own: the topic's own policies
    :raises MetadataFailure: a value is not in Pulsar's form; the message names the field
    """
    found: dict[str, Any] = {}
    for name, source in _SOURCES.items():
        if source.topic is not None:
            _take(found, name, source, own.get(source.topic), source.topic)
    _take_quotas(found, own.get("backLogQuotaMap"))
    if own.get("offloadPolicies") is not None:
        found["offload"] = offload.merged(policies.offload, own["offloadPolicies"])
    delayed = _delayed(policies.delayed_delivery, own)
    if delayed != policies.delayed_delivery:
        found["delayed_delivery"] = delayed
    rates = own.get("subscriptionPolicies")
    if rates:
        found["subscription_dispatch_rates"] = {
            name: DispatchRate.read(value["dispatchRate"])
            for name, value in fields(rates).items()
            if fields(value).get("dispatchRate") is not None
        }
    return replace(policies, **found)


def of_heartbeats(policies: EffectivePolicies) -> EffectivePolicies:
    """Returns the policies for the topics of a broker's health check: nothing blocks publishing, and little
    is retained.

    :param policies: the broker's settings as policies
    """
    return EffectivePolicies(
        persistence=policies.persistence,
        bookie_groups=policies.bookie_groups,
    )


def of_system_topic(policies: EffectivePolicies) -> EffectivePolicies:
    """Returns the policies for a system topic: messages never expire, and no limit applies to the broker's
    writes."""
    return replace(
        policies,
        message_ttl_seconds=0,
        storage_quota=BacklogQuota(),
        age_quota=BacklogQuota(),
        deduplication=False,
        max_producers=0,
        max_consumers=0,
        max_consumers_per_subscription=0,
        max_subscriptions=0,
        publish_rate=PublishRate(),
        dispatch_rate=DispatchRate(),
        subscription_dispatch_rate=DispatchRate(),
        subscription_dispatch_rates={},
        subscribe_rate=SubscribeRate(),
        resource_group="",
        subscription_expiration_minutes=0,
        entry_filters=(),
        pause_on_ack_state=False,
        inactive_topics=InactiveTopics(),
        auto_topics=AutoTopics(),
        auto_subscriptions=True,
        subscription_types=SUBSCRIPTION_TYPES,
        schema_compatibility=policies.system_schema_compatibility,
        schema_validation=False,
        auto_update_schema=True,
        encryption_required=False,
        delayed_delivery=replace(policies.delayed_delivery, active=False),
        offload={},
    )


def _take(found: dict[str, object], name: str, source: _Source, value: object, key: str) -> None:
    if value is None:
        return
    try:
        read = source.read(value)
    except MetadataFailure as error:
        raise MetadataFailure(f"{key}: {error}") from error
    if read is not None:
        found[name] = read


def _take_quotas(found: dict[str, object], quotas: object) -> None:
    for name, kind in (("storage_quota", STORAGE_QUOTA), ("age_quota", AGE_QUOTA)):
        quota = fields(quotas or {}).get(kind)
        if quota is not None:
            found[name] = BacklogQuota.read(quota)


def _delayed(above: DelayedDelivery, own: Json) -> DelayedDelivery:
    """Returns the delayed delivery of a topic; fields that ``own`` does not set come from the level above."""
    active = own.get("delayedDeliveryEnabled")
    tick = own.get("delayedDeliveryTickTimeMillis")
    longest = own.get("delayedDeliveryMaxDelayInMillis")
    return DelayedDelivery(
        above.active if active is None else truth(active),
        above.tick_ms if tick is None else int(number(tick)),
        above.max_delay_ms if longest is None else int(number(longest)),
    )


APPLIED: dict[str, Callable[[EffectivePolicies], object]] = {
    "backLogQuotaMap": lambda p: {STORAGE_QUOTA: p.storage_quota.json(), AGE_QUOTA: p.age_quota.json()},
    "retentionPolicies": lambda p: p.retention.json(),
    "messageTTLInSeconds": lambda p: p.message_ttl_seconds,
    "deduplicationEnabled": lambda p: p.deduplication,
    "maxProducerPerTopic": lambda p: p.max_producers,
    "maxConsumerPerTopic": lambda p: p.max_consumers,
    "maxConsumersPerSubscription": lambda p: p.max_consumers_per_subscription,
    "maxSubscriptionsPerTopic": lambda p: p.max_subscriptions,
    "maxUnackedMessagesOnConsumer": lambda p: p.max_unacked_per_consumer,
    "maxUnackedMessagesOnSubscription": lambda p: p.max_unacked_per_subscription,
    "delayedDelivery": lambda p: p.delayed_delivery.json(),
    "inactiveTopicPolicies": lambda p: p.inactive_topics.json(),
    "dispatchRate": lambda p: p.dispatch_rate.json(),
    "subscriptionDispatchRate": lambda p: p.subscription_dispatch_rate.json(),
    "replicatorDispatchRate": lambda p: p.replicator_dispatch_rate.json(),
    "subscribeRate": lambda p: p.subscribe_rate.json(),
    "compactionThreshold": lambda p: p.compaction_threshold,
    "persistence": lambda p: p.persistence.json(),
    "schemaCompatibilityStrategy": lambda p: p.schema_compatibility,
    "schemaValidationEnforced": lambda p: p.schema_validation,
    "autoSubscriptionCreationOverride": lambda p: {"allowAutoSubscriptionCreation": p.auto_subscriptions},
    "entryFilters": lambda p: {"entryFilterNames": ",".join(p.entry_filters)},
    "replicationClusters": lambda p: list(p.replication_clusters),
    "dispatcherPauseOnAckStatePersistentEnabled": lambda p: p.pause_on_ack_state,
    "offloadPolicies": lambda p: offload.shown(p.offload) if p.offload.get(offload.DRIVER) else None,
}
"""Functions that return the effective value of a field of ``TopicPolicies``, for requests with
``applied=true``. A request for any other field is answered with the topic's own value."""
COUNTING: dict[str, Callable[[EffectivePolicies], object]] = {
    **APPLIED,
    "publishRate": lambda p: p.publish_rate.json(),
    "maxMessageSize": lambda p: p.max_message_size,
    "subscriptionTypesEnabled": lambda p: list(p.subscription_types),
    "deduplicationSnapshotIntervalSeconds": lambda p: p.deduplication_snapshot_seconds,
    "subscription_expiration_time_minutes": lambda p: p.subscription_expiration_minutes,
    "max_topics_per_namespace": lambda p: p.max_topics,
    "encryption_required": lambda p: p.encryption_required,
    "is_allow_auto_update_schema": lambda p: p.auto_update_schema,
    "resource_group_name": lambda p: p.resource_group,
}
"""Functions that return the effective value of each field of ``TopicPolicies``, and of the fields that only
``Policies`` has."""


def counting(policies: EffectivePolicies) -> dict[str, object]:
    """Returns the policies in effect for a topic as JSON, with the fields of :data:`COUNTING`."""
    return {field: render(policies) for field, render in COUNTING.items()}
