"""A wrong counter of a connection, or of all of them, closes one connection; the others go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from peers import TOPIC, Brokers, Peer, send_frame

from magnetar.broker.connections.connection import Connection
from magnetar.broker.flow.limits import ConnectionCounts, PartialFrames, UnackedLimit
from magnetar.invariants import BrokenInvariant
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

pytestmark = pytest.mark.plants

NON_PERSISTENT = TOPIC.replace("persistent://", "non-persistent://", 1)


class Two:
    """Two producers on their own connections, in a broker that goes on after an error was reported to its
    loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, topic: str = TOPIC) -> None:
        self.brokers = Brokers()
        self.reported: list[BaseException] = []
        reported = self.reported
        monkeypatch.setattr(
            self.brokers.loop, "call_exception_handler", lambda context: reported.append(context["exception"])
        )
        self.failing, self.other = self.publisher(topic), self.publisher(topic + "-other")
        self.failing.may_be_closed = True
        self.connection: Any = self.failing.connection

    def publisher(self, topic: str) -> Peer:
        return self.brokers.publisher(topic)

    def sends(self, peer: Peer) -> None:
        peer.forget()
        peer.connection.data_received(send_frame(0))
        self.brokers.loop.run_for(0.2)

    def check_ended(self, text: str) -> None:
        """Only one connection has ended, and what all of them share is right again."""
        self.brokers.loop.run_for(0.2)
        assert any(text in str(error) for error in self.reported), self.reported
        assert self.failing.closed
        assert not self.other.closed
        self.sends(self.other)
        assert self.other.count(BaseCommand.SEND_RECEIPT) == 1
        broker = self.brokers.broker
        for counted in (
            broker.limits.publish_buffer,
            broker.limits.partial_frames,
            broker.limits.unsent,
            broker.connections,
        ):
            counted.check()
        assert broker.limits.publish_buffer.used == 0


def _entries_of_a_producer(two: Two) -> None:
    two.connection.session.producers[1].pending = -1
    two.sends(two.failing)


def _entries_of_the_connection(two: Two) -> None:
    two.connection.publishing.pending = -1
    two.sends(two.failing)


def _bytes_of_all(two: Two) -> None:
    two.brokers.broker.limits.publish_buffer.used = -1
    two.sends(two.failing)


def _pauses(two: Two) -> None:
    with pytest.raises(BrokenInvariant, match="pauses of reading"):
        two.connection.input.resume()


def _pauses_of_a_turn(two: Two) -> None:
    with pytest.raises(BrokenInvariant, match="pauses of reading"):
        two.connection.input.go_on()


def _slowed(two: Two) -> None:
    with pytest.raises(BrokenInvariant, match="rate limits that pause reading"):
        two.connection.publishing._go_on()


def _requests(two: Two) -> None:
    with pytest.raises(BrokenInvariant, match="requests in progress"):
        two.connection.requests.ended(0)


def _unsent(two: Two) -> None:
    two.brokers.broker.limits.unsent.used = -100
    two.failing.send(BaseCommand.PING, "ping")
    with pytest.raises(BrokenInvariant, match="unsent bytes"):
        two.brokers.loop.run_for(0.2)


def _partial(two: Two) -> None:
    two.brokers.broker.limits.partial_frames.used = -1
    with pytest.raises(BrokenInvariant, match="bytes of partial frames"):
        two.brokers.broker.limits.partial_frames.gone(two.connection)


def _task(two: Two) -> None:
    async def defective() -> None:
        raise BrokenInvariant("a task")

    two.connection.start(defective(), "a request")


def _handler(two: Two) -> None:
    def defective(_connection: Connection, _command: BaseCommand) -> None:
        raise BrokenInvariant("a handler")

    two.connection.input._handle_command = defective
    two.failing.send(BaseCommand.PING, "ping")


def test_a_defect_in_a_request_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Two(monkeypatch)
    _task(two)
    two.check_ended("a task")
    assert len(two.reported) == 1


@pytest.mark.parametrize(
    ("plant", "text"),
    [
        (_entries_of_a_producer, "entries in flight of producer"),
        (_entries_of_the_connection, "entries in flight of producer"),
        (_bytes_of_all, "bytes of all publishes"),
        (_pauses, "pauses of reading"),
        (_pauses_of_a_turn, "pauses of reading"),
        (_slowed, "rate limits that pause reading"),
        (_requests, "requests in progress"),
        (_unsent, "unsent bytes of all connections: expected at least 0"),
        (_partial, "bytes of partial frames"),
        (_task, "a task"),
        (_handler, "a handler"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_violation_closes_one_connection(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[Two], None], text: str
) -> None:
    two = Two(monkeypatch)
    plant(two)
    two.check_ended(text)


def test_entries_in_flight_on_a_non_persistent_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Two(monkeypatch, NON_PERSISTENT)
    two.connection.non_persistent_pending = -5
    two.sends(two.failing)
    two.check_ended("entries in flight of the connection of producer")


def test_the_log_has_what_was_expected_and_found(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    two = Two(monkeypatch)
    with pytest.raises(BrokenInvariant):
        two.connection.input.resume()
    record = next(each for each in caplog.records if "internal error" in each.message)
    assert (record.__dict__["expected"], record.__dict__["found"]) == ("at least 0", "-1")
    assert record.__dict__["error"] == "pauses of reading from 127.0.0.1:1"


class Ended:
    """A connection or a dispatcher, as limits see it."""

    host, unacked = "h", 5

    def __init__(self) -> None:
        self.failure: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        self.failure = error

    def hold(self) -> None:
        """Sends nothing."""

    def let_go_on(self) -> None:
        """Sends."""


def test_connections_of_an_address_are_never_less_than_none() -> None:
    counts, connection = ConnectionCounts(0, 0), Ended()
    counts.opened(connection)  # type: ignore[arg-type]
    counts._per_address.clear()
    with pytest.raises(BrokenInvariant, match="connections from h: expected at least 0, found -1"):
        counts.closed(connection)  # type: ignore[arg-type]
    assert connection.failure is not None
    counts.check()


def test_partial_frames_are_counted_again_after_a_violation() -> None:
    frames, one, other = PartialFrames(100), Ended(), Ended()
    frames.grew(one, 10)  # type: ignore[arg-type]
    frames.grew(other, 7)  # type: ignore[arg-type]
    frames.used = 5
    with pytest.raises(BrokenInvariant, match="bytes of partial frames: expected at least 0, found -5"):
        frames.gone(one)  # type: ignore[arg-type]
    frames.check()


@pytest.mark.parametrize("field", ["total", "unacked"])
def test_unacknowledged_messages_of_all_are_counted_again(field: str) -> None:
    limit, one, other = UnackedLimit(100, 0.5), Ended(), Ended()
    limit.changed(one)
    limit.changed(other)
    if field == "total":
        limit.total = -3
    else:
        one.unacked = -1
    with pytest.raises(BrokenInvariant, match="unacknowledged messages of a subscription"):
        limit.changed(one)
    assert one.failure is not None
    assert other.failure is None
    assert limit.total == (10 if field == "total" else 5)
