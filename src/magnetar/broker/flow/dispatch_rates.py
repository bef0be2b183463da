"""Limits of the messages and bytes sent to consumers per second: for a subscription, a topic, a resource
group, the broker.

Tokens are taken once per run of entries, after it was sent; a debt delays the next run. A dispatcher that
finds a limiter empty joins the limiter's queue, and the limiter has one timer for the queue. Dispatchers are
served in the order of the queue, so that a dispatcher that asks more often does not get more.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from enum import Enum

from magnetar.broker.flow.rate_limits import TokenBucket
from magnetar.broker.policies.values import DispatchRate
from magnetar.invariants import Fail, must, violated
from magnetar.io.interfaces import Cancellable, Clock
from magnetar.io.wheel import TimerWheel
from magnetar.ledger.interface import EntryRun

_STEP_SECONDS = 0.005
"""The minimum time between two refills, in seconds: the tokens that accrue while a run is sent are for the
next run."""

_SAMPLE_SECONDS = 1.0
"""The minimum time, in seconds, over which the publish rate of a topic is measured, for relative rates."""

_ANY = 1 << 62


class LimitedBy(Enum):
    """What a limit applies to; the value is the name of the limit in statistics."""

    SUBSCRIPTION = "Subscription"
    TOPIC = "Topic"
    BROKER = "Broker"
    GROUP = "ResourceGroup"
    REPLICATOR = "Replicator"


Published = Callable[[], tuple[int, int]]
"""Returns the messages and bytes that were published to a topic since it was loaded."""


class DispatchLimiter:
    """Two token buckets, for messages and for bytes, with a queue of dispatchers that wait for tokens."""

    def __init__(
        self,
        wheel: TimerWheel,
        clock: Clock,
        kind: LimitedBy,
        rate: DispatchRate,
        published: Published | None = None,
    ) -> None:
        """:param published: returns the published messages and bytes, for rates relative to the publish
        rate"""
        self._wheel = wheel
        self._clock = clock
        self.kind = kind
        self._published = published
        self._rate = rate
        self._messages: TokenBucket | None = None
        self._bytes: TokenBucket | None = None
        self._sampled_at = clock.monotonic()
        self._sample = published() if published is not None else (0, 0)
        self._row: dict[Throttle, None] = {}
        self._timer: Cancellable | None = None
        self._serving = False
        self._set(0.0, 0.0)

    def use(self, rate: DispatchRate) -> None:
        """Applies another rate, with full buckets; waiting dispatchers are checked again soon."""
        if rate == self._rate:
            return
        self._rate = rate
        self._messages = self._bytes = None
        self._set(0.0, 0.0)
        self._plan()

    @property
    def limited(self) -> bool:
        """Whether messages or bytes are limited."""
        return self._messages is not None or self._bytes is not None

    @property
    def rate(self) -> DispatchRate:
        """The limit in effect."""
        return self._rate

    @property
    def waiting(self) -> int:
        """The number of waiting dispatchers."""
        return len(self._row)

    def _set(self, messages_more: float, bytes_more: float) -> None:
        """Sets the buckets to the rate.

        :param messages_more: messages per second to add to the rate: the publish rate if the rate is relative
            to the publish rate, else 0
        :param bytes_more: bytes per second to add, likewise
        """
        rate, now = self._rate, self._clock.monotonic()
        self._messages = self._fitted(self._messages, rate.messages, messages_more, now)
        self._bytes = self._fitted(self._bytes, rate.size, bytes_more, now)

    def _fitted(self, bucket: TokenBucket | None, amount: int, more: float, now: float) -> TokenBucket | None:
        if amount <= 0:
            return None
        period = max(1, self._rate.period_seconds)
        rate, capacity = amount / period + more, amount + more * period
        if bucket is None:
            return TokenBucket(rate, capacity, now, _STEP_SECONDS)
        bucket.use(rate, capacity, now)
        return bucket

    def _follow_publishers(self, now: float) -> None:
        passed = now - self._sampled_at
        if self._published is None or not self._rate.relative_to_publish or passed < _SAMPLE_SECONDS:
            return
        former, self._sample, self._sampled_at = self._sample, self._published(), now
        self._set((self._sample[0] - former[0]) / passed, (self._sample[1] - former[1]) / passed)

    def room(self, now: float) -> tuple[float, float]:
        """Returns the numbers of messages and bytes that may be sent now; a number below 1 means none."""
        self._follow_publishers(now)
        messages = _ANY if self._messages is None else self._messages.available(now)
        size = _ANY if self._bytes is None else self._bytes.available(now)
        return messages, size

    def take(self, messages: int, size: int) -> None:
        """Takes tokens for messages and bytes that were sent."""
        if self._messages is not None:
            self._messages.take(messages)
        if self._bytes is not None:
            self._bytes.take(size)

    # The queue

    def wait(self, throttle: Throttle) -> None:
        """Adds a throttle at the end of the queue; the throttle is served when there are tokens again."""
        before = len(self._row)
        self._row[throttle] = None
        if self._timer is None and not self._serving:
            self._plan()
            if before:
                what = f"dispatchers that wait for the limit of the {self.kind.value.lower()} without a timer"
                violated(throttle.fail, what, 0, before)

    def leave(self, throttle: Throttle) -> None:
        """Removes a throttle from the queue."""
        self._row.pop(throttle, None)
        if not self._row and self._timer is not None:
            # Its time may be far off, and it would keep the dispatcher in memory.
            self._timer.cancel()
            self._timer = None

    def _plan(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._row:
            self._timer = self._wheel.schedule(self._seconds_to_wait(), self._serve)

    def _seconds_to_wait(self) -> float:
        now, seconds = self._clock.monotonic(), 0.0
        for bucket in (self._messages, self._bytes):
            if bucket is not None:
                seconds = max(seconds, bucket.seconds_until(1, now))
        return seconds

    def _serve(self) -> None:
        self._timer = None
        self._serving = True
        try:
            for _ in range(len(self._row)):
                if not self._row or min(self.room(self._clock.monotonic())) < 1:
                    break
                throttle = next(iter(self._row))
                del self._row[throttle]
                throttle.serve()
        finally:
            self._serving = False
            # After an error in one of them too: the others wait only for this timer.
            self._plan()

    def check(self) -> None:
        """Checks invariants.

        :raises BrokenInvariant: a throttle waits without a timer
        """
        must(not self._row or self._timer is not None, self.kind.value, "keeps", len(self._row), "waiting")


class Throttle:
    """All limiters that apply to one subscription.

    :param go_on: makes the dispatcher send as much as it can
    :param caught_up: whether the subscription is near the end of its topic
    :param fail: closes the topic after an internal error
    """

    def __init__(
        self,
        clock: Clock,
        go_on: Callable[[], None],
        caught_up: Callable[[], bool],
        fail: Fail,
        *,
        count_messages: bool = True,
        bound_if_caught_up: bool = True,
    ) -> None:
        self._clock = clock
        self._go_on = go_on
        self._caught_up = caught_up
        self.fail = fail
        self.count_messages = count_messages
        """Whether a batch counts as its number of messages, instead of as one message."""
        self.bound_if_caught_up = bound_if_caught_up
        self.limiters: Sequence[DispatchLimiter] = ()
        self.in_turn = False
        """Whether the throttle was taken from the queue and is being served."""
        self._bound = True
        self.messages = 0
        """The messages, or batches, that may be sent, as of the last call of :meth:`admits`."""
        self.size = 0
        """The bytes that may be sent, as of the last call of :meth:`admits`."""
        self.held_back: dict[tuple[LimitedBy, bool], int] = {}
        """How often the throttle had to wait, by kind of limit and by what was used up: True: messages,
        False: bytes."""
        self.held_by: DispatchLimiter | None = None
        """The limiter in whose queue the throttle waits or waited last; None: it has never waited."""

    def use(self, limiters: Sequence[DispatchLimiter]) -> None:
        """Replaces the limiters that apply to the subscription."""
        for limiter in self.limiters:
            if limiter not in limiters:
                limiter.leave(self)
        self.limiters = tuple(limiters)

    def serve(self) -> None:
        """Continues sending when the throttle is at the head of the queue of a limiter."""
        self.in_turn = True
        try:
            self._go_on()
        finally:
            self.in_turn = False

    def admits(self) -> bool:
        """Whether messages may be sent now; sets :attr:`messages` and :attr:`size`. If not, the dispatcher is
        called as soon as messages may be sent.
        """
        self._bound = self.bound_if_caught_up or not self._caught_up()
        messages = size = float(_ANY)
        if self._bound:
            now = self._clock.monotonic()
            for limiter in self.limiters:
                of_messages, of_bytes = limiter.room(now)
                if of_messages < 1 or of_bytes < 1:
                    reason = (limiter.kind, of_messages < 1)
                    self.held_back[reason] = self.held_back.get(reason, 0) + 1
                    self.held_by = limiter
                    limiter.wait(self)
                    return False
                if not self.in_turn and limiter.waiting:
                    self.held_by = limiter
                    limiter.wait(self)
                    return False
                messages, size = min(messages, of_messages), min(size, of_bytes)
        self.messages, self.size = int(messages), int(size)
        return True

    def fitting(self, run: EntryRun, first: int, count: int, sizes: Sequence[int]) -> int:
        """Returns how many of the entries [first, first + count) to send within the limits, at least one.

        :param sizes: the number of messages of each entry, from ``first`` on
        """
        return self.fitting_of(run, range(first, first + count), sizes) if self._bound else count

    def fitting_of(self, run: EntryRun, chosen: Sequence[int], sizes: Sequence[int]) -> int:
        """Returns how many of the entries with these indexes to send now, like :meth:`fitting`."""
        count = len(chosen)
        if not self._bound:
            return count
        if self.count_messages:
            count = _within(sizes, count, self.messages)
        else:
            count = min(count, self.messages)
        lengths = array("q", (run.ends[index] - run.starts[index] for index in chosen[:count]))
        return max(1, _within(lengths, count, self.size))

    def take(self, entries: int, messages: int, size: int) -> None:
        """Takes tokens for entries that were sent."""
        if not self._bound:
            return
        counted = messages if self.count_messages else entries
        if counted < 0 or size < 0:
            violated(self.fail, "messages and bytes sent within a limit", "at least 0", (counted, size))
        for limiter in self.limiters:
            limiter.take(counted, size)

    def close(self) -> None:
        """Leaves the queues of its limiters and does not join them again."""
        for limiter in self.limiters:
            limiter.leave(self)


def _within(amounts: Sequence[int], count: int, most: int) -> int:
    """Returns how many of the first ``count`` amounts it takes to reach the sum ``most``; ``count`` if all of
    them together are at most ``most``.
    """
    if sum(amounts[:count]) <= most:
        return count
    for index in range(count):
        most -= amounts[index]
        if most <= 0:
            return index + 1
    return count
