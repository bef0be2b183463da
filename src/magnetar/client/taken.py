"""What a consumer keeps in mind of the messages that were taken, where it was told to."""

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
    """Acknowledgement time-out and dead letters of one consumer; nothing of both costs nothing."""

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
        """:param ask_again: wants entries delivered once more, after :meth:`without_dead` was asked

        :param open_producer: of a topic for dead letters
        """
        self._loop = loop
        seconds = options.unacked_messages_timeout_ms / 1000
        self._unacknowledged = Expiring[Position](loop, seconds, ask_again) if seconds else None
        """Entries by when they were taken; ``ackTimeout`` of official clients."""
        policy = options.dead_letter_policy
        # The others rewind as a whole, and could not leave one out.
        self._dead: DeadLetters | None = None
        if policy is not None and shared:
            opened = _checked(open_producer, options.check_dead_letter_topic)
            self._dead = DeadLetters(policy, topic, subscription, opened, acknowledge, loop)
        self.matters = self._unacknowledged is not None or self._dead is not None
        """Whether :meth:`add` has to be called at all."""

    def add(self, message: Message) -> None:
        if self._unacknowledged is not None:
            self._unacknowledged.add(message.message_id().position)
        if self._dead is not None:
            self._dead.taken(message)

    def withheld(self, position: Position) -> None:
        """An entry that nobody is given, and that is not acknowledged: its time runs all the same."""
        if self._unacknowledged is not None:
            self._unacknowledged.add(position)

    def refused(self, position: Position) -> None:
        """It is acknowledged negatively: that has a time of its own."""
        if self._unacknowledged is not None:
            self._unacknowledged.remove(position)

    def acknowledged(self, message_id: MessageId) -> None:
        """A message is, or an entry."""
        if self._dead is not None:
            self._dead.remove(message_id)

    def settled(self, position: Position) -> None:
        """All of an entry is acknowledged."""
        if self._unacknowledged is not None:
            self._unacknowledged.remove(position)

    def settled_until(self, bound: Position) -> None:
        if self._unacknowledged is not None:
            self._unacknowledged.remove_where(lambda position: position <= bound)

    def without_dead(
        self, positions: list[Position], ask_again: Callable[[list[Position]], object]
    ) -> list[Position]:
        """Those of some entries that are to be asked for again; the others go where dead letters go.

        :param ask_again: told of those that could not go there
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
        """All of it will be delivered again."""
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
