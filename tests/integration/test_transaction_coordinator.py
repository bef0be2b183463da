"""Transaction coordinators of a real server, by frames: their answers beside those of Apache Pulsar."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
from raw_client import Client, Refused, entry_of
from raw_connection import sub_message
from raw_transactions import Transactions, ok
from server import Server

from magnetar.cli.pulsar_admin import main
from magnetar.errors import ServerErrorCode
from magnetar.protocol.frames import decode_command
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, TxnAction

VECTORS = Path(__file__).parents[1] / "vectors" / "transactions"
ON: dict[str, int | str] = {"transactionCoordinatorEnabled": "true"}
REQUESTS = (
    "TC_CLIENT_CONNECT_REQUEST",
    "NEW_TXN",
    "ADD_PARTITION_TO_TXN",
    "ADD_SUBSCRIPTION_TO_TXN",
    "END_TXN",
)
CASES = (
    "unknown transaction",
    "time to live",
    "after a commit",
    "after an abort",
    "empty",
    "other connection",
    "other connection, the other",
    "never there, commit",
    "never there, abort",
    "non-persistent",
)
TOPIC = "persistent://public/default/coordinated"


@pytest.fixture(scope="module")
def coordinating(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("coordinating"), ON)
    try:
        running.start()
        yield running
    finally:
        running.close()


def recorded(name: str, case: str) -> Iterator[tuple[BaseCommand, BaseCommand]]:
    """The requests of a bare client to its coordinator, with the answers of Apache Pulsar."""
    rows = [json.loads(line) for line in (VECTORS / f"{name}.jsonl").read_text().splitlines()]
    bare = [row for row in rows if row.get("case") == case and "connection" not in row and "command" in row]
    for request, answer in pairwise(bare):
        if request["command"] in REQUESTS and answer["from"] == "broker":
            yield tuple(decode_command(bytes.fromhex(row["hex"]), 0) for row in (request, answer))  # type: ignore[misc]


class Replay:
    """Says to a server what was said to Apache Pulsar; its transactions have other ids there."""

    def __init__(self, port: int) -> None:
        self.client = Client(port)
        self.ids: dict[int, int] = {}
        self._request_ids = count(1000)

    def answer(self, request: BaseCommand, kind: int) -> Any:
        """Says a request with ids of here, and returns the answer.

        :raises Refused: it is an ERROR
        """
        _name, message = sub_message(request)
        if getattr(message, "txnid_least_bits", None) in self.ids:
            message.txnid_least_bits = self.ids[message.txnid_least_bits]
        message.request_id = next(self._request_ids)
        self.client.send(request)
        return self.client.take(kind, request_id=message.request_id)

    def expected(self, told: Any) -> dict[str, Any]:
        """Apache's answer with our ids."""
        fields = {field.name: value for field, value in told.ListFields()}
        if fields.get("txnid_least_bits") in self.ids:
            fields["txnid_least_bits"] = self.ids[fields["txnid_least_bits"]]
        if "message" in fields:
            fields["message"] = re.sub(
                r"\((\d+),(\d+)\)",
                lambda found: f"({found[1]},{self.ids.get(int(found[2]), found[2])})",
                fields["message"],
            )
        return fields


@pytest.fixture(scope="module")
def replay(coordinating: Server) -> Replay:
    client = Replay(coordinating.port)
    client.client.ask(BaseCommand.TC_CLIENT_CONNECT_REQUEST, BaseCommand.TC_CLIENT_CONNECT_RESPONSE, tc_id=0)
    return client


def test_answers_are_those_of_apache_pulsar(replay: Replay) -> None:
    """The cases are one conversation: later ones name transactions that earlier ones have begun."""
    for case in CASES:
        ended: set[tuple[int, int]] = set()
        seen = 0
        for request, told in recorded("errors", case):
            _name, answer = sub_message(told)
            got = replay.answer(request, told.type)
            if request.type == BaseCommand.NEW_TXN:
                replay.ids[answer.txnid_least_bits] = got.txnid_least_bits
            expected = replay.expected(answer)
            if request.type == BaseCommand.END_TXN:
                end = (request.endTxn.txnid_least_bits, request.endTxn.txn_action)
                if end in ended:
                    # A repeated END_TXN gets the answer that may have got lost; Apache Pulsar forgets it.
                    del expected["error"], expected["message"]
                elif "error" not in expected:
                    ended.add(end)
            expected["request_id"] = got.request_id
            assert {field.name: value for field, value in got.ListFields()} == expected, case
            seen += 1
        assert seen >= 1, case


