"""``magnetar tail``, ``produce`` and ``consume`` as processes, beside official clients."""

from __future__ import annotations

import json
import math
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from documented_steps import commands_of
from server import Server

from magnetar.admin_client import AdminClient
from magnetar.cli.magnetar import main
from magnetar.client import Client, CryptoKeyReader, MessageId
from magnetar.client.schema import ProducerSchema, key_value_schema
from magnetar.protocol.key_values import join

pulsar = pytest.importorskip("pulsar")
from pulsar.schema import (  # noqa: E402
    AvroSchema,
    Bytes,
    Double,
    Float,
    Integer,
    JsonSchema,
    Record,
    String,
    StringSchema,
)

KEYS = Path(__file__).parent / "semantics" / "keys"
PAGE = Path(__file__).parents[2] / "docs" / "command-lines.md"
_SECTIONS = ("### Messages", "### Watching topics")
WAIT_SECONDS = 30
WARNING = (
    "warning: a topic that is not used is deleted after 60 s, with its messages; keep it with set-retention, "
    "or set-inactive-topic-policies --disable-delete-while-inactive\n"
)


class Order(Record):  # type: ignore[misc]
    name = String()
    amount = Integer()
    price = Double()
    digest = Bytes()
    weight = Float()


@pytest.fixture(scope="module")
def server(start_server: Callable[..., Server]) -> Server:
    return start_server()


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Any]:
    made = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield made
    made.close()


@pytest.fixture(scope="module")
def admin(server: Server) -> AdminClient:
    return AdminClient(server.http_url)


@pytest.fixture
def environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULSAR_ADMIN_URL", server.http_url)
    monkeypatch.setenv("PULSAR_SERVICE_URL", server.url)
    monkeypatch.delenv("PULSAR_CLIENT_CONF", raising=False)


pytestmark = pytest.mark.usefixtures("environment")


def magnetar(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "magnetar", *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )


def printed(*arguments: str, given: str = "") -> list[str]:
    ended = magnetar(*arguments, given=given)
    # Here, no topic has a subscription when the command publishes to it.
    said = f"magnetar: {WARNING}" if arguments[0] == "produce" else ""
    assert (ended.returncode, ended.stderr) == (0, said), ended
    return ended.stdout.splitlines()


def records(*arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed(*arguments, "-o", "json")]


def contents(*arguments: str) -> list[str]:
    return [found["content"] for found in records(*arguments)]


def test_lines_of_a_topic(client: Any, topic: str) -> None:
    producer = client.create_producer(topic)
    producer.send(b"plain")
    producer.send("grün\x1b[31m\n".encode(), partition_key="k1", properties={"a": "1"}, event_timestamp=5)
    producer.send(b"\xff\x00")
    lines = [line.split("  ") for line in printed("tail", topic, "--no-follow")]
    assert [line[1:] for line in lines] == [
        ["-", "-", "plain"],
        ["k1", "a=1", "grün\\x1b[31m\\n"],
        ["-", "-", "0xff00"],
    ]
    first, second, third = records("tail", topic, "--no-follow")
    ledger, entry, partition = second["id"].split(":")
    assert (int(entry), partition) == (1, "-1")
    assert second["publishTime"] >= first["publishTime"] > 1_600_000_000_000
    assert {name: second[name] for name in ("topic", "eventTime", "key", "properties", "content")} == {
        "topic": topic,
        "eventTime": 5,
        "key": "k1",
        "properties": {"a": "1"},
        "content": "grün\x1b[31m\n",
    }
    assert (third["hex"], "content" in third, "key" in third) == ("ff00", False, False)
    assert contents("tail", topic, "--no-follow", "--from", f"{ledger}:1", "--key", "*") == [
        second["content"]
    ]
    assert contents("tail", topic, "--no-follow", "--from", "latest") == []


