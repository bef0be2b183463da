"""A server that is restarted with transactions off, and has topics that have had some."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from explained import asked, shown, until
from raw_client import Client
from raw_transactions import Transactions
from server import Server

from magnetar.protocol.pulsar_api_pb2 import BaseCommand
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
    assert "topics in public/default have had some" in finding.found
    server.configure({**OFF, **more})
    server.start()
    client = Client(server.port)
    consumer = client.subscribe(PUBLISHED, "s", permits=10)
    # As Apache Pulsar does.
    assert [payload for _message, payload in client.messages(consumer, 2)] == [b"aborted", b"open"]
    other = client.subscribe(ACKNOWLEDGED, "s", permits=10)
    assert [payload for _message, payload in client.messages(other, 1)] == [b"input"]
    client.produce(PLAIN)
    found = until(lambda: asked(server, PUBLISHED), lambda told: "transactions" in told)["transactions"]
    assert "messages of aborted and of open transactions" in found["sentence"]
    assert "aborted" in found["figures"]
    left = until(lambda: asked(server, ACKNOWLEDGED), lambda told: "transactions" in told)["transactions"]
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
