"""Shapes of request bodies for policies that namespaces and topics share."""

from __future__ import annotations

from magnetar.broker.policies.offload import PRIORITIES
from magnetar.errors import InvalidRequest, PreconditionFailed
from magnetar.http.engine.message import Request
from magnetar.http.shapes.fields import (
    Check,
    Field,
    Shape,
    bare_text,
    body,
    choice,
    choices,
    fields,
    number,
    text,
    truth,
    whole,
)

QUOTA_TYPES = ("destination_storage", "message_age")
SUBSCRIPTION_TYPES = ("Exclusive", "Failover", "Key_Shared", "Shared")
STRATEGIES = (
    "UNDEFINED",
    "ALWAYS_INCOMPATIBLE",
    "ALWAYS_COMPATIBLE",
    "BACKWARD",
    "FORWARD",
    "FULL",
    "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE",
    "FULL_TRANSITIVE",
)
AUTO_UPDATE_STRATEGIES = (
    "AutoUpdateDisabled",
    "Backward",
    "Forward",
    "Full",
    "AlwaysCompatible",
    "BackwardTransitive",
    "ForwardTransitive",
    "FullTransitive",
)

_INT, _LONG = whole(), whole(64)

RETENTION = fields({"retentionTimeInMinutes": Field(_INT, 0), "retentionSizeInMB": Field(_LONG, 0)})
DISPATCH_RATE = fields(
    {
        "dispatchThrottlingRateInMsg": Field(_INT, 0),
        "dispatchThrottlingRateInByte": Field(_LONG, 0),
        "relativeToPublishRate": Field(truth, False),
        "ratePeriodInSecond": Field(_INT, 0),
    }
)
BOOKIE_GROUPS = fields(
    {
        "bookkeeperAffinityGroupPrimary": Field(text),
        "bookkeeperAffinityGroupSecondary": Field(text),
    }
)
PUBLISH_RATE = fields(
    {"publishThrottlingRateInMsg": Field(_INT, -1), "publishThrottlingRateInByte": Field(_LONG, -1)}
)
SUBSCRIBE_RATE = fields(
    {"subscribeThrottlingRatePerConsumer": Field(_INT, -1), "ratePeriodInSecond": Field(_INT, 30)}
)
INACTIVE_TOPICS = fields(
    {
        "inactiveTopicDeleteMode": Field(
            choice("delete_when_no_subscriptions", "delete_when_subscriptions_caught_up")
        ),
        "maxInactiveDurationSeconds": Field(_INT, 0),
        "deleteWhileInactive": Field(truth, False),
    }
)
DELAYED_DELIVERY = fields(
    {
        "tickTime": Field(_LONG, 0),
        "active": Field(truth, False),
        "maxDeliveryDelayInMillis": Field(_LONG, 0),
    }
)
PERSISTENCE = fields(
    {
        "bookkeeperEnsemble": Field(_INT, 2),
        "bookkeeperWriteQuorum": Field(_INT, 2),
        "bookkeeperAckQuorum": Field(_INT, 2),
        "managedLedgerMaxMarkDeleteRate": Field(number, 0.0),
        "managedLedgerStorageClassName": Field(text),
    }
)
AUTO_SUBSCRIPTIONS = fields({"allowAutoSubscriptionCreation": Field(truth, False)})
_AUTO_TOPICS = fields(
    {
        "allowAutoTopicCreation": Field(truth, False),
        "topicType": Field(text),
        "defaultNumPartitions": Field(_INT),
    }
)
_QUOTA = fields(
    {
        "limit": Field(_LONG),
        "limitSize": Field(_LONG),
        "limitTime": Field(_INT, 0),
        "policy": Field(choice("producer_request_hold", "producer_exception", "consumer_backlog_eviction")),
    }
)
_FILTERS = fields({"entryFilterNames": Field(text)})


