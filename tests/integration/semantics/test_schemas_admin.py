"""Schemas over the admin interface, and with ``pulsar-admin schemas``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from raw_client import Client, Refused
from server import Server

from magnetar.cli.pulsar_admin import main
from magnetar.errors import ServerErrorCode
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, Schema

X = json.dumps({"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}]})
XY = json.dumps(
    {"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int"}]}
)
WIDER = json.dumps(
    {
        "type": "record",
        "name": "A",
        "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": ["null", "int"], "default": None}],
    }
)
Ask = Callable[..., tuple[int, Any]]


@pytest.fixture
def ask(server: Server, topic: str) -> Ask:
    """Asks about the schema of a topic; the status, and the answer if it is JSON."""
    where = topic.replace("persistent://", "/admin/v2/schemas/")

    def ask_it(method: str, rest: str, kind: str | None = None, schema: Any = "", **properties: str) -> Any:
        body = (
            None if kind is None else json.dumps({"type": kind, "schema": schema, "properties": properties})
        )
        status, answer = server.ask(method, f"{where}/{rest}", body)
        return status, json.loads(answer) if answer else None

    return ask_it


def test_versions(ask: Ask) -> None:
    assert ask("GET", "schema") == (404, {"reason": "Schema not found"})
    assert ask("GET", "schemas") == (200, {"getSchemaResponses": []})
    assert ask("GET", "metadata") == (200, None)
    assert ask("POST", "schema", "AVRO", X, a="b") == (200, {"version": {"version": 0}})
    assert ask("POST", "schema", "AVRO", X) == (200, {"version": {"version": 0}})
    assert ask("POST", "schema", "AVRO", WIDER) == (200, {"version": {"version": 1}})
    status, latest = ask("GET", "schema")
    assert status == 200
    assert latest.pop("timestamp") > 0
    assert latest == {"version": 1, "type": "AVRO", "data": WIDER, "properties": {}}
    status, first = ask("GET", "schema/0")
    assert (first["data"], first["properties"]) == (X, {"a": "b"})
    status, every = ask("GET", "schemas")
    assert [each["version"] for each in every["getSchemaResponses"]] == [0, 1]
    status, places = ask("GET", "metadata")
    assert [each["version"] for each in places["index"]] == [0, 1]
    assert places["info"] == places["index"][1]
    assert ask("GET", "schema/7")[0] == 404
    assert ask("GET", "schema/x")[0] == 400
    assert ask("POST", "version", "AVRO", WIDER) == (200, {"version": 1})
    assert ask("POST", "version", "AVRO", XY) == (200, {"version": -1})
    assert ask("POST", "version", "AVRO", "{") == (200, {"version": -1})


def test_refusals(ask: Ask, server: Server) -> None:
    assert ask("POST", "schema", "AVRO", X)[0] == 200
    status, reason = ask("POST", "schema", "AVRO", XY)
    assert status == 409
    assert "FULL" in reason["reason"]
    assert ask("POST", "schema", "JSON", X)[0] == 409
    for kind, schema in (
        ("AVRO", "{"),
        ("AVRO", '["int"]'),
        ("STRING", "x"),
        ("INT32", "x"),
        ("AUTO_CONSUME", ""),
        ("AUTO", ""),
        ("PROTOBUF_NATIVE", "x"),
        ("KEY_VALUE", ""),
        ("FOO", ""),
    ):
        assert ask("POST", "schema", kind, schema)[0] == 422, kind
    path = "/admin/v2/schemas/public/default/refused/schema"
    for body in (
        "",
        "[]",
        "{}",
        '{"type":1}',
        '{"type":"AVRO","schema":1}',
        '{"type":"AVRO","properties":1}',
    ):
        assert server.ask("POST", path, body)[0] in (400, 422), body
    assert server.ask("POST", "/admin/v2/schemas/public/none/t/schema", '{"type":"STRING"}')[0] == 404
    assert server.ask("GET", "/admin/v2/schemas/public/none/t/schema")[0] == 404


def test_compatibility(ask: Ask) -> None:
    fits = (202, {"schemaCompatibilityStrategy": "FULL", "compatibility": True})
    assert ask("POST", "compatibility", "AVRO", X) == fits
    assert ask("POST", "schema", "AVRO", X)[0] == 200
    assert ask("POST", "compatibility", "AVRO", WIDER) == fits
    assert ask("POST", "compatibility", "AVRO", XY)[0] == 500
    assert ask("POST", "compatibility", "JSON", X)[0] == 500
    assert ask("GET", "schema")[1]["version"] == 0


def test_deleting(ask: Ask, server: Server, topic: str) -> None:
    assert ask("POST", "schema", "AVRO", X)[0] == 200
    assert ask("DELETE", "schema") == (200, {"version": 1})
    assert ask("GET", "schema")[0] == ask("GET", "schema/0")[0] == ask("GET", "schema/1")[0] == 404
    assert ask("GET", "schemas") == (200, {"getSchemaResponses": []})
    assert len(ask("GET", "metadata")[1]["index"]) == 2
    client = Client(server.port)
    answer = client.ask(BaseCommand.GET_SCHEMA, BaseCommand.GET_SCHEMA_RESPONSE, topic=topic)
    assert answer.HasField("error_code")
    # What comes now has to get on with nothing.
    assert ask("POST", "schema", "STRING") == (200, {"version": {"version": 2}})
    assert ask("DELETE", "schema?force=true") == (200, {"version": -1})
    assert ask("GET", "metadata") == (200, None)
    assert ask("POST", "schema", "JSON", X) == (200, {"version": {"version": 0}})


def test_policies_of_the_namespace(ask: Ask, server: Server) -> None:
    policies = "/admin/v2/namespaces/public/default/"
    assert ask("POST", "schema", "AVRO", X)[0] == 200
    assert server.ask("PUT", policies + "schemaCompatibilityStrategy", '"FORWARD"')[0] == 204
    try:
        assert ask("POST", "schema", "AVRO", XY) == (200, {"version": {"version": 1}})
    finally:
        assert server.ask("PUT", policies + "schemaCompatibilityStrategy", '"UNDEFINED"')[0] == 204
    assert ask("POST", "schema", "AVRO", X) == (200, {"version": {"version": 0}})
    _status, answer = server.ask("GET", policies.rstrip("/"))
    assert json.loads(answer)["is_allow_auto_update_schema"] is True


def test_producers_go_by_the_policies_that_count_now(ask: Ask, server: Server, topic: str) -> None:
    policies = "/admin/v2/namespaces/public/default/"
    client = Client(server.port)

    def produce(definition: str | None) -> int | None:
        """The version, None when it is refused."""
        fields: dict[str, Any] = {}
        if definition is not None:
            fields["schema"] = Schema(name="n", type=Schema.Avro, schema_data=definition.encode())
        try:
            producer, success = client.produce(topic, **fields)
        except Refused as error:
            if error.code != ServerErrorCode.INCOMPATIBLE_SCHEMA:
                raise
            return None
        client.close_producer(producer)
        return int.from_bytes(success.schema_version, "big", signed=True) if success.schema_version else -1

    assert produce(X) == 0
    assert produce(XY) is None
    of_topic = topic.replace("://", "/") + "/schemaCompatibilityStrategy"
    status, answer = server.ask("PUT", f"/admin/v2/{of_topic}", '"FORWARD"')
    assert status == 204, answer
    assert produce(XY) == 1
    try:
        assert server.ask("POST", policies + "isAllowAutoUpdateSchema", "false")[0] == 204
        assert [produce(X), produce(WIDER)] == [0, None]
        assert server.ask("POST", policies + "schemaValidationEnforced", "true")[0] == 204
        assert produce(None) is None
    finally:
        assert server.ask("POST", policies + "isAllowAutoUpdateSchema", "true")[0] == 204
        assert server.ask("POST", policies + "schemaValidationEnforced", "false")[0] == 204
    assert produce(None) == -1


def test_key_and_value(ask: Ask) -> None:
    types = {"key.schema.type": "AVRO", "value.schema.type": "STRING"}
    text = json.dumps({"key": json.loads(X), "value": ""})
    assert ask("POST", "schema", "KEY_VALUE", text, **types) == (200, {"version": {"version": 0}})
    assert ask("POST", "schema", "KEY_VALUE", text, **types) == (200, {"version": {"version": 0}})
    assert json.loads(ask("GET", "schema")[1]["data"]) == json.loads(text)


def test_the_legacy_path(server: Server) -> None:
    body = json.dumps({"type": "STRING", "schema": "", "properties": {}})
    # There is no such namespace; the path is understood.
    status, answer = server.ask("POST", "/admin/schemas/public/standalone/default/t/schema", body)
    assert (status, b"amespace" in answer) == (404, True)


def run(server: Server, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["--admin-url", server.http_url, "schemas", *arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_the_command(server: Server, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = topic.rpartition("/")[2]
    file = tmp_path / "schema.json"
    file.write_text(json.dumps({"type": "AVRO", "schema": X, "properties": {"b": "1", "a": "2"}}))
    assert run(server, capsys, "upload", topic, "-f", str(file)) == (0, "", "")
    code, out, _ = run(server, capsys, "get", topic)
    shown = json.loads(out)
    assert (code, shown["version"]) == (0, 0)
    assert shown["schemaInfo"].pop("timestamp") > 0
    assert shown["schemaInfo"] == {
        "name": name,
        "schema": json.loads(X),
        "type": "AVRO",
        "properties": {"a": "2", "b": "1"},
    }
    file.write_text(json.dumps({"type": "AVRO", "schema": WIDER, "properties": {}}))
    code, out, _ = run(server, capsys, "compatibility", topic, "-f", str(file))
    assert json.loads(out) == {"schemaCompatibilityStrategy": "FULL", "compatibility": True}
    assert run(server, capsys, "upload", topic, "-f", str(file))[0] == 0
    code, out, _ = run(server, capsys, "get", topic, "--version", "0")
    assert json.loads(out)["schema"] == json.loads(X)
    code, out, _ = run(server, capsys, "get", topic, "-a")
    assert out.count('"type": "AVRO"') == 2
    code, out, _ = run(server, capsys, "metadata", topic)
    assert len(json.loads(out)["index"]) == 2
    file.write_text(json.dumps({"type": "AVRO", "schema": XY, "properties": {}}))
    code, _, error = run(server, capsys, "upload", topic, "-f", str(file))
    assert (code, "FULL" in error) == (1, True)
    assert run(server, capsys, "delete", topic) == (0, "", "")
    assert run(server, capsys, "get", topic)[0] == 1
    code, _, error = run(server, capsys, "extract", topic, "-j", "a.jar", "-t", "avro", "-c", "A")
    assert (code, "not run on a Java VM" in error) == (1, True)
    assert run(server, capsys, "upload", topic, "-f", str(tmp_path / "none"))[0] == 1
