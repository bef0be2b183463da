"""The recorded conversations of a bare client with Apache Pulsar about transactions, played to this broker.

The same commands come back, errors included, and messages are seen in the same order. Where this broker
differs, the difference is named here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conversation import Replay, fields_of
from raw_connection import RawConnection, sub_message
from raw_transactions import Transactions
from server import Server

from magnetar.broker.coordination.participants import end_command
from magnetar.broker.coordination.transaction import Participant
from magnetar.protocol.metadata import build_entry, parse_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

VECTORS = Path(__file__).parents[1] / "vectors" / "transactions"
ON: dict[str, int | str] = {
    "transactionCoordinatorEnabled": "true",
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "brokerDeleteInactiveTopicsEnabled": "false",
}
FIGURES = {
    *("msgBacklog", "unackedMessages", "ongoingTxnCount", "abortedTxnCount", "committedTxnCount"),
    *("msgInCounter", "totalAbortedTransactions", "ongoingTxnSize"),
}
"""What is compared of statistics."""
QUIET_SECONDS = 0.3
Row = Mapping[str, Any]
NAMED = re.compile(r"\((\d+),(\d+)\)")


def cases(file: str) -> dict[str, list[Row]]:
    """What the bare client said and heard, by case, in order."""
    found: dict[str, list[Row]] = {}
    for line in (VECTORS / f"{file}.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        if "connection" not in row and (
            "command" in row or "request" in row or "silent" in row or "closed" in row
        ):
            found.setdefault(row["case"], []).append(row)
    return found


class Conversation(Replay):
    """One case: ids of transactions, ledgers and names are those of this run."""

    def __init__(self, server: Server, ids: dict[str, str]) -> None:
        super().__init__(server.port, {})
        self._server = server
        self._ids = ids
        """By the recorded number of a transaction of coordinator 0, the one here."""
        self.differences: list[str] = []

    def play(self, rows: list[Row], differing: Mapping[int, str]) -> None:
        """:param differing: the numbers of rows that come otherwise here, and why"""
        for number, row in enumerate(rows):
            try:
                if number in differing:
                    self._differs(row)
                else:
                    self._step(row)
            except AssertionError as difference:
                self.differences.append(f"{number} {row.get('command', '')}: {str(difference)[:300]}")

    def _differs(self, row: Row) -> None:
        """Takes what comes instead, which must not be what was recorded."""
        if "request" in row:
            with pytest.raises(AssertionError):
                self._ask(row)
        elif "silent" in row:
            with pytest.raises(AssertionError, match="unexpected"):
                self._nothing_more(closed=False)
            self._received.clear()
        elif row["command"] == "MESSAGE":
            self._other_message(row)
        else:
            assert self._connection is not None
            received = self._received.pop(0) if self._received else self._connection.receive(10.0)
            assert received is not None
            kind = BaseCommand.Type.Name(received[0].type)
            assert kind != row["command"] or self._fields_differ(row, received[0]), "it is as recorded"

    def _other_message(self, row: Row) -> None:
        """The message does not come, or has another id."""
        with suppress(AssertionError):
            self._nothing_more(closed=False)
        _command, content = super()._rebuild(row)
        for index, (command, entry) in enumerate(self._received):
            if entry == self._with_ids(content):
                del self._received[index]
                assert self._fields_differ(row, command), "it is as recorded"

    def _fields_differ(self, row: Row, command: BaseCommand) -> bool:
        told, actual = dict(row["fields"]), fields_of(command)
        self._learn(told, actual)
        return told != actual

    def _step(self, row: Row) -> None:
        if "request" in row:
            self._ask(row)
        elif "silent" in row or "closed" in row:
            self._nothing_more(closed="closed" in row)
        elif row["from"] == "client":
            self._send(row)
        else:
            self._check(row)

    def _send(self, frame: Row) -> None:
        if frame["command"] == "CONNECT":
            # An earlier connection stays open.
            self._connection = None
            self._received.clear()
        super()._send(frame)

    def _rebuild(self, frame: Row) -> tuple[BaseCommand, bytes]:
        command, entry = super()._rebuild(frame)
        return command, self._with_ids(entry)

    def _with_ids(self, entry: bytes) -> bytes:
        """An entry with the ids of transactions of this run."""
        parsed = parse_entry(entry) if entry else None
        if parsed is None or not parsed.metadata.HasField("txnid_least_bits"):
            return entry
        least = str(parsed.metadata.txnid_least_bits)
        if parsed.metadata.txnid_most_bits or least not in self._ids:
            return entry
        parsed.metadata.txnid_least_bits = int(self._ids[least])
        front = entry[: 6 if entry.startswith(b"\x0e\x01") else 0]
        made = build_entry(parsed.metadata, bytes(parsed.payload))
        return made if front else made.removeprefix(made[:6])

    def _check(self, frame: Row) -> None:
        if frame["command"] == "MESSAGE":
            command, entry = super()._rebuild(frame)
            told = RawConnection.frame(command, self._with_ids(entry))
            frame = {**frame, "hex": told.hex()}
        super()._check(frame)

    def _nothing_more(self, *, closed: bool) -> None:
        assert self._connection is not None
        while True:
            try:
                received = self._connection.receive(10.0 if closed else QUIET_SECONDS)
            except TimeoutError:
                break
            if received is None:
                assert closed, "the broker has closed the connection"
                return
            if received[0].type not in (BaseCommand.PING, BaseCommand.PONG):
                self._received.append(received)
        assert not closed, "the broker has not closed the connection"
        came = [BaseCommand.Type.Name(command.type) for command, _entry in self._received]
        assert not came, f"unexpected: {came}"

    def _translate(self, command: BaseCommand) -> None:
        message = sub_message(command)[1]
        if "txnid_least_bits" in message.DESCRIPTOR.fields_by_name and message.HasField("txnid_least_bits"):
            here = self._ids.get(str(message.txnid_least_bits))
            if here is not None and message.txnid_most_bits == 0:
                message.txnid_least_bits = int(here)
        if command.type == BaseCommand.ACK:
            for each in message.message_id:
                # A ledger that was never there.
                self._ledgers.setdefault(str(each.ledgerId), each.ledgerId)
        super()._translate(command)

    def _learn(self, expected: dict[str, Any], actual: dict[str, Any]) -> None:
        super()._learn(expected, actual)
        least = expected.get("txnid_least_bits")
        if least is not None and expected.get("txnid_most_bits") == "0":
            if least not in self._ids and "error" not in expected:
                self._ids[least] = actual.get("txnid_least_bits", least)
            expected["txnid_least_bits"] = self._ids.get(least, least)

    def _compare(self, kind: str, expected: dict[str, Any], actual: dict[str, Any]) -> None:
        if "error" in expected:
            assert "error" in actual, f"{kind}: success instead of {expected['error']}"
        if "message" in expected:
            expected["message"] = self._text(expected["message"])
        expected.pop("feature_flags", None)
        actual.pop("feature_flags", None)
        super()._compare(kind, expected, actual)

    def _text(self, text: str) -> str:
        text = NAMED.sub(lambda found: f"({found[1]},{self._ids.get(found[2], found[2])})", text)
        for recorded, here in self._ledgers.items():
            text = re.sub(rf"\b{recorded}:(?=\d)", f"{here}:", text)
        return text

    def _ask(self, row: Row) -> None:
        method, path = row["request"].split(" ", 1)
        for recorded, here in self._ledgers.items():
            path = path.replace(f"/ledger/{recorded}/", f"/ledger/{here}/")
        if "failed" in row:
            # Apache Pulsar never answers.
            return
        status, answer = self._server.ask(method, path, row.get("body"))
        assert status == row.get("status"), f"{row['request']}: {status} {answer[:200]!r}"
        theirs = row.get("answer")
        if isinstance(theirs, str) and status == 200:
            assert answer.decode() == theirs, row["request"]
        elif isinstance(theirs, dict) and status == 200:
            assert dict(figures(json.loads(answer))) == dict(figures(theirs)), row["request"]


def figures(answer: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """What is compared of a JSON object, by its place."""
    if isinstance(answer, dict):
        for name, value in answer.items():
            if name in FIGURES and not isinstance(value, dict):
                yield f"{at}/{name}", value
            elif name != "publishers":
                yield from figures(value, f"{at}/{name}")


ERRORS, VIEWS, OFF = cases("errors"), cases("views"), cases("off")
MADE = "coordinators are made by an operator, not by a client that names one"
AGAIN = "END_TXN that is repeated gets the answer that may have got lost"
LATE = "a topic that was told the end of a transaction takes no more messages of it"
FORGOTTEN = "Apache Pulsar does not give back a pending message that the client has asked for again"
MARKERS = "a transaction without messages in the topic gets no marker, so the next entry has a lower number"
SKIPPED = "a consumer does not hold what an operator has skipped"
PENDING = (
    "pending acknowledgements survive a load although one of them was acknowledged without a transaction, too"
)
UNMARKED = (
    "messages of Go's client, which does not mark them, are hidden while open, and left out when aborted"
)
NOT_THERE = "a subscription that is not there does not keep other transactions from being listed"
DIFFERENCES: dict[str, dict[int, str]] = {
    "unknown coordinator": dict.fromkeys((13, 15, 17, 19, 21), MADE),
    "after a commit": {15: AGAIN, 23: LATE},
    "after an abort": {15: AGAIN, 23: LATE},
    "empty": {11: AGAIN, 21: AGAIN},
    "late send": {31: LATE},
    "conflict of acknowledgements": {60: FORGOTTEN},
    "time-out": {29: AGAIN},
    "directly": {51: MARKERS, 59: MARKERS},
    "aborted messages": {69: SKIPPED, 71: SKIPPED},
    "pending acknowledgements": {62: PENDING, 68: PENDING},
    "no ids in metadata": {23: UNMARKED, 46: UNMARKED, 47: UNMARKED},
    "slow transactions": {17: NOT_THERE},
}
TERMINATED = ("terminated topic, commit", "terminated topic, abort")
"""Apache Pulsar never ends these transactions. Here a topic is terminated after its transactions: see
``test_a_topic_is_terminated_after_its_transactions``."""


class Recording:
    """A server for the conversations of one file, in which the same topics have the same states."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.ids: dict[str, str] = {}

    def play(self, case: str, rows: list[Row]) -> None:
        talk = Conversation(self.server, self.ids)
        talk.play(rows, DIFFERENCES.get(case, {}))
        assert not talk.differences, "\n".join(talk.differences)


