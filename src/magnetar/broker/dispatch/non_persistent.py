"""Dispatching of non-persistent messages, to consumers that have permits and room in their connections."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from magnetar.broker.consumers.consumer import AnyConsumer, NonPersistentRun, RangedConsumer
from magnetar.broker.dispatch.contract import DispatchSettings, DispatchTopic
from magnetar.broker.dispatch.key_shared.consumer import AnyKeyed, KeyDivision, keyed
from magnetar.broker.dispatch.single import in_order, pick_active
from magnetar.broker.dispatch.waiting import (
    AT_END,
    KEY_UNASSIGNED,
    NO_CONSUMER,
    Reason,
    Waiting,
    lack_of,
    lack_of_all,
)
from magnetar.protocol.hot_codec import KeyRouting, group_by_holder, key_slots

C = TypeVar("C", bound=AnyConsumer)


class NonPersistentDispatcher(ABC, Generic[C]):
    """The common part of non-persistent dispatchers; entries that no consumer accepts are dropped."""

    def __init__(self, topic: DispatchTopic) -> None:
        self._topic = topic
        self._settings = topic.dispatch_settings
        self.consumers: list[C] = []
        self.waits = Waiting(topic.clock)
        """The reason why messages of the last run were dropped, if messages were dropped."""

    @property
    def active(self) -> AnyConsumer | None:
        return None

    @abstractmethod
    def add(self, consumer: AnyConsumer) -> None: ...

    def remove(self, consumer: AnyConsumer) -> None:
        self.consumers[:] = [each for each in self.consumers if each is not consumer]

    def flow(self, _consumer: AnyConsumer) -> None:
        """Does nothing when a consumer has more permits, because no messages wait."""

    def use(self, settings: DispatchSettings) -> None:
        """Applies changed settings."""
        self._settings = settings

    def close(self) -> None:
        """Stops dispatching."""
        self.consumers = []

    def why_not(self) -> Reason:
        """Returns the reason why messages of the last run were dropped; AT_END: no message was dropped."""
        if not self.consumers:
            return NO_CONSUMER
        found = self.waits.reason
        return AT_END if found is NO_CONSUMER else found

    def deliver(self, run: NonPersistentRun) -> int:
        """Sends each entry to a consumer; returns how many messages were dropped."""
        dropped = self._deliver(run)
        if not dropped:
            self.waits.because(AT_END)
        return dropped

    @abstractmethod
    def _deliver(self, run: NonPersistentRun) -> int:
        """Sends each entry to a consumer; returns how many messages were dropped, and sets the reason."""

    def _deliver_part(self, consumer: AnyConsumer, part: NonPersistentRun) -> int:
        """Sends as many of the entries to a consumer as it accepts; returns how many messages were
        dropped."""
        stop = takes(consumer, part, 0, part.count)
        messages = part.messages_in(0, stop)
        if stop:
            consumer.send_non_persistent(part, 0, stop, messages)
        if stop < part.count:
            self.waits.because(lack_of(consumer))
        return part.messages - messages


def takes(consumer: AnyConsumer, run: NonPersistentRun, first: int, end: int) -> int:
    """Returns the index after the last of the entries [first, end) for which a consumer has permits and room.

    The last entry may exceed permits or room.
    """
    if consumer.permits <= 0:
        return first
    if consumer.permits < run.messages_in(first, end):
        end = first + consumer.entries_within_permits(run.sizes[first:end], end - first)
    outgoing = consumer.connection.outgoing
    room = outgoing.room
    if run.bytes_in(first, end) <= room:
        return end
    room = outgoing.make_room()
    starts, ends = run.starts, run.ends
    for index in range(first, end):
        if room <= 0:
            return index
        room -= ends[index] - starts[index]
    return end


class NonPersistentExclusive(NonPersistentDispatcher[AnyConsumer]):
    """Sends all entries to the one consumer."""

    def add(self, consumer: AnyConsumer) -> None:
        self.consumers.append(consumer)

    @property
    def active(self) -> AnyConsumer | None:
        return self.consumers[0] if self.consumers else None

    def _deliver(self, run: NonPersistentRun) -> int:
        consumer = self.active
        if consumer is None:
            self.waits.because(NO_CONSUMER)
            return run.messages
        if isinstance(consumer, RangedConsumer):
            # Keys that the consumer did not ask for do not count as dropped.
            run = run.only(consumer.wanted(run, 0, run.count))
        return self._deliver_part(consumer, run)


class NonPersistentFailover(NonPersistentExclusive):
    """Sends all entries to the active consumer. A new active consumer is served at once, because no
    acknowledgements of the former active consumer have to be awaited.
    """

    def __init__(self, topic: DispatchTopic) -> None:
        super().__init__(topic)
        self._picked: AnyConsumer | None = None

    @property
    def active(self) -> AnyConsumer | None:
        return self._picked

    def add(self, consumer: AnyConsumer) -> None:
        self.consumers = in_order([*self.consumers, consumer])
        if not self._pick():
            consumer.connection.send_active_consumer_change(consumer, False)

    def remove(self, consumer: AnyConsumer) -> None:
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            self._pick()

    def _pick(self) -> bool:
        """Chooses the active consumer; if it has changed, notifies all consumers and returns True."""
        picked = None
        if self.consumers:
            picked = pick_active(
                self.consumers,
                self._topic.full_name,
                max(0, self._topic.name.partition_index),
                consistent_hashing=self._settings.failover_consistent_hashing,
            )
        if picked is self._picked:
            return False
        self._picked = picked
        for consumer in self.consumers:
            consumer.connection.send_active_consumer_change(consumer, consumer is picked)
        return True


class NonPersistentShared(NonPersistentDispatcher[AnyConsumer]):
    """Divides entries evenly among the consumers of the highest priority that accept entries."""

    def __init__(self, topic: DispatchTopic) -> None:
        super().__init__(topic)
        self._next = 0

    def add(self, consumer: AnyConsumer) -> None:
        self.consumers.append(consumer)
        self.consumers.sort(key=lambda c: c.priority)

    def _deliver(self, run: NonPersistentRun) -> int:
        done = 0
        while done < run.count:
            takers = self._takers()
            if not takers:
                self.waits.because(lack_of_all(self.consumers) if self.consumers else NO_CONSUMER)
                return run.messages_in(done, run.count)
            done = self._share(run, done, takers)
        return 0

    def _takers(self) -> Sequence[AnyConsumer]:
        """Returns the consumers of the highest priority that accept entries."""
        best: list[AnyConsumer] = []
        for consumer in self.consumers:
            if best and consumer.priority != best[0].priority:
                break
            if consumer.permits > 0 and (
                consumer.connection.outgoing.room > 0 or consumer.connection.outgoing.make_room() > 0
            ):
                best.append(consumer)
        return best

    def _share(self, run: NonPersistentRun, first: int, takers: Sequence[AnyConsumer]) -> int:
        """Sends each consumer its part of the entries from ``first`` on; returns the index after the last
        entry sent."""
        count = len(takers)
        each, more = divmod(run.count - first, count)
        begin = self._next % count
        self._next = (begin + more) % count
        for step in range(count):
            part = each + (step < more)
            if not part:
                break
            consumer = takers[(begin + step) % count]
            stop = takes(consumer, run, first, first + part)
            if stop > first:
                consumer.send_non_persistent(run, first, stop, run.messages_in(first, stop))
            first = stop
        return first


class NonPersistentKeyShared(NonPersistentDispatcher[AnyKeyed]):
    """Sends each entry to the consumer that has the slot of its key."""

    def __init__(self, topic: DispatchTopic) -> None:
        super().__init__(topic)
        self.division = KeyDivision()
        self._routing = KeyRouting()

    def add(self, consumer: AnyConsumer) -> None:
        """Adds a consumer to the subscription.

        :raises ConsumerBusy: the consumer's Key_Shared mode or out-of-order setting differs from the setting
            of the other consumers
        :raises ConsumerAssignFailure: the requested ranges belong to another consumer, or no slots are left
        """
        consumer = keyed(consumer)
        self.division.join(consumer, self.consumers, self._settings.key_shared_points)
        self.consumers.append(consumer)
        self.division.divide(self.consumers)

    def remove(self, consumer: AnyConsumer) -> None:
        if consumer in self.consumers:
            consumer = keyed(consumer)
            self.consumers.remove(consumer)
            self.division.leave(consumer)
            self.division.divide(self.consumers)

    def _deliver(self, run: NonPersistentRun) -> int:
        if not self.consumers:
            self.waits.because(NO_CONSUMER)
            return run.messages
        division, count = self.division, run.count
        routing = self._routing
        if routing.capacity < count:
            routing = self._routing = KeyRouting(count)
        routing.sizes[:count] = run.sizes[:count]
        key_slots(run.buffer, run.starts, run.ends, 0, count, division.modulo, routing.slots)
        bounds = division.bounds
        group_by_holder(routing, count, 0, 0, division.ends, division.holders, bounds)
        dropped = sum(routing.sorted_sizes[bounds[0] : bounds[1]])
        if dropped:
            self.waits.because(KEY_UNASSIGNED)
        for number, consumer in enumerate(self.consumers):
            start, stop = bounds[number + 1], bounds[number + 2]
            if start < stop:
                dropped += self._deliver_part(consumer, run.only(routing.order[start:stop]))
        return dropped
