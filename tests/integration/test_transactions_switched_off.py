"""A server that is restarted with transactions off, and has topics that have had some."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from explained import asked, shown
from polling import until_wanted
from raw_client import EARLIEST, Client, Refused
from raw_transactions import Sender, Transactions
from replicated_sites import Site, connect, make_namespace
from server import Server

from magnetar.protocol.metadata import parse_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandSubscribe
from magnetar.server.diagnosis import FindingState, left_by_transactions
from magnetar.server.embedded_stores import METADATA_FILE

ON: dict[str, int | str] = {
    "transactionCoordinatorEnabled": "true",
    "brokerDeleteInactiveTopicsEnabled": "false",
}
OFF: dict[str, int | str] = {**ON, "transactionCoordinatorEnabled": "false"}
PUBLISHED = "persistent://public/default/published"
ACKNOWLEDGED = "persistent://public/default/acknowledged"
PLAIN = "persistent://public/default/plain"
WARNING = "transactions are disabled, and the topic has had some"


def path(topic: str, *more: str) -> str:
    return "/".join((f"/admin/v2/{topic.replace('://', '/')}", *more))


@pytest.mark.parametrize("segmented", ["false", "true"])
def test_nobody_finds_out_from_the_messages(start_server: Callable[..., Server], segmented: str) -> None:
    more = {"transactionBufferSegmentedSnapshotEnabled": segmented}
    server = start_server(**ON, **more)
    talk = Transactions(server.port)
    producer, _ = talk.client.produce(PUBLISHED)
    talk.client.close_consumer(talk.client.subscribe(PUBLISHED, "s"))
    for number, commit in enumerate((False, None)):
        least = talk.begin()
        talk.add(least, PUBLISHED)
        talk.send(producer, b"aborted" if commit is False else b"open", number, least)
        if commit is not None:
            talk.end(least, commit=commit)
    inputs, _ = talk.client.produce(ACKNOWLEDGED)
    consumer = talk.client.subscribe(ACKNOWLEDGED, "s", permits=10)
    talk.send(inputs, b"input", 0, None)
    got = talk.client.take(BaseCommand.MESSAGE, consumer_id=consumer).message_id
    least = talk.begin()
    talk.add(least, ACKNOWLEDGED, "s")
    talk.acknowledge(consumer, [got], least)
    talk.client.produce(PLAIN)
    talk.client.close()
    assert WARNING not in server.log
    before = len(server.log)
    server.stop()
    [finding] = left_by_transactions(server.folder / "data")
    assert finding.state is FindingState.WARN
    assert "topics in public/default have had transactions" in finding.found
    server.configure({**OFF, **more})
    server.start()
    client = Client(server.port)
    consumer = client.subscribe(PUBLISHED, "s", permits=10)
    # As Apache Pulsar does.
    assert [payload for _message, payload in client.messages(consumer, 2)] == [b"aborted", b"open"]
    other = client.subscribe(ACKNOWLEDGED, "s", permits=10)
    assert [payload for _message, payload in client.messages(other, 1)] == [b"input"]
    client.produce(PLAIN)
    found = until_wanted(lambda: asked(server, PUBLISHED), lambda told: "transactions" in told)[
        "transactions"
    ]
    assert "messages of aborted and of open transactions" in found["sentence"]
    assert "aborted" in found["figures"]
    left = until_wanted(lambda: asked(server, ACKNOWLEDGED), lambda told: "transactions" in told)[
        "transactions"
    ]
    assert left["figures"] == {"subscriptions": "s"}
    assert "transactions: disabled" in shown(server, ACKNOWLEDGED)
    assert "transactions" not in asked(server, PLAIN)
    log = server.log[before:]
    assert log.count(WARNING) == 2, "once for each of the topics"
    client.close()
    server.stop()
    server.configure({**ON, **more})
    server.start()
    client = Client(server.port)
    fresh = client.subscribe(PUBLISHED, "fresh", permits=10)
    with pytest.raises(TimeoutError):
        client.message(fresh, 0.5)
    assert "transactions" not in asked(server, PUBLISHED)
    client.close()


def test_other_clusters_get_everything_and_the_log_says_which(start_server: Callable[..., Server]) -> None:
    """As Apache Pulsar does: its buffer of transactions that are off calls none aborted, and its replicator
    removes the ids. With these, the other cluster would hide what follows."""
    east = start_server(clusterName="east", **ON)
    west = start_server(clusterName="west", **ON)
    sites = Site("east", east), Site("west", west)
    connect(*sites)
    topic = f"persistent://{make_namespace('off', *sites)}/t"
    there = Client(west.port)
    there.subscribe(topic, "s")
    # The other cluster has transactions of its own in the topic: messages that claim one are refused there.
    local = Sender(there, topic)
    local.send(b"local", (0, 0))
    local.end((0, 0), commit=True)
    for site in sites:
        site.client.close()
    there.close()
    west.kill()
    here = Transactions(east.port).client
    sender = Sender(here, topic)
    sender.send(b"plain")
    for number, payload in enumerate((b"committed", b"aborted", b"open")):
        sender.send(payload, (0, number))
        if payload != b"open":
            sender.end((0, number), commit=payload == b"committed")
    sender.send(b"behind")
    here.close()
    before = len(east.log)
    east.stop()
    east.configure({**OFF, "clusterName": "east"})
    east.start()
    west.start()
    there = Client(west.port)
    consumer = there.subscribe(topic, "s", permits=10)
    Client(east.port).produce(topic)
    got = [there.take_frame(BaseCommand.MESSAGE, consumer_id=consumer) for _ in range(6)]
    entries = [parse_entry(entry) for _message, entry in got]
    assert [bytes(each.payload) for each in entries] == [
        b"local",
        b"plain",
        b"committed",
        b"aborted",
        b"open",
        b"behind",
    ]
    assert not any(each.metadata.HasField("txnid_most_bits") for each in entries[1:])
    found = until_wanted(lambda: asked(east, topic), lambda told: "transactions" in told)["transactions"]
    assert "other clusters, which keep them (west)" in found["sentence"]
    assert found["figures"]["replicatedTo"] == "west"
    [warning] = [line for line in east.log[before:].splitlines() if WARNING in line]
    assert "replicatedTo=west" in warning
    there.close()


def test_shadow_topics_and_compaction(start_server: Callable[..., Server]) -> None:
    """A shadow shows what its source shows, and says so; when transactions are on again, neither shows it."""
    server = start_server(**ON)
    shadow = f"{PUBLISHED}-shadow"
    client = Transactions(server.port).client
    client.close_consumer(client.subscribe(PUBLISHED, "keeps"))
    sender = Sender(client, PUBLISHED)
    sender.send(b"first", (0, 0), key="a")
    sender.end((0, 0), commit=True)
    sender.send(b"aborted", (0, 1), key="a")
    sender.end((0, 1), commit=False)
    client.close()
    before = len(server.log)
    server.stop()
    server.configure(OFF)
    server.start()
    body = json.dumps({"PULSAR.SHADOW_SOURCE": PUBLISHED})
    assert server.ask("PUT", path(shadow), body)[0] == 204
    assert server.ask("PUT", path(PUBLISHED, "compaction"))[0] == 204
    until_wanted(
        lambda: json.loads(server.ask("GET", path(PUBLISHED, "compaction"))[1])["status"],
        lambda status: status == "SUCCESS",
    )
    client = Client(server.port)
    consumer = client.subscribe(shadow, "s", permits=10, initialPosition=CommandSubscribe.Earliest)
    assert [payload for _message, payload in client.messages(consumer, 2)] == [b"first", b"aborted"]
    until_wanted(lambda: asked(server, shadow), lambda told: "transactions" in told)
    assert f"topic={shadow} " in server.log[before:]
    client.close()
    server.stop()
    server.configure(ON)
    server.start()
    client = Client(server.port)
    with pytest.raises(Refused, match="has had transactions"):
        client.subscribe(shadow, "s")
    reader = client.subscribe(
        PUBLISHED, "reader", permits=10, durable=False, start_message_id=EARLIEST, read_compacted=True
    )
    with pytest.raises(TimeoutError):
        client.message(reader, 0.5)
    client.close()


def test_requests_about_transactions_are_no_incidents_where_these_are_disabled(
    start_server: Callable[..., Server],
) -> None:
    server = start_server()
    for path in (
        "transactionInBufferStats/public/default/plain/0/1",
        "transactionBufferStats/public/default/plain",
    ):
        assert server.ask("GET", f"/admin/v3/transactions/{path}")[0] == 503
    assert server.ask("GET", "/admin/v3/transactions/coordinatorStats")[0] == 503
    assert "Traceback" not in server.log


def test_doctor_reads_what_a_killed_broker_has_written(start_server: Callable[..., Server]) -> None:
    server = start_server(**ON)
    client = Transactions(server.port).client
    Sender(client, PUBLISHED).send(b"open", (0, 0))
    server.kill()
    client.close()
    data = server.folder / "data"
    files = {path: path.read_bytes() for path in (data / METADATA_FILE).parent.iterdir()}
    assert files[Path(f"{data / METADATA_FILE}-wal")]
    [finding] = left_by_transactions(data)
    assert "topics in public/default have had transactions" in finding.found
    assert {path: path.read_bytes() for path in (data / METADATA_FILE).parent.iterdir()} == files


def test_doctor_says_nothing_where_transactions_were_never_used(
    start_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = start_server()
    server.stop()
    assert not list(left_by_transactions(server.folder / "data"))
    assert not list(left_by_transactions(tmp_path)), "no data yet"
    (tmp_path / METADATA_FILE).parent.mkdir()
    (tmp_path / METADATA_FILE).write_bytes(b"no database")
    [finding] = left_by_transactions(tmp_path)
    assert "cannot be read" in finding.found
