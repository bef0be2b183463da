"""Policies of namespaces and topics: ``get-X``, ``set-X`` and ``remove-X`` for each row of a table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple

from magnetar.admin_client.client import topic_path
from magnetar.admin_client.errors import NotFound
from magnetar.cli.admin.arguments import UsageError
from magnetar.cli.admin.call import Action, Call, piece
from magnetar.cli.admin.rendering import objects, rows
from magnetar.naming.namespace_name import NamespaceName

_MIB = 1 << 20
Body = Callable[[Call], object]
_RENAMED = {"messageTTL": "ttl"}
"""Maps options of namespace commands to their names in topic commands, where the names differ."""


def or_topic(name: str, action: Action, topics: Mapping[str, Action]) -> Action:
    """Returns a command for a policy of a namespace or, if a name of three parts names no namespace, of a
    topic.

    Pulsar's cookbook uses ``namespaces set-backlog-quota my-tenant/my-ns/my-topic`` for a policy of the
    topic. The command creates a missing topic, as a producer does: to set the policy of the whole namespace
    instead would change topics that the command does not name.

    :param name: the name of the command, without its group (the word before the name, such as ``namespaces``)
    :param action: carries out the command for a namespace
    :param topics: the functions that carry out commands for topic policies, by name without the group
    """

    def run(call: Call) -> object:
        if not _means_topic(call, create=name.startswith("set-") and name in topics):
            return action(call)
        if name not in topics:
            raise UsageError(
                f"{call.named} is a topic, but {name} works only on namespaces; give TENANT/NAMESPACE"
            )
        sys.stderr.write(f"{call.named} is not a namespace but a topic: the topic's own policy is used\n")
        for key, other in _RENAMED.items():
            if key in call.values:
                call.values[other] = call.values[key]
        return topics[name](call)

    return run


def _means_topic(call: Call, *, create: bool) -> bool:
    """Whether the name given to the command is the name of a topic, not of a namespace.

    :param create: whether to create the topic if it is missing and its namespace exists
    :raises NotFound: neither the namespace nor the topic exists, and the topic is not created
    """
    if not NamespaceName.parse(call.named).legacy:
        return False
    try:
        call.ask("GET", call.namespace)
    except NotFound as missing:
        try:
            call.ask("GET", f"{topic_path(call.named)}/partitions")
        except NotFound:
            if not create:
                raise missing from None
            _create(call, missing)
        return True
    return False


def _create(call: Call, missing: NotFound) -> None:
    """Creates the topic that the command names.

    :param missing: the error of the request for the namespace of the same name; raised again if the topic's
        namespace does not exist
    :raises NotFound: the topic's namespace does not exist
    """
    path = topic_path(call.named)
    try:
        # With partitions, if the namespace's policy requires them.
        found = call.ask("GET", f"{path}/partitions", {"checkAllowAutoCreation": "true"})
        if not found["partitions"]:
            call.ask("PUT", path)
    except NotFound:
        raise missing from None
    sys.stderr.write(
        f"topic {call.named} did not exist and has been created; if it is not used, it will be deleted "
        "later together with its policies\n"
    )


class PolicyCommand(NamedTuple):
    path: str
    body: Body
    method: str = "POST"


def _value(key: str) -> Body:
    return lambda call: call[key]


def _retention(call: Call) -> object:
    minutes, size = call["time"], call["size"]
    return {
        "retentionTimeInMinutes": minutes // 60 if minutes > 0 else minutes,
        "retentionSizeInMB": size // _MIB if size > 0 else size,
    }


def _dispatch_rate(call: Call) -> object:
    return {
        "dispatchThrottlingRateInMsg": call["msg-dispatch-rate"],
        "dispatchThrottlingRateInByte": call["byte-dispatch-rate"],
        "relativeToPublishRate": bool(call.get("relative-to-publish-rate")),
        "ratePeriodInSecond": call["dispatch-rate-period"],
    }


def _publish_rate(call: Call) -> object:
    return {
        "publishThrottlingRateInMsg": call["msg-publish-rate"],
        "publishThrottlingRateInByte": call["byte-publish-rate"],
    }


def _subscribe_rate(call: Call) -> object:
    return {
        "subscribeThrottlingRatePerConsumer": call["subscribe-rate"],
        "ratePeriodInSecond": call["subscribe-rate-period"],
    }


def _persistence(call: Call) -> object:
    body = {
        "bookkeeperEnsemble": call["bookkeeper-ensemble"],
        "bookkeeperWriteQuorum": call["bookkeeper-write-quorum"],
        "bookkeeperAckQuorum": call["bookkeeper-ack-quorum"],
        "managedLedgerMaxMarkDeleteRate": call["ml-mark-delete-max-rate"],
    }
    storage = call.get("ml-storage-class")
    return {**body, "managedLedgerStorageClassName": storage} if storage else body


def _inactive_topics(call: Call) -> object:
    on = bool(call["enable-delete-while-inactive"])
    if on == bool(call["disable-delete-while-inactive"]):
        raise UsageError(
            "Need to specify either enable-delete-while-inactive or disable-delete-while-inactive"
        )
    return {
        "inactiveTopicDeleteMode": call["delete-mode"],
        "maxInactiveDurationSeconds": call["max-inactive-duration"],
        "deleteWhileInactive": on,
    }


def _delayed_delivery(call: Call) -> object:
    return {
        "tickTime": call["time"],
        "active": call.switched(),
        "maxDeliveryDelayInMillis": call["maxDelay"],
    }


def _auto_topics(call: Call) -> object:
    body = {"allowAutoTopicCreation": call.switched(), "topicType": call["type"]}
    count = call["num-partitions"]
    return {**body, "defaultNumPartitions": count} if count is not None else body


def _auto_subscriptions(call: Call) -> object:
    return {"allowAutoSubscriptionCreation": bool(call["enable"])}


def _switch(call: Call) -> bool:
    return call.switched()


def _strategy(call: Call) -> str:
    return str(call.get("strategy") or call.get("compatibility") or "UNDEFINED")


def _auto_update(call: Call) -> str:
    return "AutoUpdateDisabled" if call["disabled"] else str(call["compatibility"] or "Full")


def _bookie_groups(call: Call) -> object:
    further = call["secondary-group"]
    body = {"bookkeeperAffinityGroupPrimary": call["primary-group"]}
    return body if further is None else {**body, "bookkeeperAffinityGroupSecondary": further}


def _filters(call: Call) -> object:
    return {"entryFilterNames": call["entry-filters-name"]}


def _names(key: str) -> Body:
    return lambda call: [name.strip() for name in call[key].split(",") if name.strip()]


_SHARED: dict[str, PolicyCommand] = {
    "retention": PolicyCommand("retention", _retention),
    "persistence": PolicyCommand("persistence", _persistence),
    "dispatch-rate": PolicyCommand("dispatchRate", _dispatch_rate),
    "subscription-dispatch-rate": PolicyCommand("subscriptionDispatchRate", _dispatch_rate),
    "replicator-dispatch-rate": PolicyCommand("replicatorDispatchRate", _dispatch_rate),
    "subscribe-rate": PolicyCommand("subscribeRate", _subscribe_rate),
    "publish-rate": PolicyCommand("publishRate", _publish_rate),
    "inactive-topic-policies": PolicyCommand("inactiveTopicPolicies", _inactive_topics),
    "delayed-delivery": PolicyCommand("delayedDelivery", _delayed_delivery),
    "auto-subscription-creation": PolicyCommand("autoSubscriptionCreation", _auto_subscriptions),
    "subscription-types-enabled": PolicyCommand("subscriptionTypesEnabled", _value("types")),
    "deduplication-snapshot-interval": PolicyCommand("deduplicationSnapshotInterval", _value("interval")),
    "schema-validation-enforce": PolicyCommand("schemaValidationEnforced", _switch),
    "schema-compatibility-strategy": PolicyCommand("schemaCompatibilityStrategy", _strategy, "PUT"),
    "max-consumers-per-subscription": PolicyCommand(
        "maxConsumersPerSubscription", _value("max-consumers-per-subscription")
    ),
    "max-subscriptions-per-topic": PolicyCommand(
        "maxSubscriptionsPerTopic", _value("max-subscriptions-per-topic")
    ),
    "dispatcher-pause-on-ack-state-persistent": PolicyCommand(
        "dispatcherPauseOnAckStatePersistent", lambda _call: True
    ),
    "entry-filters": PolicyCommand("entryFilters", _filters),
}
NAMESPACE: dict[str, PolicyCommand] = {
    **_SHARED,
    "message-ttl": PolicyCommand("messageTTL", _value("messageTTL")),
    "subscription-expiration-time": PolicyCommand("subscriptionExpirationTime", _value("time")),
    "anti-affinity-group": PolicyCommand("antiAffinity", _value("group")),
    "bookie-affinity-group": PolicyCommand("persistence/bookieAffinity", _bookie_groups),
    "deduplication": PolicyCommand("deduplication", _switch),
    "auto-topic-creation": PolicyCommand("autoTopicCreation", _auto_topics),
    "encryption-required": PolicyCommand("encryptionRequired", _switch),
    "subscription-auth-mode": PolicyCommand("subscriptionAuthMode", _value("subscription-auth-mode")),
    "max-producers-per-topic": PolicyCommand("maxProducersPerTopic", _value("max-producers-per-topic")),
    "max-consumers-per-topic": PolicyCommand("maxConsumersPerTopic", _value("max-consumers-per-topic")),
    "max-unacked-messages-per-subscription": PolicyCommand(
        "maxUnackedMessagesPerSubscription", _value("max-unacked-messages-per-subscription")
    ),
    "max-unacked-messages-per-consumer": PolicyCommand(
        "maxUnackedMessagesPerConsumer", _value("max-unacked-messages-per-topic")
    ),
    "compaction-threshold": PolicyCommand("compactionThreshold", _value("threshold"), "PUT"),
    "offload-deletion-lag": PolicyCommand("offloadDeletionLagMs", lambda call: call["lag"] * 1000, "PUT"),
    "schema-autoupdate-strategy": PolicyCommand("schemaAutoUpdateCompatibilityStrategy", _auto_update, "PUT"),
    "is-allow-auto-update-schema": PolicyCommand("isAllowAutoUpdateSchema", _switch),
    "max-topics-per-namespace": PolicyCommand("maxTopicsPerNamespace", _value("max-topics-per-namespace")),
    "clusters": PolicyCommand("replication", _names("clusters")),
    "allowed-clusters": PolicyCommand("allowedClusters", _names("clusters")),
    "resource-group": PolicyCommand("resourcegroup", lambda _call: None),
}
TOPIC: dict[str, PolicyCommand] = {
    **_SHARED,
    "deduplication": PolicyCommand("deduplicationEnabled", _switch),
    "max-producers": PolicyCommand("maxProducers", _value("max-producers")),
    "maxProducers": PolicyCommand("maxProducers", _value("max-producers")),
    "max-consumers": PolicyCommand("maxConsumers", _value("max-consumers")),
    "max-subscriptions": PolicyCommand("maxSubscriptionsPerTopic", _value("max-subscriptions-per-topic")),
    "max-message-size": PolicyCommand("maxMessageSize", _value("max-message-size")),
    "max-unacked-messages-per-consumer": PolicyCommand("maxUnackedMessagesOnConsumer", _value("maxNum")),
    "max-unacked-messages-on-consumer": PolicyCommand("maxUnackedMessagesOnConsumer", _value("maxNum")),
    "max-unacked-messages-per-subscription": PolicyCommand(
        "maxUnackedMessagesOnSubscription", _value("maxNum")
    ),
    "max-unacked-messages-on-subscription": PolicyCommand(
        "maxUnackedMessagesOnSubscription", _value("maxNum")
    ),
    "compaction-threshold": PolicyCommand("compactionThreshold", _value("threshold")),
    "replication-clusters": PolicyCommand("replication", _names("clusters")),
    "entry-filters-per-topic": PolicyCommand("entryFilters", _filters),
    "shadow-topics": PolicyCommand("shadowTopics", _names("topics"), "PUT"),
}
_OBJECTS = frozenset(("subscriptionTypesEnabled",))
"""Policies whose values are lists that are printed as JSON, not as one item per line."""
_SET_TO = {"deduplication-snapshot-interval": None}
"""For namespace policies that a ``remove`` command cannot remove: the value that the command sets instead."""


def _query(call: Call) -> dict[str, object]:
    return {"applied": call.get("applied"), "isGlobal": call.get("global")}


def _getter(policy: PolicyCommand, base: Callable[[Call], str]) -> Action:
    if policy.path in _OBJECTS:
        return lambda call: objects(call.ask("GET", f"{base(call)}/{policy.path}", _query(call)))
    return lambda call: call.ask("GET", f"{base(call)}/{policy.path}", _query(call))


def _setter(policy: PolicyCommand, base: Callable[[Call], str]) -> Action:
    return lambda call: call.send(
        policy.method, f"{base(call)}/{policy.path}", {"isGlobal": call.get("global")}, policy.body(call)
    )


def _remover(name: str, policy: PolicyCommand, base: Callable[[Call], str], *, namespace: bool) -> Action:
    if namespace and name in _SET_TO:
        return lambda call: call.send(policy.method, f"{base(call)}/{policy.path}", None, _SET_TO[name])
    return lambda call: call.send("DELETE", f"{base(call)}/{policy.path}", {"isGlobal": call.get("global")})


def _of_namespace(call: Call) -> str:
    return call.namespace


def _of_topic(call: Call) -> str:
    return call.topic


def _actions() -> dict[str, Action]:
    found: dict[str, Action] = {}
    for groups, table, base in (
        (("namespaces",), NAMESPACE, _of_namespace),
        (("topics", "topicPolicies"), TOPIC, _of_topic),
    ):
        for group in groups:
            for name, policy in table.items():
                found[f"{group} get-{name}"] = _getter(policy, base)
                found[f"{group} set-{name}"] = _setter(policy, base)
                remover = _remover(name, policy, base, namespace=base is _of_namespace)
                found[f"{group} remove-{name}"] = remover
                found[f"{group} delete-{name}"] = remover
    return found


# Policies that are not one value


def _quota(call: Call) -> object:
    if call["limit"] is None and call["limitTime"] is None:
        raise UsageError("Need to specify a limit or a limitTime")
    size = -1 if call["limit"] is None else call["limit"]
    time = -1 if call["limitTime"] is None else call["limitTime"]
    return {"limit": size, "limitSize": size, "limitTime": time, "policy": call["policy"]}


def _quota_query(call: Call) -> dict[str, object]:
    return {"backlogQuotaType": call["type"], "isGlobal": call.get("global")}


def _quota_actions(groups: tuple[str, ...], base: Callable[[Call], str]) -> dict[str, Action]:
    found: dict[str, Action] = {}
    for group in groups:
        for name in ("backlog-quota", "backlog-quotas"):
            found[f"{group} get-{name}"] = lambda call: rows(
                call.ask("GET", f"{base(call)}/backlogQuotaMap", _query(call))
            )
        found[f"{group} set-backlog-quota"] = lambda call: call.send(
            "POST", f"{base(call)}/backlogQuota", _quota_query(call), _quota(call)
        )
        found[f"{group} remove-backlog-quota"] = lambda call: call.send(
            "DELETE", f"{base(call)}/backlogQuota", _quota_query(call)
        )
    return found


def _ttl_query(call: Call) -> dict[str, object]:
    return {"messageTTL": str(call["ttl"]), "isGlobal": call.get("global")}


def _topic_ttl() -> dict[str, Action]:
    found: dict[str, Action] = {}
    for group in ("topics", "topicPolicies"):
        found[f"{group} get-message-ttl"] = lambda call: call.ask(
            "GET", f"{call.topic}/messageTTL", _query(call)
        )
        found[f"{group} set-message-ttl"] = lambda call: call.send(
            "POST", f"{call.topic}/messageTTL", _ttl_query(call)
        )
        found[f"{group} remove-message-ttl"] = lambda call: call.send(
            "DELETE", f"{call.topic}/messageTTL", {"isGlobal": call.get("global")}
        )
    return found


def _rate_path(call: Call) -> str:
    name = call.get("subscription")
    return f"{call.topic}/{piece(name)}/dispatchRate" if name else f"{call.topic}/subscriptionDispatchRate"


def _offload_threshold(call: Call) -> str:
    size = call.ask("GET", f"{call.namespace}/offloadThreshold")
    seconds = call.ask("GET", f"{call.namespace}/offloadThresholdInSeconds")
    return f"offloadThresholdInBytes: {size}\noffloadThresholdInSeconds: {seconds}"


def _set_offload_threshold(call: Call) -> object:
    call.ask("PUT", f"{call.namespace}/offloadThreshold", None, call["size"])
    return call.send("PUT", f"{call.namespace}/offloadThresholdInSeconds", None, call["time"])


_S3 = {
    "Region": ("region",),
    "Bucket": ("bucket",),
    "ServiceEndpoint": ("endpoint",),
    "MaxBlockSizeInBytes": ("maxBlockSize", "maxBlockSizeInBytes"),
    "ReadBufferSizeInBytes": ("readBufferSize", "readBufferSizeInBytes"),
    "CredentialId": ("aws-id",),
    "CredentialSecret": ("aws-secret",),
    "Role": ("s3-role", "ro"),
    "RoleSessionName": ("s3-role-session-name",),
}
"""Maps each field of ``OffloadPolicies`` for the driver S3 to the options of the command that set the
field.
"""
_WHEN = {
    "managedLedgerOffloadThresholdInBytes": ("offloadAfterThreshold", "offloadThresholdInBytes"),
    "managedLedgerOffloadThresholdInSeconds": (
        "offloadAfterThresholdInSeconds",
        "offloadThresholdInSeconds",
    ),
    "managedLedgerOffloadDeletionLagInMillis": ("offloadAfterElapsed", "offloadDeletionLagInMillis"),
}


def _offload(call: Call) -> object:
    """Returns the ``OffloadPolicies`` that the options of the command give.

    :raises UsageError: the read priority is unknown
    """

    def given(names: tuple[str, ...]) -> object:
        return next((call.get(name) for name in names if call.get(name) is not None), None)

    found = {field: given(names) for field, names in _WHEN.items()}
    found |= {f"s3ManagedLedgerOffload{field}": given(names) for field, names in _S3.items()}
    found["managedLedgerOffloadDriver"] = call["driver"]
    priority = call.get("offloadedReadPriority")
    if priority is not None and priority not in ("bookkeeper-first", "tiered-storage-first"):
        raise UsageError(
            f"--offloadedReadPriority must be bookkeeper-first or tiered-storage-first, not {priority!r}"
        )
    found["managedLedgerOffloadedReadPriority"] = priority and priority.replace("-", "_").upper()
    return {field: value for field, value in found.items() if value is not None}


def _offload_policies() -> dict[str, Action]:
    policy = PolicyCommand("offloadPolicies", _offload)
    found: dict[str, Action] = {
        "namespaces get-offload-policies": _getter(policy, _of_namespace),
        "namespaces set-offload-policies": _setter(policy, _of_namespace),
        "namespaces remove-offload-policies": lambda call: call.send(
            "DELETE", f"{call.namespace}/removeOffloadPolicies"
        ),
    }
    for group in ("topics", "topicPolicies"):
        found[f"{group} get-offload-policies"] = _getter(policy, _of_topic)
        found[f"{group} set-offload-policies"] = _setter(policy, _of_topic)
        found[f"{group} remove-offload-policies"] = _remover("", policy, _of_topic, namespace=False)
    return found


def _offload_lag(call: Call) -> object:
    lag = call.ask("GET", f"{call.namespace}/offloadDeletionLagMs")
    return (
        "Unset for namespace. Defaulting to broker setting." if lag is None else f"{lag // 60_000} minute(s)"
    )


def _auto_update_strategy(call: Call) -> object:
    """Returns the compatibility strategy of automatic schema updates, spelled as Pulsar's tool prints it.

    The REST API spells the strategies in another way.
    """
    strategy = call.ask("GET", f"{call.namespace}/schemaAutoUpdateCompatibilityStrategy")
    return strategy.upper() if strategy else strategy


_ALL: dict[str, Action] = {
    **_actions(),
    "namespaces get-offload-deletion-lag": _offload_lag,
    "namespaces get-schema-autoupdate-strategy": _auto_update_strategy,
    "namespaces get-offload-threshold": _offload_threshold,
    "namespaces set-offload-threshold": _set_offload_threshold,
    "namespaces set-resource-group": lambda call: call.send(
        "POST", f"{call.namespace}/resourcegroup/{piece(call['resource-group-name'])}"
    ),
    "namespaces get-resource-group": lambda call: call.ask("GET", f"{call.namespace}/resourcegroup") or "",
    **_quota_actions(("namespaces",), _of_namespace),
    **_quota_actions(("topics", "topicPolicies"), _of_topic),
    **_topic_ttl(),
    "namespaces clear-offload-deletion-lag": lambda call: call.send(
        "DELETE", f"{call.namespace}/offloadDeletionLagMs"
    ),
    "topics enable-deduplication": lambda call: call.send(
        "POST", f"{call.topic}/deduplicationEnabled", None, True
    ),
    "topics disable-deduplication": lambda call: call.send(
        "POST", f"{call.topic}/deduplicationEnabled", None, False
    ),
    "topics get-deduplication-enabled": lambda call: call.ask("GET", f"{call.topic}/deduplicationEnabled"),
    "topicPolicies get-subscription-dispatch-rate": lambda call: call.ask(
        "GET", _rate_path(call), _query(call)
    ),
    "topicPolicies set-subscription-dispatch-rate": lambda call: call.send(
        "POST", _rate_path(call), {"isGlobal": call.get("global")}, _dispatch_rate(call)
    ),
    "topicPolicies remove-subscription-dispatch-rate": lambda call: call.send(
        "DELETE", _rate_path(call), {"isGlobal": call.get("global")}
    ),
    **_offload_policies(),
    "topicPolicies delete": lambda call: call.send("DELETE", f"{call.topic}/policies"),
}
_OF_TOPICS = {
    name.partition(" ")[2]: action for name, action in _ALL.items() if not name.startswith("namespaces ")
}
ACTIONS: dict[str, Action] = {
    name: or_topic(name.partition(" ")[2], action, _OF_TOPICS) if name.startswith("namespaces ") else action
    for name, action in _ALL.items()
}
