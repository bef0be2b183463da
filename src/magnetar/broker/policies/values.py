"""Typed policies that are more than a number or a flag, with Pulsar's JSON."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from magnetar.errors import MetadataFailure
from magnetar.lazy_dataclass import dataclass

Json = Mapping[str, Any]

_LARGEST = sys.float_info.max

STORAGE_QUOTA = "destination_storage"
AGE_QUOTA = "message_age"
QUOTA_TYPES = (STORAGE_QUOTA, AGE_QUOTA)


def whole(value: object) -> int:
    """Returns a JSON value that must be a whole number.

    :raises MetadataFailure: the value is not a whole number
    """
    if type(value) is not int:
        raise MetadataFailure(f"must be a whole number, not {value!r}")
    return value


def number(value: Any) -> float:
    """Returns a JSON value that must be a number.

    :raises MetadataFailure: the value is not a number
    """
    # Python's parser also accepts NaN and whole numbers of any length.
    if type(value) not in (int, float) or not -_LARGEST <= value <= _LARGEST:
        raise MetadataFailure(f"must be a number, not {value!r}")
    return float(value)


def truth(value: object) -> bool:
    """Returns a JSON value that must be true or false.

    :raises MetadataFailure: the value is neither true nor false
    """
    if type(value) is not bool:
        raise MetadataFailure(f"must be true or false, not {value!r}")
    return value


def text(value: object) -> str:
    """Returns a JSON value that must be a string.

    :raises MetadataFailure: the value is not a string
    """
    if not isinstance(value, str):
        raise MetadataFailure(f"must be a string, not {value!r}")
    return value


def texts(value: object) -> tuple[str, ...]:
    """Returns a JSON value that must be a list of strings.

    :raises MetadataFailure: the value is not a list of strings
    """
    if not isinstance(value, list):
        raise MetadataFailure(f"must be a list, not {value!r}")
    return tuple(text(item) for item in value)


def fields(value: object) -> Json:
    """Returns a JSON value that must be an object.

    :raises MetadataFailure: the value is not an object
    """
    if not isinstance(value, dict):
        raise MetadataFailure(f"must be an object, not {value!r}")
    return value


@dataclass(frozen=True, slots=True)
class Retention:
    """For how long, and up to which total size, acknowledged entries are kept; -1 for no limit, and 0 in
    either field for no retention."""

    minutes: int = 0
    megabytes: int = 0

    @classmethod
    def read(cls, value: object) -> Retention:
        given = fields(value)
        minutes, megabytes = given.get("retentionTimeInMinutes", 0), given.get("retentionSizeInMB", 0)
        return cls(whole(minutes), whole(megabytes))

    def json(self) -> Json:
        return {"retentionTimeInMinutes": self.minutes, "retentionSizeInMB": self.megabytes}


@dataclass(frozen=True, slots=True)
class BacklogQuota:
    """A limit of the backlog (-1: no limit), and the policy that applies when the limit is reached."""

    limit_bytes: int = -1
    limit_seconds: int = -1
    policy: str = "producer_request_hold"

    @classmethod
    def read(cls, value: object) -> BacklogQuota:
        given = fields(value)
        size = given.get("limitSize")
        if size is None or (size == 0 and given.get("limit")):
            size = given.get("limit", -1)
        policy = given.get("policy") or cls().policy
        return cls(whole(size), whole(given.get("limitTime", -1)), text(policy))

    def json(self) -> Json:
        return {
            "limit": self.limit_bytes,
            "limitSize": self.limit_bytes,
            "limitTime": self.limit_seconds,
            "policy": self.policy,
        }


@dataclass(frozen=True, slots=True)
class PublishRate:
    """The limits of messages and bytes published to a topic per second; 0 or less: no limit."""

    messages: int = -1
    size: int = -1

    @classmethod
    def read(cls, value: object) -> PublishRate:
        given = fields(value)
        messages = given.get("publishThrottlingRateInMsg", -1)
        return cls(whole(messages), whole(given.get("publishThrottlingRateInByte", -1)))

    def json(self) -> Json:
        return {"publishThrottlingRateInMsg": self.messages, "publishThrottlingRateInByte": self.size}

    @property
    def limited(self) -> bool:
        return self.messages > 0 or self.size > 0


@dataclass(frozen=True, slots=True)
class DispatchRate:
    """The limits of messages and bytes dispatched in a period; 0 or less: no limit."""

    messages: int = 0
    size: int = 0
    relative_to_publish: bool = False
    period_seconds: int = 1

    @classmethod
    def read(cls, value: object) -> DispatchRate:
        given = fields(value)
        return cls(
            whole(given.get("dispatchThrottlingRateInMsg", 0)),
            whole(given.get("dispatchThrottlingRateInByte", 0)),
            truth(given.get("relativeToPublishRate", False)),
            whole(given.get("ratePeriodInSecond", 0)),
        )

    def json(self) -> Json:
        return {
            "dispatchThrottlingRateInMsg": self.messages,
            "dispatchThrottlingRateInByte": self.size,
            "relativeToPublishRate": self.relative_to_publish,
            "ratePeriodInSecond": self.period_seconds,
        }

    @property
    def limited(self) -> bool:
        return self.messages > 0 or self.size > 0


@dataclass(frozen=True, slots=True)
class GroupRates:
    """Limits of a resource group, per second; 0 or less: no limit."""

    publish_messages: int = 0
    publish_size: int = 0
    dispatch_messages: int = 0
    dispatch_size: int = 0

    @classmethod
    def read(cls, value: object) -> GroupRates:
        given = fields(value)
        names = ("publishRateInMsgs", "publishRateInBytes", "dispatchRateInMsgs", "dispatchRateInBytes")
        return cls(*(whole(0 if given.get(name) is None else given[name]) for name in names))


@dataclass(frozen=True, slots=True)
class SubscribeRate:
    """The number of times that one consumer may subscribe in a period; 0 or less for no limit."""

    per_consumer: int = 0
    period_seconds: int = 30

    @classmethod
    def read(cls, value: object) -> SubscribeRate:
        given = fields(value)
        rate = given.get("subscribeThrottlingRatePerConsumer", -1)
        return cls(whole(rate), whole(given.get("ratePeriodInSecond", 30)))

    def json(self) -> Json:
        return {
            "subscribeThrottlingRatePerConsumer": self.per_consumer,
            "ratePeriodInSecond": self.period_seconds,
        }

    @property
    def limited(self) -> bool:
        return self.per_consumer > 0 and self.period_seconds > 0


@dataclass(frozen=True, slots=True)
class InactiveTopics:
    """Whether a topic that is not in use is deleted, and after how many seconds."""

    delete: bool = False
    seconds: int = 60
    mode: str = "delete_when_no_subscriptions"

    @classmethod
    def read(cls, value: object) -> InactiveTopics:
        given = fields(value)
        return cls(
            truth(given.get("deleteWhileInactive", False)),
            whole(given.get("maxInactiveDurationSeconds", 0)),
            text(given.get("inactiveTopicDeleteMode") or cls().mode),
        )

    def json(self) -> Json:
        return {
            "inactiveTopicDeleteMode": self.mode,
            "maxInactiveDurationSeconds": self.seconds,
            "deleteWhileInactive": self.delete,
        }


@dataclass(frozen=True, slots=True)
class AutoTopics:
    """Whether a missing topic is created on use, and with how many partitions; 0 for a topic without
    partitions."""

    allowed: bool = True
    partitions: int = 0

    @classmethod
    def read(cls, value: object) -> AutoTopics:
        given = fields(value)
        partitioned = given.get("topicType") == "partitioned"
        count = given.get("defaultNumPartitions")
        return cls(
            truth(given.get("allowAutoTopicCreation", False)),
            whole(1 if count is None else count) if partitioned else 0,
        )


@dataclass(frozen=True, slots=True)
class DelayedDelivery:
    """Whether messages may be delayed, with which precision and for how long at most (0: without a limit)."""

    active: bool = True
    tick_ms: int = 1000
    max_delay_ms: int = 0

    @classmethod
    def read(cls, value: object) -> DelayedDelivery:
        given = fields(value)
        return cls(
            truth(given.get("active", False)),
            whole(given.get("tickTime", 0)),
            whole(given.get("maxDeliveryDelayInMillis", 0)),
        )

    def json(self) -> Json:
        return {
            "tickTime": self.tick_ms,
            "active": self.active,
            "maxDeliveryDelayInMillis": self.max_delay_ms,
        }


@dataclass(frozen=True, slots=True)
class Persistence:
    """The number of copies of each entry, and the maximum rate at which a cursor is written."""

    ensemble: int = 1
    write_quorum: int = 1
    ack_quorum: int = 1
    mark_delete_rate: float = 1.0
    """The maximum number of writes of a cursor per second; 0 or less: one write after every change."""
    own_rate: bool = False
    """Whether the rate was set explicitly; otherwise the ledger store may decide how often cursors are
    written."""

    @classmethod
    def read(cls, value: object) -> Persistence:
        given = fields(value)
        return cls(
            whole(given.get("bookkeeperEnsemble", 2)),
            whole(given.get("bookkeeperWriteQuorum", 2)),
            whole(given.get("bookkeeperAckQuorum", 2)),
            number(given.get("managedLedgerMaxMarkDeleteRate", 0.0)),
            own_rate=True,
        )

    def json(self) -> Json:
        return {
            "bookkeeperEnsemble": self.ensemble,
            "bookkeeperWriteQuorum": self.write_quorum,
            "bookkeeperAckQuorum": self.ack_quorum,
            "managedLedgerMaxMarkDeleteRate": self.mark_delete_rate,
        }
