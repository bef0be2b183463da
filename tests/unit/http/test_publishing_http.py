"""Messages that requests bring: where they go, what becomes of each, and what is refused as a whole."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from served import Served

from magnetar.broker.publishing.producer import MOST_TOPICS, RequestTurns
from magnetar.naming.hashes import java_string_hash
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.metadata import Entry, parse_entry

ROOT = "/topics/persistent/public/default"
TOPIC = "persistent://public/default/words"


def info(kind: str, definition: str = "") -> str:
    encoded = base64.b64encode(definition.encode()).decode()
    return json.dumps({"name": "n", "type": kind, "schema": encoded, "properties": {}})


def published(served: Served, path: str, *messages: Any, **form: Any) -> tuple[int, dict[str, Any]]:
    shown = [each if isinstance(each, dict) else {"payload": each} for each in messages]
    answer = served.ask("POST", f"{ROOT}/{path}", json.dumps({"messages": shown, **form}))
    return answer.status, json.loads(answer.body)


def acks(served: Served, path: str, *messages: Any, **form: Any) -> list[dict[str, Any]]:
    status, found = published(served, path, *messages, **form)
    assert status == 200, found
    told: list[dict[str, Any]] = found["messagePublishResults"]
    return told


def stored(served: Served, topic: str) -> list[Entry]:
    ledger = served.world.run(served.broker.topics.persistent_topic(TopicName.parse(topic))).managed_ledger
    position = ledger.ledgers.after((-1, -1))
    found = []
    while position <= ledger.last_confirmed:
        run = served.world.run(ledger.reader.read(position, ledger.last_confirmed, 1, 1 << 20))
        found.append(parse_entry(bytes(run.buffer[run.starts[0] : run.ends[0]])))
        position = ledger.ledgers.after((run.ledger_id, run.first_entry_id))
    return found


@pytest.mark.parametrize("event_time", ["17", 17])
def test_messages_are_stored_with_what_they_carry(event_time: str | int) -> None:
    served = Served()
    served.topic(TOPIC)
    now = served.world.simulation.io.clock.wall_ms()
    first, second = acks(
        served,
        "words",
        {"payload": "a", "key": "k", "properties": {"p": "1"}, "eventTime": event_time, "context": "c"},
        {
            "payload": "b",
            "sequenceId": 7,
            "eventTime": "1970-01-01T01:00:01+01:00",
            "deliverAfterMs": 1000,
            "disableReplication": True,
        },
        producerName="me",
    )
    ledger = first["messageId"].split(":")[0]
    assert first == {"messageId": f"{ledger}:0:-1", "context": "c", "errorCode": 0, "schemaVersion": 0}
    assert second == {"messageId": f"{ledger}:1:-1", "errorCode": 0, "schemaVersion": 0}
    one, other = stored(served, TOPIC)
    assert (one.payload, other.payload) == (b"a", b"b")
    metadata = one.metadata
    assert (metadata.producer_name, metadata.sequence_id, metadata.event_time) == ("me", 0, 17)
    assert (metadata.partition_key, metadata.partition_key_b64_encoded) == ("k", False)
    assert [(each.key, each.value) for each in metadata.properties] == [("p", "1")]
    assert metadata.schema_version == bytes(8)
    assert (other.metadata.sequence_id, other.metadata.event_time) == (7, 1000)
    assert other.metadata.deliver_at_time >= now + 1000
    assert list(other.metadata.replicate_to) == ["__local__"]
    schema = served.get("/admin/v2/schemas/public/default/words/schema")
    assert (schema["type"], schema["properties"]) == ("STRING", {"__charset": "UTF-8"})
    # Nobody is left behind, and each that gave no name had one of its own.
    assert not served.broker.topics.loaded[TOPIC].producers
    acks(served, "words", "c", schemaVersion=0)
    acks(served, "words", "d")
    assert len({entry.metadata.producer_name for entry in stored(served, TOPIC)[2:]}) == 2


def test_keys_and_values_have_schemas() -> None:
    served = Served()
    served.topic(TOPIC)
    form = {"keySchema": info("STRING"), "valueSchema": info("INT32")}
    acks(served, "words", {"payload": "5", "key": "kk"}, **form)
    entry = stored(served, TOPIC)[0]
    assert (entry.payload, entry.metadata.partition_key) == (b"\0\0\0\5", "a2s=")
    assert entry.metadata.partition_key_b64_encoded
    schema = served.get("/admin/v2/schemas/public/default/words/schema")
    assert schema["properties"]["kv.encoding.type"] == "SEPARATED"
    acks(served, "words", {"payload": "6", "key": "kk"}, schemaVersion=0)
    assert stored(served, TOPIC)[1].payload == b"\0\0\0\6"


def test_bytes_add_a_schema_as_in_apache_pulsar() -> None:
    served = Served()
    served.topic(TOPIC)
    path = "/admin/v2/schemas/public/default/words/schemas"
    # Apache Pulsar 4.0.8 refuses the second one, with 500: it compares BYTES with NONE.
    for _ in range(2):
        status, found = published(served, "words", "plain", valueSchema=info("BYTES"))
        assert (status, found["schemaVersion"]) == (200, 0)
        assert found["messagePublishResults"][0]["schemaVersion"] == 0
        [schema] = served.get(path)["getSchemaResponses"]
        assert (schema["version"], schema["type"], schema["data"]) == (0, "NONE", "")
    # What follows has to be compatible with it.
    assert published(served, "words", {"payload": "5"}, valueSchema=info("INT32"))[0] == 409


def test_bytes_add_no_schema_where_nobody_wants_one() -> None:
    served = Served()
    served.topic(TOPIC)
    path = "/admin/v2/schemas/public/default/words/schemas"
    body = json.dumps({"messages": [{"payload": "plain"}], "valueSchema": info("BYTES")})
    answer = served.ask("POST", "/topics/persistent/public/default/words", body, {"addSchema": "false"})
    assert answer.status == 200
    entry = stored(served, TOPIC)[0]
    assert (entry.payload, entry.metadata.HasField("schema_version")) == (b"plain", False)
    assert served.get(path) == {"getSchemaResponses": []}
    acks(served, "words", {"payload": "5"}, valueSchema=info("INT32"))
    assert served.get(path)["getSchemaResponses"][0]["type"] == "INT32"


def test_partitions_are_chosen_as_producers_choose_them() -> None:
    served = Served()
    served.ask("PUT", "/admin/v2/persistent/public/default/parts/partitions", "3")
    told = acks(served, "parts", "1", "2", "3", "4", *[{"payload": "x", "key": "same"}] * 2)
    indexes = [int(each["messageId"].rpartition(":")[2]) for each in told]
    of_key = java_string_hash("same") % 3
    assert indexes == [0, 1, 2, 0, of_key, of_key]
    told = acks(served, "parts/partitions/1", "1", {"payload": "x", "key": "same"})
    assert [each["messageId"].rpartition(":")[2] for each in told] == ["1", "1"]
    assert acks(served, "parts-partition-2", "1")[0]["messageId"].endswith(":2")
    for path, status in (
        ("parts/partitions/3", 404),
        ("parts/partitions/x", 404),
        ("parts-partition-1/partitions/1", 400),
        ("words/partitions/0", 404),
    ):
        assert published(served, path, "1")[0] == status, path


def test_what_is_no_publication_is_refused_and_nothing_is_stored() -> None:
    served = Served()
    served.topic(TOPIC)
    for form in (
        "",
        "nojson",
        "[1]",
        "{}",
        '{"messages":[1]}',
        '{"messages":[{"key":"k"}]}',
        '{"messages":[{"payload":"x","eventTime":"soon"}]}',
        '{"messages":[{"payload":"x","eventTime":-5}]}',
        '{"messages":[{"payload":"x","sequenceId":-5}]}',
        '{"messages":[{"payload":"x"}],"valueSchema":"garbage"}',
        '{"messages":[{"payload":"x"}],"valueSchema":"{\\"type\\":\\"NOPE\\"}"}',
        '{"messages":[{"payload":"x"}],"valueSchema":"{\\"type\\":\\"STRING\\",\\"schema\\":\\"*\\"}"}',
    ):
        assert served.ask("POST", f"{ROOT}/words", form).status == 400, form
    assert served.get("/admin/v2/persistent/public/default/words/internalStats")["numberOfEntries"] == 0
    assert published(served, "words", "5", "x", valueSchema=info("INT32"))[0] == 400
    assert published(served, "words", "x" * (served.broker.limits.max_message_size + 1))[0] == 400
    large = {"payload": "x" * (3 << 20), "properties": {"p": "y" * (3 << 20)}}
    status, told = published(served, "words", "x", large)
    assert (status, "Message 1 has 629" in told["reason"]) == (400, True), "properties count as well"
    assert published(served, "words", "x", schemaVersion=9)[0] == 404
    assert published(served, "words", "x", valueSchema=info("AVRO", "{"))[0] == 422
    # What was refused has declared nothing.
    assert acks(served, "words") == []
    assert served.get("/admin/v2/schemas/public/default/words/schema")["type"] == "STRING"
    assert published(served, "words", "5", valueSchema=info("INT64"))[0] == 409
    assert published(served, "absent", "x")[0] == 404
    assert stored(served, TOPIC) == []


def test_what_a_topic_does_not_take_is_told_of_each_message() -> None:
    served = Served()
    served.topic(TOPIC)
    namespace = "/admin/v2/namespaces/public/default"
    served.ask("POST", f"{namespace}/deduplication", "true")
    twice = [{"payload": "1", "sequenceId": 1}, {"payload": "2", "sequenceId": 2}]
    first = acks(served, "words", *twice, producerName="p")
    again = acks(served, "words", *twice, {"payload": "3"}, producerName="p")
    assert [each["messageId"] for each in again[:2]] == ["-1:-1:-1"] * 2
    assert again[2]["messageId"].split(":")[:2] == [first[0]["messageId"].split(":")[0], "2"]
    # Without a name, and without numbers, nothing is taken for something else.
    assert all(each["errorCode"] == 0 for _ in range(2) for each in acks(served, "words", "x", "x"))
    assert len(stored(served, TOPIC)) == 7
    served.ask("POST", f"{namespace}/maxProducersPerTopic", "1")
    served.ask("POST", f"{namespace}/encryptionRequired", "true")
    assert published(served, "words", "x")[0] == 412
    served.ask("POST", f"{namespace}/encryptionRequired", "false")
    served.ask("POST", "/admin/v2/persistent/public/default/words/terminate")
    told = acks(served, "words", "x", {"payload": "y", "context": "c"})
    assert told == [
        {"errorMsg": "Topic was already terminated", "messageId": "-1", "errorCode": 2, "schemaVersion": 0},
        {
            "errorMsg": "Topic was already terminated",
            "messageId": "-1",
            "context": "c",
            "errorCode": 2,
            "schemaVersion": 0,
        },
    ]


def test_topics_that_store_nothing_pass_messages_on() -> None:
    served = Served()
    path = "/topics/non-persistent/public/default/n"
    body = json.dumps({"messages": [{"payload": "1"}, {"payload": "2"}]})
    assert served.ask("POST", path, body).status == 404
    served.topic("non-persistent://public/default/n")
    told = json.loads(served.ask("POST", path, body).body)["messagePublishResults"]
    assert [each["messageId"] for each in told] == ["0:0:-1", "0:0:-1"]


def test_who_publishes_beyond_a_rate_is_answered_later() -> None:
    served = Served()
    served.topic(TOPIC)
    rate = json.dumps({"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": 0})
    served.ask("POST", "/admin/v2/namespaces/public/default/publishRate", rate)
    clock = served.world.simulation.io.clock
    before = clock.monotonic()
    assert all(each["errorCode"] == 0 for each in acks(served, "words", *["x"] * 30))
    assert clock.monotonic() - before >= 1.9


def test_nobody_waits_for_long_and_what_comes_while_the_debt_is_large_is_refused() -> None:
    served = Served()
    served.topic(TOPIC)
    rate = json.dumps({"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": 0})
    served.ask("POST", "/admin/v2/namespaces/public/default/publishRate", rate)
    clock = served.world.simulation.io.clock
    before = clock.monotonic()
    assert all(each["errorCode"] == 0 for each in acks(served, "words", *["x"] * 600))
    assert 4.9 <= clock.monotonic() - before < 6
    stored_before = served.broker.topics.loaded[TOPIC].managed_ledger.entries_added
    status, told = published(served, "words", "x")
    assert status == 429
    assert "is exceeded: no messages are accepted for 54 seconds" in told["reason"]
    assert served.broker.topics.loaded[TOPIC].managed_ledger.entries_added == stored_before
    served.world.wait(50)
    assert acks(served, "words", "x")[0]["errorCode"] == 0


def test_messages_without_a_key_go_to_each_partition_in_turn_over_requests() -> None:
    served = Served()
    for name in ("parts", "others"):
        served.ask("PUT", f"/admin/v2/persistent/public/default/{name}/partitions", "3")

    def partitions(name: str, *messages: Any) -> list[int]:
        return [int(each["messageId"].rpartition(":")[2]) for each in acks(served, name, *messages)]

    assert partitions("parts", "1") == [0]
    assert partitions("others", "1") == [0]
    assert partitions("parts", "2", {"payload": "x", "key": "same"}, "3")[::2] == [1, 2]
    assert partitions("parts", {"payload": "x", "key": "same"}) == [java_string_hash("same") % 3]
    assert partitions("parts", "4") == [0]
    assert partitions("others", "2") == [1]


def test_the_turns_of_topics_are_bounded() -> None:
    turns = RequestTurns()
    names = [TopicName.parse(f"persistent://public/default/t{index}") for index in range(MOST_TOPICS + 1)]
    for name in names:
        assert turns.take(name, 1) == 0
    assert turns.take(names[-1], 1) == 1
    assert turns.take(names[0], 1) == 0


def test_a_delay_that_ends_behind_all_times_is_refused_and_nothing_is_published() -> None:
    served = Served()
    served.topic(TOPIC)
    status, told = published(served, "words", "a", {"payload": "b", "deliverAfterMs": 2**63 - 1})
    assert (status, told["reason"].partition(":")[0]) == (400, "messages[1]")
    assert stored(served, TOPIC) == []
