"""Magnetar's own client in the simulated world: it has to behave, whatever happens to the broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from simulated_io import SimulatedLoop, SimulatedNetwork
from simulated_io.loop import SimulatedClock, SimulatedRandomness

from magnetar.client.client import Client
from magnetar.client.enums import ConsumerType, InitialPosition
from magnetar.client.exceptions import ProducerBlockedQuotaExceededException, PulsarException, Timeout
from magnetar.client.message_id import MessageId
from magnetar.client.outgoing_message import MessageOptions
from magnetar.io.interfaces import ClientIo
from simulation.trace import Trace, Violation


class CoreWorld(Protocol):
    """What clients need of the world that they are in."""

    loop: SimulatedLoop
    network: SimulatedNetwork
    trace: Trace
    quiet: bool

    @property
    def service_url(self) -> str: ...

    def steps(self) -> int: ...

    async def sleep(self, seconds: float) -> None: ...

    async def finished(self, task: Any) -> None: ...


@dataclass
class CoreTopic:
    """What is known of a topic that only core clients use."""

    name: str
    once: bool
    """Whether the broker deduplicates."""
    places: dict[tuple[str, int], MessageId] = field(default_factory=dict)
    """Where messages are known to be stored."""
    sent: dict[tuple[str, int], tuple[bytes, int]] = field(default_factory=dict)
    """What was handed to the client, and at which step."""
    stored: dict[tuple[str, int], MessageId] = field(default_factory=dict)
    refused: set[tuple[str, int]] = field(default_factory=set)
    """While the disk was full; they may be stored or not."""

    def follows(self, name: str, number: int, before: int) -> bool:
        """Whether a message comes next after another one: nothing but what was refused is between them."""
        return number > before and all((name, left) in self.refused for left in range(before + 1, number))

    def found(self, key: tuple[str, int], message_id: MessageId) -> None:
        """A message is known to be stored there.

        :raises Violation: it is stored somewhere else, too
        """
        place = self.places.setdefault(key, message_id)
        if self.once and place != message_id:
            raise Violation(f"{self.name}: {key} is stored twice, at {place} and at {message_id}")


class CoreClient:
    """One process with a client, and a loop of its own: what it leaves behind there is a leak."""

    def __init__(self, world: CoreWorld, name: str, random: Random) -> None:
        self.world = world
        self.name = name
        self.random = random
        self.loop = SimulatedLoop(world.loop.timeline)  # type: ignore[abstract]
        host = world.network.host(self.loop, name)
        io = ClientIo(
            self.loop, SimulatedClock(self.loop), SimulatedRandomness(Random(random.getrandbits(64))), host
        )
        self.client = Client(
            world.service_url,
            io=io,
            operation_timeout_seconds=random.choice((5, 30)),
            connections_per_broker=random.choice((1, 1, 2)),
            keep_alive_interval_seconds=random.choice((2, 30)),
            connection_max_idle_seconds=0,
        )
        self.closed = False

    def spawn(self, work: Any) -> Any:
        """Runs work in the client's loop; what it raises ends the run."""
        task = self.loop.create_task(work)

        def ended(done: Any) -> None:
            if not done.cancelled() and done.exception() is not None:
                self.world.loop.halt(done.exception())

        task.add_done_callback(ended)
        return task

    async def sleep(self, seconds: float) -> None:
        passed = self.loop.create_future()
        self.loop.call_later(seconds, passed.set_result, None)
        await passed

    async def _close(self) -> None:
        try:
            await self.client.close()
        except PulsarException as error:
            # Its connection may have gone silent: it is closed all the same.
            self.world.trace.note(self.name, "closed with", type(error).__name__)

    async def close(self) -> None:
        """:raises Violation: tasks are left that do not end"""
        closing = self.spawn(self._close())
        await self.world.finished(closing)
        await self.world.sleep(1.0)
        left = self.loop.pending_tasks()
        if left:
            raise Violation(f"{self.name}: tasks left behind a closed client: {left}")


