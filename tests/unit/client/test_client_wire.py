"""One connection without a socket: frames in, calls and frames out, in any pieces."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.client.exceptions import ConnectError, PulsarException, ServiceUnitNotReady
from magnetar.client.wire import Assigned, Runs, Wire
from magnetar.protocol.frames import FrameError, decode_command, encode_command, encode_with_payload
from magnetar.protocol.hot_client_decode import MessageRun, ReceiptRun
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandConnected,
    CommandMessage,
    CommandTopicMigrated,
    MessageIdData,
    MessageMetadata,
)


class Ends:
    """The owner of a wire, a producer and a consumer; notes what they are told."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.wire = Wire(self, Runs())
        self.wire.producers[1] = self
        self.wire.consumers[1] = self

    def send(self, frame: bytes | bytearray) -> None:
        self.told.append(("sent", decode_command(bytes(frame), 0).type))

    def connected(self, command: CommandConnected) -> None:
        self.told.append(("connected", self.wire.max_message_size))

    def refused(self, error: PulsarException) -> None:
        self.told.append(("refused", type(error)))

    def pong(self) -> None:
        self.told.append("pong")

    def challenged(self) -> None:
        self.told.append("challenged")

    def receipts(self, run: ReceiptRun) -> None:
        self.told += [("receipt", number) for number in run.sequence_ids[: run.count]]

    def send_failed(self, sequence_id: int, error: PulsarException) -> None:
        self.told.append(("failed", sequence_id, type(error)))

    def messages(self, buffer: bytes, run: MessageRun) -> None:
        for index in range(run.count):
            self.told.append(("entry", run.entry_ids[index], buffer[run.starts[index] : run.ends[index]]))

    def message(self, command: CommandMessage, entry: bytes, intact: bool) -> None:
        self.told.append(("single", command.message_id.entryId, intact, entry))

    def active_changed(self, active: bool) -> None:
        self.told.append(("active", active))

    def end_of_topic(self) -> None:
        self.told.append("end")

    def migrated(self, there: Assigned) -> None:
        self.told.append(("migrated", there.url, there.url_tls))

    def closed_by_broker(self, assigned: Assigned | None) -> None:
        self.told.append("closed" if assigned is None else assigned.url)

    def connection_lost(self, error: PulsarException) -> None:
        self.told.append("lost")


def command(kind: BaseCommand.Type, name: str, **fields: Any) -> BaseCommand:
    made = BaseCommand(type=kind)
    message = getattr(made, name)
    message.SetInParent()
    for key, value in fields.items():
        setattr(message, key, value)
    return made


ENTRY = build_entry(MessageMetadata(producer_name="p", sequence_id=1, publish_time=1), b"content")


def message(entry_id: int, *ack_set: int) -> BaseCommand:
    made = command(BaseCommand.MESSAGE, "message", consumer_id=1)
    made.message.message_id.CopyFrom(MessageIdData(ledgerId=1, entryId=entry_id))
    made.message.ack_set.extend(ack_set)
    return made


def receipt(sequence_id: int) -> BaseCommand:
    made = command(BaseCommand.SEND_RECEIPT, "send_receipt", producer_id=1, sequence_id=sequence_id)
    made.send_receipt.message_id.CopyFrom(MessageIdData(ledgerId=1, entryId=sequence_id))
    return made


CONVERSATION = [
    (
        encode_command(
            command(BaseCommand.CONNECTED, "connected", server_version="x", max_message_size=1000)
        ),
        [("connected", 1000)],
    ),
    (encode_command(command(BaseCommand.PING, "ping")), [("sent", BaseCommand.PONG)]),
    (encode_command(receipt(5)) + encode_command(receipt(6)), [("receipt", 5), ("receipt", 6)]),
    (encode_with_payload(message(7), ENTRY), [("entry", 7, ENTRY)]),
    (encode_with_payload(message(8, 3), ENTRY), [("single", 8, True, ENTRY)]),
    (
        encode_with_payload(message(9), ENTRY[:-1] + b"!"),
        [("single", 9, False, ENTRY[:-1] + b"!")],
    ),
    (
        encode_command(
            command(BaseCommand.SEND_ERROR, "send_error", producer_id=1, sequence_id=3, error=6, message="x")
        ),
        [("failed", 3, ServiceUnitNotReady)],
    ),
    (
        encode_command(
            command(
                BaseCommand.ACTIVE_CONSUMER_CHANGE, "active_consumer_change", consumer_id=1, is_active=False
            )
        ),
        [("active", False)],
    ),
    (encode_command(command(BaseCommand.REACHED_END_OF_TOPIC, "reachedEndOfTopic", consumer_id=1)), ["end"]),
    (encode_command(command(BaseCommand.PONG, "pong")), ["pong"]),
    (
        encode_command(
            command(
                BaseCommand.TOPIC_MIGRATED,
                "topicMigrated",
                resource_id=1,
                resource_type=CommandTopicMigrated.Producer,
                brokerServiceUrl="pulsar://green:6650",
            )
        ),
        [("migrated", "pulsar://green:6650", "")],
    ),
    (
        encode_command(
            command(
                BaseCommand.TOPIC_MIGRATED,
                "topicMigrated",
                resource_id=7,
                resource_type=CommandTopicMigrated.Consumer,
            )
        ),
        [],
    ),
    (
        encode_command(command(BaseCommand.CLOSE_PRODUCER, "close_producer", producer_id=1, request_id=0)),
        ["closed"],
    ),
    (
        encode_command(
            command(
                BaseCommand.CLOSE_CONSUMER,
                "close_consumer",
                consumer_id=1,
                request_id=0,
                assignedBrokerServiceUrl="pulsar://there:6650",
            )
        ),
        ["pulsar://there:6650"],
    ),
]


