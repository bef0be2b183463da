"""Bounds on what is sent to consumers in a second: of a subscription, a topic, a group of them, the broker.

Tokens are taken once for a run of entries, after it was sent: what was sent beyond them is paid by waiting.
Who finds a limiter empty waits in its row, and the limiter has one timer for all that wait. They come in the
order of the row, so that nobody who is asked to send more often gets more.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from magnetar.broker.flow.token_bucket import TokenBucket
from magnetar.broker.policies.values import DispatchRate
from magnetar.invariants import must
from magnetar.io.interfaces import Clock
from magnetar.io.wheel import TimerWheel
from magnetar.ledger.entry_run import EntryRun

_STEP_SECONDS = 0.005
"""Tokens come at most so often: what comes while a run is being sent is sent with the next one."""

_SAMPLE_SECONDS = 1.0
"""Over which it is measured at least how fast a topic is published to."""

_ANY = 1 << 62


class LimitedBy(Enum):
    """Whose limit it is, by its name in statistics."""

    SUBSCRIPTION = "Subscription"
    TOPIC = "Topic"
    BROKER = "Broker"
    GROUP = "ResourceGroup"
    REPLICATOR = "Replicator"


Published = Callable[[], tuple[int, int]]
"""Messages and bytes that were published to a topic since it was loaded."""


class DispatchLimiter:
    """A bucket for messages and one for bytes, and the row of those who wait for either."""

    def __init__(
        self,
        wheel: TimerWheel,
        clock: Clock,
        kind: LimitedBy,
        rate: DispatchRate,
        published: Published | None = None,
    ) -> None:
        """:param published: for rates that are relative to it"""
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
        self._timer: Any = None
        self._serving = False
        self._set(0.0, 0.0)

    def use(self, rate: DispatchRate) -> None:
        """Goes by another rate from now on, as if nothing had been sent; who waits is asked again soon."""
        if rate == self._rate:
            return
        self._rate = rate
        self._messages = self._bytes = None
        self._set(0.0, 0.0)
        self._plan()

    @property
    def limited(self) -> bool:
        """Whether there is a bound at all."""
        return self._messages is not None or self._bytes is not None

    @property
    def rate(self) -> DispatchRate:
        """By what it goes."""
        return self._rate

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._row)

    def _set(self, messages_more: float, bytes_more: float) -> None:
        """Fits the buckets to the rate.

        :param messages_more: a second; what is published, where the rate is relative to it
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
        """Messages and bytes that may be sent now; below 1: none."""
        self._follow_publishers(now)
        messages = _ANY if self._messages is None else self._messages.available(now)
        size = _ANY if self._bytes is None else self._bytes.available(now)
        return messages, size

    def take(self, messages: int, size: int) -> None:
        """So much was sent."""
        if self._messages is not None:
            self._messages.take(messages)
        if self._bytes is not None:
            self._bytes.take(size)

    # Those who wait

    def wait(self, throttle: Throttle) -> None:
        """Has it go on when there is room again, behind those who wait already."""
        self._row[throttle] = None
        if self._timer is None and not self._serving:
            self._plan()

    def leave(self, throttle: Throttle) -> None:
        """It does not wait any more."""
        self._row.pop(throttle, None)
        if not self._row and self._timer is not None:
            # It may be far off, and would keep what it wakes.
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
            # Whatever one of them has met with: the others wait for nothing else.
            self._plan()

    def check(self) -> None:
        """:raises BrokenInvariant: somebody waits whom nobody will wake"""
        must(not self._row or self._timer is not None, self.kind.value, "keeps", len(self._row), "waiting")


class Throttle:
    """All limiters that bound what one subscription is sent.

    :param go_on: has its dispatcher send what it can
    :param caught_up: whether the subscription is near the end of its topic
    """

    def __init__(
        self,
        clock: Clock,
        go_on: Callable[[], None],
        caught_up: Callable[[], bool],
        *,
        count_messages: bool = True,
        bound_if_caught_up: bool = True,
    ) -> None:
        self._clock = clock
        self._go_on = go_on
        self._caught_up = caught_up
        self.count_messages = count_messages
        """A batch counts as its messages; else as one."""
        self.bound_if_caught_up = bound_if_caught_up
        self.limiters: Sequence[DispatchLimiter] = ()
        self.in_turn = False
        """It has waited, and is being served."""
        self._bound = True
        self.messages = 0
        """How many messages, or batches, may be sent now: as of the last time it was admitted."""
        self.size = 0
        """The same in bytes."""
        self.held_back: dict[tuple[LimitedBy, bool], int] = {}
        """How often, by whose limit, and whether it was that on messages."""
        self.held_by: DispatchLimiter | None = None
        """Whose row it waits in, or waited in last."""

    def use(self, limiters: Sequence[DispatchLimiter]) -> None:
        """From now on these bound it."""
        for limiter in self.limiters:
            if limiter not in limiters:
                limiter.leave(self)
        self.limiters = tuple(limiters)

    def serve(self) -> None:
        """Its turn has come."""
        self.in_turn = True
        try:
            self._go_on()
        finally:
            self.in_turn = False

    def admits(self) -> bool:
        """Whether anything may be sent now, and how much; if not, it goes on by itself when something may."""
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
        """How many of the entries [first, first + count) are sent now, at least one; the last may be much.

        :param sizes: messages of each, from ``first`` on
        """
        return self.fitting_of(run, range(first, first + count), sizes) if self._bound else count

    def fitting_of(self, run: EntryRun, chosen: Sequence[int], sizes: Sequence[int]) -> int:
        """The same of the entries with these indexes."""
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
        """So much was sent."""
        if not self._bound:
            return
        counted = messages if self.count_messages else entries
        for limiter in self.limiters:
            limiter.take(counted, size)

    def close(self) -> None:
        """Nothing is sent any more."""
        for limiter in self.limiters:
            limiter.leave(self)


def _within(amounts: Sequence[int], count: int, most: int) -> int:
    """How many of the first ``count`` amounts are begun before ``most`` is used up."""
    if sum(amounts[:count]) <= most:
        return count
    for index in range(count):
        most -= amounts[index]
        if most <= 0:
            return index + 1
    return count
