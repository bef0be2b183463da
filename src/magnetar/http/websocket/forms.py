"""The JSON messages of a WebSocket (Pulsar's "WebSocket API" and its classes ``ProducerMessage``,
``ConsumerCommand``, ``ConsumerMessage``, ``ProducerAck``).

The JSON of received messages is formatted without :mod:`json`, because ids, payloads and times need no
escaping.
"""

from __future__ import annotations

import json
from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from magnetar.client.message import Message
from magnetar.http.shapes.fields import shown
from magnetar.protocol.frames import signed
from magnetar.protocol.pulsar_api_pb2 import CompressionType, MessageMetadata

UNREADABLE = 3
"""Error code: the JSON cannot be parsed."""
WRONG_PAYLOAD = 7
"""Error code: the encoding of the payload is invalid."""
NOT_SENT = 8
"""Error code: the broker or the client refused the message."""


_CALENDAR_SECONDS = 146_097 * 86_400
"""The period after which the calendar repeats (400 years), in seconds."""
_NO_OPTIONS: Mapping[str, object] = {}
_raw_decode = json.JSONDecoder().raw_decode
_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class BadForm(ValueError):
    """A message of a client is not valid; ``code`` is the error code, and ``context`` is the client's value
    that the answer repeats.
    """

    def __init__(self, code: int, reason: str, context: str | None = None) -> None:
        super().__init__(reason)
        self.code = code
        self.context = context


class ProducerMessage(NamedTuple):
    payload: bytes
    options: Mapping[str, object]
    """Options of the message: fields of :class:`magnetar.client.outgoing_message.MessageOptions`."""
    context: str | None


def producer_message(text: str, now_ms: int) -> ProducerMessage:
    """Parses what a producer sends: a message to publish.

    :raises BadForm: the text is not a valid message
    """
    found = _object(text)
    context = _text(found, "context")
    payload = _text(found, "payload", context)
    if payload is None:
        raise BadForm(WRONG_PAYLOAD, "payload is missing", context)
    del found["payload"]
    options = _options(found, context, now_ms) if found else _NO_OPTIONS
    try:
        content = a2b_base64(payload, strict_mode=True)
    except ValueError as error:
        raise BadForm(WRONG_PAYLOAD, f"Invalid Base64 message-payload error={error}", context) from error
    return ProducerMessage(content, options, context)


def _options(found: Mapping[str, object], context: str | None, now_ms: int) -> dict[str, object]:
    """Returns the options of a message from its JSON fields, except the payload."""
    options: dict[str, object] = {}
    properties = found.get("properties")
    if properties is not None:
        options["properties"] = _texts(properties, context)
    if (key := _text(found, "key", context)) is not None:
        options["partition_key"] = key
    if (clusters := found.get("replicationClusters")) is not None:
        if not isinstance(clusters, list) or not all(isinstance(each, str) for each in clusters):
            raise BadForm(
                UNREADABLE,
                f"replicationClusters must be a list of cluster names, not {shown(clusters)}",
                context,
            )
        options["replication_clusters"] = [_sound(each, "a cluster", context) for each in clusters]
    if (event_time := _text(found, "eventTime", context)) is not None:
        options["event_timestamp"] = _milliseconds(event_time, context)
    deliver_at, deliver_after = _whole(found, "deliverAt", context), _whole(found, "deliverAfterMs", context)
    if deliver_at > 0:
        options["deliver_at"] = deliver_at
    if deliver_after > 0:
        options["deliver_at"] = now_ms + deliver_after
    return options


def producer_ack(message_id: bytes, context: str | None) -> str:
    given = "" if context is None else f'"context":{_json(context)},'
    told = b64encode(message_id).decode()
    return f'{{"result":"ok","messageId":"{told}",{given}"errorCode":0,"schemaVersion":0}}'


def producer_refusal(code: int, reason: str, context: str | None) -> str:
    told = {"result": f"send-error:{code}", "errorMsg": reason}
    given = {} if context is None else {"context": context}
    return _json({**told, **given, "errorCode": 0, "schemaVersion": 0})


class ConsumerCommand(NamedTuple):
    type: str | None
    """The type of the command; None for an acknowledgement."""
    message_id: str | None
    """The message id of an acknowledgement, as the client received it; None: the command has no message
    id.
    """
    permits: int | None


