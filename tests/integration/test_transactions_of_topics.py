"""What operators see of the transactions of topics and subscriptions, beside what Apache Pulsar answers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from polling import until_wanted
from raw_client import Refused, entry_of, id_of
from raw_transactions import Transactions
from server import Server

from magnetar.cli.pulsar_admin import main
from magnetar.errors import ServerErrorCode
from magnetar.managed_ledger.position import format_position
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

VECTORS = Path(__file__).parents[1] / "vectors" / "transactions"
ROOT = "/admin/v3/transactions"
TOPIC = "persistent://public/default/endpoints"


def recorded(ending: str, file: str = "rest") -> Any:
    """What Apache Pulsar answered to a request that ends so."""
    rows = [json.loads(line) for line in (VECTORS / f"{file}.jsonl").read_text().splitlines()]
    return next(row["answer"] for row in rows if row.get("request", "").endswith(ending))


class Endpoints:
    """The topic of the recording: a plain message, two inputs, and one of an open and of an aborted
    transaction, which have acknowledged the second and the third one."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.talk = talk = Transactions(server.port)
        client = talk.client
        self.producer, _ = client.produce(TOPIC)
        self.consumer = client.subscribe(TOPIC, "s", permits=100)
        self.at = [talk.send(self.producer, b"plain", number, None) for number in range(3)]
        ids = [client.take(BaseCommand.MESSAGE, consumer_id=self.consumer).message_id for _ in self.at]
        talk.end(talk.begin(), commit=True)
        self.open, self.aborted = talk.begin(), talk.begin()
        for each in (self.open, self.aborted):
            talk.add(each, TOPIC)
            talk.add(each, TOPIC, "s")
        self.at.append(talk.send(self.producer, b"open", 3, self.open))
        self.at.append(talk.send(self.producer, b"aborted", 4, self.aborted))
        talk.acknowledge(self.consumer, [ids[1]], self.open)
        talk.acknowledge(self.consumer, [ids[2]], self.aborted)
        talk.end(self.aborted, commit=False)

    def get(self, path: str, status: int = 200) -> Any:
        got, body = self.server.ask("GET", f"{ROOT}/{path}")
        assert got == status, body
        return json.loads(body)

    def path(self, number: int) -> str:
        return "/".join(map(str, self.at[number]))


@pytest.fixture(scope="module")
def ends(start_server: Callable[..., Server]) -> Iterator[Endpoints]:
    found = Endpoints(start_server(transactionCoordinatorEnabled="true"))
    yield found
    found.talk.client.close()


def without_times(stats: dict[str, Any]) -> dict[str, Any]:
    return {
        name: (value > 0 if name.endswith(("Time", "Timestamps")) else value) for name, value in stats.items()
    }


def test_buffer_of_a_topic(ends: Endpoints) -> None:
    theirs = recorded("transactionBufferStats/public/default/endpoints?lowWaterMarks=true&segmentStats=true")
    found = ends.get("transactionBufferStats/public/default/endpoints?lowWaterMarks=true&segmentStats=true")
    assert found.keys() == theirs.keys()
    assert found["maxReadPosition"] == format_position(ends.at[2])
    same = ("state", "ongoingTxnSize", "totalAbortedTransactions", "snapshotType")
    assert [found[name] for name in same] == [theirs[name] for name in same]
    assert found["lastSnapshotTimestamps"] > 0
    assert found["lowWaterMarks"] == {"0": ends.open - 1}
    plain = ends.get("transactionBufferStats/public/default/endpoints")
    assert plain.keys() == recorded("transactionBufferStats/public/default/endpoints").keys()


def test_a_topic_without_transactions_has_no_snapshot(ends: Endpoints) -> None:
    ends.talk.client.produce("persistent://public/default/plain")
    found = ends.get("transactionBufferStats/public/default/plain?lowWaterMarks=true")
    assert (found["state"], found["ongoingTxnSize"], found["lowWaterMarks"]) == ("NoSnapshot", 0, {})


def test_snapshots_of_a_topic(ends: Endpoints) -> None:
    theirs = recorded("transactionBufferInternalStats/public/default/endpoints?metadata=true")
    found = ends.get("transactionBufferInternalStats/public/default/endpoints?metadata=true")
    field = "singleSnapshotSystemTopicInternalStats"
    assert (found.keys(), found[field].keys()) == (theirs.keys(), theirs[field].keys())
    assert found[field]["managedLedgerName"] == theirs[field]["managedLedgerName"]
    ours, apache = (each[field]["managedLedgerInternalStats"] for each in (found, theirs))
    assert ours.keys() == apache.keys()
    assert "metadata" in ours["ledgers"][0]


