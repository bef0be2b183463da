"""Scripted clients: what they share, and their producers."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata
from simulation.connection import Connection, Gone, Refused, command
from simulation.model import Sent, TopicModel
from simulation.trace import Violation

if TYPE_CHECKING:
    from simulation.world import World

_TIMEOUT = 8.0
_LONGEST_TURN = 60.0
_WAIT_FOR_EXCLUSIVE = 2
_STORED_ALREADY = (2**64 - 1, 2**64 - 1)
_REMEMBERED = 30
_SENT_AGAIN = 0.15
"""Share of bursts before which a client that knows nothing of its receipts sends once more."""


class Client:
    """One process of users, with a connection that comes back; producers and consumers may share it."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.host = world.network.host(world.loop, name)
        self._connection: Connection | None = None
        self._opening: Any = None

    async def connection(self) -> Connection:
        """The connection, made anew when it has gone.

        :raises Gone: it cannot be made now
        """
        while self._opening is not None:
            await self.world.finished(self._opening)
        if self._connection is None or self._connection.closed:
            self._opening = self.world.spawn(self._open())
            await self.world.finished(self._opening)
        if self._connection is None or self._connection.closed:
            raise Gone("not connected")
        return self._connection

    async def _open(self) -> None:
        world = self.world
        try:
            self._connection = await Connection.open(
                self.name, self.host, world.trace, world.steps, world.address, _TIMEOUT
            )
            world.trace.note(self.name, "connected")
        except Gone as error:
            world.trace.note(self.name, "not connected:", error)
        finally:
            self._opening = None

    def cut(self) -> None:
        """The client's process dies, or its user pulls the plug."""
        if self._connection is not None:
            self._connection.abort()

    @property
    def current(self) -> Connection | None:
        return self._connection


@dataclass
class ProducerPlan:
    name: str
    entries: int
    own_name: bool
    """Whether the client gives the name; else the broker does, and the client keeps it."""
    window: int
    """Entries in flight at most."""
    pause: float
    """The longest pause between two bursts."""
    largest: int
    """Bytes of a payload at most."""
    batches: bool
    mischief: float
    """Share of bursts before which something odd is done."""
    waits: bool
    """Whether it wants the topic for itself, and waits for its turn."""
    delays: Random | None = None
    """Draws when entries are to be delivered; None: all at once."""


