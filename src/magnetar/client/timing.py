"""Time in a client: back-off delays, time limits, expiring items, and periodic checks."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from magnetar.client.exceptions import InvalidConfiguration, PulsarException, Timeout
from magnetar.io.interfaces import Cancellable, Loop, Randomness
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.io.waiting import finished, nobody_waits

INITIAL_SECONDS = 0.1
MAX_SECONDS = 60.0
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
log = logging.getLogger(__name__)


class Backoff:
    """A delay before a retry: it doubles with each attempt, and a random part of up to 20 % is subtracted, so
    that clients do not all retry at the same time.
    """

    __slots__ = ("_initial", "_max", "_next", "_randomness")

    def __init__(
        self, randomness: Randomness, initial: float = INITIAL_SECONDS, maximum: float = MAX_SECONDS
    ) -> None:
        """:param initial: delay before the second attempt, in seconds

        :param maximum: maximum delay, in seconds
        """
        self._randomness = randomness
        self._initial = initial
        self._max = maximum
        self._next = initial

    def next(self) -> float:
        """Returns the next delay, in seconds."""
        delay = self._next
        self._next = min(self._max, delay * 2)
        return delay * (1 - self._randomness.fraction() / 5)

    def reset(self) -> None:
        """Restarts at the initial delay, after a success."""
        self._next = self._initial


@dataclass(frozen=True)
class RedeliveryBackoff:
    """Computes the delay before a redelivery, which grows with each redelivery. The defaults are those of
    Java's ``MultiplierRedeliveryBackoff``.
    """

    min_delay_ms: float = 10_000
    """The delay before the first redelivery, in milliseconds; 0 or more."""
    max_delay_ms: float = 600_000
    """The maximum delay, in milliseconds."""
    multiplier: float = 2.0
    """The factor between consecutive delays; above 1."""

    def check(self) -> None:
        """Checks the delays.

        :raises InvalidConfiguration: a delay or the factor is out of range
        """
        if not 0 <= self.min_delay_ms <= self.max_delay_ms or not self.multiplier > 1:
            raise InvalidConfiguration(
                "a RedeliveryBackoff requires 0 <= min_delay_ms <= max_delay_ms and multiplier > 1, but they "
                f"are {self.min_delay_ms}, {self.max_delay_ms} and {self.multiplier}"
            )

    def seconds(self, redeliveries: int) -> float:
        """Returns the delay before the next redelivery, in seconds.

        :param redeliveries: number of earlier redeliveries
        """
        delay = self.min_delay_ms
        for _ in range(redeliveries):
            if delay <= 0 or delay >= self.max_delay_ms:
                break
            delay *= self.multiplier
        return min(delay, self.max_delay_ms) / 1000


async def within(loop: Loop, seconds: float, coroutine: Coroutine[object, None, T], what: str) -> T:
    """Awaits ``coroutine`` and returns its result; cancels it after ``seconds``.

    :raises Timeout: the coroutine took longer; the message of the error begins with ``what``
    """
    task = TaskScope(loop, what).answer(coroutine)
    # It may fail at the moment in which the caller is cancelled.
    task.add_done_callback(nobody_waits)
    timer = loop.call_later(seconds, task.cancel)
    try:
        await finished(loop, task)
    finally:
        timer.cancel()
        if not task.done():
            task.cancel()
    if task.cancelled():
        raise Timeout(f"{what}: no answer within {seconds:g} s")
    return task.result()


class Expiring(Generic[K]):
    """Items that expire a fixed time after they were added. One timer serves all items; without items, there
    is no timer.
    """

    def __init__(self, loop: Loop, seconds: float, expired: Callable[[list[K]], object]) -> None:
        """:param seconds: time until an item expires, above 0

        :param expired: called with the items that have expired
        """
        self._loop = loop
        self._seconds = seconds
        self._expired = expired
        self._ends: dict[K, float] = {}
        """When each item expires, in the loop's time; the earliest first."""
        self._timer: Cancellable | None = None

    def add(self, each: K) -> None:
        """Adds an item; if it is already present, its time restarts."""
        self._ends.pop(each, None)
        self._ends[each] = self._loop.time() + self._seconds
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._due)

    def remove(self, each: K) -> None:
        self._ends.pop(each, None)

    def remove_where(self, is_one: Callable[[K], bool]) -> None:
        for each in [each for each in self._ends if is_one(each)]:
            del self._ends[each]

    def _due(self) -> None:
        self._timer = None
        now = self._loop.time() + 0.0005
        late: list[K] = []
        for each, end in self._ends.items():
            if end > now:
                self._timer = self._loop.call_at(end, self._due)
                break
            late.append(each)
        for each in late:
            del self._ends[each]
        if late:
            self._expired(late)

    def forget(self) -> None:
        """Removes all items."""
        self._ends.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Looking:
    """Repeats a check periodically, one call at a time. The interval is counted from the end of a check, even
    if the check failed.
    """

    def __init__(self, loop: Loop, name: str, seconds: float, look: Callable[[], Awaitable[None]]) -> None:
        """:param name: the name of the checked topic or topics, for the log

        :param seconds: interval of the checks, in seconds; 0: no checks
        :param look: makes a check
        """
        self._loop = loop
        self._name = name
        self._seconds = seconds
        self._look = look
        self._timer: Cancellable | None = None
        self._tasks = TaskScope(loop, name, owner_goes_on)
        self._ended = False
        self._is_looking = False
        self._again = False

    def look_now(self) -> None:
        """Makes a check now; if a check is in progress, makes another check after that check."""
        if self._ended:
            return
        if self._is_looking:
            self._again = True
            return
        if self._timer is not None:
            self._timer.cancel()
        self._start()

    def begin(self) -> None:
        """Starts checking; the first check follows after one interval."""
        if self._seconds and not self._ended:
            self._timer = self._loop.call_later(self._seconds, self._start)

    def end(self) -> None:
        """Stops the checks, and cancels a check in progress."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        self._tasks.cancel()

    def _start(self) -> None:
        self._is_looking, self._again = True, False
        self._tasks.start(self._run(), "looking up topics")

    async def _run(self) -> None:
        try:
            await self._look()
        except PulsarException as error:
            log.warning("%s: looking up topics failed; trying again later: %s", self._name, error)
        finally:
            self._is_looking = False
            if self._again and not self._ended:
                self._start()
            else:
                self.begin()