def test_markers_count_as_no_messages(ends: Endpoints) -> None:
    theirs = recorded("public/default/endpoints/stats")
    _, body = ends.server.ask("GET", "/admin/v2/persistent/public/default/endpoints/stats")
    found = json.loads(body)
    assert found["msgInCounter"] == theirs["msgInCounter"] == len(ends.at)
    assert found["bytesInCounter"] < found["storageSize"]


def test_a_transaction_in_a_topic(ends: Endpoints) -> None:
    path = "transactionInBufferStats/public/default/endpoints/0"
    assert ends.get(f"{path}/{ends.open}") == {"startPosition": format_position(ends.at[3]), "aborted": False}
    assert ends.get(f"{path}/{ends.aborted}") == recorded("endpoints/0/37")
    assert ends.get(f"{path}/999999") == recorded(
        "transactionInBufferStats/public/default/endpoints/0/999999"
    )


def test_acknowledgements_of_a_subscription(ends: Endpoints) -> None:
    path = "pendingAckStats/public/default/endpoints/s"
    for asked in (path, f"{path}?lowWaterMarks=true"):
        found, theirs = ends.get(asked), recorded(asked)
        assert found.pop("lowWaterMarks", None) in (None, {"0": ends.open - 1})
        theirs.pop("lowWaterMarks", None)
        assert without_times(found) == without_times(theirs)
    internal = "pendingAckInternalStats/public/default/endpoints/s"
    found, theirs = (each["pendingAckLogStats"] for each in (ends.get(internal), recorded(internal)))
    assert found["managedLedgerName"] == theirs["managedLedgerName"]
    ours, apache = (each["managedLedgerInternalStats"] for each in (found, theirs))
    assert (ours.keys(), ours["cursors"].keys()) == (apache.keys(), apache["cursors"].keys())


def test_metrics_of_a_subscription(ends: Endpoints) -> None:
    status, body = ends.server.ask("GET", "/metrics/")
    assert status == 200
    name = "pulsar_txn_tp_aborted_count_total"
    rows = [json.loads(line) for line in (VECTORS / "metrics.jsonl").read_text().splitlines()]
    theirs = next(row for row in rows if row.startswith(f"{name}{{")).rpartition(" ")[0]
    line = next(line for line in body.decode().splitlines() if line.startswith(f"{name}{{"))
    assert line == f"{theirs} 1"
    assert f"# TYPE {name} counter" in body.decode()


def names_and_labels(lines: Iterable[str]) -> set[str]:
    """What tells series apart, with an address that is the same everywhere, and one coordinator."""
    found = (line.rpartition(" ")[0] for line in lines if "{" in line)
    return {re.sub(r'(broker|coordinator_id)="[^"]*"', r'\1="ONE"', line) for line in found}


def test_metrics_are_complete(start_server: Callable[..., Server]) -> None:
    """Every series of the recording is here, but for times of creation where a metric has many series: they
    would make the text longer, and Prometheus does not need them."""
    server = start_server(transactionCoordinatorEnabled="true")
    Endpoints(server).talk.client.close()
    theirs = [json.loads(line) for line in (VECTORS / "metrics.jsonl").read_text().splitlines()]
    body = server.ask("GET", "/metrics/")[1].decode()
    ours = [line for line in body.splitlines() if line.startswith("pulsar_txn_")]
    missing = names_and_labels(theirs) - names_and_labels(ours)
    assert {each.partition("{")[0] for each in missing} == {
        "pulsar_txn_tp_aborted_count_created",
        "pulsar_txn_tb_client_abort_latency_created",
    }
    types = (line for line in body.splitlines() if line.startswith("# TYPE pulsar_txn_"))
    kinds = {line.removeprefix("# TYPE ") for line in types}
    for each in theirs:
        if "{" not in each:
            name, kind = each.split(" ")
            assert kinds & {each, f"{name}_total {kind}"}, each


