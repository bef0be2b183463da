"""Scripted readers: not durable, from some position on, all that there is."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from magnetar.protocol.metadata import parse_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandAck, CommandSubscribe, MessageIdData
from simulation.client import Client
from simulation.connection import Connection, Gone, Refused, command
from simulation.model import Position, TopicModel
from simulation.trace import Violation

if TYPE_CHECKING:
    from simulation.world import World

_EARLIEST = MessageIdData(ledgerId=2**64 - 1, entryId=2**64 - 1)
_QUEUE = 20


class Reader:
    """Comes back behind the last entry it got when its connection goes."""

    def __init__(self, client: Client, topic: TopicModel, name: str, random: Random) -> None:
        self._client = client
        self._world: World = client.world
        self._topic = topic
        self._name = name
        self._random = random
        self._connection: Connection | None = None
        self._id = 0
        self._open = False
        self._permits = 0
        self._last: Position | None = None
        self._got: set[Position] = set()
        self._wake: Any = None
        self.stopping = False
        self.refusal = ""
        """What it was told when it was last refused."""

    def __str__(self) -> str:
        return f"reader {self._name}: {'open' if self._open else 'closed'} at {self._last}"

    @property
    def last(self) -> Position | None:
        """Where the last entry was that it got; None: it has got none."""
        return self._last

    @property
    def idle(self) -> bool:
        """Whether it has all it can have; with trimming nobody can say."""
        if not self._world.limits.keeps_all:
            return True
        return self._open and not self._topic.receipted.keys() - self._got

    def check(self) -> None:
        """:raises Violation: it was not given what was there"""
        if self._last is None or not self._world.limits.keeps_all:
            return
        missed = [p for p in self._topic.positions if p <= self._last and p not in self._got]
        if missed:
            raise Violation(f"{self._name} read up to {self._last} and not {sorted(missed)[:5]}")

    async def run(self) -> None:
        while not self.stopping:
            try:
                connection = await self._client.connection()
                await self._read(connection)
            except (Gone, Refused) as error:
                self._world.trace.note(self._name, "not open:", error)
                if isinstance(error, Refused):
                    self.refusal = str(error)
                self._open = False
                await self._world.sleep(self._random.random())

    async def _read(self, connection: Connection) -> None:
        number = self._id = connection.next_id()
        self._connection = connection
        connection.consumers[number] = self
        self._permits = 0
        start = _EARLIEST
        if self._last is not None:
            start = MessageIdData(ledgerId=self._last[0], entryId=self._last[1] + 1)
        self._open = True
        await connection.ask(
            BaseCommand.SUBSCRIBE,
            topic=self._topic.name,
            subscription=f"reader-{self._name}",
            subType=CommandSubscribe.Exclusive,
            consumer_id=number,
            durable=False,
            start_message_id=start,
        )
        while self._open and not self.stopping:
            if self._permits <= _QUEUE // 2:
                connection.send(
                    command(BaseCommand.FLOW, consumer_id=number, messagePermits=_QUEUE - self._permits)
                )
                self._permits = _QUEUE
            await self._wait(3.0)
            if self._open:
                await connection.ping()
                if self._random.random() < 0.1 and not self._world.quiet:
                    connection.abort()
        connection.consumers.pop(number, None)

    async def _wait(self, seconds: float) -> None:
        self._wake = self._world.loop.create_future()
        timer = self._world.loop.call_later(seconds, self._go_on)
        await self._wake
        timer.cancel()

    def received(self, kind: int, message: Any, entry: bytes) -> None:
        if kind != BaseCommand.MESSAGE:
            self._world.trace.note(self._name, "closed by the broker")
            self.disconnected()
            return
        position = (message.message_id.ledgerId, message.message_id.entryId)
        metadata = parse_entry(entry).metadata
        self._world.trace.note(self._name, "gets", position)
        sent = self._topic.delivered(position, (metadata.producer_name, metadata.sequence_id), entry)
        if not self._open:
            return
        if self._permits <= 0:
            raise Violation(f"{self._name}: {position} without a permit")
        if self._last is not None and position <= self._last:
            raise Violation(f"{self._name}: {position} after {self._last}")
        self._permits -= sent.messages
        self._last = position
        self._got.add(position)
        if self._random.random() < 0.3:
            # As Java's readers do, though nothing of it lasts.
            self._acknowledge(position)
        if self._permits <= _QUEUE // 2:
            self._go_on()

    def _acknowledge(self, position: Position) -> None:
        if self._connection is not None:
            self._connection.send(
                command(
                    BaseCommand.ACK,
                    consumer_id=self._id,
                    ack_type=CommandAck.Cumulative,
                    message_id=[MessageIdData(ledgerId=position[0], entryId=position[1])],
                )
            )

    def disconnected(self) -> None:
        self._open = False
        self._go_on()

    def _go_on(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
