"""Operators look at single messages: the payload is the body, everything else is in headers."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest
from server import Server

from magnetar.cli.pulsar_admin import main

pulsar = pytest.importorskip("pulsar")

PATH = "/admin/v2/persistent/public/default/looked-at"


@pytest.fixture(scope="module")
def looked_at(start_server: Any) -> Server:
    """A topic with a compressed message and a batch of two."""
    server: Server = start_server()
    topic = "persistent://public/default/looked-at"
    assert server.ask("PUT", f"{PATH}/subscription/s", '"earliest"')[0] == 204
    client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(
        topic, batching_enabled=False, compression_type=pulsar.CompressionType.LZ4, producer_name="p"
    )
    producer.send(
        b"hello",
        properties={"a": "b", "ü": "\n"},
        partition_key="k",
        ordering_key="ok",
        event_timestamp=1_700_000_000_000,
    )
    producer.close()
    batched = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1000)
    batched.send_async(b"one", None)
    batched.send_async(b"two", None)
    batched.flush()
    batched.close()
    client.close()
    return server


def ask(server: Server, path: str) -> tuple[int, dict[str, str], bytes]:
    parts = urlsplit(server.http_url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=20)
    try:
        connection.request("GET", PATH + path)
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def test_the_first_unacknowledged_message(looked_at: Server) -> None:
    status, headers, body = ask(looked_at, "/subscription/s/position/1")
    assert (status, body) == (200, b"hello")
    assert json.loads(headers["X-Pulsar-PROPERTY"]) == {"a": "b", "ü": "\n"}
    assert headers["X-Pulsar-event-time"] == "2023-11-14T22:13:20Z"
    assert headers["X-Pulsar-compression"] == "LZ4"
    assert headers["X-Pulsar-uncompressed-size"] == "5"
    assert headers["X-Pulsar-producer-name"] == "p"
    assert headers["X-Pulsar-partition-key"] == "k"
    assert headers["X-Pulsar-Base64-ordering-key"] == "b2s="
    assert headers["X-Pulsar-Is-Encrypted"] == "false"


def test_a_batch_stays_one(looked_at: Server) -> None:
    status, headers, body = ask(looked_at, "/subscription/s/position/2")
    assert status == 200
    assert headers["X-Pulsar-num-batch-message"] == "2"
    assert b"one" in body
    assert b"two" in body
    assert ask(looked_at, "/examinemessage?initialPosition=latest&messagePosition=1")[2] == body
    ledger, entry = headers["X-Pulsar-Message-ID"].split(":")
    assert ask(looked_at, f"/ledger/{ledger}/entry/{entry}")[2] == body


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/subscription/s/position/3", 404),
        ("/subscription/s/position/0", 404),
        ("/subscription/s/position/x", 404),
        ("/subscription/none/position/1", 404),
        ("/ledger/999999/entry/0", 404),
        ("/examinemessage?initialPosition=earliest&messagePosition=9", 400),
        ("/examinemessage?initialPosition=middle", 400),
    ],
)
def test_what_is_not_there(looked_at: Server, path: str, status: int) -> None:
    got, _, body = ask(looked_at, path)
    assert got == status
    assert json.loads(body)["reason"]


def test_the_last_message_is_the_last_of_its_batch(looked_at: Server) -> None:
    status, _, body = ask(looked_at, "/lastMessageId")
    assert status == 200
    last = json.loads(body)
    assert (last["entryId"], last["batchIndex"]) == (1, 1)


def test_what_the_metadata_has(looked_at: Server) -> None:
    assert looked_at.ask("PUT", f"{PATH}/subscription/skips", '"earliest"')[0] == 204
    status, _, body = ask(looked_at, "/internal-info")
    assert status == 200
    info = json.loads(body)
    ledger = info["ledgers"][-1]["ledgerId"]
    assert info["cursors"]["skips"]["markDelete"] == {"ledgerId": ledger, "entryId": -1}
    assert looked_at.ask("POST", f"{PATH}/subscription/skips/skip/1")[0] == 204
    again = json.loads(ask(looked_at, "/internal-info")[2])
    assert again["cursors"]["skips"]["markDelete"] == {"ledgerId": ledger, "entryId": 0}


def test_they_are_printed_as_pulsar_prints_them(
    looked_at: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Apache Pulsar's own ``pulsar-admin`` printed them of the same topic."""
    where = ask(looked_at, "/examinemessage?initialPosition=earliest&messagePosition=1")[1]
    ledger = where["X-Pulsar-Message-ID"].partition(":")[0]
    line = f"topics get-message-by-id looked-at -l {ledger} -e 0"
    assert main(["--admin-url", looked_at.http_url, *line.split(" ")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"Message ID: {ledger}:0"
    assert lines[2:5] == ["Event time: 1700000000000", "Redelivery count: 0", "Properties:"]
    assert lines[-2] == "|00000000| 68 65 6c 6c 6f                                  |hello           |"
    line = "topics peek-messages looked-at -s s -n 5"
    assert main(["--admin-url", looked_at.http_url, *line.split(" ")]) == 0
    printed = capsys.readouterr().out
    assert f"Batch Message ID: {ledger}:1:1" in printed
    assert "|00000000| 74 77 6f                                        |two             |" in printed
    assert main(["--admin-url", looked_at.http_url, *line.split(" "), "-o", "json"]) == 0
    first, one, two = json.loads(capsys.readouterr().out)
    assert (first["messageId"], first["content"]) == (f"{ledger}:0", "hello")
    assert first["eventTime"] == 1_700_000_000_000
    assert first["properties"] == {"a": "b", "ü": "\n"}
    assert one["messageId"] == f"{ledger}:1:0"
    assert two["contentBase64"] == "dHdv"
    assert main(["--admin-url", looked_at.http_url, *line.split(" "), "-o", "table"]) == 0
    assert [row.split()[0] for row in capsys.readouterr().out.splitlines()] == [
        "MESSAGEID",
        f"{ledger}:0",
        f"{ledger}:1:0",
        f"{ledger}:1:1",
    ]


def test_peeking_at_an_empty_backlog_prints_nothing(
    looked_at: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(line: str) -> int:
        return main(["--admin-url", looked_at.http_url, *line.split(" ")])

    assert run("topics create peeked") == 0
    assert run("topics create-subscription peeked -s s") == 0
    capsys.readouterr()
    assert run("topics peek-messages peeked -s s -n 3") == 0
    assert capsys.readouterr().out == ""
    assert run("topics peek-messages peeked -s none -n 3") == 1
    assert "ubscription" in capsys.readouterr().err
