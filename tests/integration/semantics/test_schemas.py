"""Schemas over the protocol: versions, strategies, refusals, and what stays after a restart."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from raw_client import Client, Refused, entry_of
from server import VARIANTS, Server

from magnetar.errors import ServerErrorCode
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, KeyValue, Schema

StartServer = Callable[..., Server]
Field = str | dict[str, object]


def record(*fields: Field, name: str = "A") -> bytes:
    """A record's definition; a field that is only named is an int."""
    full = [{"name": field, "type": "int"} if isinstance(field, str) else field for field in fields]
    return json.dumps({"type": "record", "name": name, "fields": full}).encode()


def optional(name: str) -> dict[str, object]:
    return {"name": name, "type": ["null", "int"], "default": None}


def schema(kind: Schema.Type.ValueType, data: bytes = b"", **properties: str) -> Schema:
    pairs = [KeyValue(key=key.replace("__", "."), value=value) for key, value in properties.items()]
    return Schema(name="n", type=kind, schema_data=data, properties=pairs)


def avro(*fields: Field, name: str = "A") -> Schema:
    return schema(Schema.Avro, record(*fields, name=name))


def key_value(key: str, key_data: bytes, value: str, value_data: bytes) -> Schema:
    data = b"".join(struct.pack(">i", len(part)) + part for part in (key_data, value_data))
    return schema(Schema.KeyValueSchema, data, key__schema__type=key, value__schema__type=value)


X, XY = avro("x"), avro("x", "y")
X_OPTIONAL, X_TWO = avro("x", optional("y")), avro("x", optional("y"), optional("z"))
EMPTY = avro()


def produce(client: Client, topic: str, wanted: Schema | None) -> int | None:
    """The version that a producer is told; the producer is closed again."""
    fields = {} if wanted is None else {"schema": wanted}
    producer, success = client.produce(topic, **fields)
    client.close_producer(producer)
    return int.from_bytes(success.schema_version, "big") if success.schema_version else None


def consume(client: Client, topic: str, wanted: Schema) -> None:
    client.close_consumer(client.subscribe(topic, "s", schema=wanted))


