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

from magnetar.config.settings import default_settings
from magnetar.ledger.embedded.settings import EmbeddedSettings
from magnetar.managed_ledger.records import bits_from_words, words_from_bits
from magnetar.managed_ledger.settings import EntryCacheSettings, ManagedLedgerSettings
from magnetar.protocol.metadata import build_entry, parse_entry
from magnetar.protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandAck,
    CommandSubscribe,
    MessageIdData,
    MessageMetadata,
)
from simulation import limits
from simulation.connection import Connection, command
from simulation.semantics_model import Position, Stored, SubscriptionState
from simulation.world import World

TOPIC = "persistent://public/default/t0"
KINDS = ("Exclusive", "Shared", "Failover", "Key_Shared")
STEPS = int(os.environ.get("MAGNETAR_MODEL_STEPS", "10000"))
STEPS_EACH = 50
SETTLED = 0.1
"""Virtual seconds after which nothing is under way."""
FIRM = 1.0
"""Virtual seconds after which an acknowledgement is on the disk."""


class Consumer:
    """Takes what it has permits for, and acknowledges what it is told to."""

    def __init__(
        self, name: str, state: SubscriptionState, connection: Connection, sent: dict[bytes, Stored]
    ) -> None:
        self.name = name
        self._sent = sent
        self.state = state
        self.connection = connection
        self.number = connection.next_id()
        connection.consumers[self.number] = self
        self.inbox: dict[Position, int] = {}
        """What it holds: how many messages were delivered of each."""
        self.open = True

    def received(self, kind: int, message: Any, entry: bytes) -> None:
        if kind == BaseCommand.CLOSE_CONSUMER:
            self.open = False
            return
        if kind == BaseCommand.ACTIVE_CONSUMER_CHANGE:
            if message.is_active:
                self.state.last.pop(self.name, None)
            return
        position = (message.message_id.ledgerId, message.message_id.entryId)
        remaining = bits_from_words(message.ack_set) if message.ack_set else None
        payload = parse_entry(entry).payload
        # It may come before its producer's receipt.
        self.state.stored.setdefault(position, self._sent[payload])
        self.state.delivered(self.name, position, payload, remaining, message.redelivery_count)
        self.inbox[position] = self.state.stored[position].messages

    def disconnected(self) -> None:
        self.open = False


def tiny_limits(seed: int) -> limits.Limits:
    """Ledgers of a few entries, a cache that holds little; nothing is trimmed."""
    random = Random(seed)
    return limits.Limits(
        default_settings(
            broker_service_port=limits.BROKER_PORT,
            acknowledgment_at_batch_index_level_enabled=True,
            active_consumer_failover_delay_time_millis=random.choice((0, 20)),
            dispatcher_max_round_robin_batch_size=random.choice((1, 3, 20)),
            subscription_key_shared_use_consistent_hashing=random.random() < 0.7,
            key_shared_look_ahead_msg_in_replay_threshold_per_consumer=random.choice((1, 5, 2000)),
            keep_alive_interval_seconds=600,
        ),
        EmbeddedSettings(segment_bytes=256 << 10, first_segment_bytes=64 << 10, reserve_bytes=0),
        ManagedLedgerSettings(
            max_entries_per_ledger=random.choice((7, 1000)), min_rollover_ms=0, retention=limits.FOREVER
        ),
        EntryCacheSettings(max_bytes=random.choice((0, 4 << 10, 1 << 20))),
        disk_seconds=0.001,
    )