def test_filters_and_times(client: Any, topic: str) -> None:
    producer = client.create_producer(topic)
    for number in range(4):
        properties = {"n": str(number)} | ({"odd": "yes"} if number % 2 else {})
        producer.send(b"%d" % number, partition_key=f"key-{number}", properties=properties)
    tail = ("tail", topic, "--no-follow")
    assert contents(*tail, "--key", "key-[12]") == ["1", "2"]
    assert contents(*tail, "--property", "odd=y*") == ["1", "3"]
    assert contents(*tail, "--property", "odd=*", "--property", "n=3") == ["3"]
    assert contents(*tail, "--since", "10m") == ["0", "1", "2", "3"]
    assert contents(*tail, "--until", "10m") == []
    assert contents("tail", topic, "--from", "earliest", "--until", "0s", "--key", "key-0") == ["0"]


def test_partitions_in_the_order_of_time(admin: AdminClient, client: Any, topic: str) -> None:
    admin.create_partitioned_topic(topic, 3)
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(9):
        producer.send(b"%d" % number, partition_key=f"k{number}")
    found = records("tail", topic, "--no-follow")
    assert sorted(each["content"] for each in found) == [str(number) for number in range(9)]
    times = [each["publishTime"] for each in found]
    assert times == sorted(times)
    assert {each["id"].split(":")[2] for each in found} == {"0", "1", "2"}
    assert records("tail", f"{topic}-partition-1", "--no-follow") == [
        each for each in found if each["topic"].endswith("-partition-1")
    ]
    refused = magnetar("tail", topic, "--from", "1:2")
    assert (refused.returncode, "give the name of that partition" in refused.stderr) == (1, True)


def test_contents_by_their_schemas(admin: AdminClient, client: Any, topic: str) -> None:
    order = Order(name="tea", amount=2, price=1.5, digest=b"\x00\xff", weight=None)
    said = {"name": "tea", "amount": 2, "price": 1.5, "weight": None}
    for name, schema, value, kind, wanted in (
        ("avro", AvroSchema(Order), order, "AVRO", {**said, "digest": "00ff"}),
        ("text", StringSchema(), "words", "STRING", "words"),
    ):
        producer = client.create_producer(f"{topic}-{name}", schema=schema)
        producer.send(value)
        (found,) = records("tail", f"{topic}-{name}", "--no-follow")
        assert (found["schema"], found["value"]) == (kind, wanted)
    text = Order(name="tea", amount=2, price=1.5)
    client.create_producer(f"{topic}-json", schema=JsonSchema(Order)).send(text)
    (line,) = printed("tail", f"{topic}-json", "--no-follow")
    assert json.loads(line.split("  ", 3)[3])["amount"] == 2