@settings(max_examples=100, deadline=None)
@given(cuts=st.lists(st.integers(0, sum(len(frame) for frame, _ in CONVERSATION)), max_size=12))
def test_a_conversation_in_any_pieces(cuts: list[int]) -> None:
    everything = b"".join(frame for frame, _ in CONVERSATION)
    ends = Ends()
    places = [0, *sorted(cuts), len(everything)]
    for first, last in itertools.pairwise(places):
        ends.wire.receive(everything[first:last])
    assert ends.told == [each for _, told in CONVERSATION for each in told]
    assert ends.wire.producers == {}
    assert ends.wire.consumers == {}


def test_answers_find_those_who_asked() -> None:
    ends = Ends()
    answers: list[Any] = []
    first, second = ends.wire.new_request_id(), ends.wire.new_request_id()
    ends.wire.pending[first] = lambda found, error: answers.append((found, error))
    ends.wire.pending[second] = lambda found, error: answers.append((found, error))
    ends.wire.receive(encode_command(command(BaseCommand.SUCCESS, "success", request_id=second)))
    ends.wire.receive(
        encode_command(command(BaseCommand.ERROR, "error", request_id=first, error=6, message="later"))
    )
    assert answers[0][0].success.request_id == second
    assert isinstance(answers[1][1], ServiceUnitNotReady)
    assert ends.wire.pending == {}
    # An answer that nobody waits for any more is no harm.
    ends.wire.receive(encode_command(command(BaseCommand.SUCCESS, "success", request_id=second)))


def test_an_error_before_connected_refuses_the_connection() -> None:
    ends = Ends()
    ends.wire.receive(
        encode_command(command(BaseCommand.ERROR, "error", request_id=2**64 - 1, error=3, message="no"))
    )
    assert ends.told[0][0] == "refused"


def test_everybody_hears_when_the_connection_is_lost() -> None:
    ends = Ends()
    answers: list[Any] = []
    ends.wire.pending[1] = lambda found, error: answers.append(error)
    ends.wire.lost(ConnectError("gone"))
    assert ends.told == ["lost", "lost"]
    assert isinstance(answers[0], ConnectError)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff" + bytes(20),
        bytes(8),
        encode_command(command(BaseCommand.PRODUCER, "producer", topic="t", producer_id=1, request_id=1)),
    ],
)
def test_what_breaks_the_protocol(data: bytes) -> None:
    with pytest.raises(FrameError):
        Ends().wire.receive(data)


def test_a_challenge_is_told_and_answered() -> None:
    ends = Ends()
    command = BaseCommand(type=BaseCommand.AUTH_CHALLENGE)
    command.authChallenge.challenge.auth_method_name = "token"
    ends.wire.receive(encode_command(command))
    ends.wire.respond("token", b"fresh")
    assert ends.told == ["challenged", ("sent", BaseCommand.AUTH_RESPONSE)]


def test_a_proof_goes_with_connect() -> None:
    sent: list[BaseCommand] = []

    class Noting(Ends):
        def send(self, frame: bytes | bytearray) -> None:
            sent.append(decode_command(bytes(frame), 0))

    Noting().wire.connect("", "token", b"proof")
    Noting().wire.connect()
    assert [each.connect.auth_data for each in sent] == [b"proof", b""]
    assert [each.connect.feature_flags.supports_auth_refresh for each in sent] == [True, False]