def test_a_coordinator_that_is_not_there_is_not_found(coordinating: Server) -> None:
    """Apache Pulsar makes coordinator 99 if a client connects to it, and its log stays for ever."""
    client = Client(coordinating.port)
    with pytest.raises(AssertionError):
        ok(client, BaseCommand.TC_CLIENT_CONNECT_REQUEST, BaseCommand.TC_CLIENT_CONNECT_RESPONSE, tc_id=99)
    for request, told in recorded("errors", "unknown coordinator"):
        _name, answer = sub_message(told)
        if answer.HasField("error") and answer.error == ServerErrorCode.TRANSACTION_COORDINATOR_NOT_FOUND:
            replay = Replay(coordinating.port)
            got = replay.answer(request, told.type)
            assert (got.error, got.message) == (answer.error, answer.message)


def test_a_commit_shows_messages_and_acknowledges_inputs_and_an_abort_does_neither(
    coordinating: Server,
) -> None:
    talk = Transactions(coordinating.port)
    client = talk.client
    source, target = f"{TOPIC}-in", f"{TOPIC}-out"
    producer, _ = client.produce(source)
    inputs = client.published(producer, [b"one", b"two"])
    consumer = client.subscribe(source, "s", permits=10)
    for _ in inputs:
        client.take(BaseCommand.MESSAGE, consumer_id=consumer)
    output, _ = client.produce(target)
    reader = client.subscribe(target, "r", permits=10)
    for number, commit in enumerate((False, True)):
        least = talk.begin()
        talk.add(least, target)
        talk.add(least, source, "s")
        client.publish(
            output, number, entry_of(b"sent %d" % number, number), txnid_least_bits=least, txnid_most_bits=0
        )
        client.take(BaseCommand.SEND_RECEIPT, producer_id=output)
        talk.end(least, commit=commit)
    _message, entry = client.take_frame(BaseCommand.MESSAGE, consumer_id=reader)
    assert entry.endswith(b"sent 1")


def test_a_decision_survives_a_kill_and_ids_go_on(tmp_path: Path) -> None:
    server = Server(tmp_path, ON)
    try:
        server.start()
        talk = Transactions(server.port)
        least = talk.begin()
        talk.add(least, TOPIC)
        talk.end(least, commit=True)
        left = talk.begin()
        talk.add(left, TOPIC)
        server.restart(kill=True)
        # Loaded without a client, which the next request shows: it is answered before any connects.
        client = Client(server.port)
        end = time.monotonic() + 10
        while time.monotonic() < end:
            answer = client.ask(
                BaseCommand.END_TXN,
                BaseCommand.END_TXN_RESPONSE,
                txnid_least_bits=least,
                txnid_most_bits=0,
                txn_action=TxnAction.COMMIT,
            )
            if answer.error != ServerErrorCode.TRANSACTION_COORDINATOR_NOT_FOUND:
                break
            time.sleep(0.02)
        assert not answer.HasField("error"), answer.message
        talk = Transactions(server.port)
        talk.end(left, commit=False)
        assert talk.begin() == left + 1
    finally:
        server.close()


def test_transactions_off_are_refused_in_the_words_of_apache_pulsar(server: Server) -> None:
    seen = 0
    for request, told in recorded("off", "transactions off"):
        assert told.type == BaseCommand.ERROR
        with pytest.raises(Refused) as refused:
            Replay(server.port).answer(request, BaseCommand.SUCCESS)
        assert (refused.value.code, refused.value.text) == (told.error.error, told.error.message)
        seen += 1
    assert seen == len(REQUESTS)


