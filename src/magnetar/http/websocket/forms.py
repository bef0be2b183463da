"""What goes over a WebSocket, as JSON (Pulsar's "WebSocket API" and its classes ``ProducerMessage``,
``ConsumerCommand``, ``ConsumerMessage``, ``ProducerAck``)."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from magnetar.client.message import Message
from magnetar.protocol.pulsar_api_pb2 import CompressionType, MessageMetadata

UNREADABLE = 3
"""Failed to de-serialize from JSON."""
WRONG_PAYLOAD = 7
"""Invalid payload encoding."""
NOT_SENT = 8
"""Whatever the broker or the client refused it for."""


class BadForm(ValueError):
    """What came is not what it should be; ``code`` says in which way, ``context`` is to be given back."""

    def __init__(self, code: int, reason: str, context: str | None = None) -> None:
        super().__init__(reason)
        self.code = code
        self.context = context


@dataclass(frozen=True, slots=True)
class ProducerMessage:
    payload: bytes
    options: Mapping[str, Any]
    """Of :class:`magnetar.client.outgoing_message.MessageOptions`."""
    context: str | None


def producer_message(text: str, now_ms: int) -> ProducerMessage:
    """:raises BadForm: it is none"""
    found = _object(text)
    context = _text(found, "context")
    payload = _text(found, "payload", context)
    if payload is None:
        raise BadForm(WRONG_PAYLOAD, "There is no payload", context)
    options: dict[str, Any] = {}
    properties = found.get("properties")
    if properties is not None:
        options["properties"] = _texts(properties, context)
    if (key := _text(found, "key", context)) is not None:
        options["partition_key"] = key
    if (clusters := found.get("replicationClusters")) is not None:
        if not isinstance(clusters, list) or not all(isinstance(each, str) for each in clusters):
            raise BadForm(UNREADABLE, "replicationClusters is no list of names", context)
        options["replication_clusters"] = clusters
    if (event_time := _text(found, "eventTime", context)) is not None:
        options["event_timestamp"] = _milliseconds(event_time, context)
    deliver_at, deliver_after = _whole(found, "deliverAt", context), _whole(found, "deliverAfterMs", context)
    if deliver_at > 0:
        options["deliver_at"] = deliver_at
    if deliver_after > 0:
        options["deliver_at"] = now_ms + deliver_after
    try:
        content = b64decode(payload, validate=True)
    except (NotBase64, ValueError) as error:
        raise BadForm(WRONG_PAYLOAD, f"Invalid Base64 message-payload error={error}", context) from error
    return ProducerMessage(content, options, context)


def producer_ack(message_id: bytes, context: str | None) -> str:
    told = {"result": "ok", "messageId": b64encode(message_id).decode()}
    return _json({**told, **_given(context=context), "errorCode": 0, "schemaVersion": 0})


def producer_refusal(code: int, reason: str, context: str | None) -> str:
    told = {"result": f"send-error:{code}", "errorMsg": reason}
    return _json({**told, **_given(context=context), "errorCode": 0, "schemaVersion": 0})


@dataclass(frozen=True, slots=True)
class ConsumerCommand:
    type: str | None
    """None: an acknowledgement."""
    message_id: str | None
    """As the client was told it."""
    permits: int | None


def consumer_command(text: str) -> ConsumerCommand:
    """:raises BadForm: it is none"""
    found = _object(text)
    permits = _whole(found, "permitMessages") if found.get("permitMessages") is not None else None
    return ConsumerCommand(_text(found, "type"), _text(found, "messageId"), permits)


def consumer_message(message: Message, message_id: str) -> str:
    form: dict[str, Any] = {
        "messageId": message_id,
        "payload": b64encode(message.data()).decode(),
        "properties": message.properties(),
        "publishTime": iso_time(message.publish_timestamp()),
        "redeliveryCount": message.redelivery_count(),
    }
    if message.event_timestamp():
        form["eventTime"] = iso_time(message.event_timestamp())
    if (encryption := message.encryption()) is not None:
        form["encryptionContext"] = _encryption_context(encryption)
    if message.has_partition_key():
        form["key"] = message.partition_key()
    return _json(form)


def _encryption_context(metadata: MessageMetadata) -> dict[str, Any]:
    batch = metadata.num_messages_in_batch if metadata.HasField("num_messages_in_batch") else None
    return {
        "keys": {
            key.key: {
                "keyValue": b64encode(key.value).decode(),
                "metadata": {pair.key: pair.value for pair in key.metadata},
            }
            for key in metadata.encryption_keys
        },
        "param": b64encode(metadata.encryption_param).decode(),
        "algorithm": metadata.encryption_algo,
        "compressionType": CompressionType.Name(metadata.compression),
        "uncompressedMessageSize": metadata.uncompressed_size,
        "batchSize": batch,
    }


def end_of_topic(reached: bool) -> str:
    return _json({"endOfTopic": reached})


def iso_time(ms: int) -> str:
    """As Java writes ``ISO_OFFSET_DATE_TIME`` in UTC: a fraction only as long as it has to be."""
    at = datetime.fromtimestamp(ms // 1000, UTC)
    fraction = f".{ms % 1000:03}".rstrip("0") if ms % 1000 else ""
    return f"{at:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def _milliseconds(text: str, context: str | None) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise BadForm(WRONG_PAYLOAD, f"Text '{text}' could not be parsed as a time with an offset", context)
    return int(at.timestamp() * 1000)


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadForm(UNREADABLE, f"This is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadForm(UNREADABLE, "This is no JSON object")
    return found


def _text(found: Mapping[str, Any], name: str, context: str | None = None) -> str | None:
    value = found.get(name)
    if value is None:
        return None
    if isinstance(value, str):
        return _sound(value, name, context)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        # Jackson, which reads this in Pulsar, takes bare values for text.
        return str(value)
    raise BadForm(UNREADABLE, f"{name} is no text", context)


def _sound(text: str, name: str, context: str | None) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise BadForm(UNREADABLE, f"{name} holds half a character", context) from error
    return text


def _texts(found: Any, context: str | None) -> dict[str, str]:
    if not isinstance(found, dict):
        raise BadForm(UNREADABLE, "properties is no object", context)
    return {_sound(name, "a property", context): _text(found, name, context) or "" for name in found}


def _whole(found: Mapping[str, Any], name: str, context: str | None = None) -> int:
    value = found.get(name, 0)
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise BadForm(UNREADABLE, f"{name} is no whole number", context) from error


def _given(**values: str | None) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
