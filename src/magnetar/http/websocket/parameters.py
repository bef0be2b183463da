"""Converts the query parameters of a WebSocket to options of a producer, consumer or reader (Pulsar's
"WebSocket API").
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from magnetar.client.dead_letters import DeadLetterPolicy, default_dead_letter_topic
from magnetar.client.enums import (
    BatchingType,
    CompressionType,
    ConsumerType,
    CryptoFailureAction,
    HashingScheme,
    InitialPosition,
    PartitionsRoutingMode,
)
from magnetar.client.exceptions import InvalidMessage
from magnetar.client.message_id import MessageId
from magnetar.errors import InvalidRequest
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.topic_name import TopicName

Query = Mapping[str, str]

MOST_PENDING = 1000
"""Maximum number of unacknowledged messages of a consumer, regardless of ``receiverQueueSize``."""

MOST_IN_BATCH = 1 << 20
"""Maximum batch size in message ids of clients. The size is limited because each message of a batch takes a
bit of memory; real batches are smaller.
"""

_ROUTING: Mapping[str, PartitionsRoutingMode] = {
    "SinglePartition": PartitionsRoutingMode.UseSinglePartition,
    "RoundRobinPartition": PartitionsRoutingMode.RoundRobinDistribution,
    # The query cannot contain a router: same as the default.
    "CustomPartition": PartitionsRoutingMode.UseSinglePartition,
}
_COMPRESSION = {
    "NONE": CompressionType.NONE,
    "LZ4": CompressionType.LZ4,
    "ZLIB": CompressionType.ZLib,
    "ZSTD": CompressionType.ZSTD,
    "SNAPPY": CompressionType.SNAPPY,
}
_TYPES = {
    "Exclusive": ConsumerType.Exclusive,
    "Shared": ConsumerType.Shared,
    "Failover": ConsumerType.Failover,
    "Key_Shared": ConsumerType.KeyShared,
}
_WITH_DEAD_LETTERS = frozenset(("Shared", "Key_Shared"))
_POSITIONS = {"Latest": InitialPosition.Latest, "Earliest": InitialPosition.Earliest}
_CRYPTO = {each.name: each for each in CryptoFailureAction}
_HASHING = {each.name: each for each in HashingScheme}
_DURABLE = {"Durable": 1, "NonDurable": 0}
_LONG = frozenset(("ackTimeoutMillis", "batchingMaxPublishDelay", "initialSequenceId"))
"""Parameters that are 64-bit numbers; all other numbers have 32 bits, as in Pulsar."""


def producer_options(query: Query) -> dict[str, Any]:
    """Returns options of ``Client.create_producer``.

    :raises InvalidRequest: a parameter is not valid, or not supported
    """
    if query.get("encryptionKeys"):
        raise InvalidRequest(
            "Invalid query params: encryptionKeys: the broker has no keys; encrypt messages in the client"
        )
    if "initialSequenceId" in query and _whole(query, "initialSequenceId") < -1:
        raise InvalidRequest(
            f"Invalid query params: initialSequenceId must be -1 or more, not {query['initialSequenceId']}"
        )
    return {
        "batching_enabled": _truth(query, "batchingEnabled"),
        # As in Pulsar: the messages of a WebSocket keep their order, also across keys.
        "batching_type": BatchingType.Default,
        "message_routing_mode": _chosen(
            query, "messageRoutingMode", _ROUTING, PartitionsRoutingMode.UseSinglePartition
        ),
        "hashing_scheme": _chosen(query, "hashingScheme", _HASHING, HashingScheme.JavaStringHash),
        "compression_type": _chosen(query, "compressionType", _COMPRESSION, CompressionType.NONE),
        **_given(
            query,
            {
                "producerName": ("producer_name", str),
                "initialSequenceId": ("initial_sequence_id", int),
                "sendTimeoutMillis": ("send_timeout_millis", int),
                "batchingMaxMessages": ("batching_max_messages", int),
                "maxPendingMessages": ("max_pending_messages", int),
                "batchingMaxPublishDelay": ("batching_max_publish_delay_ms", int),
            },
        ),
    }


def consumer_options(query: Query) -> dict[str, object]:
    """Returns options of ``Client.subscribe``.

    :raises InvalidRequest: a parameter is not valid
    """
    options: dict[str, object] = {
        "consumer_type": _chosen(query, "subscriptionType", _TYPES, ConsumerType.Exclusive),
        "initial_position": _chosen(query, "subscriptionInitialPosition", _POSITIONS, InitialPosition.Latest),
        "durable": bool(_chosen(query, "subscriptionMode", _DURABLE, 1)),
        "receiver_queue_size": receiver_queue_size(query),
        "crypto_failure_action": _chosen(query, "cryptoFailureAction", _CRYPTO, CryptoFailureAction.FAIL),
        **_given(
            query,
            {
                "ackTimeoutMillis": ("unacked_messages_timeout_ms", int),
                "consumerName": ("consumer_name", str),
                "priorityLevel": ("priority_level", int),
                "negativeAckRedeliveryDelay": ("negative_ack_redelivery_delay_ms", int),
            },
        ),
    }
    for name in ("priorityLevel", "negativeAckRedeliveryDelay"):
        if name in query and _whole(query, name) < 0:
            raise InvalidRequest(f"Invalid query params: {name} must be 0 or more")
    if not options["durable"]:
        latest = options["initial_position"] is InitialPosition.Latest
        options["start_message_id"] = MessageId.latest if latest else MessageId.earliest
    if "maxRedeliverCount" in query or "deadLetterTopic" in query:
        count = _whole(query, "maxRedeliverCount") if "maxRedeliverCount" in query else 0
        options["dead_letter_policy"] = DeadLetterPolicy(count, query.get("deadLetterTopic") or None)
    return options


def dead_letter_topics(query: Query, topics: Sequence[str], subscription: str) -> Sequence[TopicName]:
    """Returns the dead letter topics that a consumer may publish to: the one that the query names; otherwise,
    if the query enables dead letters, the default dead letter topics of ``topics``.

    :raises InvalidRequest: a name is not a topic name
    """
    named = query.get("deadLetterTopic")
    if named:
        return [_topic(named)]
    if "maxRedeliverCount" not in query or query.get("subscriptionType") not in _WITH_DEAD_LETTERS:
        return []
    return [_topic(default_dead_letter_topic(topic, subscription)) for topic in topics]


def _topic(name: str) -> TopicName:
    try:
        return TopicName.parse(name)
    except InvalidName as error:
        raise InvalidRequest(f"Invalid query params: deadLetterTopic: {error}") from error


def reader_options(query: Query) -> tuple[MessageId, dict[str, Any]]:
    """Returns the start position of a reader, and options of ``Client.subscribe``.

    :raises InvalidRequest: a parameter is not valid
    """
    return _start(query.get("messageId", "")), {
        "receiver_queue_size": receiver_queue_size(query),
        "crypto_failure_action": _chosen(query, "cryptoFailureAction", _CRYPTO, CryptoFailureAction.FAIL),
        **_given(query, {"readerName": ("consumer_name", str)}),
    }


def receiver_queue_size(query: Query) -> int:
    """Returns the size of the receiver queue, in messages."""
    if "receiverQueueSize" not in query:
        return MOST_PENDING
    return min(_whole(query, "receiverQueueSize"), MOST_PENDING)


def pulls(query: Query) -> bool:
    """Whether the client requests messages with permits (pull mode)."""
    return _truth(query, "pullMode")


def _start(text: str) -> MessageId:
    if not text.strip() or text == "latest":
        return MessageId.latest
    if text == "earliest":
        return MessageId.earliest
    return message_id_of(text)


def message_id_of(text: str) -> MessageId:
    """Parses a message id in the form in which the WebSocket sends it to clients.

    :raises InvalidRequest: the text is not a message id
    """
    try:
        found = MessageId.deserialize(a2b_base64(text, strict_mode=True))
    except (ValueError, InvalidMessage) as error:
        raise InvalidRequest(f"Invalid query params: {text!r} is not a message id") from error
    if max(found.batch_size(), found.batch_index() + 1) > MOST_IN_BATCH:
        raise InvalidRequest(
            f"Invalid query params: {text!r} refers to a batch of more than {MOST_IN_BATCH} messages"
        )
    return found


def _given(query: Query, wanted: Mapping[str, tuple[str, Callable[[str], object]]]) -> dict[str, object]:
    """Converts the parameters that are present; returns the values by the names of the client's options.

    :param wanted: for each parameter, the name of the option, and the function that converts the text
    """
    options: dict[str, object] = {}
    for name, (option, kind) in wanted.items():
        if name in query:
            options[option] = _whole(query, name) if kind is int else query[name]
    return options


def _whole(query: Query, name: str) -> int:
    try:
        found = int(query[name])
    except ValueError as error:
        raise InvalidRequest(f'Invalid query params: {name}: for input string: "{query[name]}"') from error
    bits = 64 if name in _LONG else 32
    if not -(1 << bits - 1) <= found < 1 << bits - 1:
        raise InvalidRequest(
            f"Invalid query params: {name} must be a whole number that fits into {bits} bits, not {found}"
        )
    return found


def _truth(query: Query, name: str) -> bool:
    return query.get(name, "").lower() == "true"


def _chosen(query: Query, name: str, choices: Mapping[str, object], default: object) -> object:
    if name not in query:
        return default
    if query[name] not in choices:
        raise InvalidRequest(f"Invalid query params: Invalid {name} {query[name]}")
    return choices[query[name]]
