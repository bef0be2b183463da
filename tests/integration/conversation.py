"""Plays the client's side of a recorded conversation and holds the answers against the recorded ones."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from raw_connection import RawConnection, sub_message

from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageIdData, MessageMetadata

_FILE = Path(__file__).parent.parent / "unit" / "protocol" / "data" / "conversations.json"
_SECONDS = 10.0
_UNSIGNED = 2**64

Fields = dict[str, Any]


def conversations() -> dict[str, list[Mapping[str, Any]]]:
    """Frames by case, in order."""
    cases: dict[str, list[Mapping[str, Any]]] = {}
    for frame in json.loads(_FILE.read_text())["frames"]:
        cases.setdefault(frame["case"], []).append(frame)
    return cases


def fields_of(command: BaseCommand) -> Fields:
    """The fields that are set, as JSON has them."""
    return dict(MessageToDict(sub_message(command)[1], preserving_proto_field_name=True))


class Replay:
    """One conversation against one broker.

    :param act: what an operator did where the broker spoke first; called once, before the first frame of
    that kind
    """

    def __init__(self, port: int, act: Mapping[str, Callable[[], None]]) -> None:
        self._port = port
        self._act = dict(act)
        self._connection: RawConnection | None = None
        self._received: list[tuple[BaseCommand, bytes]] = []
        self._ledgers: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self._entries: dict[str, bytes] = {}
        self._closed: set[int] = set()
        """Consumers that the client has closed."""

    def run(self, frames: list[Mapping[str, Any]]) -> None:
        for frame in frames:
            if frame["from"] == "client":
                self._send(frame)
            else:
                if frame["command"] in self._act:
                    self._act.pop(frame["command"])()
                self._check(frame)
        unexpected = [c for c, _entry in self._received if not self._may_come(c)]
        assert not unexpected, unexpected
        assert self._connection is not None
        self._connection.close()

    def _may_come(self, command: BaseCommand) -> bool:
        """Whether it may be there beside what was recorded.

        What a consumer held when it was closed goes to the next one, perhaps just before that is closed, too.
        """
        if command.type == BaseCommand.MESSAGE:
            return command.message.consumer_id in self._closed
        return command.type in (BaseCommand.PING, BaseCommand.PONG)

    def _send(self, frame: Mapping[str, Any]) -> None:
        if frame["command"] == "CONNECT":
            if self._connection is not None:
                self._expect_close()
            self._connection = RawConnection(self._port)
        assert self._connection is not None
        command, entry = self._rebuild(frame)
        self._translate(command)
        self._connection.send(command, entry)
        if command.type == BaseCommand.CLOSE_CONSUMER:
            self._closed.add(command.close_consumer.consumer_id)

    def _rebuild(self, frame: Mapping[str, Any]) -> tuple[BaseCommand, bytes]:
        text = frame["hex"]
        head = bytes.fromhex(text.rstrip("."))
        length = int.from_bytes(head[4:8], "big")
        command = BaseCommand.FromString(head[8 : 8 + length])
        if not text.endswith("..."):
            return command, head[8 + length :]
        metadata = MessageMetadata(
            producer_name="p", sequence_id=0, publish_time=1, uuid="u", num_chunks_from_msg=2
        )
        return command, build_entry(metadata, bytes(frame["frame_length"]))

    def _expect_close(self) -> None:
        assert self._connection is not None
        while (received := self._connection.receive()) is not None:
            self._received.append(received)
        self._connection.close()

    def _translate(self, command: BaseCommand) -> None:
        """Recorded ledger ids and generated names become those of this run."""
        message = sub_message(command)[1]
        ids: list[MessageIdData] = []
        if command.type == BaseCommand.SUBSCRIBE and message.HasField("start_message_id"):
            ids.append(message.start_message_id)
        elif command.type == BaseCommand.SEEK and message.HasField("message_id"):
            ids.append(message.message_id)
        elif command.type == BaseCommand.ACK:
            ids.extend(message.message_id)
        elif command.type == BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES:
            ids.extend(message.message_ids)
        elif command.type == BaseCommand.PRODUCER and message.producer_name in self._names:
            message.producer_name = self._names[message.producer_name]
        for message_id in ids:
            if message_id.ledgerId < 2**63 - 1:
                message_id.ledgerId = self._ledgers[str(message_id.ledgerId)]

    def _check(self, frame: Mapping[str, Any]) -> None:
        wanted = BaseCommand.Type.Value(frame["command"])
        command, entry = self._take(wanted, dict(frame["fields"]))
        actual = fields_of(command)
        expected = json.loads(json.dumps(frame["fields"]))
        self._learn(expected, actual)
        self._compare(frame["command"], expected, actual)
        if frame["command"] == "MESSAGE" and not frame["hex"].endswith("..."):
            recorded = bytes.fromhex(frame["hex"])
            assert entry == recorded[8 + int.from_bytes(recorded[4:8], "big") :]

    def _take(self, wanted: int, fields: Fields) -> tuple[BaseCommand, bytes]:
        """The first frame of a kind for the same request, producer or consumer; others wait."""
        keys = ("request_id", "producer_id", "consumer_id")
        end = time.monotonic() + _SECONDS
        while True:
            for index, (command, _entry) in enumerate(self._received):
                actual = fields_of(command)
                if command.type == wanted and all(str(actual.get(k)) == str(fields.get(k)) for k in keys):
                    return self._received.pop(index)
            assert self._connection is not None
            try:
                received = self._connection.receive(max(0.001, end - time.monotonic()))
            except TimeoutError:
                raise AssertionError(
                    f"no {BaseCommand.Type.Name(wanted)} {fields}; there are {self._received}"
                ) from None
            assert received is not None, f"closed while waiting for {BaseCommand.Type.Name(wanted)}"
            self._received.append(received)

    def _learn(self, expected: Fields, actual: Fields) -> None:
        if "producer_name" in expected and expected["producer_name"].startswith("standalone-"):
            self._names[expected["producer_name"]] = actual["producer_name"]
        for key in ("message_id", "last_message_id", "consumer_mark_delete_position"):
            if key in expected and key in actual:
                ledger = expected[key]["ledgerId"]
                self._ledgers.setdefault(ledger, int(actual[key]["ledgerId"]))
                expected[key]["ledgerId"] = str(self._ledgers[ledger])

    def _compare(self, kind: str, expected: Fields, actual: Fields) -> None:
        if kind == "CONNECTED":
            # Each says its own name.
            for fields in (expected, actual):
                fields.pop("server_version")
        if kind == "LOOKUP_RESPONSE":
            assert actual.pop("brokerServiceUrl") == f"pulsar://127.0.0.1:{self._port}"
            expected.pop("brokerServiceUrl")
        if kind == "SEND_RECEIPT" and expected.get("highest_sequence_id") == "0":
            # A left-over of the recorded broker: the fact sheet says to ignore it.
            expected.pop("highest_sequence_id")
            actual.pop("highest_sequence_id")
        if "producer_name" in expected:
            expected["producer_name"] = self._names.get(expected["producer_name"], expected["producer_name"])
        if kind == "ERROR" or "error" in expected:
            # The recorded text names Java classes: what follows them must be said here, too.
            text = expected.pop("message").rpartition("Exception: ")[2]
            for recorded, own in self._names.items():
                text = text.replace(recorded, own)
            assert text in actual.pop("message")
        if kind == "GET_TOPICS_OF_NAMESPACE_RESPONSE":
            for fields in (expected, actual):
                assert fields.pop("topics_hash")
                fields["topics"] = [t for t in fields["topics"] if "/rx-" in t]
        assert actual == expected, kind
