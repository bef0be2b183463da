"""A mistake in the program that a topic's work meets ends this topic: it is closed, and loaded again after a
pause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from peers import TOPIC, Brokers, send_frame, subscribe_frame

from magnetar.broker.dispatch.contract import DispatchSettings
from magnetar.broker.flow.dispatch_rates import Throttle
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.values import DispatchRate
from magnetar.broker.serving.recoveries import Failures
from magnetar.broker.topics.persistent import Topic
from magnetar.errors import ServiceNotReady
from magnetar.invariants import BrokenInvariant
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.frames import encode_command
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

pytestmark = pytest.mark.plants

OTHER = TOPIC + "-other"
NON_PERSISTENT = TOPIC.replace("persistent://", "non-persistent://", 1)


class Defect(Exception):
    """An error that nothing expects."""


async def defective(*_arguments: object, **_named: object) -> Any:
    raise Defect("a defect")


class Failing:
    """A broker that goes on after an error was reported to its loop, with a topic that has both kinds of
    clients."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, topic: str = TOPIC, kind: int = 0) -> None:
        self.brokers = Brokers()
        self.reported: list[BaseException] = []
        told = self.reported
        monkeypatch.setattr(
            self.brokers.loop, "call_exception_handler", lambda context: told.append(context["exception"])
        )
        self.name = topic
        self.producer = self.brokers.publisher(topic)
        self.consumer = self.brokers.subscribed("s", kind, topic)
        self.topic: Any = self.brokers.broker.topics.loaded[topic]
        self.subscription = self.topic.subscriptions["s"]

    def flow(self, permits: int = 1000) -> None:
        self.consumer.send(BaseCommand.FLOW, "flow", consumer_id=1, messagePermits=permits)

    def wait(self, seconds: float = 0.2) -> None:
        self.brokers.loop.run_for(seconds)

    def ended(self) -> bool:
        return self.name not in self.brokers.broker.topics.loaded

    def load(self) -> Any:
        name = TopicName.parse(self.name)
        return self.brokers.world.run(self.brokers.broker.topics.load(name, create=True))

    def check_ended(self) -> None:
        """The topic is closed, its clients were told, and the next one comes after the pause with all
        messages."""
        self.wait()
        assert any(isinstance(error, Defect) for error in self.reported)
        assert isinstance(self.topic.failure, Defect)
        assert self.ended()
        assert self.producer.count(BaseCommand.CLOSE_PRODUCER) == 1
        assert self.consumer.count(BaseCommand.CLOSE_CONSUMER) == 1
        with pytest.raises(ServiceNotReady, match="failed because of an internal error"):
            self.load()
        self.wait(1.0)
        again = self.load()
        assert again is not self.topic
        assert again.failure is None


def uncached(failing: Failing, count: int = 5) -> None:
    """Publishes entries that have to be read from the ledger store."""
    failing.brokers.publish(failing.producer, count)
    failing.topic.managed_ledger.cache.drop_before((1 << 60, 0))


@pytest.mark.parametrize("kind", [0, 1, 2, 3], ids=["Exclusive", "Shared", "Failover", "Key_Shared"])
def test_a_read_with_an_unexpected_error_ends_the_topic(monkeypatch: pytest.MonkeyPatch, kind: int) -> None:
    failing = Failing(monkeypatch, kind=kind)
    uncached(failing)
    monkeypatch.setattr(failing.topic.managed_ledger.reader, "read", defective)
    monkeypatch.setattr(failing.topic.managed_ledger.reader, "read_cached", lambda *_: None)
    failing.flow()
    failing.brokers.until(lambda: failing.topic.failure is not None)
    failing.check_ended()
    consumer = failing.brokers.subscribed("s", kind, number=2)
    consumer.send(BaseCommand.FLOW, "flow", consumer_id=2, messagePermits=1000)
    failing.brokers.until(lambda: consumer.count(BaseCommand.MESSAGE) == 5)