def test_metrics_of_ends_and_of_batches(start_server: Callable[..., Server]) -> None:
    server = start_server(
        transactionCoordinatorEnabled="true",
        transactionLogBatchedWriteEnabled="true",
        transactionPendingAckBatchedWriteEnabled="true",
    )
    talk = Transactions(server.port)
    consumer = talk.client.subscribe(TOPIC, "s", permits=10)
    producer, _ = talk.client.produce(TOPIC)
    for number in range(2):
        talk.send(producer, b"input", number, None)
        got = talk.client.take(BaseCommand.MESSAGE, consumer_id=consumer).message_id
        least = talk.begin()
        talk.add(least, TOPIC)
        talk.add(least, TOPIC, "s")
        talk.acknowledge(consumer, [got], least)
        talk.end(least, commit=number == 0)
    values = {
        key: float(value)
        for key, _, value in (
            line.rpartition(" ")
            for line in server.ask("GET", "/metrics/")[1].decode().splitlines()
            if line.startswith("pulsar_txn_")
        )
    }
    labels = f'cluster="standalone",namespace="public/default",topic="{TOPIC}"'
    for action in ("commit", "abort"):
        name = f"pulsar_txn_tb_client_{action}_latency"
        assert values[f"{name}_count{{{labels}}}"] == 2, "the topic and its subscription"
        nanoseconds = values[f'{name}{{{labels},quantile="1.0"}}']
        assert 1e4 < nanoseconds <= values[f"{name}_sum{{{labels}}}"] < 1e10
    name, labels = "pulsar_txn_tp_commit_latency", f'{labels},subscription="s"'
    assert values[f"{name}_count{{{labels}}}"] == 1
    assert 10 < values[f'{name}{{{labels},quantile="0.5"}}'] < 1e7, "microseconds"
    for kind, records in (("tc", 10), ("pending_ack_store", 4)):
        name = f"pulsar_txn_{kind}_bufferedwriter"
        of = {key.partition("{")[0]: value for key, value in values.items() if key.startswith(name)}
        assert of[f"{name}_batch_records_sum"] == records
        assert of[f"{name}_flush_trigger_max_delay_total"] == of[f"{name}_batch_records_count"] > 0
    talk.client.close()


def test_metrics_of_ends_by_namespace(start_server: Callable[..., Server]) -> None:
    """A series for each namespace has counts and sums; quantiles of several topics cannot be added."""
    server = start_server(transactionCoordinatorEnabled="true", exposeTopicLevelMetricsInPrometheus="false")
    talk = Transactions(server.port)
    for number, topic in enumerate((f"{TOPIC}-1", f"{TOPIC}-2", "persistent://public/other/t")):
        if "other" in topic:
            server.ask("PUT", "/admin/v2/namespaces/public/other")
        producer, _ = talk.client.produce(topic)
        least = talk.begin()
        talk.add(least, topic)
        talk.send(producer, b"output", 0, least)
        talk.end(least, commit=number < 2)
    lines = server.ask("GET", "/metrics/")[1].decode().splitlines()
    found = dict(line.rsplit(" ", 1) for line in lines if line.startswith("pulsar_txn_tb_client_"))
    own = 'cluster="standalone",namespace="public/default"'
    other = 'cluster="standalone",namespace="public/other"'
    latencies = {key: float(value) for key, value in found.items() if "_latency" in key}
    assert latencies.keys() == {
        f"pulsar_txn_tb_client_commit_latency_count{{{own}}}",
        f"pulsar_txn_tb_client_commit_latency_sum{{{own}}}",
        f"pulsar_txn_tb_client_abort_latency_count{{{other}}}",
        f"pulsar_txn_tb_client_abort_latency_sum{{{other}}}",
    }
    assert latencies[f"pulsar_txn_tb_client_commit_latency_count{{{own}}}"] == 2, "of two topics"
    assert latencies[f"pulsar_txn_tb_client_commit_latency_sum{{{own}}}"] > 1e4, "nanoseconds"
    assert latencies[f"pulsar_txn_tb_client_abort_latency_count{{{other}}}"] == 1
    talk.client.close()


def test_a_message_of_a_subscription(ends: Endpoints) -> None:
    path = "positionStatsInPendingAck/public/default/endpoints/s"
    assert ends.get(f"{path}/{ends.path(1)}") == recorded("s/62/1")
    assert ends.get(f"{path}/{ends.path(1)}?batchIndex=0") == recorded("s/62/1?batchIndex=0")
    assert ends.get(f"{path}/{ends.path(0)}") == {"state": "NotInPendingAck"}
    assert ends.get(f"{path}/{ends.path(2)}") == {"state": "NotInPendingAck"}, "the abort gave it back"
    assert ends.get(f"{path}/0/0") == {"state": "MarkDelete"}