class SemanticsMachine(RuleBasedStateMachine):
    """Each rule runs until nothing is under way, so that the model knows exactly what must be true."""

    def __init__(self) -> None:
        super().__init__()
        self._closing = ExitStack()
        self.stored: dict[Position, Stored] = {}
        self.states = {kind: SubscriptionState(kind, self.stored) for kind in KINDS}
        self.consumers: dict[str, list[Consumer]] = {kind: [] for kind in KINDS}
        self._producer: Connection | None = None
        self._sent: dict[bytes, Stored] = {}
        self._sequence = 0
        self._names = 0
        self._sound = False
        """Nothing has failed so far."""

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        tiny = tiny_limits(seed)
        self._closing.enter_context(limits.in_effect(tiny))
        self.world = World(Random(seed), tiny)
        self._closing.callback(self.world.close)
        self._run(self._start)
        for kind in KINDS:
            # From now on everything is kept for it.
            self._subscribe(kind, 0)
            self._leave(self.consumers[kind][0], cut=False)

    def _run(self, work: Callable[[], Any]) -> None:
        async def and_settle() -> None:
            await work()
            await self.world.sleep(SETTLED)

        self._sound = False
        self.world.drive(and_settle())
        self._sound = True
        for kind, consumers in self.consumers.items():
            self.consumers[kind] = [consumer for consumer in consumers if consumer.open]

    async def _start(self) -> None:
        assert await self.world.broker.start()

    async def _connect(self, name: str) -> Connection:
        world = self.world
        host = world.network.host(world.loop, f"client-{name}")
        return await Connection.open(name, host, world.trace, world.steps, world.address, 30.0)

    def _consumer(self, data: st.DataObject, kinds: tuple[str, ...] = KINDS) -> Consumer | None:
        """One that is connected, of some of the types."""
        found = [consumer for kind in kinds for consumer in self.consumers[kind]]
        return data.draw(st.sampled_from(found), label="consumer") if found else None

    # Publishing

    @rule(keys=st.lists(st.sampled_from("abcde"), min_size=1, max_size=8), batch=st.sampled_from((1, 1, 4)))
    def publish(self, keys: list[str], batch: int) -> None:
        async def work() -> None:
            if self._producer is None or self._producer.closed:
                self._producer = await self._connect("producer")
                await self._producer.ask(BaseCommand.PRODUCER, topic=TOPIC, producer_id=1)
            receipts = Receipts(self.stored)
            self._producer.producers[1] = receipts
            entries = []
            for key in keys:
                self._sequence += 1
                metadata = MessageMetadata(
                    producer_name="p", sequence_id=self._sequence, publish_time=1, partition_key=key
                )
                fields = {}
                if batch > 1:
                    metadata.num_messages_in_batch = fields["num_messages"] = batch
                entries.append(Stored(key, b"%d" % self._sequence, batch))
                self._sent[entries[-1].payload] = entries[-1]
                self._producer.send(
                    command(BaseCommand.SEND, producer_id=1, sequence_id=self._sequence, **fields),
                    build_entry(metadata, entries[-1].payload),
                )
                receipts.wanted[self._sequence] = entries[-1]
            await self.world.sleep(SETTLED)
            assert not receipts.wanted, f"never receipted: {receipts.wanted}"

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
        if consumer is not None:
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
        if consumer is not None:
            self._leave(consumer, cut=cut)

    # Acknowledging

    async def _send_ack(self, consumer: Consumer, kind: int, ids: list[MessageIdData]) -> None:
        await consumer.connection.ask(
            BaseCommand.ACK, consumer_id=consumer.number, ack_type=kind, message_id=ids
        )

    @precondition(lambda self: any(self.consumers.values()))
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        consumer = self._consumer(data)
        if consumer is None or not consumer.inbox:
            return
        some = data.draw(st.sets(st.sampled_from(sorted(consumer.inbox)), min_size=1), label="acknowledged")

        async def work() -> None:
            now = self.world.loop.time()
            for position in some:
                del consumer.inbox[position]
                consumer.state.acknowledge(position, now)
            await self._send_ack(consumer, CommandAck.Individual, [id_of(each) for each in sorted(some)])

        self._run(work)

    @precondition(lambda self: any(self.consumers.values()))
    @rule(data=st.data())
    def acknowledge_cumulatively(self, data: st.DataObject) -> None:
        consumer = self._consumer(data, ("Exclusive", "Failover"))
        if consumer is None or not consumer.inbox:
            return
        last = data.draw(st.sampled_from(sorted(consumer.inbox)), label="up to")

        async def work() -> None:
            consumer.state.acknowledge_up_to(last, self.world.loop.time())
            for position in [p for p in consumer.inbox if p <= last]:
                del consumer.inbox[position]
            await self._send_ack(consumer, CommandAck.Cumulative, [id_of(last)])

        self._run(work)

    @precondition(lambda self: any(self.consumers.values()))
    @rule(data=st.data())
    def acknowledge_part(self, data: st.DataObject) -> None:
        consumer = self._consumer(data)
        batches = sorted(p for p, size in consumer.inbox.items() if size > 1) if consumer is not None else []
        if consumer is None or not batches:
            return
        position = data.draw(st.sampled_from(batches), label="batch")
        size = consumer.inbox[position]
        remaining = data.draw(st.integers(1, (1 << size) - 1), label="remaining")

        async def work() -> None:
            assert consumer is not None
            consumer.state.acknowledge_part(position, remaining, self.world.loop.time())
            if position in consumer.state.acked:
                del consumer.inbox[position]
            part = id_of(position)
            part.batch_size = size
            part.ack_set.extend(words_from_bits(remaining))
            await self._send_ack(consumer, CommandAck.Individual, [part])

        self._run(work)

    @precondition(lambda self: any(self.consumers.values()))
    @rule(data=st.data(), everything=st.booleans())
    def redeliver(self, data: st.DataObject, everything: bool) -> None:
        consumer = self._consumer(data, ("Exclusive", "Shared", "Key_Shared"))
        if consumer is None or not consumer.inbox:
            return
        some = None
        if not everything and consumer.state.shared:
            some = data.draw(st.sets(st.sampled_from(sorted(consumer.inbox)), min_size=1), label="again")

        async def work() -> None:
            consumer.state.redelivered(consumer.name, some)
            for position in list(consumer.inbox) if some is None else some:
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

    # Operators

    @precondition(lambda self: self.stored and any(self.consumers.values()))
    @rule(data=st.data())
    def seek(self, data: st.DataObject) -> None:
        consumer = self._consumer(data)
        if consumer is None:
            return
        target = data.draw(st.sampled_from(sorted(self.stored)), label="to")

        async def work() -> None:
            for each in self.consumers[consumer.state.kind]:
                each.inbox.clear()
            consumer.state.sought(target)
            await consumer.connection.ask(
                BaseCommand.SEEK, consumer_id=consumer.number, message_id=id_of(target)
            )

        self._run(work)

    @rule()
    def wait(self) -> None:
        self._run(lambda: self.world.sleep(FIRM))

    @rule(kill=st.booleans())
    def restart(self, kill: bool) -> None:
        async def work() -> None:
            since = self.world.loop.time() - FIRM
            for state in self.states.values():
                if kill:
                    state.killed(since)
                else:
                    state.restarted()
            if kill:
                self.world.broker.kill()
                await self.world.sleep(SETTLED)
            else:
                assert await self.world.broker.stop()
            await self._start()

        self._run(work)

    # The end

    def teardown(self) -> None:
        try:
            if self._sound:
                self._consume_everything()
                self.world.check()
        finally:
            self._closing.close()

    def _consume_everything(self) -> None:
        for kind in KINDS:
            if not self.consumers[kind]:
                self._subscribe(kind, 0)
            for consumer in self.consumers[kind]:
                self._run(lambda consumer=consumer: self._granting(consumer, 100_000))
            for _ in range(len(self.stored) + 10):
                holding = [consumer for consumer in self.consumers[kind] if consumer.inbox]
                if not holding:
                    break
                for consumer in holding:
                    self._run(lambda consumer=consumer: self._acknowledge_all(consumer))
            owed = self.states[kind].owed()
            assert not owed, f"{kind}: never delivered: {sorted(owed)[:5]} and {len(owed)} in all"

    async def _acknowledge_all(self, consumer: Consumer) -> None:
        now = self.world.loop.time()
        ids = [id_of(position) for position in sorted(consumer.inbox)]
        for position in consumer.inbox:
            consumer.state.acknowledge(position, now)
        consumer.inbox.clear()
        await self._send_ack(consumer, CommandAck.Individual, ids)


class Receipts:
    """A producer's side of its connection."""

    def __init__(self, stored: dict[Position, Stored]) -> None:
        self.wanted: dict[int, Stored] = {}
        self.stored = stored

    def received(self, kind: int, message: Any, _entry: bytes) -> None:
        if kind == BaseCommand.CLOSE_PRODUCER:
            # The broker stops.
            return
        assert kind == BaseCommand.SEND_RECEIPT, message
        where = (message.message_id.ledgerId, message.message_id.entryId)
        wanted = self.wanted.pop(message.sequence_id)
        assert self.stored.setdefault(where, wanted) is wanted

    def disconnected(self) -> None:
        """The next publish connects again."""


def id_of(position: Position) -> MessageIdData:
    return MessageIdData(ledgerId=position[0], entryId=position[1])


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
