"""One topic, all subscription types, and whatever clients and operators do, against a reference model.

Hypothesis draws the steps and shrinks what fails; everything runs in virtual time, so a failure repeats. Set
``MAGNETAR_MODEL_STEPS`` for more steps than the 10,000 of ``make test``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from magnetar.managed_ledger.records import words_from_bits
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandAck, CommandSubscribe, MessageIdData
from simulation import limits
from simulation.connection import Connection, command
from simulation.semantics_clients import Consumer, Producer, id_of, tiny_limits
from simulation.semantics_model import Position, Stored, SubscriptionState, Topic
from simulation.world import World

TOPIC = "persistent://public/default/t0"
KINDS = ("Exclusive", "Shared", "Failover", "Key_Shared")
KEYS = st.lists(st.sampled_from("abcde"), min_size=1, max_size=8)
BATCHES = st.sampled_from((1, 4))
IN_ORDER = ("Exclusive", "Failover")
QUIET_STEPS = 5
"""Between interruptions: else nobody ever holds anything."""
DELAYS = st.sampled_from((0.0, 0.001, 0.005))
INTERRUPTIONS = ("cut", "unload", "stop", "kill")
STEPS = int(os.environ.get("MAGNETAR_MODEL_STEPS", "10000"))
STEPS_EACH = 50
LONGEST_WAIT_MS = 3000
SETTLED = 0.1
"""Virtual seconds after which nothing is under way."""
LONGEST_TICK_MS = 1000
"""See ``tiny_limits``: a delayed entry is sent at most this long after it is due."""
FIRM = 1.0
"""Virtual seconds after which an acknowledgement is on the disk."""


class SemanticsMachine(RuleBasedStateMachine):
    """Each rule runs until nothing is under way, so that the model knows exactly what must be true."""

    def __init__(self) -> None:
        super().__init__()
        self._closing = ExitStack()
        self.topic = Topic()
        self.states = {kind: SubscriptionState(kind, self.topic) for kind in KINDS}
        self.consumers: dict[str, list[Consumer]] = {kind: [] for kind in KINDS}
        self._sent: dict[bytes, Stored] = {}
        self.producer = Producer(self.topic, self._sent)
        self.deduplicates = False
        self._names = 0
        self._quiet = 0
        """Steps since everybody was disconnected."""
        self._sound = False
        """Nothing has failed so far."""

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        tiny = tiny_limits(seed)
        self.deduplicates = tiny.settings.broker_deduplication_enabled
        self._closing.enter_context(limits.in_effect(tiny))
        self.world = World(Random(seed), tiny)
        self._closing.callback(self.world.close)
        self.topic.now = self.world.clock.wall_ms
        self._run(self._start)
        for kind in KINDS:
            # From now on everything is kept for it.
            self._subscribe(kind, 100)

    def _run(self, work: Callable[[], Any]) -> None:
        async def and_settle() -> None:
            await work()
            await self.world.sleep(SETTLED)

        self._sound = False
        self._quiet += 1
        self.world.drive(and_settle())
        if self.world.broker.service is not None:
            self.world.invariants.look(self.world.broker.service)
        self._sound = True
        for kind, consumers in self.consumers.items():
            self.consumers[kind] = [consumer for consumer in consumers if consumer.open]

    async def _start(self) -> None:
        assert await self.world.broker.start()

    async def _connect(self, name: str) -> Connection:
        world = self.world
        host = world.network.host(world.loop, f"client-{name}")
        return await Connection.open(name, host, world.trace, world.steps, world.address, 30.0)

    def _consumer(self, data: st.DataObject) -> Consumer:
        """One that is connected."""
        found = [consumer for kind in KINDS for consumer in self.consumers[kind]]
        return data.draw(st.sampled_from(found), label="consumer")

    def _holders(self, kinds: tuple[str, ...] = KINDS, *, batches: bool = False) -> list[Consumer]:
        """Consumers of some of the types that hold something, or a batch."""
        return [
            consumer
            for kind in kinds
            for consumer in self.consumers[kind]
            if any(size > 1 or not batches for size in consumer.inbox.values())
        ]

    def _holder(
        self, data: st.DataObject, kinds: tuple[str, ...] = KINDS, *, batches: bool = False
    ) -> Consumer:
        return data.draw(st.sampled_from(self._holders(kinds, batches=batches)), label="consumer")

    # Publishing

    async def _attach(self) -> None:
        """Sees to it that there is a producer; what it sent before and was not told of is sent again, where
        that stores nothing twice."""
        producer = self.producer
        while not producer.open:
            connection = producer.connection or await self._connect("producer")
            await producer.attach(connection, TOPIC)
            waiting, producer.waiting = producer.waiting, {}
            if self.deduplicates:
                for _first, stored in sorted(waiting.items()):
                    producer.send(stored)
            await self.world.sleep(SETTLED)

    async def _receipted(self) -> None:
        await self.world.sleep(SETTLED)
        assert not self.producer.waiting, f"never receipted: {self.producer.waiting}"

    @rule(keys=KEYS, batch=BATCHES)
    def publish(self, keys: list[str], batch: int) -> None:
        async def work() -> None:
            await self._attach()
            for key in keys:
                self.producer.publish(key, batch)
            await self._receipted()

        self._run(work)

    @rule(keys=KEYS, batch=BATCHES, after=st.sampled_from((50, 300, 1000, LONGEST_WAIT_MS)))
    def publish_for_later(self, keys: list[str], batch: int, after: int) -> None:
        """Entries that are to be delivered so many ms from now, and one behind them that is not."""

        async def work() -> None:
            await self._attach()
            for key in keys:
                self.producer.publish(key, batch, self.topic.now() + after)
            self.producer.publish(keys[0], batch)
            await self._receipted()

        self._run(work)

    @precondition(lambda self: self.deduplicates and self._sent)
    @rule(data=st.data())
    def publish_again(self, data: st.DataObject) -> None:
        """What was stored before is receipted again, and stored once."""
        some = data.draw(st.sets(st.sampled_from(sorted(self._sent)), min_size=1, max_size=5), label="again")

        async def work() -> None:
            await self._attach()
            for payload in sorted(some, key=int):
                self.producer.send(self._sent[payload])
            await self._receipted()

        self._run(work)

    @precondition(lambda self: self._quiet > QUIET_STEPS)
    @rule(keys=KEYS, batch=BATCHES, how=st.sampled_from(INTERRUPTIONS), delay=DELAYS)
    def publish_and_lose(self, keys: list[str], batch: int, how: str, delay: float) -> None:
        """Something happens while entries are on their way."""

        async def work() -> None:
            await self._attach()
            for key in keys:
                self.producer.publish(key, batch)
            await self.world.sleep(delay)
            if how == "cut":
                connection = self.producer.connection
                assert connection is not None
                connection.abort()
            else:
                await self._interrupt(how)
            await self.world.sleep(SETTLED)
            await self._attach()

        self._run(work)

    # Consumers come and go

    def _subscribe(self, kind: str, permits: int) -> None:
        async def work() -> None:
            self._names += 1
            name = f"c{self._names}"
            connection = await self._connect(name)
            consumer = Consumer(name, self.states[kind], connection, self._sent)
            self.states[kind].last.clear()
            await connection.ask(
                BaseCommand.SUBSCRIBE,
                topic=TOPIC,
                subscription=kind,
                subType=CommandSubscribe.SubType.Value(kind),
                consumer_id=consumer.number,
                consumer_name=name,
                initialPosition=CommandSubscribe.Earliest,
            )
            self.consumers[kind].append(consumer)
            self._grant(consumer, permits)

        self._run(work)

    @staticmethod
    def _grant(consumer: Consumer, permits: int) -> None:
        if permits:
            consumer.connection.send(
                command(BaseCommand.FLOW, consumer_id=consumer.number, messagePermits=permits)
            )

    @rule(kind=st.sampled_from(KINDS), permits=st.sampled_from((1, 5, 100)))
    def subscribe(self, kind: str, permits: int) -> None:
        if len(self.consumers[kind]) < (1 if kind == "Exclusive" else 3):
            self._subscribe(kind, permits)

    @precondition(lambda self: any(self.consumers.values()))
    @rule(data=st.data(), permits=st.integers(1, 20))
    def flow(self, data: st.DataObject, permits: int) -> None:
        consumer = self._consumer(data)
        self._run(lambda: self._granting(consumer, permits))

    async def _granting(self, consumer: Consumer, permits: int) -> None:
        self._grant(consumer, permits)

    def _leave(self, consumer: Consumer, *, cut: bool) -> None:
        async def work() -> None:
            others = any(each is not consumer for each in self.consumers[consumer.state.kind])
            consumer.state.left(consumer.name, others=others)
            consumer.open = False
            if cut:
                consumer.connection.abort()
            else:
                await consumer.connection.ask(BaseCommand.CLOSE_CONSUMER, consumer_id=consumer.number)
                consumer.connection.close()

        self._run(work)

    @precondition(lambda self: any(self.consumers.values()))
    @rule(data=st.data(), cut=st.booleans())
    def leave(self, data: st.DataObject, cut: bool) -> None:
        consumer = self._consumer(data)
        self._leave(consumer, cut=cut)

    # Acknowledging

    async def _send_ack(self, consumer: Consumer, kind: int, ids: list[MessageIdData]) -> None:
        await consumer.connection.ask(
            BaseCommand.ACK, consumer_id=consumer.number, ack_type=kind, message_id=ids
        )

    @precondition(lambda self: self._holders())
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        consumer = self._holder(data)
        some = data.draw(st.sets(st.sampled_from(sorted(consumer.inbox)), min_size=1), label="acknowledged")
        self._run(lambda: self._acknowledging(consumer, some))

    async def _acknowledging(self, consumer: Consumer, some: set[Position]) -> None:
        now = self.world.loop.time()
        for position in some:
            del consumer.inbox[position]
            consumer.state.acknowledge(position, now)
        await self._send_ack(consumer, CommandAck.Individual, [id_of(each) for each in sorted(some)])

    @precondition(lambda self: self._holders(IN_ORDER))
    @rule(data=st.data(), part=st.booleans())
    def acknowledge_cumulatively(self, data: st.DataObject, part: bool) -> None:
        consumer = self._holder(data, IN_ORDER)
        last = data.draw(st.sampled_from(sorted(consumer.inbox)), label="up to")
        named = id_of(last)
        remaining = 0
        if part and consumer.inbox[last] > 1:
            named.batch_size = consumer.inbox[last]
            first_left = data.draw(st.integers(1, named.batch_size - 1), label="messages of the batch")
            remaining = (1 << named.batch_size) - (1 << first_left)
            named.ack_set.extend(words_from_bits(remaining))

        async def work() -> None:
            now = self.world.loop.time()
            if remaining:
                consumer.state.acknowledge_up_to((last[0], last[1] - 1), now)
                consumer.state.acknowledge_part(last, remaining, now)
            else:
                consumer.state.acknowledge_up_to(last, now)
            for position in [p for p in consumer.inbox if p in consumer.state.acked]:
                del consumer.inbox[position]
            await self._send_ack(consumer, CommandAck.Cumulative, [named])

        self._run(work)

    @precondition(lambda self: self._holders(batches=True))
    @rule(data=st.data())
    def acknowledge_part(self, data: st.DataObject) -> None:
        consumer = self._holder(data, batches=True)
        batches = sorted(p for p, size in consumer.inbox.items() if size > 1)
        position = data.draw(st.sampled_from(batches), label="batch")
        size = consumer.inbox[position]
        remaining = data.draw(st.integers(1, (1 << size) - 1), label="remaining")

        async def work() -> None:
            consumer.state.acknowledge_part(position, remaining, self.world.loop.time())
            if position in consumer.state.acked:
                del consumer.inbox[position]
            part = id_of(position)
            part.batch_size = size
            part.ack_set.extend(words_from_bits(remaining))
            await self._send_ack(consumer, CommandAck.Individual, [part])

        self._run(work)

    @precondition(lambda self: self._holders())
    @rule(data=st.data(), everything=st.booleans())
    def redeliver(self, data: st.DataObject, everything: bool) -> None:
        consumer = self._holder(data)
        some = None
        if not everything:
            some = data.draw(st.sets(st.sampled_from(sorted(consumer.inbox)), min_size=1), label="again")
        self._redeliver(consumer, some)

    def _redeliver(self, consumer: Consumer, some: set[Position] | None) -> None:
        async def work() -> None:
            await self._while_entries_become_due()
            # Who is not served any more asks for nothing: another one has it already.
            if consumer.state.kind != "Failover" or consumer.active:
                consumer.state.redelivered(consumer.name, some)
            again = some if some is not None and consumer.state.shared else list(consumer.inbox)
            for position in again:
                del consumer.inbox[position]
            ids = [id_of(each) for each in sorted(some or ())]
            consumer.connection.send(
                command(
                    BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES,
                    consumer_id=consumer.number,
                    message_ids=ids,
                )
            )
            await consumer.connection.ping()

        self._run(work)

    async def _while_entries_become_due(self) -> None:
        """Waits until the broker sends no delayed entry while a request is on its way.

        The broker may send a due entry just before it handles a request for redelivery. Then the entry
        arrives before earlier entries of its key, although the model knows that these are to come again.
        """
        settled, stored = int(1000 * SETTLED), self.topic.entries.values()
        while any(-settled <= self.topic.now() - each.due <= LONGEST_TICK_MS + settled for each in stored):
            await self.world.sleep(SETTLED)

    # Operators

    def _seek(self, consumer: Consumer, time: int, **target: Any) -> None:
        async def work() -> None:
            await consumer.connection.ask(BaseCommand.SEEK, consumer_id=consumer.number, **target)
            # The broker has closed all consumers. What it sent them before, such as an entry that became due
            # while the request was on its way, still arrives, and belongs to the time before the seek.
            await self.world.sleep(SETTLED)
            for each in self.consumers[consumer.state.kind]:
                assert not each.open
                each.inbox.clear()
            consumer.state.sought(time)

        self._run(work)

    @precondition(lambda self: self.topic.entries and any(self.consumers.values()))
    @rule(data=st.data())
    def seek(self, data: st.DataObject) -> None:
        consumer = self._consumer(data)
        target = data.draw(st.sampled_from(sorted(self.topic.entries)), label="to")
        self._seek(consumer, self.topic.entries[target].time, message_id=id_of(target))

    @precondition(lambda self: self.producer.sequence and any(self.consumers.values()))
    @rule(data=st.data())
    def seek_by_time(self, data: st.DataObject) -> None:
        consumer = self._consumer(data)
        time = data.draw(st.integers(1, self.producer.sequence + 1), label="to the time")
        self._seek(consumer, time, message_publish_time=time)

    async def _interrupt(self, how: str) -> None:
        """Everybody is disconnected: the topic moves, or the broker ends, and starts again."""
        self._quiet = 0
        broker = self.world.broker
        if how == "unload":
            await broker.unload(TOPIC)
        elif how == "stop":
            assert await broker.stop()
        else:
            broker.kill()
        since = self.world.loop.time() - FIRM
        # What is on the wire still arrives, and belongs to the life that has ended.
        await self.world.sleep(SETTLED)
        for state in self.states.values():
            if how == "kill":
                state.killed(since)
            else:
                state.restarted()
        await self.world.sleep(SETTLED)
        if how != "unload":
            await self._start()

    @precondition(lambda self: self._quiet > QUIET_STEPS)
    @rule(how=st.sampled_from(("unload", "stop", "kill")), firm=st.booleans(), come_back=st.booleans())
    def interrupt(self, how: str, firm: bool, come_back: bool) -> None:
        """:param firm: some time after anything was acknowledged; else just after something was"""

        async def work() -> None:
            if firm:
                await self.world.sleep(FIRM)
            else:
                for consumer in self._holders():
                    await self._acknowledging(consumer, set(sorted(consumer.inbox)[::2]))
            await self._interrupt(how)

        self._run(work)
        for kind in KINDS if come_back else ():
            self._subscribe(kind, 100)

    # The end

    def teardown(self) -> None:
        try:
            if self._sound:
                self._consume_everything()
                self.world.check()
        finally:
            self._closing.close()

    def _consume_everything(self) -> None:
        self._run(lambda: self.world.sleep(LONGEST_WAIT_MS / 1000))
        for kind in KINDS:
            if not self.consumers[kind]:
                self._subscribe(kind, 0)
            for consumer in self.consumers[kind]:
                self._run(lambda consumer=consumer: self._granting(consumer, 100_000))
            for _ in range(len(self.topic.entries) + 10):
                holding = [consumer for consumer in self.consumers[kind] if consumer.inbox]
                if not holding:
                    # What became due may have to be read from disk first.
                    self._run(lambda: self.world.sleep(1.0))
                    holding = [consumer for consumer in self.consumers[kind] if consumer.inbox]
                if not holding:
                    break
                for consumer in holding:
                    self._run(lambda consumer=consumer: self._acknowledging(consumer, set(consumer.inbox)))
            owed = self.states[kind].owed()
            assert not owed, f"{kind}: never delivered: {sorted(owed)[:5]} and {len(owed)} in all"
        begins = min(state.begins for state in self.states.values())
        receipted = self.producer.receipted.values()
        lost = [each for each in receipted if each.time >= begins and not self.topic.is_placed(each)]
        assert not lost, f"receipted and nowhere: {lost[:5]}"


GROUPS = 4
"""Of as many steps each, so that they run side by side."""

SemanticsMachine.TestCase.settings = settings(
    max_examples=max(1, STEPS // STEPS_EACH // GROUPS),
    stateful_step_count=STEPS_EACH,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("group", range(GROUPS))
def test_semantics(group: int) -> None:
    run_state_machine_as_test(SemanticsMachine, settings=SemanticsMachine.TestCase.settings)


def test_an_entry_that_becomes_due_while_a_seek_is_on_its_way_belongs_to_the_time_before() -> None:
    machine = SemanticsMachine()
    machine.start(seed=31666300)
    try:
        (consumer,) = machine.consumers["Key_Shared"]
        machine.publish(["d"], batch=1)
        machine.publish_for_later(["d"], batch=1, after=300)
        world, state = machine.world, consumer.state
        assert world.broker.service is not None
        subscription = world.broker.service.topics.loaded[TOPIC].subscriptions["Key_Shared"]
        before = state.deliveries
        while subscription.dispatcher.unacked == before:
            world.drive(world.sleep(0.0001))
        assert state.deliveries == before, "the entry is not on its way: it has arrived"
        machine._seek(consumer, 1, message_publish_time=1)
        assert state.deliveries == before + 1
        assert not state.holders
        machine._subscribe("Key_Shared", 100)
        assert state.deliveries == before + 1 + len(machine.topic.entries)
    finally:
        machine.teardown()


def test_no_entry_becomes_due_while_a_request_for_redelivery_is_on_its_way() -> None:
    machine = SemanticsMachine()
    machine.start(seed=4666)
    try:
        (consumer,) = machine.consumers["Key_Shared"]
        state = consumer.state
        machine.publish(["e"], batch=1)
        machine.publish_for_later(["e"], batch=1, after=300)
        first, later, last = sorted(machine.topic.entries)
        assert set(consumer.inbox) == {first, last}
        # The entry would become due before the request reaches the broker.
        due_in = machine.topic.entries[later].due - machine.topic.now()
        machine.world.drive(machine.world.sleep((due_in - 1) / 1000))
        assert set(consumer.inbox) == {first, last}
        machine._redeliver(consumer, None)
        assert state.counts == {first: 1, later: 1, last: 1}
    finally:
        machine.teardown()