OFFLOAD = fields(
    {
        "offloadersDirectory": Field(text, "./offloaders"),
        "managedLedgerOffloadDriver": Field(text),
        "managedLedgerOffloadMaxThreads": Field(_INT, 2),
        "managedLedgerOffloadReadThreads": Field(_INT, 2),
        "managedLedgerOffloadPrefetchRounds": Field(_INT, 1),
        "managedLedgerOffloadThresholdInBytes": Field(_LONG),
        "managedLedgerOffloadThresholdInSeconds": Field(_LONG),
        "managedLedgerOffloadDeletionLagInMillis": Field(_LONG),
        "managedLedgerOffloadedReadPriority": Field(choice(*PRIORITIES)),
        "s3ManagedLedgerOffloadRegion": Field(text),
        "s3ManagedLedgerOffloadBucket": Field(text),
        "s3ManagedLedgerOffloadServiceEndpoint": Field(text),
        "s3ManagedLedgerOffloadMaxBlockSizeInBytes": Field(_INT, 64 << 20),
        "s3ManagedLedgerOffloadReadBufferSizeInBytes": Field(_INT, 1 << 20),
        "s3ManagedLedgerOffloadCredentialId": Field(text),
        "s3ManagedLedgerOffloadCredentialSecret": Field(text),
        "s3ManagedLedgerOffloadRole": Field(text),
        "s3ManagedLedgerOffloadRoleSessionName": Field(text, "pulsar-s3-offload"),
        "fileSystemProfilePath": Field(text),
        "fileSystemURI": Field(text),
        "managedLedgerOffloadBucket": Field(text),
        "managedLedgerOffloadRegion": Field(text),
        "managedLedgerOffloadServiceEndpoint": Field(text),
        "managedLedgerOffloadMaxBlockSizeInBytes": Field(_INT),
        "managedLedgerOffloadReadBufferSizeInBytes": Field(_INT),
    }
)


def optional(check: Check, name: str) -> Shape:
    """Returns a shape that takes the body, and checks it with ``check``; an empty body removes the value."""
    return body(check, name, required=None)


def auto_topics(request: Request) -> object:
    """Returns the policy that the body gives for the automatic creation of topics.

    :raises PreconditionFailed: topic type and number of partitions contradict each other
    """
    value = optional(_AUTO_TOPICS, "autoTopicCreationOverride")(request)
    if value is None or not value["allowAutoTopicCreation"]:
        return value
    kind, count = value.get("topicType"), value.get("defaultNumPartitions")
    wrong = None
    if kind not in ("partitioned", "non-partitioned"):
        wrong = f"Unknown topic type [{kind}]"
    elif kind == "partitioned" and count is None:
        wrong = "[defaultNumPartitions] cannot be null when the type is partitioned."
    elif kind == "partitioned" and count < 1:
        wrong = "[defaultNumPartitions] cannot be less than 1 for partition type."
    elif kind == "non-partitioned" and count is not None:
        wrong = "[defaultNumPartitions] is not allowed to be set when the type is non-partition."
    if wrong is not None:
        raise PreconditionFailed(
            f"Invalid configuration for autoTopicCreationOverride. the detail is {wrong}"
        )
    return value


def quota(request: Request) -> object:
    """Returns the backlog quota in the body.

    :raises InvalidRequest: the body contains no policy, or the policy contradicts the limits
    """
    value = body(_QUOTA, "backlogQuota")(request)
    limit = value.get("limitSize", value.get("limit", 0))
    value.update(limit=limit, limitSize=limit)
    if "policy" not in value:
        raise InvalidRequest(
            "Set backlog quota failed because the data validation failed. the attribute policy cannot be null"
        )
    return value


def quota_type(request: Request) -> str:
    """Returns the type of the backlog quota in the query.

    :raises InvalidRequest: the type is unknown
    """
    kind = request.query.get("backlogQuotaType") or QUOTA_TYPES[0]
    return str(choice(*QUOTA_TYPES)("backlogQuotaType", kind))


def persistence(request: Request) -> object:
    return body(PERSISTENCE, "persistence", required="persistence policies should not be null")(request)


def entry_filters(request: Request) -> object:
    """Returns the entry filters in the body.

    :raises InvalidRequest: the body contains no filter
    """
    value = body(_FILTERS, "entryFilters")(request)
    names = value.get("entryFilterNames", "")
    if not any(name.strip() for name in names.split(",")):
        raise InvalidRequest(
            "entryFilterNames can't be empty. To remove entry filters use the remove method."
        )
    return value


def anti_affinity(request: Request) -> object:
    """Returns the anti-affinity group in the body.

    :raises PreconditionFailed: the body contains no group
    """
    group = bare_text(request, "antiAffinityGroup")
    if not group:
        raise PreconditionFailed("antiAffinityGroup can't be empty")
    return group


SUBSCRIPTION_TYPE_SET: Shape = body(choices(*SUBSCRIPTION_TYPES), "subscriptionTypesEnabled")
