"""Received messages that a consumer has to remember."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from magnetar.client.consumer_options import ConsumerOptions
from magnetar.client.dead_letters import DeadLetters, Sending
from magnetar.client.expiring import Expiring
from magnetar.client.message import Message
from magnetar.client.message_id import MessageId
from magnetar.io.interfaces import Loop

Position = tuple[int, int]
_Open = Callable[[str], Awaitable[Sending]]


class Taken:
    """Acknowledgement time-out and dead letters of one consumer; without both it costs nothing."""

    def __init__(
        self,
        loop: Loop,
        topic: str,
        subscription: str,
        options: ConsumerOptions,
        *,
        shared: bool,
        ask_again: Callable[[list[Position]], object],
        acknowledge: Callable[[MessageId], object],
        open_producer: Callable[[str], Awaitable[Sending]],
    ) -> None:
        """:param ask_again: requests redelivery of entries, after :meth:`without_dead`

        :param open_producer: opens the producer of a dead letter topic
        """
        self._loop = loop
        seconds = options.unacked_messages_timeout_ms / 1000
        self._unacknowledged = Expiring[Position](loop, seconds, ask_again) if seconds else None
        """Entries by the time of their receipt; ``ackTimeout`` of official clients."""
        policy = options.dead_letter_policy
        # Other subscriptions rewind as a whole, and cannot leave out a message.
        self._dead: DeadLetters | None = None
        if policy is not None and shared:
            opened = _checked(open_producer, options.check_dead_letter_topic)
            self._dead = DeadLetters(policy, topic, subscription, opened, acknowledge, loop)
        self.matters = self._unacknowledged is not None or self._dead is not None
        """Whether :meth:`add` must be called."""

    def add(self, message: Message) -> None:
        if self._unacknowledged is not None:
            self._unacknowledged.add(message.message_id().position)
        if self._dead is not None:
            self._dead.taken(message)

    def withheld(self, position: Position) -> None:
        """Starts the time-out of an entry that is neither delivered nor acknowledged."""
        if self._unacknowledged is not None:
            self._unacknowledged.add(position)

    def refused(self, position: Position) -> None:
        """Stops the time-out after a negative acknowledgement, which has its own delay."""
        if self._unacknowledged is not None:
            self._unacknowledged.remove(position)

    def acknowledged(self, message_id: MessageId) -> None:
        """Notes the acknowledgement of a message, or of an entry."""
        if self._dead is not None:
            self._dead.remove(message_id)

    def settled(self, position: Position) -> None:
        """Notes that an entry is completely acknowledged."""
        if self._unacknowledged is not None:
            self._unacknowledged.remove(position)

    def settled_until(self, bound: Position) -> None:
        if self._unacknowledged is not None:
            self._unacknowledged.remove_where(lambda position: position <= bound)

    def without_dead(
        self, positions: list[Position], ask_again: Callable[[list[Position]], object]
    ) -> list[Position]:
        """Returns the entries whose redelivery to request; the others go to the dead letter topic.

        :param ask_again: called with entries that could not be published there
        """
        if self._dead is None:
            return positions
        positions, dead = self._dead.split(positions)
        if dead:
            self._loop.create_task(self._bury(self._dead, dead, ask_again))
        return positions

    @staticmethod
    async def _bury(
        letters: DeadLetters, dead: list[Message], ask_again: Callable[[list[Position]], object]
    ) -> None:
        failed = await letters.bury(dead)
        if failed:
            ask_again(failed)

    def forget(self) -> None:
        """Drops everything, because it will be delivered again."""
        if self._unacknowledged is not None:
            self._unacknowledged.forget()
        if self._dead is not None:
            self._dead.forget()

    async def close(self) -> None:
        self.forget()
        if self._dead is not None:
            await self._dead.close()


def _checked(open_producer: _Open, check: Callable[[str], Awaitable[None]] | None) -> _Open:
    if check is None:
        return open_producer

    async def opened(topic: str) -> Sending:
        await check(topic)
        return await open_producer(topic)

    return opened