@pytest.mark.parametrize(
    ("kind", "content", "wanted"),
    [
        ("INT16", struct.pack(">h", -3), -3),
        ("DOUBLE", struct.pack(">d", 0.25), 0.25),
        ("DOUBLE", struct.pack(">d", math.inf), "inf"),
        ("BOOLEAN", b"\1", True),
        ("DATE", struct.pack(">q", 86_400_000), "1970-01-02"),
        ("TIMESTAMP", struct.pack(">q", 1_500), "1970-01-01T00:00:01.500000Z"),
        ("INSTANT", struct.pack(">qi", -1, 500_000_000), "1969-12-31T23:59:59.500000Z"),
        ("LOCAL_DATE_TIME", struct.pack(">qq", 1, 1_000_000_000), "1970-01-02T00:00:01"),
    ],
)
def test_contents_without_definition(
    server: Server, topic: str, capsys: pytest.CaptureFixture[str], kind: str, content: bytes, wanted: Any
) -> None:
    with Client(server.url) as own:
        producer = own.create_producer(topic, schema=ProducerSchema(kind))
        producer.send(content)
        producer.send(content + b"too long")
    assert main(["tail", topic, "--no-follow", "-o", "json"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["schema"], first["value"]) == (kind, wanted)
    assert "value" not in second


def test_what_is_encrypted(client: Any, topic: str) -> None:
    keys = pulsar.CryptoKeyReader(str(KEYS / "public.pem"), str(KEYS / "private.pem"))
    producer = client.create_producer(
        topic, encryption_key="app.key", crypto_key_reader=keys, batching_enabled=False
    )
    producer.send(b"secret", partition_key="k")
    lines = printed("tail", topic, "--no-follow", "-o", "json")
    (found,) = map(json.loads, lines)
    assert (found["encrypted"], found["key"]) == (True, "k")
    assert "0x" in printed("tail", topic, "--no-follow")[0]
    refused = magnetar("produce", f"{topic}-again", "--json", given=lines[0])
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "line 1: the message is encrypted" in refused.stderr


def test_keys_and_values(server: Server, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    definition = '{"type": "record", "name": "K", "fields": [{"name": "id", "type": "int"}]}'
    key, value = ProducerSchema("AVRO", definition), ProducerSchema("STRING")
    with Client(server.url) as own:
        schema = key_value_schema(key, value, separated=True)
        separated = own.create_producer(topic, schema=schema)
        separated.send(b"words", partition_key_bytes=b"\x0e")
        separated.send(b"none", null_partition_key=True)
        separated.send(b"bad", partition_key="no key of that kind")
        schema = key_value_schema(key, ProducerSchema("BYTES"), separated=False)
        inline = own.create_producer(f"{topic}-inline", schema=schema)
        inline.send(join(b"\x0e", b"\xff"))
        inline.send(join(None, None))
        inline.send(b"too short")
    found = []
    for name in (topic, f"{topic}-inline"):
        assert main(["tail", name, "--no-follow", "-o", "json"]) == 0
        found.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    assert {each["schema"] for rows in found for each in rows if "value" in each} == {"KEY_VALUE"}
    assert [[each.get("value") for each in rows] for rows in found] == [
        [{"key": {"id": 7}, "value": "words"}, {"key": None, "value": "none"}, None],
        [{"key": {"id": 7}, "value": "ff"}, {"key": None, "value": None}, None],
    ]


def test_keys_that_are_bytes_or_null_are_replayed(server: Server, topic: str) -> None:
    """So that who reads keys and values gets what was sent, and not the Base64 that stands for it."""
    schema = key_value_schema(ProducerSchema("INT16"), ProducerSchema("STRING"), separated=True)
    again = f"{topic}-again"
    with Client(server.url) as own:
        producer = own.create_producer(topic, schema=schema)
        producer.send(b"words", partition_key_bytes=b"\x00\x07")
        producer.send(b"none", null_partition_key=True)
        producer.send(b"text", partition_key="AAc=")
        own.create_producer(again, schema=schema)
        lines = printed("consume", topic, "-s", "s", "--earliest", "-n", "3", "-o", "json")
        told = [json.loads(line) for line in lines]
        assert [(each["key"], "base64EncodedKey" in each) for each in told] == [
            ("AAc=", True),
            (None, False),
            ("AAc=", False),
        ]
        printed("produce", again, "--json", given="\n".join(lines))
        printed("produce", again, "--json", "--key", "k", given="\n".join(lines[:2]))
        reader = own.create_reader(again, MessageId.earliest)
        found = [reader.read_next(WAIT_SECONDS * 1000) for _ in range(5)]
    assert [(each.partition_key_bytes(), each.has_base64_encoded_key()) for each in found] == [
        (b"\x00\x07", True),
        (None, False),
        (b"AAc=", False),
        (b"k", False),
        (b"k", False),
    ]
    assert [each.has_null_partition_key() for each in found] == [False, True, False, False, False]
    values = [each.get("value") for each in records("tail", again, "--no-follow")]
    assert values[:2] == [{"key": 7, "value": "words"}, {"key": None, "value": "none"}]


def test_decrypted_with_a_private_key(server: Server, topic: str) -> None:
    keys = CryptoKeyReader(str(KEYS / "ec-public.pem"))
    with Client(server.url) as own:
        producer = own.create_producer(
            topic, schema=ProducerSchema("INT8"), encryption_key="app.key", crypto_key_reader=keys
        )
        for number in range(3):
            producer.send(bytes([number]))
    key = ("--private-key", str(KEYS / "ec-private.pem"))
    for arguments in (
        ("tail", topic, "--no-follow"),
        ("tail", topic, "--no-follow", "-n", "3"),
        ("consume", topic, "-s", "s", "--earliest", "-n", "3"),
    ):
        found = records(*arguments, *key)
        assert [(each["value"], "encrypted" in each) for each in found] == [(n, False) for n in range(3)]
    # Another's key: encrypted contents stay what they are.
    (first, *_) = records("tail", topic, "--no-follow", "--private-key", str(KEYS / "private.pem"))
    assert first["encrypted"]
    refused = magnetar("consume", topic, "-s", "s", "--private-key", "/none/there.pem")
    assert (refused.returncode, "/none/there.pem" in refused.stderr) == (1, True)


def test_schemas_need_no_admin_interface(client: Any, topic: str) -> None:
    client.create_producer(topic, schema=JsonSchema(Order)).send(Order(name="tea", amount=2))
    (found,) = records("tail", topic, "--no-follow", "--admin-url", "http://127.0.0.1:1")
    assert found["value"]["amount"] == 2


def test_the_last_messages(admin: AdminClient, client: Any, topic: str) -> None:
    tail = ("tail", topic, "--no-follow", "-n")
    admin.create_topic(topic)
    assert contents(*tail, "5") == []
    batching = client.create_producer(topic, batching_max_publish_delay_ms=60_000)
    # Entries of three, one and three messages.
    for number in range(7):
        batching.send_async(b"%d" % number, None, partition_key="odd" if number % 2 else "even")
        if number in (2, 3, 6):
            batching.flush()
    everything = [str(number) for number in range(7)]
    for number in (1, 2, 3, 4, 7, 1000):
        assert contents(*tail, str(number)) == everything[-number:]
    assert contents(*tail, "2", "--key", "odd") == ["3", "5"]
    assert contents(*tail, "9", "--key", "none") == []
    assert contents(*tail, "3", "--until", "1d") == []
    missing = magnetar("tail", f"{topic}-not-there", "-n", "1")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "TopicNotFound" in missing.stderr
    command = [sys.executable, "-m", "magnetar", "tail", topic, "-n", "2", "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        killer = threading.Timer(WAIT_SECONDS, following.kill)
        killer.start()
        try:
            assert following.stdout is not None
            found = [json.loads(following.stdout.readline())["content"] for _ in range(2)]
            batching.send_async(b"7", None)
            batching.flush()
            found.append(json.loads(following.stdout.readline())["content"])
            following.send_signal(signal.SIGINT)
            rest, _ = following.communicate()
        finally:
            killer.cancel()
    assert (found, rest, following.returncode) == (["5", "6", "7"], "", 0)


def test_the_last_messages_of_partitions(admin: AdminClient, client: Any, topic: str) -> None:
    admin.create_partitioned_topic(topic, 3)
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(9):
        producer.send(b"%d" % number, partition_key=f"k{number}")
    everything = records("tail", topic, "--no-follow")
    assert records("tail", topic, "--no-follow", "-n", "9") == everything
    times = [each["publishTime"] for each in records("tail", topic, "--no-follow", "-n", "4")]
    assert times == [each["publishTime"] for each in everything[-4:]]
    refused = magnetar("tail", topic, "-n", "4")
    assert (refused.returncode, "use --no-follow or give the name of one partition" in refused.stderr) == (
        1,
        True,
    )


def test_commands_of_the_page(server: Server) -> None:
    commands = [each for heading in _SECTIONS for each in commands_of(PAGE, heading)]
    assert [each.split()[1] for each in commands] == ["produce", "tail", "consume", "tail", "top"]
    found = []
    for each in commands:
        ended = subprocess.run(
            [
                "bash",
                "-o",
                "pipefail",
                "-c",
                f'magnetar() {{ "{sys.executable}" -m magnetar "$@"; }}; {each}',
            ],
            capture_output=True,
            text=True,
            timeout=2 * WAIT_SECONDS,
            check=False,
        )
        said = f"magnetar: {WARNING}" if "magnetar produce" in each else ""
        assert (ended.returncode, ended.stderr) == (0, said), each
        found.append(ended.stdout.splitlines())
    sent, last, again, replayed, top = found
    assert (len(sent), len(again)) == (2, 2)
    for lines in (last, replayed):
        assert [line.split("  ")[1:] for line in lines] == [
            ["order-7", "source=web", content] for content in ("tea", "coffee")
        ]
    assert "backlog" in top[0]


@pytest.mark.parametrize("kind", ["persistent", "non-persistent"])
def test_reading_does_not_create_a_topic(admin: AdminClient, client: Any, topic: str, kind: str) -> None:
    missing = f"{kind}://{topic.partition('://')[2]}-mistyped"
    perf = [sys.executable, "-m", "magnetar.cli.pulsar_perf", "read", missing]
    pulsar_client = [sys.executable, "-m", "magnetar.cli.pulsar_client", "read", missing, "-n", "1"]
    for command in (
        [sys.executable, "-m", "magnetar", "tail", missing],
        [sys.executable, "-m", "magnetar", "tail", missing, "--no-follow"],
        perf,
        pulsar_client,
    ):
        ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
        assert (ended.returncode, ended.stdout) == (1, ""), ended
        assert f"TopicNotFound: Topic {missing} not found; check its name" in ended.stderr
    namespace = "/".join(missing.partition("://")[2].split("/")[:2])
    assert missing not in admin.topics(namespace)
    producer = client.create_producer(missing)
    producer.send(b"x")
    ended = magnetar("tail", missing, "--no-follow")
    if kind == "persistent":
        assert (ended.returncode, ended.stdout.count("\n")) == (0, 1), ended
    else:
        assert "NotAllowedError: A non-persistent topic stores no messages" in ended.stderr


@pytest.mark.parametrize("partitions", [0, 2])
def test_following_until_it_is_interrupted(
    admin: AdminClient, client: Any, topic: str, partitions: int
) -> None:
    if partitions:
        admin.create_partitioned_topic(topic, partitions)
    producer = client.create_producer(topic, batching_enabled=False)
    producer.send(b"before")
    command = [sys.executable, "-m", "magnetar", "tail", topic, "--from", "1d", "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tail:
        killer = threading.Timer(WAIT_SECONDS, tail.kill)
        killer.start()
        try:
            assert tail.stdout is not None
            found = [json.loads(tail.stdout.readline())["content"]]
            for number in range(3):
                producer.send(b"%d" % number)
                found.append(json.loads(tail.stdout.readline())["content"])
            tail.send_signal(signal.SIGINT)
            rest, errors = tail.communicate()
        finally:
            killer.cancel()
    assert found == ["before", "0", "1", "2"]
    assert (tail.returncode, rest, errors) == (0, "", "")


def test_nobody_reads_any_more(client: Any, topic: str) -> None:
    producer = client.create_producer(topic)
    for _ in range(3):
        producer.send(b"x")
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "magnetar", "tail", topic, "--from", "earliest"]
    with os.fdopen(writing, "wb") as closed:
        ended = subprocess.run(
            command, stdout=closed, stderr=subprocess.PIPE, timeout=WAIT_SECONDS, check=False
        )
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_produced_and_consumed(client: Any, topic: str, tmp_path: Path) -> None:
    options = ("--key", "k", "--property", "a=1", "--property", "b=x=y")
    ids = printed("produce", topic, "one", "two", "--count", "2", *options)
    assert [each.split(":")[1] for each in ids] == ["0", "1", "2", "3"]
    lines = tmp_path / "lines"
    lines.write_bytes(b"three\n\xff")
    assert len(printed("produce", topic, "--file", str(lines))) == 2
    assert len(printed("produce", topic, given="four\n")) == 1
    taken = records("consume", topic, "-s", "s", "--earliest", "-n", "4", "--type", "Shared")
    assert [each["content"] for each in taken] == ["one", "two", "one", "two"]
    assert all((each["key"], each["properties"]) == ("k", {"a": "1", "b": "x=y"}) for each in taken)
    left = ("consume", topic, "-s", "s", "--type", "Shared", "-n", "3")
    kept = records(*left, "--no-ack")
    assert records(*left) == kept
    assert [each.get("content", each.get("hex")) for each in kept] == ["three", "ff", "four"]


def pulsar_client(*arguments: str) -> str:
    """Returns what the command writes to standard error."""
    command = [sys.executable, "-m", "magnetar.cli.pulsar_client", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
    assert (ended.returncode, ended.stdout) == (0, ""), ended
    return ended.stderr


@pytest.mark.parametrize("partitions", [0, 2])
def test_a_topic_that_is_deleted_soon_is_told_with_the_first_messages(
    admin: AdminClient, client: Any, server: Server, topic: str, partitions: int
) -> None:
    if partitions:
        admin.create_partitioned_topic(topic, partitions)
    sent = "1 messages successfully produced\n"
    assert pulsar_client("produce", "-m", "x", topic) == f"pulsar-client: {WARNING}{sent}"
    assert magnetar("produce", topic, "x").stderr == f"magnetar: {WARNING}"
    # The addresses may belong to different clusters.
    alone = {"PULSAR_ADMIN_URL": ""}
    ended = subprocess.run(
        [sys.executable, "-m", "magnetar", "produce", topic, "x", "--url", server.url],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
        env=os.environ | alone,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    client.subscribe(topic, "s")
    assert pulsar_client("produce", "-m", "x", topic) == sent
    assert magnetar("produce", topic, "x").stderr == ""


def test_messages_are_published_though_nobody_answers_about_the_topic(
    topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULSAR_ADMIN_URL", "http://127.0.0.1:1")
    ended = magnetar("produce", topic, "x")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_replayed(client: Any, topic: str) -> None:
    producer = client.create_producer(topic)
    producer.send(b"a\nb", partition_key="k", ordering_key="o", properties={"p": "q"}, event_timestamp=7)
    producer.send(b"\x00\xff")
    told = "\n".join(printed("consume", topic, "-s", "s", "--earliest", "-n", "2", "-o", "json"))
    printed("produce", f"{topic}-again", "--json", given=told)
    consumer = client.subscribe(f"{topic}-again", "s", initial_position=pulsar.InitialPosition.Earliest)
    first, second = consumer.receive(10_000), consumer.receive(10_000)
    assert (first.data(), first.partition_key(), first.ordering_key()) == (b"a\nb", "k", "o")
    assert (first.properties(), first.event_timestamp()) == ({"p": "q"}, 7)
    assert (second.data(), second.properties(), second.partition_key()) == (b"\x00\xff", {}, "")


@pytest.mark.parametrize(
    ("arguments", "given", "code", "words"),
    [
        (("produce", "TOPIC", "--json"), '{"content": null}\n', 1, "line 1: messages without content (null)"),
        (("produce", "TOPIC", "--json"), '{"hex": "0"}\n', 1, "line 1: the field hex is not hexadecimal:"),
        (("produce", "TOPIC", "--json"), "[]\n", 1, "line 1: the text is not a JSON object"),
        (
            ("produce", "TOPIC", "--json"),
            '{"content": "", "key": "k", "base64EncodedKey": true}\n',
            1,
            "line 1: the field key is not Base64",
        ),
        (("produce", "TOPIC", "--count", "2"), "x\n", 1, "--count requires messages as arguments"),
        (("produce", "TOPIC", "x", "--property", "a"), "", 2, "'a' is not a property; use NAME=VALUE"),
        (
            ("tail", "TOPIC", "--from", "soon"),
            "",
            2,
            "'soon' is not a start position; use earliest, latest, LEDGER:ENTRY or a time",
        ),
        (("tail", "TOPIC", "--until", "2999-01-01"), "", 1, "--until must be a time in the past"),
        (("tail", "a/b"), "", 1, "a/b"),
        (("tail", "TOPIC", "-n", "1001"), "", 2, "1001 exceeds the maximum, 1000"),
        (("tail", "TOPIC", "-n", "1", "--from", "1d"), "", 2, "not allowed with"),
    ],
)
def test_refused(topic: str, arguments: tuple[str, ...], given: str, code: int, words: str) -> None:
    ended = magnetar(*(each.replace("TOPIC", topic) for each in arguments), given=given)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert words in ended.stderr
