"""Parses ``ProducerMessages``, the body of requests that publish messages (PIP-64)."""

from __future__ import annotations

import json
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Mapping
from datetime import datetime

from magnetar.broker.admin.publishing import Publication, WrittenMessage
from magnetar.broker.schemas import key_value
from magnetar.broker.schemas.data import SchemaData, SchemaType
from magnetar.client.exceptions import InvalidMessage
from magnetar.client.outgoing_message import MessageOptions
from magnetar.errors import InvalidRequest
from magnetar.http.engine.message import Request
from magnetar.http.shapes.fields import Field, body, fields, shown, text, text_map, texts, truth, whole

_NO_VERSION = -1
_TEXT = SchemaData(SchemaType.STRING, properties={"__charset": "UTF-8"})
"""The default schema of values and keys."""


def _objects(name: str, value: object) -> list[Mapping[str, object]]:
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise InvalidRequest(f"{name} must be a list of objects, not {shown(value)}")
    return value


def _sequence_id(name: str, value: object) -> int:
    given: int = whole(64)(name, value)
    if given < 0:
        raise InvalidRequest(f"{name} must be 0 or more, not {given}")
    return given


def _time(name: str, value: object) -> str:
    """Checks a time, which is a string or a number of milliseconds; returns it as a string."""
    return str(value) if type(value) is int else text(name, value)


_PUBLICATION = fields(
    {
        "schemaVersion": Field(whole(64), _NO_VERSION),
        "keySchema": Field(text, ""),
        "valueSchema": Field(text, ""),
        "producerName": Field(text, ""),
        "messages": Field(_objects),
    }
)
_MESSAGE = fields(
    {
        "payload": Field(text),
        "key": Field(text),
        "properties": Field(text_map),
        "context": Field(text),
        "sequenceId": Field(_sequence_id),
        "eventTime": Field(_time),
        "deliverAt": Field(whole(64), 0),
        "deliverAfterMs": Field(whole(64), 0),
        "replicationClusters": Field(texts),
        "disableReplication": Field(truth, False),
    }
)
_INFO = fields(
    {"type": Field(text), "schema": Field(text, ""), "properties": Field(text_map, {}), "name": Field(text)}
)


ADD_SCHEMA = "addSchema"
"""If this query parameter is ``false``, publishing bytes adds no schema to the topic. Apache Pulsar does not
have this parameter.
"""


def publication(request: Request, now_ms: int) -> Publication:
    """Returns the messages that the body of a request to publish contains.

    :param now_ms: the present time, in milliseconds since 1970, from which delivery delays are counted
    :raises InvalidRequest: the body is not a valid ``ProducerMessages``
    """
    given = body(_PUBLICATION, "ProducerMessages")(request)
    if "messages" not in given:
        raise InvalidRequest("ProducerMessages.messages is missing; send a list of objects")
    messages = [
        _message(f"messages[{number}]", each, now_ms) for number, each in enumerate(given["messages"])
    ]
    version = given["schemaVersion"]
    schema = _schema(given["keySchema"], given["valueSchema"]) if version == _NO_VERSION else version
    return Publication(messages, schema, given["producerName"], request.flag(ADD_SCHEMA, default=True))


def _message(name: str, given: Mapping[str, object], now_ms: int) -> WrittenMessage:
    found = _MESSAGE(name, given)
    if "payload" not in found:
        raise InvalidRequest(f"{name} has no payload, which must be a string")
    at, after = found["deliverAt"], found["deliverAfterMs"]
    try:
        options = MessageOptions(
            properties=found.get("properties"),
            replication_clusters=found.get("replicationClusters"),
            disable_replication=found["disableReplication"],
            event_timestamp=_milliseconds(f"{name}.eventTime", found.get("eventTime")),
            deliver_at=now_ms + after if after > 0 else at if at > 0 else None,
        )
    except InvalidMessage as error:
        raise InvalidRequest(f"{name}: {error}") from error
    return WrittenMessage(
        found["payload"], found.get("key"), found.get("sequenceId"), options, found.get("context"), given
    )


def _milliseconds(name: str, given: str | None) -> int | None:
    """Converts a time to milliseconds since 1970; None if no time is given. The text is the number of
    milliseconds, as in Pulsar, or a time with a UTC offset, as for WebSockets.
    """
    if given is None:
        return None
    if given.isascii() and given.isdigit() and len(given) < 16:
        return int(given)
    try:
        found = datetime.fromisoformat(given)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None or found.timestamp() < 0:
        raise InvalidRequest(
            f"{name} must be milliseconds since 1970, or a time with a UTC offset, not {shown(given)}"
        )
    return int(found.timestamp() * 1000)


def _schema(key: str, value: str) -> SchemaData:
    """Returns the schema of the messages: a KEY_VALUE schema if a key schema is given, otherwise the schema
    of values.

    :param key: ``SchemaInfo`` of the key as JSON; empty: no key schema
    :param value: ``SchemaInfo`` of the value as JSON; empty: the value is a string
    """
    of_value = _declared("valueSchema", value) if value else _TEXT
    return key_value.separated(_declared("keySchema", key), of_value) if key else of_value


def _declared(name: str, written: str) -> SchemaData:
    try:
        info = _INFO(name, json.loads(written))
        kind = info.get("type", "")
        data = b64decode(info["schema"], validate=True)
        return SchemaData(SchemaType["NONE" if kind == "BYTES" else kind], data, info["properties"])
    except KeyError as error:
        raise InvalidRequest(f"{name}: {shown(kind)} is not a schema type") from error
    except (NotBase64, ValueError, RecursionError) as error:
        raise InvalidRequest(f"{name} must be a SchemaInfo in JSON: {error}") from error