def test_other_topics_and_connections_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing(monkeypatch)
    brokers = failing.brokers
    # On the same connections, and on ones of its own.
    failing.producer.send(BaseCommand.PRODUCER, "producer", topic=OTHER, producer_id=2, request_id=2)
    failing.consumer.connection.data_received(subscribe_frame(2, "s", 0, OTHER))
    brokers.until(lambda: failing.consumer.count(BaseCommand.SUCCESS) == 2)
    failing.consumer.send(BaseCommand.FLOW, "flow", consumer_id=2, messagePermits=1000)
    other = brokers.publisher(OTHER)
    uncached(failing)
    monkeypatch.setattr(failing.topic.managed_ledger.reader, "read", defective)
    monkeypatch.setattr(failing.topic.managed_ledger.reader, "read_cached", lambda *_: None)
    failing.flow()
    failing.wait()
    assert failing.ended()
    brokers.publish(other, 3)
    brokers.until(lambda: failing.consumer.count(BaseCommand.MESSAGE) == 3)
    assert not any(peer.closed for peer in (failing.producer, failing.consumer, other))


def _roll(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic.managed_ledger._record, "still_owned", defective)
    topic.managed_ledger.rolling._tasks.start(defective(), "the roll to a new ledger")


def _trim(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic.managed_ledger.trimmer, "_write_cursors", defective)
    monkeypatch.setattr(topic.managed_ledger.trimmer, "reclaimable", lambda: [1])
    topic.managed_ledger.trimmer.schedule()