class Producer:
    """Sends numbered entries, and sends again in order what was not receipted when a connection went."""

    def __init__(self, client: Client, topic: TopicModel, plan: ProducerPlan, random: Random) -> None:
        self._client = client
        self._world = client.world
        self._topic = topic
        self._plan = plan
        self._random = random
        self._name = plan.name if plan.own_name else ""
        self._pending: deque[tuple[int, bytes, int]] = deque()
        self._next = 0
        self._epoch = 0
        self._id = 0
        self._open = False
        self._closed = False
        """It was closed since it was last opened, perhaps before the answer to that was looked at."""
        self._last = (-1, -1)
        self._wake: Any = None
        self._damaged: set[int] = set()
        self._receipted: deque[tuple[int, bytes, int]] = deque(maxlen=_REMEMBERED)

    def __str__(self) -> str:
        return (
            f"producer {self._plan.name}: {self._next} of {self._plan.entries}, {len(self._pending)} pending"
        )

    @property
    def done(self) -> bool:
        return self._next >= self._plan.entries and not self._pending

    async def run(self) -> None:
        await self._publish()
        life = self._world.broker.lives
        while self._topic.once and not self._world.quiet:
            await self._world.sleep(0.05)
            if self._world.broker.lives != life:
                life = self._world.broker.lives
                self._pending.extend(self._receipted)
                self._receipted.clear()
                await self._publish()

    async def _publish(self) -> None:
        """Until everything has its receipt."""
        while not self.done:
            try:
                connection = await self._client.connection()
                await self._attach(connection)
                await self._work(connection)
            except (Gone, Refused) as error:
                self._world.trace.note(self._plan.name, "not open:", error)
                await self._world.sleep(self._random.random())
        if self._open and self._client.current is not None:
            try:
                await self._leave(self._client.current)
            except (Gone, Refused) as error:
                self._world.trace.note(self._plan.name, "not closed:", error)

    async def _attach(self, connection: Connection) -> None:
        self._epoch += 1
        self._closed = False
        self._id = connection.next_id()
        fields: dict[str, Any] = {"producer_name": self._name} if self._name else {}
        connection.producers[self._id] = self
        stored = self._topic.highest.get(self._name, -1)
        answer = await connection.ask(
            BaseCommand.PRODUCER,
            topic=self._topic.name,
            producer_id=self._id,
            user_provided_producer_name=self._plan.own_name,
            epoch=self._epoch,
            producer_access_mode=_WAIT_FOR_EXCLUSIVE if self._plan.waits else 0,
            patience=_LONGEST_TURN if self._plan.waits else None,
            **fields,
        )
        if connection.closed or self._closed:
            raise Gone("closed again")
        self._topic.check_last_sequence_id(answer.producer_name, answer.last_sequence_id, stored)
        self._name = answer.producer_name
        self._open = True
        self._last = (-1, -1)
        self._world.trace.note(self._plan.name, "open as", self._name)
        for number, entry, messages in self._pending:
            self._send(connection, number, entry, messages)

    async def _work(self, connection: Connection) -> None:
        while self._open and not self.done:
            if len(self._pending) < self._plan.window and self._next < self._plan.entries:
                if self._random.random() < self._plan.mischief and await self._mischief(connection):
                    continue
                if self._topic.once and self._random.random() < _SENT_AGAIN:
                    self._send_again(connection)
                else:
                    self._burst(connection)
                await self._world.sleep(self._random.random() * self._plan.pause)
            else:
                self._wake = self._world.loop.create_future()
                timer = self._world.loop.call_later(30.0, connection.abort)
                await self._wake
                timer.cancel()

    def _burst(self, connection: Connection) -> None:
        room = min(self._plan.window - len(self._pending), self._plan.entries - self._next)
        for _ in range(self._random.randrange(1, min(room, 12) + 1)):
            number, self._next = self._next, self._next + 1
            entry, messages = self._entry(number)
            self._topic.sent[(self._name, number)] = Sent(entry, messages, self._world.steps())
            self._pending.append((number, entry, messages))
            self._send(connection, number, entry, messages)

    def _send_again(self, connection: Connection) -> None:
        """What has its receipt is sent once more, as by somebody who went on from an older state."""
        for _ in range(self._random.randrange(len(self._receipted) + 1)):
            self._pending.append(self._receipted.popleft())
            self._send(connection, *self._pending[-1])

    def _entry(self, number: int) -> tuple[bytes, int]:
        random = self._random
        metadata = MessageMetadata(
            producer_name=self._name, sequence_id=number, publish_time=self._world.clock.wall_ms()
        )
        messages = 1
        if self._plan.batches and random.random() < 0.5:
            messages = random.randrange(1, 9)
            metadata.num_messages_in_batch = messages
        delays = self._plan.delays
        if delays is not None and delays.random() < 0.4:
            metadata.deliver_at_time = metadata.publish_time + delays.randrange(-500, 8000)
        return build_entry(
            metadata, random.randbytes(int(self._plan.largest * random.random() ** 3))
        ), messages

    def _send(self, connection: Connection, number: int, entry: bytes, messages: int) -> None:
        fields = {"num_messages": messages} if messages > 1 else {}
        connection.send(command(BaseCommand.SEND, producer_id=self._id, sequence_id=number, **fields), entry)

    async def _mischief(self, connection: Connection) -> bool:
        """Something that a client may do, wise or not; True when the producer is not open any more."""
        choice = self._random.randrange(4)
        self._world.trace.note(self._plan.name, "mischief", choice)
        if choice == 0:
            await self._leave(connection)
            return True
        if choice == 1:
            # Half a frame, and away.
            connection.send_bytes(b"\x00\x00\x40\x00\x00\x00\x00\x10" + self._random.randbytes(50))
            await self._world.sleep(self._random.random() * 0.01)
            connection.abort()
            return True
        if choice == 2:
            self._send_damaged(connection)
            return False
        if self._random.random() < 0.5:
            connection.abort()
        else:
            connection.close()
        return True

    def _send_damaged(self, connection: Connection) -> None:
        """An entry whose checksum does not fit: it must be refused, and stored never."""
        number = 10**6 + self._next + len(self._damaged)
        entry = bytearray(self._entry(self._next)[0])
        entry[-1] ^= 1
        self._damaged.add(number)
        self._send(connection, number, bytes(entry), 1)

    async def _leave(self, connection: Connection) -> None:
        """CLOSE_PRODUCER; receipts of what was sent before come first."""
        self._open = False
        await connection.ask(BaseCommand.CLOSE_PRODUCER, producer_id=self._id)
        connection.producers.pop(self._id, None)

    # What arrives

    def received(self, kind: int, message: Any, entry: bytes) -> None:
        if kind == BaseCommand.SEND_RECEIPT:
            self._receipt(message)
        elif kind == BaseCommand.SEND_ERROR:
            self._refused(message)
        else:
            self._world.trace.note(self._plan.name, "closed by the broker")
            self.disconnected()

    def _receipt(self, message: Any) -> None:
        position = (message.message_id.ledgerId, message.message_id.entryId)
        number = message.sequence_id
        self._world.trace.note(self._plan.name, "receipt", number, position)
        if not self._pending or self._pending[0][0] != number:
            expected = self._pending[0][0] if self._pending else None
            raise Violation(f"{self._plan.name}: a receipt for {number} instead of {expected}")
        self._receipted.append(self._pending.popleft())
        if position == _STORED_ALREADY:
            self._topic.stored_already((self._name, number))
        else:
            if position <= self._last:
                raise Violation(f"{self._plan.name}: a receipt for {position} after {self._last}")
            self._last = position
            self._topic.receipt((self._name, number), position)
        self._go_on()

    def _refused(self, message: Any) -> None:
        self._world.trace.note(self._plan.name, "refused", message.sequence_id, message.error)
        if message.sequence_id not in self._damaged:
            # As Java's client does: away, and all over again.
            self._client.cut()

    def disconnected(self) -> None:
        self._open = False
        self._closed = True
        self._go_on()

    def _go_on(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
