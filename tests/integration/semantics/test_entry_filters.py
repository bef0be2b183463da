"""Filters of entries in a real broker: what is sent, what is acknowledged, what comes later."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from raw_client import Client
from server import MINIATURE, Server

from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandSubscribe, KeyValue, MessageMetadata

FILTERS = Path(__file__).parent / "filters"
Kind = CommandSubscribe.SubType.ValueType
TYPES: dict[str, Kind] = {
    "Exclusive": CommandSubscribe.Exclusive,
    "Shared": CommandSubscribe.Shared,
    "Failover": CommandSubscribe.Failover,
    "Key_Shared": CommandSubscribe.Key_Shared,
}


@pytest.fixture(scope="module", params=["default", "miniature"])
def filtering(request: pytest.FixtureRequest, start_server: Any) -> Server:
    settings: dict[str, int | str] = MINIATURE if request.param == "miniature" else {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(FILTERS))
        started: Server = start_server(
            entryFilterNames="fruit_filters:OnlyFruit,fruit_filters:Later",
            dispatcherEntryFilterRescheduledMessageDelay=50,
            **settings,
        )
    return started


def publish(client: Client, topic: str, messages: list[dict[str, str]], **fields: str) -> None:
    producer, _ = client.produce(topic)
    for number, properties in enumerate(messages):
        pairs = [KeyValue(key=key, value=value) for key, value in properties.items()]
        metadata = MessageMetadata(
            producer_name="raw",
            sequence_id=number,
            publish_time=int(time.time() * 1000),
            properties=pairs,
            **fields,  # type: ignore[arg-type]
        )
        client.publish(producer, number, build_entry(metadata, b"%d" % number))
        client.take(BaseCommand.SEND_RECEIPT, producer_id=producer)


def stats(server: Server, topic: str) -> Any:
    path = topic.replace("://", "/")
    status, answer = server.ask("GET", f"/admin/v2/{path}/stats")
    assert status == 200, answer
    return json.loads(answer)["subscriptions"]["s"]


def counts(server: Server, topic: str) -> list[int]:
    found = stats(server, topic)
    kinds = ("Processed", "Accepted", "Rejected", "Rescheduled")
    return [found[f"filter{kind}MsgCount"] for kind in kinds]


@pytest.mark.parametrize("kind", TYPES)
def test_what_is_rejected_is_acknowledged(filtering: Server, topic: str, kind: str) -> None:
    client = Client(filtering.port)
    fruit = [KeyValue(key="kind", value="fruit")]
    consumer = client.subscribe(topic, "s", TYPES[kind], subscription_properties=fruit)
    publish(client, topic, [{"kind": "fruit" if n % 3 == 0 else "nut"} for n in range(12)])
    client.flow(consumer, 3)
    found = client.messages(consumer, 3)
    client.flow(consumer, 100)
    found += client.messages(consumer, 1)
    assert [payload for _m, payload in found] == [b"0", b"3", b"6", b"9"]
    client.barrier()
    assert stats(filtering, topic)["msgBacklog"] == 4
    assert counts(filtering, topic) == [12, 4, 8, 0]
    client.acknowledge(consumer, [message.message_id for message, _payload in found])
    assert stats(filtering, topic)["msgBacklog"] == 0
    client.close()


@pytest.mark.parametrize("kind", ["Shared", "Key_Shared"])
def test_what_is_put_off_comes_later(filtering: Server, topic: str, kind: str) -> None:
    client = Client(filtering.port)
    consumer = client.subscribe(topic, "s", TYPES[kind])
    publish(client, topic, [{"later": "yes"}, {}, {"later": "fail"}, {}])
    # All are there when the first one is looked at, however long publishing took.
    client.flow(consumer, 100)
    found = client.messages(consumer, 4)
    assert [payload for _m, payload in found[:2]] == [b"1", b"3"]
    again = {payload: message.redelivery_count for message, payload in found}
    assert again == {b"0": 1, b"1": 0, b"2": 1, b"3": 0}
    assert counts(filtering, topic) == [6, 4, 0, 2]
    assert not client.count_kept(BaseCommand.MESSAGE)
    client.close()


@pytest.mark.parametrize("kind", ["Exclusive", "Failover"])
def test_what_is_put_off_brings_all_again(filtering: Server, topic: str, kind: str) -> None:
    """One consumer gets everything in order: what it has not acknowledged comes with it."""
    client = Client(filtering.port)
    consumer = client.subscribe(topic, "s", TYPES[kind])
    publish(client, topic, [{}, {"later": "yes"}, {}])
    client.flow(consumer, 100)
    found = [payload for _m, payload in client.messages(consumer, 5)]
    assert found == [b"0", b"2", b"0", b"1", b"2"]
    client.close()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("fruit_filters:Nothing", "Nothing"),
        ("fruit_filters:NoFilter", "filter_entry"),
        ("no_such_module:Class", "no_such_module"),
        ("unknown", "magnetar.entry_filters"),
    ],
)
def test_what_is_no_filter_stops_the_start(tmp_path: Path, name: str, reason: str) -> None:
    config = tmp_path / "standalone.conf"
    config.write_text(f"entryFilterNames={name}\n")
    command = [sys.executable, "-m", "magnetar", "standalone", "--config", str(config)]
    command += ["--data-dir", str(tmp_path / "data")]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(FILTERS)}, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode != 0
    assert name in done.stderr
    assert reason in done.stderr