def with_coordinator(start_server: Callable[..., Server]) -> Recording:
    """A server whose coordinator is loaded."""
    server = start_server(**ON)
    Transactions(server.port).client.close()
    return Recording(server)


@pytest.fixture(scope="module")
def errors(start_server: Callable[..., Server]) -> Recording:
    return with_coordinator(start_server)


@pytest.fixture(scope="module")
def views(start_server: Callable[..., Server]) -> Recording:
    return with_coordinator(start_server)


@pytest.mark.parametrize("case", [each for each in ERRORS if each not in TERMINATED])
def test_errors(errors: Recording, case: str) -> None:
    errors.play(case, ERRORS[case])


@pytest.mark.parametrize("case", list(VIEWS))
def test_views(views: Recording, case: str) -> None:
    views.play(case, VIEWS[case])


def without_announcement(row: Row) -> Row:
    """Such a producer is refused at once here: see ``test_without_transactions_everything_is_refused``."""
    if row.get("command") != "PRODUCER":
        return row
    data = bytes.fromhex(row["hex"])
    command = BaseCommand.FromString(data[8:])
    command.producer.ClearField("txn_enabled")
    return {**row, "hex": RawConnection.frame(command).hex()}


def test_off(start_server: Callable[..., Server]) -> None:
    server = start_server(**{**ON, "transactionCoordinatorEnabled": "false"})
    case = "transactions off"
    Recording(server).play(case, [without_announcement(row) for row in OFF[case]])