def test_a_cumulative_acknowledgement(ends: Endpoints) -> None:
    talk, topic = ends.talk, "persistent://public/default/cumulative"
    producer, _ = talk.client.produce(topic)
    consumer = talk.client.subscribe(topic, "s", permits=10)
    at = [talk.send(producer, b"plain", number, None) for number in range(2)]
    for _ in at:
        got = talk.client.take(BaseCommand.MESSAGE, consumer_id=consumer).message_id
    least = talk.begin()
    talk.add(least, topic, "s")
    talk.acknowledge(consumer, [got], least, cumulative=True)
    path = "transactionInPendingAckStats/public/default/cumulative/s/0"
    assert ends.get(f"{path}/{least}") == {"cumulativeAckPosition": format_position(at[1])}
    assert ends.get(f"{path}/999999") == {}
    for ledger_id, entry_id in at:
        place = f"positionStatsInPendingAck/public/default/cumulative/s/{ledger_id}/{entry_id}"
        assert ends.get(place) == {"state": "PendingAck"}
    metadata = ends.get(f"transactionMetadata/0/{least}")
    assert metadata["ackedPartitions"] == {topic: {"s": {"cumulativeAckPosition": format_position(at[1])}}}
    talk.end(least, commit=True)
    assert ends.get(place) == {"state": "MarkDelete"}


def test_messages_of_a_batch(ends: Endpoints) -> None:
    talk, topic = ends.talk, "persistent://public/default/batch"
    producer, _ = talk.client.produce(topic)
    consumer = talk.client.subscribe(topic, "s", permits=10)
    [(ledger_id, entry_id)] = talk.client.published(producer, [b"several"], batch=3)
    talk.client.take(BaseCommand.MESSAGE, consumer_id=consumer)
    least = talk.begin()
    talk.add(least, topic, "s")
    talk.acknowledge(consumer, [id_of((ledger_id, entry_id), ack_set=[0b101], batch_size=3)], least)
    path = f"positionStatsInPendingAck/public/default/batch/s/{ledger_id}/{entry_id}"
    states = [ends.get(f"{path}?batchIndex={index}")["state"] for index in range(4)]
    assert states == ["NotInPendingAck", "PendingAck", "NotInPendingAck", "InvalidPosition"]


def test_a_transaction_says_where_it_is(ends: Endpoints) -> None:
    found, theirs = ends.get(f"transactionMetadata/0/{ends.open}"), recorded("transactionMetadata/0/36")
    theirs["producedPartitions"][TOPIC]["startPosition"] = format_position(ends.at[3])
    for name in ("producedPartitions", "ackedPartitions"):
        assert found[name] == theirs[name]
    assert ends.get("slowTransactions/0")[f"(0,{ends.open})"] == found
    left = ends.talk.begin()
    ends.talk.add(left, "persistent://public/default/never-there")
    ends.talk.add(left, TOPIC, "never-there")
    told = ends.get("slowTransactions/0?coordinatorId=0")[f"(0,{left})"]
    assert told["producedPartitions"] == {"persistent://public/default/never-there": {}}
    assert told["ackedPartitions"] == {TOPIC: {"never-there": {}}}


@pytest.mark.parametrize(
    "path",
    [
        "transactionBufferStats/public/default/none",
        "transactionBufferStats/public/none/none",
        "transactionBufferInternalStats/public/none/none",
        "transactionInBufferStats/public/default/none/0/36",
        "pendingAckStats/public/default/none/s",
        "pendingAckInternalStats/public/default/none/s",
        "transactionInPendingAckStats/public/default/none/s/0/36",
        "positionStatsInPendingAck/public/default/none/s/62/1",
    ],
)
def test_a_topic_that_is_not_there_is_not_found(ends: Endpoints, path: str) -> None:
    assert ends.get(path, 404) == recorded(path)


@pytest.mark.parametrize(
    "path",
    [
        "pendingAckStats/public/default/endpoints/none",
        "pendingAckInternalStats/public/default/endpoints/none",
        "transactionInPendingAckStats/public/default/endpoints/none/0/36",
        "positionStatsInPendingAck/public/default/endpoints/none/62/1",
    ],
)
def test_a_subscription_that_is_not_there_is_not_found(ends: Endpoints, path: str) -> None:
    """Apache Pulsar answers all but one of these with 500."""
    assert "none" in ends.get(path, 404)["reason"]


