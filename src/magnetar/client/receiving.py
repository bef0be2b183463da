"""Parts of receiving: permits, the start position, unacknowledged messages, and waiting callers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from magnetar.client.dead_letters import DeadLetters, Sending
from magnetar.client.exceptions import Timeout
from magnetar.client.message import Message
from magnetar.client.message_id import MessageId
from magnetar.client.options import ConsumerOptions
from magnetar.client.timing import Expiring
from magnetar.io.interfaces import Future, Loop
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.io.waiting import fail, settle

Position = tuple[int, int]
_Open = Callable[[str], Awaitable[Sending]]


class Arrivals:
    """Callers that wait for an arrival, such as the arrival of a message."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._waiters: list[Future[None]] = []

    def __bool__(self) -> bool:
        """Whether callers are waiting."""
        return bool(self._waiters)

    async def wait(self, end: float | None, late: str) -> None:
        """Waits until :meth:`wake` is called.

        :param end: end of the wait in the loop's time; None: no limit
        :param late: the message of the Timeout error
        :raises Timeout: :meth:`wake` was not called in time
        """
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        timer = self._loop.call_at(end, fail, waiter, Timeout(late)) if end is not None else None
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()
            if waiter in self._waiters:
                # Not woken, but timed out or cancelled.
                self._waiters.remove(waiter)

    def wake(self) -> None:
        if not self._waiters:
            return
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            settle(waiter)


class Unacknowledged:
    """The unacknowledged entries and their acknowledgement time-out, which official clients call
    ``ackTimeout``.
    """

    def __init__(
        self,
        loop: Loop,
        seconds: float,
        options: ConsumerOptions,
        ask_again: Callable[[list[Position]], object],
    ) -> None:
        """:param seconds: the acknowledgement time-out in seconds, without ``ack_timeout_redelivery_backoff``
        :param ask_again: requests redelivery of the entries whose time-out has passed
        """
        self._loop = loop
        self._seconds = seconds
        self._backoff = options.ack_timeout_redelivery_backoff
        self._ask_again = ask_again
        self._waiting: dict[float, Expiring[Position]] = {}
        """By time-out: entries with this time-out; with a back-off, there are several time-outs."""

    def add(self, position: Position, redeliveries: int) -> None:
        """Starts the time-out of an entry, or restarts it.

        :param redeliveries: number of earlier redeliveries
        """
        seconds = self._seconds
        if self._backoff is not None:
            seconds += self._backoff.seconds(redeliveries)
            self.remove(position)
        waiting = self._waiting.get(seconds)
        if waiting is None:
            waiting = self._waiting[seconds] = Expiring(self._loop, seconds, self._ask_again)
        waiting.add(position)

    def remove(self, position: Position) -> None:
        for each in self._waiting.values():
            each.remove(position)

    def remove_until(self, bound: Position) -> None:
        for each in self._waiting.values():
            each.remove_where(lambda position: position <= bound)

    def forget(self) -> None:
        for each in self._waiting.values():
            each.forget()


class Taken:
    """The acknowledgement time-out and the dead letters of one consumer, which track the messages that the
    program has received.
    """

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
        open_producer: Callable[..., Awaitable[Sending]],
    ) -> None:
        """:param shared: whether the subscription is Shared or KeyShared; only these have dead letters
        :param ask_again: requests redelivery of entries whose time-out has passed; it calls
            :meth:`without_dead` first
        :param acknowledge: acknowledges a message that was published as a dead letter
        :param open_producer: opens the producer of a dead letter topic
        """
        self._tasks = TaskScope(loop, "messages that were received", owner_goes_on)
        seconds = options.unacked_messages_timeout_ms / 1000
        self._unacknowledged = Unacknowledged(loop, seconds, options, ask_again) if seconds else None
        policy = options.dead_letter_policy
        # Other subscriptions rewind as a whole, and cannot leave out a message.
        self._dead: DeadLetters | None = None
        if policy is not None and shared:
            opened = _checked(open_producer, options.check_dead_letter_topic)
            self._dead = DeadLetters(policy, topic, subscription, opened, acknowledge, loop)
        self.matters = self._unacknowledged is not None or self._dead is not None
        """Whether :meth:`add` must be called for each message that the program receives."""

    @property
    def dead(self) -> int:
        """Number of messages that were published to the dead letter topic."""
        return self._dead.buried if self._dead is not None else 0

    def add(self, message: Message) -> None:
        if self._unacknowledged is not None:
            self._unacknowledged.add(message.message_id().position, message.redelivery_count())
        if self._dead is not None:
            self._dead.taken(message)

    def withheld(self, position: Position) -> None:
        """Starts the time-out of an entry that is neither delivered nor acknowledged."""
        if self._unacknowledged is not None:
            self._unacknowledged.add(position, 0)

    def refused(self, position: Position) -> None:
        """Stops the time-out of an entry after a negative acknowledgement, which has its own redelivery
        delay.
        """
        if self._unacknowledged is not None:
            self._unacknowledged.remove(position)

    def acknowledged(self, message_id: MessageId) -> None:
        """Records that a message or an entry is acknowledged, so that it does not become a dead letter."""
        if self._dead is not None:
            self._dead.remove(message_id)

    def settled(self, position: Position) -> None:
        """Records that all messages of an entry are acknowledged, which ends the time-out."""
        if self._unacknowledged is not None:
            self._unacknowledged.remove(position)

    def settled_until(self, bound: Position) -> None:
        if self._unacknowledged is not None:
            self._unacknowledged.remove_until(bound)

    def without_dead(
        self, positions: list[Position], ask_again: Callable[[list[Position]], object]
    ) -> list[Position]:
        """Publishes entries with too many redeliveries to the dead letter topic; returns the other entries,
        whose redelivery the caller must request.

        :param positions: the entries that are due for redelivery
        :param ask_again: called with the entries that could not be published to the dead letter topic
        """
        if self._dead is None:
            return positions
        positions, dead = self._dead.split(positions)
        if dead:
            self._tasks.start(self._bury(self._dead, dead, ask_again), "publishing dead letters")
        return positions

    @staticmethod
    async def _bury(
        letters: DeadLetters, dead: list[Message], ask_again: Callable[[list[Position]], object]
    ) -> None:
        failed = await letters.bury(dead)
        if failed:
            ask_again(failed)

    def forget(self) -> None:
        """Drops all records, because the broker delivers the messages again."""
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