class CoreProducer:
    """Sends numbered messages through the client."""

    def __init__(self, client: CoreClient, topic: CoreTopic, name: str) -> None:
        random = client.random
        self.client = client
        self._topic = topic
        self._name = name
        self._count = random.randrange(10, 80)
        self._largest = random.choice((20, 300, 6000))
        self._pause = random.choice((0.0005, 0.02, 0.2))
        self._options: dict[str, Any] = {
            "send_timeout_millis": 0,
            "batching_enabled": random.random() < 0.6,
            "batching_max_messages": random.choice((2, 7, 1000)),
            "max_pending_messages": random.choice((5, 1000)),
            "block_if_queue_full": True,
        }
        self._told = 0
        self._last_told = -1
        self._refused = 0

    def __str__(self) -> str:
        return f"core producer {self._name}: {self._told} of {self._count}, {self._refused} refused"

    @property
    def done(self) -> bool:
        return self._told + self._refused == self._count

    async def run(self) -> None:
        client, random = self.client, self.client.random
        producer = await self._open()
        for number in range(self._count):
            if self._is_over(producer):
                producer = await self._open()
            content = f"{self._name}:{number}:".encode() + random.randbytes(random.randrange(self._largest))
            self._topic.sent[self._name, number] = content, client.world.steps()
            producer.enqueue(content, self._done(number), None, self.options_of(producer, number))
            if random.random() < 0.3:
                await client.sleep(random.random() * self._pause)
            while producer.pending_messages >= self._options["max_pending_messages"] - 1:
                await client.sleep(0.01)
        try:
            await producer.flush()
        except ProducerBlockedQuotaExceededException:
            client.world.trace.note(self._name, "refused at its end")

    async def _open(self) -> Any:
        client = self.client
        while True:
            try:
                producer = await client.client.create_producer(self._topic.name, **self._options)
            except PulsarException as error:
                client.world.trace.note(self._name, "not open:", type(error).__name__)
                await client.sleep(client.random.random())
            else:
                client.world.trace.note(self._name, "open")
                return producer

    @staticmethod
    def _is_over(producer: Any) -> bool:
        """Whether a full disk ended it: what comes next goes through another one."""
        try:
            producer.check_open()
        except ProducerBlockedQuotaExceededException:
            return True
        return False

    def _done(self, number: int) -> Any:
        def done(message_id: MessageId | None, error: PulsarException | None) -> None:
            if isinstance(error, ProducerBlockedQuotaExceededException):
                self.client.world.trace.note(self._name, "refused", number)
                self._refused += 1
                self._topic.refused.add((self._name, number))
                return
            if error is not None or message_id is None:
                raise Violation(f"{self._name}: {number} failed: {error!r}")
            if not self._topic.follows(self._name, number, self._last_told):
                raise Violation(f"{self._name}: told of {number} after {self._last_told}")
            self._told, self._last_told = self._told + 1, number
            self.client.world.trace.note(self._name, "published", number, message_id)
            if message_id.ledger_id() < 0:
                if not self._topic.once:
                    raise Violation(f"{self._name}: {number} was taken for a duplicate")
            elif message_id in self._topic.stored.values():
                raise Violation(f"{self._name}: {message_id} was given twice")
            else:
                self._topic.found((self._name, number), message_id)
            self._topic.stored[self._name, number] = message_id
            self.told(message_id)

        return done

    def options_of(self, _producer: Any, _number: int) -> MessageOptions | None:
        """Of the message of that number."""
        return None

    def told(self, message_id: MessageId) -> None:
        """A message is stored there; its ledger is below 0 if it was stored before."""


class CoreConsumer:
    """Receives, checks and acknowledges through the client."""

    def __init__(self, client: CoreClient, topic: CoreTopic, name: str, subscription: str) -> None:
        random = client.random
        self.client = client
        self._topic = topic
        self._name = name
        self._subscription = subscription
        self._queue = random.choice((1, 5, 1000))
        self._receipts = random.random() < 0.4
        self._cumulative = random.random() < 0.3
        self._group_ms = random.choice((0, 20, 100))
        self._pause = random.choice((0.0, 0.0, 0.05))
        self._mischief = random.choice((0.0, 0.05))
        self._opened: int | None = None
        self._got: set[tuple[str, int]] = set()
        self._highest: dict[str, int] = {}
        self.stopping = False

    def __str__(self) -> str:
        return f"core consumer {self._name}: {len(self._got)} of {len(self._topic.stored)}"

    @property
    def idle(self) -> bool:
        if self._opened is None:
            return False
        sent = self._topic.sent
        owed = {key for key in self._topic.stored if sent[key][1] > self._opened}
        return not owed - self._got

    async def run(self) -> None:
        client = self.client
        consumer: Any = None
        while consumer is None:
            try:
                consumer = await client.client.subscribe(
                    self._topic.name,
                    self._subscription,
                    consumer_type=ConsumerType.Exclusive,
                    receiver_queue_size=self._queue,
                    initial_position=InitialPosition.Earliest,
                    ack_group_time_ms=self._group_ms,
                    ack_receipt_enabled=self._receipts,
                    negative_ack_redelivery_delay_ms=500,
                )
            except PulsarException as error:
                client.world.trace.note(self._name, "not open:", type(error).__name__)
                await client.sleep(client.random.random())
        client.world.trace.note(self._name, "open")
        self._opened = client.world.steps()
        while not self.stopping:
            try:
                message = await consumer.receive(2000)
            except Timeout:
                continue
            self._check(message)
            await self._treat(consumer, message)

    async def _treat(self, consumer: Any, message: Any) -> None:
        client, random = self.client, self.client.random
        try:
            if not client.world.quiet and random.random() < self._mischief:
                consumer.negative_acknowledge(message)
            elif self._cumulative:
                await consumer.acknowledge_cumulative(message)
            else:
                await consumer.acknowledge(message)
        except PulsarException as error:
            # With receipts: it is not known whether it counts, and it may come again.
            client.world.trace.note(self._name, "not acknowledged:", type(error).__name__)
        if self._pause:
            await client.sleep(random.random() * self._pause)

    def _check(self, message: Any) -> None:
        content = message.data()
        name, number = content.split(b":", 2)[:2]
        key = (name.decode(), int(number))
        self.client.world.trace.note(self._name, "gets", *key, message.message_id())
        if self._topic.sent[key][0] != content:
            raise Violation(f"{self._name}: {key} has other bytes than were sent")
        self._topic.found(key, message.message_id())
        # What was published before it subscribed may be trimmed.
        highest = self._highest.get(key[0], key[1] - 1)
        if key not in self._got and not self._topic.follows(*key, highest):
            raise Violation(f"{self._name}: {key} comes first after {highest}")
        self._highest[key[0]] = max(highest, key[1])
        self._got.add(key)