def consumer_command(text: str) -> ConsumerCommand:
    """Parses what a consumer sends: an acknowledgement or another command.

    :raises BadForm: the text is not a valid command
    """
    found = _object(text)
    permits = _whole(found, "permitMessages") if found.get("permitMessages") is not None else None
    return ConsumerCommand(_text(found, "type"), _text(found, "messageId"), permits)


PART_BYTES = 3 << 16
"""Number of bytes of the payload in each part that :func:`consumer_message_parts` yields; a multiple of 3
because of Base64.
"""


def consumer_message(message: Message, message_id: str) -> str:
    payload = b64encode(message.data()).decode()
    return f'{{"messageId":"{message_id}","payload":"{payload}{_behind_payload(message)}'


def consumer_message_parts(message: Message, message_id: str) -> Iterator[tuple[str, bool]]:
    """Yields the text of :func:`consumer_message` as pairs of a part and whether this part is the last. Each
    part is encoded when it is needed, so that a message of 100 MB neither blocks the event loop nor needs
    memory for the whole text.
    """
    payload = memoryview(message.data())
    before = f'{{"messageId":"{message_id}","payload":"'
    for start in range(0, len(payload), PART_BYTES):
        yield before + b64encode(payload[start : start + PART_BYTES]).decode(), False
        before = ""
    yield before + _behind_payload(message), True


def _behind_payload(message: Message) -> str:
    properties = message.properties()
    written = (
        f'","properties":{_json(properties) if properties else "{}"}'
        f',"publishTime":"{iso_time(message.publish_timestamp())}"'
        f',"redeliveryCount":{message.redelivery_count()}'
    )
    if event_time := message.event_timestamp():
        written += f',"eventTime":"{iso_time(event_time)}"'
    if (encryption := message.encryption()) is not None:
        written += f',"encryptionContext":{_json(_encryption_context(encryption))}'
    if message.has_partition_key():
        written += f',"key":{_json(message.partition_key())}'
    return written + "}"


def _encryption_context(metadata: MessageMetadata) -> dict[str, object]:
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
    """Formats a time in UTC like Java's ``ISO_OFFSET_DATE_TIME``; the fraction is only as long as necessary.

    :param ms: milliseconds since 1970; any 64-bit value, because producers can send all of them
    """
    ms = signed(ms)
    fraction = f".{ms % 1000:03}".rstrip("0") if ms % 1000 else ""
    return f"{_to_the_second(ms // 1000)}{fraction}Z"


@lru_cache(maxsize=16)
def _to_the_second(seconds: int) -> str:
    cycles, rest = divmod(seconds, _CALENDAR_SECONDS)
    at = datetime.fromtimestamp(rest, UTC)
    year = at.year + 400 * cycles
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}-{at:%m-%dT%H:%M:%S}"


def _milliseconds(text: str, context: str | None) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise BadForm(WRONG_PAYLOAD, f"Text '{text}' could not be parsed as a time with an offset", context)
    return int(at.timestamp() * 1000)


def _object(text: str) -> dict[str, object]:
    try:
        found = _loaded(text)
    except (ValueError, RecursionError) as error:
        raise BadForm(UNREADABLE, f"The message is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadForm(UNREADABLE, "The message is not a JSON object")
    return found


def _loaded(text: str) -> object:
    """Like ``json.loads``, but faster, because it first tries to parse without looking for white space around
    the value.
    """
    if text.startswith("{"):
        found, end = _raw_decode(text)
        if end == len(text):
            return found
    return json.loads(text)


def _text(found: Mapping[str, object], name: str, context: str | None = None) -> str | None:
    value = found.get(name)
    if value is None:
        return None
    if isinstance(value, str):
        return value if value.isascii() else _sound(value, name, context)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        # Jackson, which Pulsar uses, accepts bare values for text.
        return str(value)
    raise BadForm(UNREADABLE, f"{name} must be a string, not {shown(value)}", context)


def _sound(text: str, name: str, context: str | None) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise BadForm(UNREADABLE, f"{name} must not contain an unpaired surrogate", context) from error
    return text


def _texts(found: object, context: str | None) -> dict[str, str]:
    if not isinstance(found, dict):
        raise BadForm(UNREADABLE, f"properties must be an object, not {shown(found)}", context)
    return {_sound(name, "a property", context): _text(found, name, context) or "" for name in found}


def _whole(found: Mapping[str, Any], name: str, context: str | None = None) -> int:
    value = found.get(name, 0)
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadForm(UNREADABLE, f"{name} must be a whole number, not {shown(value)}", context) from error