def between_brokers() -> list[tuple[Row, Row]]:
    """Each recorded request of a coordinator to the broker of a topic or subscription, with the response.

    Responses to requests for the terminated topics are left out: see docs/transactions.md.
    """
    found = []
    for file in ("java_client", "go_client", "errors", "views"):
        asked: dict[str, Row] = {}
        for line in (VECTORS / f"{file}.jsonl").read_text("utf-8").splitlines():
            row = json.loads(line)
            if not row.get("connection", "").startswith("broker itself"):
                continue
            if not row.get("command", "").startswith("END_TXN_ON_") or "terminated" in row["case"]:
                continue
            if row["from"] == "broker":
                found.append((asked.pop(row["fields"]["request_id"]), row))
            else:
                asked[row["fields"]["request_id"]] = row
    return found


def test_requests_of_coordinators_are_the_same_bytes() -> None:
    for row, _response in between_brokers():
        fields = row["fields"]
        where = fields.get("subscription", fields)
        transaction = int(fields["txnid_most_bits"]), int(fields["txnid_least_bits"])
        command = end_command(
            Participant(where["topic"], where.get("subscription")),
            transaction,
            int(fields["request_id"]),
            commit=fields["txn_action"] == "COMMIT",
            low_water=int(fields["txnid_least_bits_of_low_watermark"]),
        )
        assert RawConnection.frame(command).hex() == row["hex"]


def test_responses_to_coordinators_are_the_same_bytes(start_server: Callable[..., Server]) -> None:
    server = start_server(**ON)
    conversations = between_brokers()
    assert len(conversations) > 50
    for row, _response in conversations:
        where = row["fields"].get("subscription", row["fields"])
        path = "/admin/v2/" + where["topic"].replace("://", "/")
        assert server.ask("PUT", path)[0] in (204, 409)
        if "subscription" in where:
            assert server.ask("PUT", f"{path}/subscription/{where['subscription']}")[0] in (204, 409)
    connection = RawConnection(server.port)
    connection.connect()
    for row, response in conversations:
        connection.send_bytes(bytes.fromhex(row["hex"]))
        received = connection.receive()
        assert received is not None
        assert RawConnection.frame(received[0]).hex() == response["hex"], row
    connection.close()
