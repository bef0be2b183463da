"""Single messages of topics with transactions, as operators peek at them, beside what Apache Pulsar shows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from raw_transactions import Transactions
from server import Server

from magnetar.cli.pulsar_admin import main

VECTORS = Path(__file__).parents[1] / "vectors" / "transactions"
ROWS = [json.loads(line) for line in (VECTORS / "peek.jsonl").read_text().splitlines()]
CASES = [row for row in ROWS if row["asked"] in ("aborted/peek", "left/peek")]
_SHOWN = re.compile(r"\d+:(\d+):-1 (.*?) ?\{(.*?)\}")
Topics = dict[str, list[tuple[int, int]]]


class Publisher:
    """Publishes to a topic of the recording, one transaction after the other."""

    def __init__(self, talk: Transactions, topic: str) -> None:
        self.talk, self.topic = talk, f"persistent://public/default/{topic}"
        self.producer, _ = talk.client.produce(self.topic)
        self.positions: list[tuple[int, int]] = []

    def send(self, payload: bytes, *, commit: bool | None = None, within: bool = True) -> None:
        """:param commit: None: its transaction stays open"""
        least = self.talk.begin() if within else None
        if least is not None:
            self.talk.add(least, self.topic)
        sequence = len(self.positions)
        self.positions.append(self.talk.send(self.producer, payload, sequence, least))
        if least is not None and commit is not None:
            self.talk.end(least, commit=commit)

    def plain(self, payload: bytes) -> None:
        self.send(payload, within=False)


@pytest.fixture(scope="module")
def peeked(start_server: Callable[..., Server]) -> Iterator[tuple[Server, Topics]]:
    server = start_server(transactionCoordinatorEnabled="true")
    talk = Transactions(server.port)
    aborted, left = Publisher(talk, "aborted"), Publisher(talk, "left")
    for each in (aborted, left):
        path = each.topic.replace("://", "/")
        assert server.ask("PUT", f"/admin/v2/{path}/subscription/peek", '"earliest"')[0] == 204
    aborted.plain(b"before")
    least = talk.begin()
    talk.add(least, aborted.topic)
    aborted.positions.append(talk.send(aborted.producer, b"aborted in the middle", 1, least))
    aborted.plain(b"behind")
    talk.end(least, commit=False)
    aborted.send(b"aborted in the end", commit=False)
    aborted.plain(b"last")
    left.plain(b"plain")
    left.send(b"committed", commit=True)
    left.send(b"aborted", commit=False)
    left.send(b"open")
    left.plain(b"last")
    yield server, {"aborted": aborted.positions, "left": left.positions}
    talk.client.close()


@pytest.mark.parametrize(
    "row", CASES, ids=lambda row: f"{row['asked']}-{row['isolation level']}-{row['show server marker']}"
)
def test_peek_shows_what_apache_pulsar_shows(
    peeked: tuple[Server, Topics], row: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    server, _ = peeked
    topic = row["asked"].partition("/")[0]
    line = ["topics", "peek-messages", topic, "-s", "peek", "-n", "5", "-o", "json"]
    line += ["-til", row["isolation level"]]
    if row["show server marker"] == "true":
        line.append("--show-server-marker")
    assert main(["--admin-url", server.http_url, *line]) == 0
    found = [
        (
            int(each["messageId"].split(":")[1]),
            each["content"],
            ", ".join(f"{key}={value}" for key, value in each["properties"].items()),
        )
        for each in json.loads(capsys.readouterr().out)
    ]
    theirs = [(int(entry), text, properties) for entry, text, properties in _SHOWN.findall(row["found"])]
    assert len(theirs) >= 2
    assert found == theirs


def test_headers_say_what_transactions_mean_for_a_message(peeked: tuple[Server, Topics]) -> None:
    server, topics = peeked

    def headers(topic: str, number: int) -> dict[str, str]:
        ledger_id, entry_id = topics[topic][number]
        path = f"/admin/v2/persistent/public/default/{topic}/ledger/{ledger_id}/entry/{entry_id}"
        status, found = server.head_of("GET", path)
        assert status == 200
        kept = {name.lower(): value for name, value in found.items()}
        return {name: value for name, value in kept.items() if "-txn" in name or "marker" in name}

    recorded = [json.loads(line) for line in (VECTORS / "views.jsonl").read_text().splitlines()]
    theirs = {
        row["request"].rpartition("/")[2]: {
            name.lower(): value for name, value in row["headers"].items() if "-txn" in name
        }
        for row in recorded
        if "/open/ledger/11/entry/" in row.get("request", "")
    }
    # A plain message, one of an open transaction, and a plain one behind it.
    assert headers("left", 0) == theirs["0"]
    inside = headers("left", 3)
    assert inside.keys() == theirs["1"].keys()
    assert {**inside, "x-pulsar-txnid-least-bits": "1"} == theirs["1"]
    assert headers("left", 4) == theirs["2"]
    gone = headers("left", 2)
    assert (gone["x-pulsar-txn-aborted"], gone["x-pulsar-txn-uncommitted"]) == ("true", "false")


def test_a_broker_without_transactions_says_that_nothing_is_uncommitted(server: Server, topic: str) -> None:
    path = topic.replace("://", "/")
    status, _ = server.ask("POST", f"/topics/{path}", '{"messages": [{"payload": "plain"}]}')
    assert status in (200, 404)
    if status == 404:
        assert server.ask("PUT", f"/admin/v2/{path}")[0] == 204
        assert server.ask("POST", f"/topics/{path}", '{"messages": [{"payload": "plain"}]}')[0] == 200
    status, found = server.head_of("GET", f"/admin/v2/{path}/examinemessage?messagePosition=1")
    assert status == 200
    assert {name.lower(): value for name, value in found.items()}["x-pulsar-txn-uncommitted"] == "false"


def test_messages_that_are_looked_at_say_why_nobody_gets_them(peeked: tuple[Server, Topics]) -> None:
    server, _ = peeked

    def hidden(topic: str) -> list[tuple[Any, Any]]:
        path = f"/admin/v2/magnetar/messages/persistent/public/default/{topic}?count=100&position=0:0"
        status, body = server.ask("GET", path)
        assert status == 200
        return [(each["content"], each.get("hidden")) for each in json.loads(body)["messages"]]

    assert hidden("left") == [
        ("plain", None),
        ("committed", None),
        ("aborted", "its transaction was aborted"),
        ("open", "its transaction is open"),
        ("last", "behind an open transaction"),
    ]
    assert [text for text, why in hidden("aborted") if why is None] == ["before", "behind", "last"]
