"""Scripted consumers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from magnetar.managed_ledger.records import bits_from_words, words_from_bits
from magnetar.protocol.metadata import parse_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandAck, CommandSubscribe, MessageIdData
from simulation.client import Client
from simulation.connection import Connection, Gone, Refused, command
from simulation.model import Ack, Position, SubscriptionModel, TopicModel
from simulation.trace import Violation

if TYPE_CHECKING:
    from simulation.world import World

_EARLIEST = 2**64 - 1
_LONGEST_WAY = 10.0
"""Virtual seconds that a request may be under way after its connection has gone."""


@dataclass
class ConsumerPlan:
    name: str
    subscription: str
    shared: bool
    queue: int
    """Permits granted at a time."""
    cumulative: bool
    receipts: float
    """Share of acknowledgements that ask for an answer."""
    pause: float
    """The longest time it thinks about what it got."""
    mischief: float
    batch_acks: bool
    """Whether the broker takes acknowledgements of parts of a batch."""
    patience: float
    """How long it waits for something before it looks whether the broker is there, or leaves."""
    alternates: bool
    """Whether it comes back with any type of subscription."""


@dataclass
class Delivery:
    position: Position
    messages: int
    remaining: int | None


class Consumer:
    """Takes what comes, checks it, acknowledges it in its own way, and misbehaves at times."""

    def __init__(self, client: Client, topic: TopicModel, plan: ConsumerPlan, random: Random) -> None:
        self._client = client
        self._world: World = client.world
        self._topic = topic
        self._plan = plan
        self._random = random
        self._connection: Connection | None = None
        self._id = 0
        self._shared = plan.shared
        self._open = False
        self._closed = False
        """It was closed since it was last opened, perhaps before the answer to that was looked at."""
        self._granted = 0
        self._got = 0
        self._last: Position = (-1, -1)
        self._rewinds = 0
        """Times that what comes may begin again further back."""
        self._inbox: list[Delivery] = []
        self._unconfirmed: list[Ack] = []
        self._wake: Any = None
        self.stopping = False

    def __str__(self) -> str:
        state = "open" if self._open else "closed"
        permits = self._granted - self._got
        return f"consumer {self._plan.name}: {state}, {permits} permits, {len(self._inbox)} unread"

    @property
    def _subscription(self) -> SubscriptionModel:
        known = self._topic.subscriptions
        if self._plan.subscription not in known:
            known[self._plan.subscription] = SubscriptionModel(self._topic, self._plan.subscription)
        return known[self._plan.subscription]

    @property
    def idle(self) -> bool:
        return self._open and not self._inbox and not self._unconfirmed

    async def run(self) -> None:
        while not self.stopping:
            try:
                connection = await self._client.connection()
                await self._attach(connection)
                await self._work(connection)
            except (Gone, Refused) as error:
                self._world.trace.note(self._plan.name, "not open:", error)
                await self._leave()
                await self._world.sleep(self._random.random())

    async def _attach(self, connection: Connection) -> None:
        self._connection = connection
        self._id = connection.next_id()
        connection.consumers[self._id] = self
        self._granted = self._got = 0
        self._last = (-1, -1)
        self._rewinds = 0
        self._closed = False
        self._shared = self._plan.shared
        if self._plan.alternates:
            self._shared = self._random.random() < 0.5
        self._inbox.clear()
        self._unconfirmed.clear()
        await connection.ask(
            BaseCommand.SUBSCRIBE,
            topic=self._topic.name,
            subscription=self._plan.subscription,
            subType=CommandSubscribe.Shared if self._shared else CommandSubscribe.Exclusive,
            consumer_id=self._id,
            consumer_name=self._plan.name,
            initialPosition=CommandSubscribe.Earliest,
        )
        if connection.closed or self._closed:
            raise Gone("closed again")
        self._open = True
        self._subscription.exists(self._world.steps())
        self._world.trace.note(self._plan.name, "subscribed")
        self._grant(self._plan.queue)

    async def _leave(self) -> None:
        """Does not leave a consumer behind that would hold messages for ever."""
        connection, number = self._connection, self._id
        self._detach()
        if connection is not None and not connection.closed:
            try:
                await connection.ask(BaseCommand.CLOSE_CONSUMER, consumer_id=number)
            except (Gone, Refused) as error:
                self._world.trace.note(self._plan.name, "not closed:", error)

    def _detach(self) -> None:
        if self._connection is not None:
            self._connection.consumers.pop(self._id, None)
        self._open = False
        self._inbox.clear()

    def _grant(self, permits: int) -> None:
        if self._connection is not None:
            self._granted += permits
            self._world.trace.note(self._plan.name, "grants", permits)
            self._connection.send(command(BaseCommand.FLOW, consumer_id=self._id, messagePermits=permits))

    def _refill(self) -> None:
        left = self._granted - self._got
        if self._open and left <= self._plan.queue // 2:
            self._grant(self._plan.queue - left)

    async def _work(self, connection: Connection) -> None:
        while self._open and not self.stopping:
            if not self._inbox and not (self._unconfirmed and self._world.quiet):
                self._wake = self._world.loop.create_future()
                # From time to time it looks whether the broker is still there.
                patience = 3.0 if self._world.quiet else self._plan.patience
                timer = self._world.loop.call_later(patience, self._go_on)
                await self._wake
                timer.cancel()
                if not self._inbox and not self._world.quiet and self._random.random() < self._plan.mischief:
                    # Somebody may just be reading for it.
                    await self._close(connection)
                elif not self._inbox:
                    self._refill()
                    await connection.ping()
                    self._confirm(connection)
                continue
            await self._world.sleep(self._random.random() * self._plan.pause)
            if not self._open:
                break
            if not self._world.quiet and self._random.random() < self._plan.mischief:
                await self._mischief(connection)
                continue
            taken, self._inbox = self._inbox, []
            await self._acknowledge(connection, taken)
            self._refill()
        self._detach()

    # Acknowledging

    async def _acknowledge(self, connection: Connection, taken: list[Delivery]) -> None:
        if not taken:
            await connection.ping()
            self._confirm(connection)
            return
        if self._plan.cumulative and not self._shared:
            last = taken[-1].position
            if self._plan.batch_acks and taken[-1].messages > 1 and self._random.random() < 0.4:
                await self._sweep_into(connection, taken[-1])
                return
            self._unconfirmed += self._subscription.sweep(last, self._world.steps(), connection)
            await self._send_acks(connection, CommandAck.Cumulative, [self._id_of(last)])
            return
        ids: list[MessageIdData] = []
        for delivery in taken:
            if self._plan.batch_acks and delivery.messages > 1 and self._random.random() < 0.4:
                ids += self._part(delivery)
            ids.append(self._id_of(delivery.position))
        self._random.shuffle(ids)
        while ids and self._open:
            count = self._random.randrange(1, len(ids) + 1)
            for each in ids[:count]:
                if not each.ack_set:
                    position = (each.ledgerId, each.entryId)
                    step = self._world.steps()
                    self._unconfirmed.append(self._subscription.acknowledge(position, step, connection))
            await self._send_acks(connection, CommandAck.Individual, ids[:count])
            del ids[:count]

    async def _sweep_into(self, connection: Connection, delivery: Delivery) -> None:
        """Everything before a batch and some of its first messages, then the rest of it."""
        ledger_id, entry_id = delivery.position
        before = (ledger_id, entry_id - 1)
        self._unconfirmed += self._subscription.sweep(before, self._world.steps(), connection)
        part = self._id_of(delivery.position)
        part.batch_size = delivery.messages
        taken = self._random.randrange(1, delivery.messages)
        part.ack_set.extend(words_from_bits((1 << delivery.messages) - (1 << taken)))
        await self._send_acks(connection, CommandAck.Cumulative, [part])
        if self._open:
            self._unconfirmed += self._subscription.sweep(delivery.position, self._world.steps(), connection)
            await self._send_acks(connection, CommandAck.Cumulative, [self._id_of(delivery.position)])

    def _part(self, delivery: Delivery) -> list[MessageIdData]:
        """Some messages of a batch; the rest follows with the whole entry."""
        left = self._random.getrandbits(delivery.messages)
        if not left:
            return []
        found = self._id_of(delivery.position)
        found.batch_size = delivery.messages
        found.ack_set.extend(words_from_bits(left))
        return [found]

    @staticmethod
    def _id_of(position: Position) -> MessageIdData:
        return MessageIdData(ledgerId=position[0], entryId=position[1])

    async def _send_acks(self, connection: Connection, kind: Any, ids: list[MessageIdData]) -> None:
        fields = {"consumer_id": self._id, "ack_type": kind, "message_id": ids}
        self._world.trace.note(self._plan.name, "acks", *[(i.ledgerId, i.entryId) for i in ids])
        if self._random.random() < self._plan.receipts:
            answer = await connection.ask(BaseCommand.ACK, **fields)
            if answer.HasField("error"):
                raise Refused(answer.error, answer.message)
            self._confirm(connection)
        else:
            connection.send(command(BaseCommand.ACK, **fields))

    def _confirm(self, connection: Connection) -> None:
        """What was sent before the last request that was answered has been seen."""
        seen = [ack for ack in self._unconfirmed if ack.sent_step <= connection.barrier]
        self._unconfirmed = [ack for ack in self._unconfirmed if ack.sent_step > connection.barrier]
        self._subscription.known(seen, self._world.steps(), self._world.loop.time())
        if self._open:
            self._subscription.exists(self._world.steps())

    # What arrives

    def received(self, kind: int, message: Any, entry: bytes) -> None:
        if kind != BaseCommand.MESSAGE:
            self._world.trace.note(self._plan.name, "closed by the broker")
            for ack in self._unconfirmed:
                # It may have met a consumer that was closed already.
                ack.firm = False
            self.disconnected()
            return
        position = (message.message_id.ledgerId, message.message_id.entryId)
        parsed = parse_entry(entry)
        key = (parsed.metadata.producer_name, parsed.metadata.sequence_id)
        remaining = bits_from_words(message.ack_set) if message.ack_set else None
        self._world.trace.note(self._plan.name, "gets", position, *key, remaining, message.redelivery_count)
        sent = self._topic.delivered(position, key, entry)
        if not self._open:
            # It may have been on its way when the consumer was closed.
            return
        if self._granted <= self._got:
            raise Violation(f"{self._plan.name}: {position} without a permit")
        due = parsed.metadata.deliver_at_time
        if self._shared and due > self._world.clock.wall_ms() + self._world.ahead_ms:
            raise Violation(f"{self._plan.name}: {position} before its time, {due}")
        self._got += sent.messages if remaining is None else remaining.bit_count()
        if not self._shared:
            if position <= self._last:
                if not self._rewinds:
                    raise Violation(f"{self._plan.name}: {position} after {self._last}")
                self._rewinds -= 1
            self._last = position
        assert self._connection is not None
        self._subscription.deliver(position, self._connection, remaining)
        self._inbox.append(Delivery(position, sent.messages, remaining))
        self._go_on()

    def disconnected(self) -> None:
        self._open = False
        self._closed = True
        self._go_on()

    def _go_on(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    # Mischief

    async def _mischief(self, connection: Connection) -> None:
        choice = self._random.choice((0, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8))
        self._world.trace.note(self._plan.name, "mischief", choice)
        if choice == 0:
            await self._close(connection)
        elif choice == 1:
            await self._redeliver(connection)
        elif choice == 2:
            connection.abort()
        elif choice == 3:
            # A slow reader: its socket fills, its permits stay.
            connection.pause_reading()
            await self._world.sleep(self._random.random() * 2)
            if not connection.closed:
                connection.resume_reading()
        elif choice == 4:
            await self._seek(connection)
        elif choice == 5:
            await self._unsubscribe(connection)
        elif choice == 6:
            await self._ask_for_the_last(connection)
        elif choice == 7:
            # It looks dead, and the broker may close it.
            connection.answers_pings = False
            await self._world.sleep(self._random.random() * 20)
            connection.answers_pings = True
        else:
            self._grant(self._random.randrange(1, 50))

    async def _close(self, connection: Connection) -> None:
        self._world.trace.note(self._plan.name, "leaves")
        self._open = False
        await connection.ask(BaseCommand.CLOSE_CONSUMER, consumer_id=self._id)

    async def _ask_for_the_last(self, connection: Connection) -> None:
        told = self._topic.last_told
        answer = await connection.ask(BaseCommand.GET_LAST_MESSAGE_ID, consumer_id=self._id)
        found = answer.last_message_id
        # Ids are unsigned on the wire.
        entry_id = -1 if found.entryId == 2**64 - 1 else found.entryId
        self._world.trace.note(self._plan.name, "hears of the last:", found.ledgerId, entry_id)
        self._topic.check_last_message((found.ledgerId, entry_id), told)

    async def _redeliver(self, connection: Connection) -> None:
        ids: list[MessageIdData] = []
        if self._shared and self._random.random() < 0.6:
            some = [d for d in self._inbox if self._random.random() < 0.5]
            ids = [self._id_of(d.position) for d in some]
            self._inbox = [d for d in self._inbox if d not in some or self._random.random() < 0.5]
        elif self._random.random() < 0.5:
            self._inbox.clear()
        self._rewinds += 1
        connection.send(
            command(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=self._id, message_ids=ids)
        )
        await connection.ping()
        self._confirm(connection)

    async def _seek(self, connection: Connection) -> None:
        if self._random.random() < 0.2:
            await self._seek_in_time(connection)
            return
        known = sorted(self._topic.positions)
        if self._random.random() < 0.3 or not known:
            target, message_id = (-1, -1), MessageIdData(ledgerId=_EARLIEST, entryId=_EARLIEST)
        else:
            target = self._random.choice(known)
            message_id = self._id_of(target)
        subscription = self._subscription
        asked = self._world.steps()
        self._world.trace.note(self._plan.name, "seeks", target)
        with self._unsettled(subscription):
            subscription.may_move(target, asked)
            await connection.ask(BaseCommand.SEEK, consumer_id=self._id, message_id=message_id)
            subscription.moved(target, asked, strict=self._world.limits.keeps_all)

    async def _seek_in_time(self, connection: Connection) -> None:
        """Where it leads depends on the clocks of all producers."""
        subscription = self._subscription
        asked = self._world.steps()
        when = self._world.clock.wall_ms() - self._random.randrange(2000)
        self._world.trace.note(self._plan.name, "seeks the time", when)
        with self._unsettled(subscription):
            subscription.may_move((1 << 62, 0), asked)
            await connection.ask(BaseCommand.SEEK, consumer_id=self._id, message_publish_time=when)

    async def _unsubscribe(self, connection: Connection) -> None:
        """What comes after it is another subscription."""
        self._world.trace.note(self._plan.name, "unsubscribes")
        following = SubscriptionModel(self._topic, self._plan.subscription)
        self._topic.subscriptions[self._plan.subscription] = following
        with self._unsettled(following):
            await connection.ask(BaseCommand.UNSUBSCRIBE, consumer_id=self._id)
        self._open = False

    @contextmanager
    def _unsettled(self, subscription: SubscriptionModel) -> Iterator[None]:
        """While a request is under way; without an answer, until it cannot be on its way any more."""
        subscription.unsettle()
        try:
            yield
        except Gone:
            self._world.loop.call_later(_LONGEST_WAY, lambda: subscription.settle(self._world.steps()))
            raise
        except Refused:
            subscription.settle(self._world.steps())
            raise
        subscription.settle(self._world.steps())
