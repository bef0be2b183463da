"""Locks, semaphores and limits of memory that use a given loop, not the running one."""

from __future__ import annotations

from collections import deque

from magnetar.io.interfaces import Future, Loop


class FairSemaphore:
    """A semaphore: ``async with semaphore:`` waits, first come, first served, until one of its permits is
    free."""

    __slots__ = ("_free", "_loop", "_most", "_waiters")

    def __init__(self, loop: Loop, most: int = 1) -> None:
        """:param most: the number of permits, at least 1"""
        self._loop = loop
        self._most = self._free = most
        self._waiters: deque[Future[None]] | None = None
        """Created for the first waiter, because an empty deque takes 760 bytes, and a topic has several
        semaphores."""

    @property
    def taken(self) -> int:
        return self._most - self._free

    async def __aenter__(self) -> None:
        if self._free:
            self._free -= 1
            return
        waiter = self._loop.create_future()
        if self._waiters is None:
            self._waiters = deque()
        self._waiters.append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                # Cancelled after the place was handed over: the next waiter gets it.
                self._pass_on()
            raise

    async def __aexit__(self, *_exc: object) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1


class Mutex(FairSemaphore):
    """A lock: ``async with mutex:`` waits until the lock is free; waiting tasks get the lock in the order of
    their arrival.
    """

    __slots__ = ()


class NoRoom(Exception):
    """The requested memory is not available.

    :attr:`ever` tells whether a later request of this size could succeed, after others have released memory.
    """

    def __init__(self, reason: str, *, ever: bool) -> None:
        super().__init__(reason)
        self.ever = ever


class Room:
    """An amount of memory in bytes; requests for parts of it are granted in the order of their arrival."""

    def __init__(self, loop: Loop, size: int, *, waiting: int, seconds: float) -> None:
        """:param size: the total number of bytes
        :param waiting: the maximum number of requests that may wait
        :param seconds: the maximum time in seconds that a request waits
        """
        self._loop = loop
        self.size = size
        self.used = 0
        self._most_waiting = waiting
        self._seconds = seconds
        self._waiting: deque[tuple[int, Future[bool]]] = deque()

    @property
    def is_wanted(self) -> bool:
        """Whether a request waits."""
        return bool(self._waiting)

    async def take(self, size: int) -> Held:
        """Waits until ``size`` bytes are free, and takes them.

        :raises NoRoom: ``size`` exceeds the total, too many requests wait, or not enough bytes became free in
            time
        """
        if size > self.size:
            raise NoRoom(f"{size} bytes of memory are needed, but the limit is {self.size}", ever=False)
        if self._waiting or self.used + size > self.size:
            await self._wait(size)
        else:
            self.used += size
        return Held(self, size)

    async def _wait(self, size: int) -> None:
        if len(self._waiting) >= self._most_waiting:
            raise NoRoom(f"{len(self._waiting)} other requests already wait for memory", ever=True)
        turn = self._loop.create_future()
        entry = (size, turn)
        self._waiting.append(entry)
        timer = self._loop.call_later(self._seconds, _end, turn)
        try:
            got = await turn
        except BaseException:
            if turn.done() and not turn.cancelled() and turn.result():
                self.give_back(size)
            raise
        finally:
            timer.cancel()
            if entry in self._waiting:
                self._waiting.remove(entry)
                self._let_in()
        if not got:
            raise NoRoom(f"no memory became free in {self._seconds:.0f} seconds", ever=True)

    def give_back(self, size: int) -> None:
        self.used -= size
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self.used + self._waiting[0][0] <= self.size:
            size, turn = self._waiting.popleft()
            if not turn.done():
                self.used += size
                turn.set_result(True)


class Held:
    """A part of a :class:`Room`; it is given back by :meth:`release`, or when this object is
    garbage-collected.
    """

    __slots__ = ("_room", "_size")

    def __init__(self, room: Room, size: int) -> None:
        self._room = room
        self._size = size

    def shrink(self, size: int) -> None:
        """Releases all but ``size`` bytes."""
        if size < self._size:
            freed, self._size = self._size - size, size
            self._room.give_back(freed)

    def release(self) -> None:
        """Releases all bytes; a second call has no effect."""
        self.shrink(0)

    def __del__(self) -> None:
        self.release()


def _end(turn: Future[bool]) -> None:
    if not turn.done():
        turn.set_result(False)