def test_operators_see_and_end_transactions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = Server(tmp_path, ON)
    try:
        server.start()

        def admin(line: str, code: int = 0) -> Any:
            assert main(["--admin-url", server.http_url, "transactions", *line.split()]) == code
            out, err = capsys.readouterr()
            return json.loads(out) if out.strip().startswith(("{", "[")) else out + err

        assert admin("coordinators-list") == [{"id": 0, "brokerServiceUrl": server.url}]
        assert admin("coordinator-stats") == {}
        assert "Transaction coordinator not found! coordinator id : 0" in admin("coordinator-stats -c 0", 1)
        talk = Transactions(server.port)
        first, second = talk.begin(), talk.begin()
        talk.add(first, TOPIC)
        talk.add(first, TOPIC, "s")
        stats = admin("coordinator-stats")["0"]
        assert stats == admin("coordinator-stats -c 0")
        assert {key: stats[key] for key in ("state", "leastSigBits", "lowWaterMark", "ongoingTxnSize")} == {
            "state": "Ready",
            "leastSigBits": second,
            "lowWaterMark": -1,
            "ongoingTxnSize": 2,
        }
        recorded_stats = _request("rest", "coordinatorStats?coordinatorId=0")
        assert stats.keys() == recorded_stats.keys()
        metadata = admin(f"transaction-metadata -m 0 -l {first}")
        assert metadata["txnId"] == "(0,0)"
        assert metadata["timeoutAt"] == 600_000
        assert list(metadata["producedPartitions"]) == [TOPIC]
        assert list(metadata["ackedPartitions"][TOPIC]) == ["s"]
        assert metadata.keys() == _request("rest", "transactionMetadata/0/36").keys()
        assert admin("slow-transactions -t 1h") == {}
        assert admin("slow-transactions -t 0s").keys() == {"(0,0)", "(0,1)"}
        internal = admin("coordinator-internal-stats -c 0 -m")
        theirs = _request("coordinator_internal", "coordinatorInternalStats/0?metadata=true")
        ledgers, their_ledgers = (
            each["transactionLogStats"]["managedLedgerInternalStats"] for each in (internal, theirs)
        )
        assert ledgers.keys() == their_ledgers.keys()
        assert ledgers["cursors"].keys() == their_ledgers["cursors"].keys()
        admin(f"abort-transaction -m 0 -l {first}")
        assert "not found" in admin(f"abort-transaction -m 0 -l {first}", 1)
        assert "not found" in admin(f"transaction-metadata -m 0 -l {first}", 1)
        assert "should be more than the current number" in admin("scale-transactionCoordinators -r 1", 1)
        admin("scale-transactionCoordinators -r 3")
        assert [each["id"] for each in admin("coordinators-list")] == [0, 1, 2]
    finally:
        server.close()


def _request(name: str, ending: str) -> Any:
    """What Apache Pulsar answered to a request."""
    rows = [json.loads(line) for line in (VECTORS / f"{name}.jsonl").read_text().splitlines()]
    return next(row["answer"] for row in rows if row["request"].endswith(ending))


def test_rest_of_a_broker_without_transactions(server: Server) -> None:
    seen = 0
    for line in (VECTORS / "off.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row.get("case") != "REST, transactions off":
            continue
        method, path = row["request"].split(" ")
        status, body = server.ask(method, path, row.get("body"))
        assert (status, json.loads(body)["reason"]) == (row["status"], row["answer"]["reason"]), path
        seen += 1
    assert seen == 14


def test_metrics_have_the_names_and_labels_of_apache_pulsar(coordinating: Server) -> None:
    talk = Transactions(coordinating.port)
    talk.end(talk.begin(), commit=True)
    _status, body = coordinating.ask("GET", "/metrics")
    ours = {line.split(" ")[0] for line in body.decode().splitlines() if line.startswith("pulsar_txn_")}
    theirs = {
        name.split(" ")[0]
        for name in map(json.loads, (VECTORS / "metrics.jsonl").read_text().splitlines())
        if 'coordinator_id="0"' in name
    }
    assert theirs == {name for name in ours if "coordinator_id" in name}
    assert len(theirs) == 20
    committed = re.search(
        r'^pulsar_txn_committed_total{.*coordinator_id="0"} (\d+)$', body.decode(), re.MULTILINE
    )
    assert committed is not None
    assert int(committed[1]) > 0
