"""A scripted producer that sends one entry at a time and waits for what becomes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata
from simulation.connection import Connection, Gone, Refused, command

if TYPE_CHECKING:
    from simulation.world import World

_PATIENCE = 20.0
_STORED_ALREADY = (2**64 - 1, 2**64 - 1)
Position = tuple[int, int]


class ScriptedProducer:
    """One life of a producer, on one connection."""

    def __init__(self, world: World, connection: Connection, name: str) -> None:
        self._world = world
        self._connection = connection
        self._name = name
        self._id = connection.next_id()
        self._receipt: Any = None
        self.closed = False
        """By the broker, or with its connection."""

    async def open(self, topic: str, *, patience: float | None = None, **fields: Any) -> Any:
        """The broker's answer.

        :param patience: seconds to wait for it, if not the usual ones
        :raises Gone: none came
        :raises Refused: the answer is an error
        """
        self._connection.producers[self._id] = self
        answer = await self._connection.ask(
            BaseCommand.PRODUCER,
            topic=topic,
            producer_id=self._id,
            producer_name=self._name,
            user_provided_producer_name=True,
            patience=patience,
            **fields,
        )
        if self.closed:
            raise Gone("closed again")
        return answer

    async def send(self, number: int) -> Position | None:
        """Where the entry of that sequence id is stored; None: deduplication says that it was stored before.

        :raises Gone: its receipt did not come
        :raises Refused: it is not stored
        """
        if self.closed:
            raise Gone("closed")
        self._receipt = self._world.loop.create_future()
        metadata = MessageMetadata(
            producer_name=self._name, sequence_id=number, publish_time=self._world.clock.wall_ms()
        )
        self._connection.send(
            command(BaseCommand.SEND, producer_id=self._id, sequence_id=number),
            build_entry(metadata, b"%d" % number),
        )
        timer = self._world.loop.call_later(_PATIENCE, self._connection.abort)
        try:
            position: Position = await self._receipt
        finally:
            timer.cancel()
        return None if position == _STORED_ALREADY else position

    async def leave(self) -> None:
        """:raises Gone: whether it left is not known"""
        if not self.closed:
            await self._connection.ask(BaseCommand.CLOSE_PRODUCER, producer_id=self._id)
            self.disconnected()
        self._connection.producers.pop(self._id, None)

    # What arrives

    def received(self, kind: int, message: Any, _entry: bytes) -> None:
        receipt = self._receipt
        if kind == BaseCommand.CLOSE_PRODUCER:
            self.disconnected()
        elif receipt is not None and not receipt.done():
            if kind == BaseCommand.SEND_RECEIPT:
                receipt.set_result((message.message_id.ledgerId, message.message_id.entryId))
            else:
                receipt.set_exception(Refused(message.error, message.message))

    def disconnected(self) -> None:
        self.closed = True
        if self._receipt is not None and not self._receipt.done():
            self._receipt.set_exception(Gone("closed"))
            # It may not be waited for any more.
            self._receipt.exception()