def refused(work: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(Refused) as found:
        work()
    return found.value.code, found.value.text


def incompatible(work: Callable[[], object]) -> str:
    code, text = refused(work)
    assert code == ServerErrorCode.INCOMPATIBLE_SCHEMA, text
    return text


def version_or_refusal(client: Client, topic: str, wanted: Schema) -> int | None:
    """The version, or None when it is incompatible."""
    try:
        return produce(client, topic, wanted)
    except Refused as error:
        if error.code != ServerErrorCode.INCOMPATIBLE_SCHEMA:
            raise
        return None


def get_schema(client: Client, topic: str, version: bytes | None = None) -> Any:
    fields = {} if version is None else {"schema_version": version}
    return client.ask(BaseCommand.GET_SCHEMA, BaseCommand.GET_SCHEMA_RESPONSE, topic=topic, **fields)


@pytest.fixture
def client(server: Server) -> Client:
    return Client(server.port)


def test_versions_are_numbered_and_found_again(client: Client, topic: str) -> None:
    assert [produce(client, topic, each) for each in (X, X_OPTIONAL, X_TWO, X, X_OPTIONAL)] == [0, 1, 2, 0, 1]
    latest = get_schema(client, topic)
    assert latest.schema_version == (2).to_bytes(8, "big")
    assert latest.schema.schema_data == X_TWO.schema_data
    assert latest.schema.type == Schema.Avro
    first = get_schema(client, topic, bytes(8))
    assert first.schema.schema_data == X.schema_data
    missing = get_schema(client, topic, (77).to_bytes(8, "big"))
    assert missing.error_code == ServerErrorCode.TOPIC_NOT_FOUND
    assert not missing.HasField("schema")
    assert get_schema(client, topic, b"123").HasField("error_code")


def test_a_definition_written_differently_is_the_same_version(client: Client, topic: str) -> None:
    assert produce(client, topic, X) == 0
    spaced = schema(Schema.Avro, json.dumps(json.loads(X.schema_data), indent=3).encode())
    assert produce(client, topic, spaced) == 0
    explained = json.loads(X.schema_data) | {"doc": "what it is for"}
    assert produce(client, topic, schema(Schema.Avro, json.dumps(explained).encode())) == 0
    assert produce(client, topic, None) is None


@pytest.mark.parametrize(
    "kind",
    [
        Schema.String,
        Schema.Bool,
        Schema.Int8,
        Schema.Int16,
        Schema.Int32,
        Schema.Int64,
        Schema.Float,
        Schema.Double,
        Schema.Date,
        Schema.Time,
        Schema.Timestamp,
        Schema.Instant,
        Schema.LocalDate,
        Schema.LocalTime,
        Schema.LocalDateTime,
    ],
)
def test_a_type_without_a_definition(client: Client, topic: str, kind: Schema.Type.ValueType) -> None:
    wanted = schema(kind, a="b")
    assert produce(client, topic, wanted) == 0
    consume(client, topic, wanted)
    found = get_schema(client, topic).schema
    assert (found.type, found.schema_data) == (kind, b"")
    assert [(pair.key, pair.value) for pair in found.properties] == [("a", "b")]
    other = Schema.Int8 if kind != Schema.Int8 else Schema.Int16
    text = incompatible(lambda: produce(client, topic, schema(other)))
    assert "exists schema type" in text
    code, text = refused(lambda: produce(client, topic, schema(kind, b"no definition")))
    assert code == ServerErrorCode.INCOMPATIBLE_SCHEMA
    assert "no definition" in text or "should be zero" in text


@pytest.mark.parametrize("kind", [Schema.Avro, Schema.Json, Schema.Protobuf])
def test_a_type_with_an_avro_definition(client: Client, topic: str, kind: Schema.Type.ValueType) -> None:
    assert produce(client, topic, schema(kind, record("x"))) == 0
    assert produce(client, topic, schema(kind, record("x", optional("y")))) == 1
    consume(client, topic, schema(kind, record("x")))
    union = b'["int","string"]'
    for bad in (b"{", b"", b"\xff", b'{"type":"record"}', b"[" * 100_000, union):
        if bad == union and kind == Schema.Protobuf:
            # Apache Pulsar refuses unions only of type AVRO; of type PROTOBUF it compares no definitions.
            assert produce(client, topic, schema(kind, bad)) == 2
            continue
        code, text = refused(lambda bad=bad: produce(client, topic, schema(kind, bad)))  # type: ignore[misc]
        assert (code, "schema" in text) == (ServerErrorCode.INCOMPATIBLE_SCHEMA, True), text
    client.barrier()


def test_what_java_lets_pass(client: Client, topic: str) -> None:
    """Apache's Python library, and the specification, do not."""
    assert produce(client, topic, avro("x")) == 0
    assert produce(client, topic, avro("x", name="Renamed")) == 1
    other = topic + "-enum"
    for version, symbols in enumerate((["a"], ["a", "b"], ["a"])):
        kind = {"type": "enum", "name": "E", "symbols": symbols}
        assert produce(client, other, avro({"name": "e", "type": kind})) == version % 2


def test_what_java_does_not_let_pass(client: Client, topic: str) -> None:
    inner = {"type": "record", "name": "Inner$1", "namespace": "a.Outer$", "fields": []}
    for bad in (avro({"name": "n", "type": inner}), avro({"name": "x", "type": "int", "default": "text"})):
        code, _text = refused(lambda bad=bad: produce(client, topic, bad))  # type: ignore[misc]
        assert code == ServerErrorCode.INCOMPATIBLE_SCHEMA


def native(root: str, file: str = "f.proto", package: str = "p") -> Schema:
    descriptors = FileDescriptorSet()
    described = descriptors.file.add(name="f.proto", package=package)
    described.message_type.add(name="M").nested_type.add(name="Inner")
    described.message_type.add(name="Other")
    definition = {
        "fileDescriptorSet": base64.b64encode(descriptors.SerializeToString()).decode(),
        "rootMessageTypeName": root,
        "rootFileDescriptorName": file,
    }
    return schema(Schema.ProtobufNative, json.dumps(definition).encode())


def test_protobuf_native(client: Client, topic: str) -> None:
    assert produce(client, topic, native("p.M")) == 0
    assert produce(client, topic, native("p.M")) == 0
    assert "root message" in incompatible(lambda: produce(client, topic, native("p.Other")))
    for bad in (native("p.None"), native("p.M", "g.proto"), schema(Schema.ProtobufNative, b"{}")):
        code, _text = refused(lambda bad=bad: produce(client, topic, bad))  # type: ignore[misc]
        assert code == ServerErrorCode.INCOMPATIBLE_SCHEMA
    assert produce(client, topic + "-nested", native("p.M.Inner")) == 0


def test_key_value(client: Client, topic: str) -> None:
    first = key_value("AVRO", record("x"), "JSON", record("x"))
    assert produce(client, topic, first) == 0
    assert produce(client, topic, key_value("AVRO", record("x"), "JSON", record("x", optional("y")))) == 1
    assert "cannot be read" in incompatible(
        lambda: produce(client, topic, key_value("AVRO", record("x"), "JSON", record("x", "y")))
    )
    text = incompatible(lambda: produce(client, topic, key_value("STRING", b"", "JSON", record("x"))))
    assert "different schema type" in text
    assert produce(client, topic + "-plain", key_value("STRING", b"", "INT32", b"")) == 0
    for bad in (
        schema(Schema.KeyValueSchema, b"\0\0"),
        schema(Schema.KeyValueSchema, struct.pack(">i", 1 << 30)),
        key_value("AVRO", b"{", "JSON", record("x")),
        key_value("NOTHING", b"", "JSON", record("x")),
    ):
        code, _text = refused(lambda bad=bad: produce(client, topic, bad))  # type: ignore[misc]
        assert code == ServerErrorCode.INCOMPATIBLE_SCHEMA


def test_consumers(client: Client, topic: str) -> None:
    produce(client, topic, X)
    consume(client, topic, X)
    consume(client, topic, X_OPTIONAL)
    assert "BACKWARD" in incompatible(lambda: consume(client, topic, XY))
    assert "exists schema type AVRO" in incompatible(
        lambda: consume(client, topic, schema(Schema.Json, record("x")))
    )
    # Nothing of it was stored.
    assert get_schema(client, topic).schema_version == bytes(8)
    consume(client, topic, schema(Schema.AutoConsume))


def test_the_first_consumer_of_an_unused_topic_gives_it_its_schema(client: Client, topic: str) -> None:
    watching = client.subscribe(topic, "watching", schema=schema(Schema.AutoConsume))
    consume(client, topic, X)
    assert get_schema(client, topic).schema.schema_data == X.schema_data
    client.close_consumer(watching)


def test_a_consumer_with_a_schema_on_a_topic_in_use_without_one(client: Client, topic: str) -> None:
    client.produce(topic)
    assert "active topic" in incompatible(lambda: consume(client, topic, X))
    other = topic + "-read"
    client.subscribe(other, "bytes")
    assert "active topic" in incompatible(lambda: consume(client, other, X))
    stored = topic + "-stored"
    producer, _ = client.produce(stored)
    client.published(producer, [b"m"])
    client.close_producer(producer)
    assert "active topic" in incompatible(lambda: consume(client, stored, X))


def test_get_or_create(client: Client, topic: str) -> None:
    def ask(name: str, wanted: Schema) -> Any:
        return client.ask(
            BaseCommand.GET_OR_CREATE_SCHEMA,
            BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE,
            topic=name,
            schema=wanted,
        )

    assert ask(topic, X).error_code == ServerErrorCode.TOPIC_NOT_FOUND
    client.produce(topic)
    assert ask(topic, X).schema_version == bytes(8)
    assert ask(topic, X_OPTIONAL).schema_version == (1).to_bytes(8, "big")
    assert ask(topic, XY).error_code == ServerErrorCode.INCOMPATIBLE_SCHEMA
    assert ask(topic, schema(Schema.Avro, b"{")).HasField("error_code")


def test_partitions_share_a_schema(server: Server, client: Client, topic: str) -> None:
    path = topic.replace("://", "/")
    assert server.ask("PUT", f"/admin/v2/{path}/partitions", "2")[0] == 204
    assert produce(client, topic + "-partition-0", X) == 0
    assert produce(client, topic + "-partition-1", X_OPTIONAL) == 1
    assert get_schema(client, topic).schema.schema_data == X_OPTIONAL.schema_data
    assert server.ask("DELETE", f"/admin/v2/{path}/partitions")[0] == 204
    assert get_schema(client, topic).error_code == ServerErrorCode.TOPIC_NOT_FOUND


def test_a_schema_goes_with_its_topic(server: Server, client: Client, topic: str) -> None:
    produce(client, topic, X)
    assert server.ask("DELETE", f"/admin/v2/{topic.replace('://', '/')}")[0] == 204
    assert get_schema(client, topic).error_code == ServerErrorCode.TOPIC_NOT_FOUND
    assert produce(client, topic, schema(Schema.String)) == 0


def test_internal_statistics_name_the_ledgers(server: Server, client: Client, topic: str) -> None:
    produce(client, topic, X)
    produce(client, topic, X_OPTIONAL)
    status, answer = server.ask("GET", f"/admin/v2/{topic.replace('://', '/')}/internalStats")
    ledgers = json.loads(answer)["schemaLedgers"]
    assert (status, len(ledgers)) == (200, 2)
    assert all(each["entries"] == 1 and each["size"] > 80 for each in ledgers)


def test_many_at_once_get_one_version_each(server: Server, topic: str) -> None:
    clients = [Client(server.port) for _ in range(10)]
    asked = [
        each.begin(
            BaseCommand.PRODUCER,
            topic=topic,
            producer_id=number,
            schema=avro(*[optional(f"f{i}") for i in range(number % 3)]),
        )
        for number, each in enumerate(clients)
    ]
    told = [
        each.take(BaseCommand.PRODUCER_SUCCESS, request_id=request).schema_version
        for each, request in zip(clients, asked, strict=True)
    ]
    assert len(set(told)) == 3
    assert sorted({int.from_bytes(each, "big") for each in told}) == [0, 1, 2]


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("variant", list(VARIANTS))
def test_schemas_are_there_after_a_restart(start_server: StartServer, variant: str, kill: bool) -> None:
    server = start_server(**VARIANTS[variant])
    client = Client(server.port)
    topic = "persistent://public/default/restarted"
    for wanted in (X, X_OPTIONAL, X_TWO):
        produce(client, topic, wanted)
    producer, _ = client.produce(topic, schema=X)
    client.published(producer, [b"m"])
    server.restart(kill=kill)
    # Once more: what is left behind is looked for at every start.
    server.restart(kill=kill)
    client = Client(server.port)
    assert get_schema(client, topic).schema.schema_data == X_TWO.schema_data
    assert get_schema(client, topic, bytes(8)).schema.schema_data == X.schema_data
    assert produce(client, topic, X_OPTIONAL) == 1
    assert incompatible(lambda: produce(client, topic, XY))
    server.stop()


CASES = {
    "FULL": [0, 1, None, None],
    "BACKWARD": [0, 1, None, 2],
    "FORWARD": [0, 1, 2, None],
    "ALWAYS_INCOMPATIBLE": [0, None, None, None],
    "ALWAYS_COMPATIBLE": [0, 1, 2, 3],
}
"""Versions that X, X_OPTIONAL, XY and EMPTY get, one after another."""


@pytest.mark.parametrize("strategy", CASES)
def test_strategies(start_server: StartServer, strategy: str, topic: str) -> None:
    server = start_server(schemaCompatibilityStrategy=strategy)
    client = Client(server.port)
    told: list[int | None] = []
    for wanted in (X, X_OPTIONAL, XY, EMPTY):
        told.append(version_or_refusal(client, topic, wanted))
    assert told == CASES[strategy]
    server.stop()


@pytest.mark.parametrize("strategy", ["BACKWARD", "FORWARD"])
def test_transitive_strategies_look_at_all_versions(
    start_server: StartServer, strategy: str, topic: str
) -> None:
    answers = []
    text = avro({"name": "x", "type": "string", "default": ""})
    number = avro({"name": "x", "type": "int", "default": 0})
    first, middle, last = number, avro(), text
    for each in (strategy, strategy + "_TRANSITIVE"):
        server = start_server(schemaCompatibilityStrategy=each)
        client = Client(server.port)
        told: list[int | None] = []
        for wanted in (first, middle, last):
            told.append(version_or_refusal(client, topic, wanted))
        answers.append(told)
        server.stop()
    assert answers == [[0, 1, 2], [0, 1, None]]


def test_without_auto_update_only_known_schemas(start_server: StartServer, topic: str) -> None:
    server = start_server(isAllowAutoUpdateSchemaEnabled="false")
    client = Client(server.port)
    assert "auto updating is disabled" in incompatible(lambda: produce(client, topic, X))
    assert produce(client, topic, None) is None
    server.stop()


def test_with_validation_enforced_producers_need_a_schema(start_server: StartServer, topic: str) -> None:
    server = start_server(isSchemaValidationEnforced="true")
    client = Client(server.port)
    assert produce(client, topic, None) is None
    assert produce(client, topic, X) == 0
    assert "without a schema" in incompatible(lambda: produce(client, topic, None))
    server.stop()


def test_a_definition_that_is_too_large(client: Client, topic: str) -> None:
    code, text = refused(lambda: produce(client, topic, schema(Schema.Avro, b" " * (2 << 20))))
    assert code == ServerErrorCode.INCOMPATIBLE_SCHEMA
    assert "1048576" in text
    producer, _ = client.produce(topic)
    client.publish(producer, 0, entry_of(b"m"))
    client.take(BaseCommand.SEND_RECEIPT)
