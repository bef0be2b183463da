"""Memory that several share: what does not fit waits, and is refused when too much waits already."""

from __future__ import annotations

from collections import deque
from typing import Any

from magnetar.io.interfaces import Loop


class NoRoom(Exception):
    """The room cannot be had: ``ever`` tells whether it could be when others have left."""

    def __init__(self, reason: str, *, ever: bool) -> None:
        super().__init__(reason)
        self.ever = ever


class Room:
    """So many bytes, given first come, first served."""

    def __init__(self, loop: Loop, size: int, *, waiting: int, seconds: float) -> None:
        """:param size: bytes in all

        :param waiting: how many may wait at a time
        :param seconds: how long each of them waits
        """
        self._loop = loop
        self.size = size
        self.used = 0
        self._most_waiting = waiting
        self._seconds = seconds
        self._waiting: deque[tuple[int, Any]] = deque()

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)

    async def take(self, size: int) -> Held:
        """Waits until ``size`` bytes are free.

        :raises NoRoom: it is more than there is in all, too many wait already, or nothing became free in time
        """
        if size > self.size:
            raise NoRoom(f"{size} bytes of memory are needed, at most {self.size} are available", ever=False)
        if self._waiting or self.used + size > self.size:
            await self._wait(size)
        else:
            self.used += size
        return Held(self, size)

    async def _wait(self, size: int) -> None:
        if len(self._waiting) >= self._most_waiting:
            raise NoRoom(f"{len(self._waiting)} other requests wait for memory", ever=True)
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
    """Room that somebody has, until it is released or forgotten."""

    __slots__ = ("_room", "_size")

    def __init__(self, room: Room, size: int) -> None:
        self._room = room
        self._size = size

    def shrink(self, size: int) -> None:
        """Gives back all but ``size`` bytes."""
        if size < self._size:
            freed, self._size = self._size - size, size
            self._room.give_back(freed)

    def release(self) -> None:
        """Gives all of it back; once it has been, nothing happens."""
        self.shrink(0)

    def __del__(self) -> None:
        self.release()


def _end(turn: Any) -> None:
    if not turn.done():
        turn.set_result(False)