def _write_of_a_cursor(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = topic.subscriptions["s"].cursor.storage
    assert storage is not None
    monkeypatch.setattr(storage, "_switch_ledger", defective)
    storage.changed()


def _own(topic: Topic, _monkeypatch: pytest.MonkeyPatch) -> None:
    topic.tasks.start(defective(), "a defect")


def _delays(topic: Topic, _monkeypatch: pytest.MonkeyPatch) -> None:
    dispatcher: Any = topic.subscriptions["s"].dispatcher
    delays = dispatcher.delays = dispatcher._new_tracker()
    delays._tasks.start(defective(), "a write of the index")


def _delay_index(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    dispatcher: Any = topic.subscriptions["s"].dispatcher
    index = dispatcher._new_tracker()._index
    monkeypatch.setattr(index, "_next_run", lambda _cutoff: 1)
    monkeypatch.setattr(index, "_read_due", defective)
    index.read_due(0)


@pytest.mark.parametrize("fail", [_roll, _trim, _write_of_a_cursor, _own, _delays, _delay_index])
def test_a_failed_task_ends_its_topic(
    monkeypatch: pytest.MonkeyPatch, fail: Callable[[Topic, pytest.MonkeyPatch], None]
) -> None:
    failing = Failing(monkeypatch, kind=1)
    failing.brokers.publish(failing.producer, 3)
    fail(failing.topic, monkeypatch)
    failing.check_ended()


def test_nothing_of_a_failed_topic_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing(monkeypatch)
    failing.brokers.publish(failing.producer, 4)
    ledger_id, _ = failing.topic.managed_ledger.last_confirmed
    failing.subscription.cursor.delete(ledger_id, 0)
    failing.wait(1.0)
    # Wrong, and about to be written when the topic fails.
    failing.subscription.cursor.delete(ledger_id, 1)
    failing.topic.fail(Defect("a defect"))
    failing.reported.append(failing.topic.failure)
    failing.check_ended()
    again = failing.load()
    assert again.subscriptions["s"].cursor.mark_delete == (ledger_id, 0)


def test_entries_on_their_way_get_their_receipts(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing(monkeypatch)
    failing.producer.forget()
    failing.producer.connection.data_received(send_frame(0))
    failing.topic.tasks.start(defective(), "a defect")
    failing.wait()
    assert failing.ended()
    assert failing.producer.connection.pending_publishes == 0
    assert failing.brokers.broker.limits.publish_buffer.used == 0
    failing.wait(1.0)
    again = failing.load()
    assert again.managed_ledger.ledgers.total_entries() == 1


def test_a_non_persistent_topic_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing(monkeypatch, NON_PERSISTENT)
    failing.topic.tasks.start(defective(), "a defect")
    failing.check_ended()


def test_clients_behind_a_consumer_that_cannot_be_removed_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing(monkeypatch, kind=1)
    second = failing.brokers.subscribed("s", 1, number=2)
    dispatcher = failing.subscription.dispatcher

    def remove(_consumer: object) -> None:
        raise Defect("its state is wrong")

    monkeypatch.setattr(dispatcher, "remove", remove)
    failing.topic.tasks.start(defective(), "a defect")
    failing.check_ended()
    assert second.count(BaseCommand.CLOSE_CONSUMER) == 1


def test_a_topic_that_fails_while_it_is_loaded_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing(monkeypatch)
    failing.topic.tasks.start(defective(), "a defect")
    failing.check_ended()
    live = failing.load()
    failing.brokers.world.run(failing.brokers.broker.topics.unload_topic(live))
    prepare = Topic.prepare

    async def fail(topic: Topic) -> None:
        await prepare(topic)
        topic.fail(Defect("a defect"))

    monkeypatch.setattr(Topic, "prepare", fail)
    with pytest.raises(ServiceNotReady):
        failing.load()
    assert failing.ended()
    monkeypatch.setattr(Topic, "prepare", prepare)
    with pytest.raises(ServiceNotReady, match="failed because of an internal error"):
        failing.load()
    failing.wait(3.0)
    assert failing.load().failure is None


def _permits(failing: Failing) -> None:
    failing.subscription.consumers[0].permits = -(1 << 40)
    failing.subscription.consumers[0]._sent(1, 1, 1)


def _acknowledge(failing: Failing) -> None:
    """Acknowledges the first entry that was sent."""
    message = failing.consumer.received(BaseCommand.MESSAGE)[0].message.message_id
    command = BaseCommand(type=BaseCommand.ACK)
    command.ack.consumer_id = 1
    command.ack.ack_type = command.ack.Individual
    command.ack.message_id.add(ledgerId=message.ledgerId, entryId=message.entryId)
    failing.consumer.connection.data_received(encode_command(command))


def _unacked_of_a_consumer(failing: Failing) -> None:
    failing.subscription.consumers[0].unacked = 0
    _acknowledge(failing)


def _unacked_of_all(failing: Failing) -> None:
    failing.subscription.dispatcher.unacked = 0
    _acknowledge(failing)


def _blocked(failing: Failing) -> None:
    failing.subscription.dispatcher._held = True
    failing.brokers.publish(failing.producer, 1)


def _redelivered(failing: Failing) -> None:
    failing.subscription.dispatcher.unacked = 1
    failing.consumer.send(
        BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, "redeliverUnacknowledgedMessages", consumer_id=1
    )


def _marked_beyond_the_end(failing: Failing) -> None:
    ledger_id, _ = failing.topic.managed_ledger.last_confirmed
    failing.subscription.cursor.state.move_mark_delete((ledger_id, 9))
    failing.subscription.cursor._moved()


def _appended_elsewhere(failing: Failing) -> None:
    failing.topic.managed_ledger._current.entries += 1
    failing.producer.connection.data_received(send_frame(9))


def _unknown_cursor(failing: Failing) -> None:
    del failing.topic.managed_ledger.cursors._by_name["s"]
    failing.consumer.connection.data_received(subscribe_frame(7, "s", 1))


def _served_and_gone(failing: Failing) -> None:
    dispatcher = failing.subscription.dispatcher
    consumer, dispatcher.consumers = dispatcher.consumers[0], []
    dispatcher._serve(consumer)


def _waiting(failing: Failing) -> None:
    dispatcher = failing.subscription.dispatcher
    delays = dispatcher.delays = dispatcher._new_tracker()
    delays.waiting.count = -1
    delays._taken()


def _waiting_without_a_record(failing: Failing) -> None:
    dispatcher = failing.subscription.dispatcher
    delays = dispatcher.delays = dispatcher._new_tracker()
    delays._index = None
    delays.waiting.add(1, 1)
    delays._taken()


def _chunk_for_nobody(failing: Failing) -> None:
    dispatcher = failing.subscription.dispatcher
    consumer, dispatcher.consumers = dispatcher.consumers[0], []
    dispatcher._wait_for_holder(consumer, failing.topic.managed_ledger.last_confirmed)


def _chunk_that_waits_twice(failing: Failing) -> None:
    dispatcher, position = failing.subscription.dispatcher, failing.topic.managed_ledger.last_confirmed
    dispatcher.replay.add(position)
    dispatcher._wait_for_holder(dispatcher.consumers[0], position)


def _limited(failing: Failing) -> Throttle:
    topic, subscription = failing.topic, failing.subscription
    topic.dispatch_rates.use(EffectivePolicies(dispatch_rate=DispatchRate(1)), None, DispatchSettings())
    throttle: Throttle = topic.dispatch_rates.throttle(subscription, None)
    return throttle


def _less_than_nothing_sent(failing: Failing) -> None:
    _limited(failing).take(1, -1, 0)


def _waiting_without_a_timer(failing: Failing) -> None:
    first, second = _limited(failing), _limited(failing)
    (limiter,) = first.limiters
    limiter.wait(first)
    limiter._timer.cancel()
    limiter._timer = None
    limiter.wait(second)


VIOLATIONS: list[tuple[int, Callable[[Failing], None], str]] = [
    (0, _permits, "permits of consumer c1"),
    (0, _marked_beyond_the_end, "mark-delete position: expected at most"),
    (0, _appended_elsewhere, "first id of entries appended to ledger"),
    (0, _served_and_gone, "served consumer of subscription s of persistent"),
    (1, _unacked_of_a_consumer, "unacknowledged messages of consumer c1: expected at least 0, found -1"),
    (3, _unacked_of_a_consumer, "unacknowledged messages of consumer c1: expected at least 0, found -1"),
    (1, _unacked_of_all, "unacknowledged messages of subscription s of persistent"),
    (3, _unacked_of_all, "unacknowledged messages of subscription s of persistent"),
    (1, _redelivered, "unacknowledged messages of subscription s of persistent"),
    (1, _blocked, "blocked of subscription s of persistent"),
    (1, _unknown_cursor, "cursor of subscription s of persistent"),
    (1, _chunk_for_nobody, "consumer of the chunk"),
    (1, _chunk_that_waits_twice, "lists in which the chunk"),
    (
        0,
        _less_than_nothing_sent,
        "messages and bytes sent within a limit: expected at least 0, found (-1, 0)",
    ),
    (0, _waiting_without_a_timer, "dispatchers that wait for the limit of the topic without a timer"),
    (1, _waiting, "entries of cursor s that wait: expected at least 0, found -1"),
    (
        1,
        _waiting_without_a_record,
        "records of the entries of cursor s that wait: expected at least 1, found 0",
    ),
]


@pytest.mark.parametrize(
    ("kind", "plant", "text"), VIOLATIONS, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_violation_ends_the_topic_and_neither_connections_nor_other_topics(
    monkeypatch: pytest.MonkeyPatch, kind: int, plant: Callable[[Failing], None], text: str
) -> None:
    failing = Failing(monkeypatch, kind=kind)
    brokers = failing.brokers
    failing.producer.send(BaseCommand.PRODUCER, "producer", topic=OTHER, producer_id=2, request_id=2)
    failing.consumer.connection.data_received(subscribe_frame(2, "s", 0, OTHER))
    brokers.until(lambda: failing.consumer.count(BaseCommand.SUCCESS) == 2)
    failing.consumer.send(BaseCommand.FLOW, "flow", consumer_id=2, messagePermits=1000)
    failing.flow(10)
    brokers.publish(failing.producer, 3)
    brokers.until(lambda: failing.consumer.count(BaseCommand.MESSAGE) == 3)
    try:
        plant(failing)
    except BrokenInvariant as error:
        # Of what was called here, and not by a client.
        failing.reported.append(error)
    failing.wait()
    assert any(text in str(error) for error in failing.reported), failing.reported
    assert text in str(failing.topic.failure)
    assert failing.ended()
    failing.consumer.forget()
    other = brokers.publisher(OTHER)
    brokers.publish(other, 2)
    brokers.until(lambda: failing.consumer.count(BaseCommand.MESSAGE) == 2)
    failing.wait(1.0)
    failing.load().managed_ledger.check()


class _Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_pauses_double_up_to_a_minute_and_are_forgotten() -> None:
    clock = _Clock()
    failures = Failures(None, clock, None)  # type: ignore[arg-type]
    pauses = []
    for _ in range(9):
        pause = failures.delay("t")
        pauses.append(pause)
        with pytest.raises(ServiceNotReady):
            failures.check("t")
        failures.check("another")
        clock.now += pause
        failures.check("t")
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    clock.now += 601.0
    assert failures.delay("u") == 1.0
    assert len(failures) == 1
    assert failures.delay("t") == 1.0
