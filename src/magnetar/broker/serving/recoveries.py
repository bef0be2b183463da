"""Limits how many managed ledgers are recovered at the same time, and orders those that wait."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from magnetar.io.interfaces import Future, Loop
from magnetar.io.waiting import settle

AT_ONCE = 50
"""Each recovery makes requests to the metadata store and several bookies, one after the other. With more at
once, none ends sooner, and those that a client waits for end later."""


class Recoveries:
    """Topics that a client waits for come before the others; within each group, first come, first served.

    A topic that such a topic depends on counts as one that a client waits for; its loader says so.
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
        """A client waits for the topic, which may be queued already or not yet."""
        self._hurried.add(name)
        waiter = self._others.pop(name, None)
        if waiter is not None:
            self._first[name] = waiter

    def over(self, name: str) -> None:
        """No client waits for the topic any more."""
        self._hurried.discard(name)

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """Waits until the managed ledger may be recovered.

        :param name: distinct from the names of all others that wait
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
        """Hands the turn to the next in the queue, which counts in place of this one."""
        waiting = self._first or self._others
        if not waiting:
            self._running -= 1
            return
        settle(waiting.pop(next(iter(waiting))))
