"""Counts operations in progress, and waits for the last of them."""

from __future__ import annotations

from types import TracebackType

from magnetar.io.interfaces import Future, Loop
from magnetar.io.waiting import finished


class InProgress:
    """The operations in progress; each runs ``with`` this object."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._count = 0
        self._idle: Future[None] | None = None

    def __enter__(self) -> None:
        self._count += 1

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._count -= 1
        if not self._count and self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    async def none(self) -> None:
        """Returns when no operation is in progress."""
        while self._count:
            if self._idle is None:
                self._idle = self._loop.create_future()
            await finished(self._loop, self._idle)
