"""Rules for loading topics: in which order topics are loaded, how many at the same time, and how long the
pause after a failure is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from magnetar.broker.topics.any_topic import AnyBaseTopic, AnyTopic
from magnetar.errors import ServiceNotReady
from magnetar.io.interfaces import Clock, Future, Loop
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.io.waiting import settle

if TYPE_CHECKING:
    from magnetar.broker.serving.topics import ServedTopics

AT_ONCE = 50
"""The maximum number of concurrent recoveries. Each recovery makes sequential requests to the metadata store
and several bookies. With more recoveries at a time, no recovery would end sooner, and the recoveries that
clients wait for would end later.
"""

_FIRST_SECONDS = 1.0
_LONGEST_SECONDS = 60.0
"""The longest pause after a failure, in seconds; each further failure doubles the pause."""
_FORGOTTEN_SECONDS = 600.0
"""If a topic does not fail for this many seconds after a pause, its next pause is the shortest again."""


class Recoveries:
    """The queue of recoveries. Topics that a client waits for come before other topics; within each group,
    first come, first served.

    If a client waits for a topic, the topics on which this topic depends must be marked with :meth:`hurry`,
    too; the code that loads those topics marks them.
    """

    def __init__(self, loop: Loop, most: int = AT_ONCE) -> None:
        self._loop = loop
        self._most = most
        self._running = 0
        self._hurried: set[str] = set()
        """Topics that a client waits for, from the client's request until :meth:`over`."""
        self._first: dict[str, Future[None]] = {}
        self._others: dict[str, Future[None]] = {}

    @property
    def running(self) -> int:
        return self._running

    @property
    def waiting(self) -> int:
        return len(self._first) + len(self._others)

    def hurry(self, name: str) -> None:
        """Gives priority to a topic that a client waits for; the topic may be queued now or later."""
        self._hurried.add(name)
        waiter = self._others.pop(name, None)
        if waiter is not None:
            self._first[name] = waiter

    def over(self, name: str) -> None:
        """Reports that no client waits for a topic any more."""
        self._hurried.discard(name)

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """Waits until the managed ledger of a topic may be recovered, and counts the ``async with`` block as
        the recovery.

        :param name: the name of the topic, unique among the waiting topics
        """
        if self._running >= self._most:
            await self._wait(name)
        else:
            self._running += 1
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, name: str) -> None:
        waiter = self._loop.create_future()
        (self._first if name in self._hurried else self._others)[name] = waiter
        try:
            await waiter
        except BaseException:
            if self._first.pop(name, None) is None and self._others.pop(name, None) is None:
                # Cancelled after the turn was handed over: the next one gets it.
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Lets the next recovery in the queue begin in place of the recovery that has ended."""
        waiting = self._first or self._others
        if not waiting:
            self._running -= 1
            return
        settle(waiting.pop(next(iter(waiting))))


class Failures:
    """The failed topics of one broker, each with the pause before its next load. Without a pause, a topic
    that fails whenever it is loaded would take the broker's time from other topics.
    """

    def __init__(self, loop: Loop, clock: Clock, served: ServedTopics) -> None:
        self._clock = clock
        self._served = served
        self._tasks = TaskScope(loop, "failed topics", owner_goes_on)
        self._pauses: dict[str, tuple[float, float]] = {}
        """The last pause of each topic in seconds, and its end by the monotonic clock, by the topic's full
        name."""

    def __len__(self) -> int:
        """Returns the number of remembered topics, which have failed in the last minutes."""
        return len(self._pauses)

    def watch(self, topic: AnyTopic) -> None:
        """Closes a topic if it fails; a later request loads it again, after a pause."""
        topic.on_failure = self._failed
        if topic.failure is not None:
            self._failed(topic)

    def _failed(self, topic: AnyBaseTopic) -> None:
        name = topic.full_name
        self.delay(name)
        live = self._served.loaded.get(name)
        if live is topic and not topic.closing:
            self._tasks.start(self._close(live), "closing a topic")

    async def _close(self, topic: AnyTopic) -> None:
        try:
            topic.disown()
        finally:
            # Whatever else is wrong with the topic: another one of its name can be loaded then.
            await self._served.unload_topic(topic)

    def delay(self, name: str) -> float:
        """Records the failure of a topic; returns the pause before its next load, in seconds."""
        now = self._clock.monotonic()
        for other in [other for other, (_, end) in self._pauses.items() if now > end + _FORGOTTEN_SECONDS]:
            del self._pauses[other]
        last, _ = self._pauses.pop(name, (0.0, 0.0))
        pause = min(max(2 * last, _FIRST_SECONDS), _LONGEST_SECONDS)
        self._pauses[name] = (pause, now + pause)
        return pause

    def check(self, name: str) -> None:
        """Checks that a topic may be loaded now.

        :raises ServiceNotReady: the topic has failed, and its pause is not over; the client tries again
        """
        _, end = self._pauses.get(name, (0.0, 0.0))
        left = end - self._clock.monotonic()
        if left > 0:
            raise ServiceNotReady(
                f"{name} failed because of an internal error, which the broker's log describes. It can be "
                f"loaded again in {left:.1f} seconds"
            )
