"""Commands for the schemas of topics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from magnetar.cli.admin.arguments import UsageError
from magnetar.cli.admin.call import SILENT, Action, Call
from magnetar.cli.admin.rendering import Rows
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.key_values import SIDES, declared

_KEY_VALUE = "KEY_VALUE"
_DEFINED = frozenset({"AVRO", "JSON", "PROTOBUF", "PROTOBUF_NATIVE"})


def _topic(call: Call) -> TopicName:
    return TopicName.parse(call["topicName"])


def _path(call: Call, rest: str) -> str:
    """Returns the path of a request for a topic's schema.

    :param rest: the part of the path after the topic
    :raises InvalidName: the topic name is not valid
    """
    name = _topic(call)
    root = "/admin/schemas" if name.legacy else "/admin/v2/schemas"
    return f"{root}/{name.namespace_name}/{name.encoded_local}/{rest}"


def _definition(kind: str, text: str) -> object:
    return json.loads(text) if kind in _DEFINED and text else text


def _info(name: str, answer: dict[str, Any]) -> dict[str, Any]:
    """Converts a ``GetSchemaResponse`` of the REST API to the ``SchemaInfo`` that Pulsar's command prints."""
    kind, text, properties = answer["type"], answer["data"], answer["properties"]
    schema: Any = _definition(kind, text)
    if kind == _KEY_VALUE:
        parts = json.loads(text)
        schema = {side: _part(side, parts[side], properties) for side in SIDES}
    return {
        "name": name,
        "schema": schema,
        "type": kind,
        "timestamp": answer["timestamp"],
        "properties": dict(sorted(properties.items())),
    }


def _part(side: str, definition: object, properties: dict[str, str]) -> dict[str, object]:
    said = declared(properties, side)
    return {
        "name": said.name,
        "schema": definition,
        "type": said.kind,
        "timestamp": 0,
        "properties": said.properties,
    }


def _get(call: Call) -> object:
    name = _topic(call).local
    if call["all-version"]:
        if call["version"] is not None:
            raise UsageError("--version and --all-version cannot be used together")
        found = call.ask("GET", _path(call, "schemas"))["getSchemaResponses"]
        return _shown(*(_info(name, each) for each in found))
    if call["version"] is not None:
        return _shown(_info(name, call.ask("GET", _path(call, f"schema/{call['version']}"))))
    latest = call.ask("GET", _path(call, "schema"))
    return _shown({"version": latest["version"], "schemaInfo": _info(name, latest)})


def _shown(*answers: object) -> Rows:
    """Formats schemas with the spacing in which Pulsar's tool prints them; the tool prints other answers with
    another spacing.
    """
    lines = (f"{json.dumps(answer, indent=2)}\n" for answer in answers)
    return Rows(lines, list(answers) if len(answers) > 1 else answers[0])


def _payload(call: Call) -> object:
    """Reads the ``PostSchemaPayload`` for the request from the command's file.

    :raises UsageError: the file cannot be read, or is not JSON
    """
    try:
        return json.loads(Path(call["filename"]).read_text())
    except OSError as error:
        raise UsageError(f"{call['filename']} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{call['filename']} is not JSON: {error}") from error


def _check(call: Call) -> object:
    return call.ask("POST", _path(call, "compatibility"), None, _payload(call))


def _delete(call: Call) -> object:
    call.ask("DELETE", _path(call, "schema"), {"force": call["force"]})
    return SILENT


ACTIONS: dict[str, Action] = {
    "schemas get": _get,
    "schemas delete": _delete,
    "schemas upload": lambda call: call.send("POST", _path(call, "schema"), None, _payload(call)),
    "schemas metadata": lambda call: call.ask("GET", _path(call, "metadata")),
    "schemas compatibility": _check,
}
