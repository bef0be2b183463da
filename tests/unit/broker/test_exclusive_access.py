"""Access modes, one step of the loop at a time."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_io import SimulatedDisk, simulated_io

from magnetar.broker.publishing.exclusive_access import EPOCH_PROPERTY, ExclusiveAccess
from magnetar.broker.publishing.hindrances import Hindrance
from magnetar.broker.publishing.producer import AccessMode
from magnetar.errors import BrokerError, ProducerBusy, ProducerFenced, ServiceNotReady
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.metadata.interface import MetadataUnavailable


class Ledger:
    """The properties of a managed ledger, durable when the test says so."""

    def __init__(self, loop: Any, properties: dict[str, str]) -> None:
        self._loop = loop
        self.properties = dict(properties)
        self.seconds = 0.0
        self.fails = False

    async def set_properties(self, properties: dict[str, str]) -> None:
        waiter = self._loop.create_future()
        self._loop.call_later(self.seconds, waiter.set_result, None)
        await waiter
        if self.fails:
            raise MetadataUnavailable("not now")
        self.properties |= properties


class Candidate:
    """A producer as far as access goes."""

    def __init__(self, name: str, mode: AccessMode, topic_epoch: int | None) -> None:
        self.name = name
        self.access_mode = mode
        self.topic_epoch = topic_epoch
        self.closed = False
        self.fenced = False


class Connected(dict[str, Any]):
    """The producers of a topic as far as access goes."""

    def __init__(self, topic: GuardedTopic) -> None:
        super().__init__()
        self._topic = topic

    def admit(self, producer: Any) -> None:
        self[producer.name] = producer

    def remove(self, producer: Any) -> None:
        producer.closed = True
        if self.get(producer.name) is producer:
            del self[producer.name]
        self._topic.access.leave(producer)


class GuardedTopic:
    def __init__(self, properties: dict[str, str] | None = None) -> None:
        self.loop = simulated_io(1, SimulatedDisk(1)).loop
        self.tasks = TaskScope(self.loop, "the topic", owner_goes_on)
        self.managed_ledger = Ledger(self.loop, properties or {})
        self.producers = Connected(self)
        self.closing = False
        self.access = ExclusiveAccess(self)  # type: ignore[arg-type]
        self.errors: dict[str, BrokerError] = {}
        self.told: list[tuple[Hindrance, str]] = []

    def hindered(self, kind: Hindrance, text: str) -> None:
        self.told.append((kind, text))

    def stored_epoch(self) -> int | None:
        text = self.managed_ledger.properties.get(EPOCH_PROPERTY)
        return None if text is None else int(text)

    async def store_epoch(self, epoch: int) -> None:
        await self.managed_ledger.set_properties({EPOCH_PROPERTY: str(epoch)})

    def enter(self, name: str, mode: AccessMode, topic_epoch: int | None = None) -> Candidate:
        """As a topic does; what becomes of it is in ``producers`` and ``errors``."""
        candidate = Candidate(name, mode, topic_epoch)

        async def enter() -> None:
            try:
                turn = await self.access.enter(candidate)  # type: ignore[arg-type]
                if turn is None:
                    self.producers.admit(candidate)
                else:
                    await turn
            except BrokerError as error:
                self.errors[name] = error

        self._task = self.loop.create_task(enter())
        self.loop.run_for(0.001)
        return candidate

    def settle(self) -> None:
        self.loop.run_for(5)


@pytest.fixture
def topic() -> GuardedTopic:
    return GuardedTopic()


def test_shared_producers_are_many_and_have_no_epoch(topic: GuardedTopic) -> None:
    one, two = topic.enter("1", AccessMode.Shared), topic.enter("2", AccessMode.Shared)
    assert set(topic.producers) == {"1", "2"}
    assert one.topic_epoch is two.topic_epoch is None
    assert EPOCH_PROPERTY not in topic.managed_ledger.properties


def test_epochs_rise_from_where_they_were() -> None:
    topic = GuardedTopic({EPOCH_PROPERTY: "41"})
    owner = topic.enter("1", AccessMode.Exclusive)
    assert owner.topic_epoch == 42
    topic.producers.remove(owner)
    assert topic.enter("2", AccessMode.ExclusiveWithFencing).topic_epoch == 43
    assert topic.managed_ledger.properties[EPOCH_PROPERTY] == "43"


def test_nobody_enters_while_an_epoch_is_being_stored(topic: GuardedTopic) -> None:
    topic.managed_ledger.seconds = 1.0
    topic.enter("owner", AccessMode.Exclusive)
    for mode in AccessMode:
        topic.enter(mode.name, mode)
        assert isinstance(topic.errors[mode.name], ServiceNotReady)
    topic.settle()
    assert set(topic.producers) == {"owner"}


def test_nobody_enters_before_the_next_that_waits(topic: GuardedTopic) -> None:
    """Between the end of one owner and the epoch of the next a shared producer was let in."""
    owner = topic.enter("owner", AccessMode.Exclusive)
    topic.enter("next", AccessMode.WaitForExclusive)
    topic.managed_ledger.seconds = 1.0
    topic.producers.remove(owner)
    topic.enter("late", AccessMode.Shared)
    topic.settle()
    assert set(topic.producers) == {"next"}
    assert isinstance(topic.errors["late"], ServiceNotReady)
    topic.enter("later", AccessMode.Shared)
    assert isinstance(topic.errors["later"], ProducerBusy)


def test_one_that_waits_may_leave_before_its_turn(topic: GuardedTopic) -> None:
    owner = topic.enter("owner", AccessMode.Exclusive)
    first = topic.enter("first", AccessMode.WaitForExclusive)
    topic.enter("second", AccessMode.WaitForExclusive)
    assert topic.access.waiting == 2
    topic.producers.remove(first)
    assert topic.access.waiting == 1
    topic.producers.remove(owner)
    topic.settle()
    assert set(topic.producers) == {"second"}


def test_one_that_leaves_in_its_turn_makes_room_for_the_next(topic: GuardedTopic) -> None:
    owner = topic.enter("owner", AccessMode.Exclusive)
    first = topic.enter("first", AccessMode.WaitForExclusive)
    topic.enter("second", AccessMode.WaitForExclusive)
    topic.managed_ledger.seconds = 1.0
    topic.producers.remove(owner)
    topic.loop.run_for(0.5)
    topic.producers.remove(first)
    topic.settle()
    assert set(topic.producers) == {"second"}
    assert topic.managed_ledger.properties[EPOCH_PROPERTY] == "2"


def test_an_epoch_that_cannot_be_stored_makes_no_owner(topic: GuardedTopic) -> None:
    owner = topic.enter("owner", AccessMode.Exclusive)
    topic.managed_ledger.fails = True
    waiting: list[Any] = []

    async def wait() -> None:
        turn = await topic.access.enter(
            Candidate("next", AccessMode.WaitForExclusive, None)  # type: ignore[arg-type]
        )
        try:
            await turn
        except MetadataUnavailable as error:
            waiting.append(error)

    task = topic.loop.create_task(wait())
    topic.loop.run_for(0.001)
    topic.producers.remove(owner)
    topic.settle()
    assert task.done()
    assert len(waiting) == 1
    topic.managed_ledger.fails = False
    topic.enter("after", AccessMode.Shared)
    assert set(topic.producers) == {"after"}


def test_fencing_removes_all_and_fails_those_who_wait(topic: GuardedTopic) -> None:
    shared = topic.enter("shared", AccessMode.Shared)
    topic.enter("waiting", AccessMode.WaitForExclusive)
    topic.enter("fencing", AccessMode.ExclusiveWithFencing)
    topic.settle()
    assert shared.fenced
    assert set(topic.producers) == {"fencing"}
    assert isinstance(topic.errors["waiting"], ProducerFenced)


def test_an_owner_comes_back_with_its_epoch_unless_another_was_there(topic: GuardedTopic) -> None:
    owner = topic.enter("owner", AccessMode.Exclusive)
    topic.producers.remove(owner)
    back = topic.enter("owner", AccessMode.Exclusive, owner.topic_epoch)
    assert back.topic_epoch == owner.topic_epoch
    topic.producers.remove(back)
    other = topic.enter("other", AccessMode.Exclusive)
    topic.producers.remove(other)
    topic.enter("owner", AccessMode.Exclusive, owner.topic_epoch)
    assert isinstance(topic.errors["owner"], ProducerFenced)
    assert topic.told == [(Hindrance.EXCLUSIVE_PRODUCER, str(topic.errors["owner"]))]
    assert not topic.producers


def test_a_fenced_owner_does_not_take_the_topic_back(topic: GuardedTopic) -> None:
    """Two leaders fenced each other for ever: each came back with an epoch that was behind."""
    first = topic.enter("first", AccessMode.ExclusiveWithFencing)
    second = topic.enter("second", AccessMode.ExclusiveWithFencing)
    assert first.fenced
    topic.enter("waiting", AccessMode.WaitForExclusive)
    topic.enter("first", AccessMode.ExclusiveWithFencing, first.topic_epoch)
    assert isinstance(topic.errors["first"], ProducerFenced)
    assert topic.producers == {"second": second}, "nobody is disturbed"
    assert topic.access.waiting == 1
    # It stays so when the owner has left, and its epoch counts when it comes back.
    topic.producers.remove(second)
    topic.settle()
    assert set(topic.producers) == {"waiting"}
    topic.enter("second", AccessMode.ExclusiveWithFencing, second.topic_epoch)
    assert isinstance(topic.errors["second"], ProducerFenced)
    third = topic.enter("third", AccessMode.ExclusiveWithFencing)
    assert (first.topic_epoch, second.topic_epoch, third.topic_epoch) == (0, 1, 3)


def test_an_owner_that_fences_comes_back_with_its_epoch(topic: GuardedTopic) -> None:
    owner = topic.enter("owner", AccessMode.ExclusiveWithFencing)
    topic.producers.remove(owner)
    shared = topic.enter("shared", AccessMode.Shared)
    back = topic.enter("owner", AccessMode.ExclusiveWithFencing, owner.topic_epoch)
    assert shared.fenced
    assert topic.producers == {"owner": back}
    assert back.topic_epoch == owner.topic_epoch


def test_who_waits_gets_its_turn_while_shared_producers_come_and_go(topic: GuardedTopic) -> None:
    one, two = topic.enter("1", AccessMode.Shared), topic.enter("2", AccessMode.Shared)
    topic.enter("waiting", AccessMode.WaitForExclusive)
    topic.producers.remove(one)
    topic.enter("1", AccessMode.Shared)
    assert isinstance(topic.errors["1"], ProducerBusy)
    topic.producers.remove(two)
    topic.settle()
    assert set(topic.producers) == {"waiting"}


def test_an_exclusive_producer_does_not_overtake_who_waits(topic: GuardedTopic) -> None:
    shared = topic.enter("shared", AccessMode.Shared)
    topic.enter("waiting", AccessMode.WaitForExclusive)
    topic.enter("exclusive", AccessMode.Exclusive)
    assert isinstance(topic.errors["exclusive"], ProducerFenced)
    topic.producers.remove(shared)
    topic.settle()
    assert set(topic.producers) == {"waiting"}


def test_a_shared_producer_that_takes_its_own_place_makes_room_for_who_waits(topic: GuardedTopic) -> None:
    shared = topic.enter("shared", AccessMode.Shared)
    topic.enter("waiting", AccessMode.WaitForExclusive)
    # As a topic does when the client has another connection: its former producer does not leave first.
    del topic.producers["shared"]
    topic.access.forget(shared)  # type: ignore[arg-type]
    topic.enter("shared", AccessMode.Shared)
    assert isinstance(topic.errors["shared"], ProducerBusy)
    topic.settle()
    assert set(topic.producers) == {"waiting"}


@pytest.mark.parametrize("mode", [mode for mode in AccessMode if mode is not AccessMode.Shared])
def test_an_owner_that_takes_its_own_place_stays_before_those_who_wait(
    topic: GuardedTopic, mode: AccessMode
) -> None:
    owner = topic.enter("owner", mode)
    topic.enter("waiting", AccessMode.WaitForExclusive)
    del topic.producers["owner"]
    topic.access.forget(owner)  # type: ignore[arg-type]
    back = topic.enter("owner", mode, owner.topic_epoch)
    topic.settle()
    assert topic.producers == {"owner": back}
    assert back.topic_epoch == owner.topic_epoch


def test_a_topic_that_closes_sends_away_who_waits(topic: GuardedTopic) -> None:
    topic.enter("owner", AccessMode.Exclusive)
    topic.enter("waiting", AccessMode.WaitForExclusive)
    topic.closing = True
    topic.access.disconnect_waiting()
    topic.settle()
    assert isinstance(topic.errors["waiting"], ServiceNotReady)