class Permits:
    """The permits of one consumer: the broker sends at most as many messages as it has permits.

    With a queue of size 0, no messages are requested ahead; each call of ``receive`` requests one message.
    """

    def __init__(self, queue_size: int, give: Callable[[int], object]) -> None:
        """:param queue_size: size of the receiver queue, in messages
        :param give: sends permits to the broker, if there is a connection
        """
        self._queue_size = queue_size
        self._threshold = max(1, queue_size // 2)
        self._give = give
        self._used = 0
        self._paused = False
        self.one_is_asked_for = False
        """With a queue of size 0: whether a message was requested that has not arrived yet."""

    def use(self, messages: int) -> None:
        """Counts messages that left the queue; at half the queue size, sends permits for the counted
        messages.
        """
        if self._queue_size == 0:
            return
        self._used += messages
        if self._used >= self._threshold and not self._paused:
            used, self._used = self._used, 0
            self._give(used)

    def ask_for_one(self) -> None:
        """Requests one message; for a queue of size 0."""
        if self._queue_size == 0 and not self.one_is_asked_for and not self._paused:
            self.one_is_asked_for = True
            self._give(1)

    @property
    def queue_size(self) -> int:
        """The present size of the queue, in messages."""
        return self._queue_size

    def arrived(self, messages: int) -> None:
        """Called when messages have arrived."""

    def ran_dry(self) -> None:
        """Called when the program wants a message, but the queue is empty."""

    def end(self) -> None:
        """Called when the consumer is closed or has failed."""

    def widen(self, queue_size: int) -> None:
        """Enlarges the queue; a smaller size has no effect."""
        more = queue_size - self._queue_size
        if more > 0:
            self._queue_size = queue_size
            self._threshold = max(1, queue_size // 2)
            if self._paused:
                self._used += more
            else:
                self._give(more)

    def pause(self) -> None:
        """Sends no permits until :meth:`resume`."""
        self._paused = True

    def resume(self, *, waited: bool) -> None:
        """Continues after :meth:`pause`.

        :param waited: whether the program waits for a message
        """
        if not self._paused:
            return
        self._paused = False
        if waited:
            self.ask_for_one()
        self.use(0)

    def attached(self, *, listened: bool, waited: bool) -> None:
        """Sends permits on a new connection, on which the broker has no permits yet.

        :param listened: whether a callback takes the messages as they arrive
        :param waited: whether the program waits for a message
        """
        if self._paused:
            self._used = self._queue_size
            self.one_is_asked_for = False
            return
        self._used = 0
        self.one_is_asked_for = self._queue_size == 0 and (waited or (listened and self.one_is_asked_for))
        permits = 1 if self.one_is_asked_for else self._queue_size
        if permits:
            self._give(permits)


class StartPosition:
    """The start position of a consumer: earlier messages, which the broker may deliver, are skipped.
    ``MessageId.earliest`` and ``MessageId.latest`` skip nothing.
    """

    __slots__ = ("_start", "inclusive")

    def __init__(self, start: MessageId | None, inclusive: bool) -> None:
        """:param inclusive: whether the message with the id ``start`` is itself delivered"""
        if start is not None and (start == MessageId.latest or start.ledger_id() < 0):
            start = None
        self._start = start
        self.inclusive = inclusive

    @property
    def matters(self) -> bool:
        """Whether messages before the start can still arrive, so that :meth:`skips` has to be called."""
        return self._start is not None

    def skips(self, found: MessageId) -> bool:
        """Whether a message or an entry is before the start position and must be skipped."""
        start = self._start
        if start is None:
            return False
        if found.position != start.position:
            if found.position < start.position:
                return True
            self._start = None
            return False
        if start.batch_index() < 0 or found.batch_index() < 0:
            return not self.inclusive and start.batch_index() < 0
        if self.inclusive:
            return found.batch_index() < start.batch_index()
        return found.batch_index() <= start.batch_index()

    def is_before(self, last: MessageId) -> bool | None:
        """Returns whether a consumer that starts at this position still receives the topic's last message,
        ``last``; None: the start position is not a message.
        """
        start = self._start
        if start is None:
            return None
        if start.batch_index() < 0 and last.position == start.position:
            return self.inclusive
        return last >= start if self.inclusive else last > start