def test_commands(ends: Endpoints, capsys: pytest.CaptureFixture[str]) -> None:
    def admin(line: str) -> Any:
        assert main(["--admin-url", ends.server.http_url, "transactions", *line.split()]) == 0
        return json.loads(capsys.readouterr().out)

    ledger_id, entry_id = ends.at[1]
    txn, topic = f"-m 0 -l {ends.open}", "public/default/endpoints"
    for line, path in (
        (f"transaction-buffer-stats -t {TOPIC} -l -s", f"transactionBufferStats/{topic}?lowWaterMarks=true"),
        (f"buffer-snapshot-internal-stats -t {TOPIC}", f"transactionBufferInternalStats/{topic}"),
        (f"transaction-in-buffer-stats {txn} -t {TOPIC}", f"transactionInBufferStats/{topic}/0/{ends.open}"),
        (f"pending-ack-stats -t {TOPIC} -s s -l", f"pendingAckStats/{topic}/s?lowWaterMarks=true"),
        (
            f"pending-ack-internal-stats -t {TOPIC} -s s -m",
            f"pendingAckInternalStats/{topic}/s?metadata=true",
        ),
        (
            f"transaction-in-pending-ack-stats {txn} -t {TOPIC} -s s",
            f"transactionInPendingAckStats/{topic}/s/0/{ends.open}",
        ),
        (
            f"position-stats-in-pending-ack -t {TOPIC} -s s -l {ledger_id} -e {entry_id} -b 0",
            f"positionStatsInPendingAck/{topic}/s/{ledger_id}/{entry_id}?batchIndex=0",
        ),
    ):
        assert admin(line) == ends.get(path)


def test_segments(start_server: Callable[..., Server]) -> None:
    server = start_server(
        transactionCoordinatorEnabled="true",
        transactionBufferSegmentedSnapshotEnabled="true",
        transactionBufferSnapshotMaxTransactionCount=1,
        transactionBufferSnapshotSegmentSize=55,
    )
    talk = Transactions(server.port)
    topic = "persistent://public/default/batched"
    producer, _ = talk.client.produce(topic)
    for number in range(9):
        least = talk.begin()
        talk.add(least, topic)
        talk.send(producer, b"aborted", number, least)
        talk.end(least, commit=False)
    path = f"{ROOT}/transactionBufferStats/public/default/batched?segmentStats=true"
    theirs = recorded("batched?segmentStats=true", "batched")
    found = until_wanted(
        lambda: json.loads(server.ask("GET", path)[1]),
        lambda stats: stats["segmentsStats"]["segmentsSize"] >= 2,
    )
    assert (found.keys(), found["segmentsStats"].keys()) == (theirs.keys(), theirs["segmentsStats"].keys())
    assert found["snapshotType"] == "Segment"
    segments = found["segmentsStats"]
    sizes = segments["segmentsSize"] * segments["currentSegmentCapacity"]
    assert sizes + segments["unsealedAbortTxnIDSize"] == found["totalAbortedTransactions"] == 9
    assert segments["segmentStats"][0]["lastTxnID"] == f"(0,{segments['currentSegmentCapacity'] - 1})"
    internal = json.loads(
        server.ask("GET", f"{ROOT}/transactionBufferInternalStats/public/default/batched")[1]
    )
    apache = recorded("transactionBufferInternalStats/public/default/batched?metadata=true", "batched")
    assert internal.keys() == apache.keys()
    talk.client.close()


def test_topics_with_transactions_have_no_shadows(ends: Endpoints) -> None:
    """A shadow reads the ledgers of its source, and would show messages of aborted transactions."""

    def ask(method: str, topic: str, rest: str, body: Any = None) -> tuple[int, str]:
        text = None if body is None else json.dumps(body)
        path = f"/admin/v2/{topic.replace('://', '/')}{rest}"
        status, answer = ends.server.ask(method, path, text)
        return status, answer.decode()

    def shadow_of(source: str) -> tuple[int, str]:
        return ask("PUT", f"{source}-shadow", "", {"PULSAR.SHADOW_SOURCE": source})

    status, answer = shadow_of(TOPIC)
    assert status == 412
    assert "has had transactions" in answer
    later, always = "persistent://public/default/later", "persistent://public/default/always"
    for source in (later, always):
        assert ask("PUT", source, "")[0] == 204
        assert shadow_of(source)[0] == 204
    assert ask("PUT", always, "/shadowTopics", [f"{always}-shadow"])[0] == 204
    talk = ends.talk
    least = talk.begin()
    for source in (later, always):
        talk.add(least, source)
    producer, _ = talk.client.produce(always)
    ids = {"txnid_most_bits": 0, "txnid_least_bits": least}
    talk.client.publish(producer, 0, entry_of(b"refused", 0), **ids)
    refused = talk.client.take(BaseCommand.SEND_ERROR, producer_id=producer)
    assert "has shadow topics" in refused.message
    assert refused.error == ServerErrorCode.NOT_ALLOWED
    talk.send(talk.client.produce(later)[0], b"stored", 0, least)
    talk.end(least, commit=False)
    assert ask("PUT", later, "/shadowTopics", [f"{later}-shadow"])[0] == 412
    assert ask("PUT", f"{later}-shadow", "/unload")[0] == 204
    with pytest.raises(Refused, match="has had transactions"):
        talk.client.subscribe(f"{later}-shadow", "s")
