"""Watches files, to read them again when they have changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from magnetar.io.interfaces import Cancellable, Io, Worker
from magnetar.io.waiting import run_job

_Seen = tuple[tuple[int, int, int] | None, ...]


class WatchedFiles:
    """Reports when a file was changed or replaced."""

    def __init__(
        self, io: Io, worker: Worker, files: Sequence[Path], seconds: float, changed: Callable[[], None]
    ) -> None:
        """:param worker: runs the checks

        :param seconds: between two checks; 0: no checks
        :param changed: called in the loop
        """
        self._io = io
        self._worker = worker
        self._files = tuple(files)
        self._seconds = seconds
        self._changed = changed
        self._seen = self._look()
        self._timer: Cancellable | None = None
        self._closed = False
        if self._files and seconds > 0:
            self._wait()

    def _wait(self) -> None:
        if not self._closed:
            self._timer = self._io.loop.call_later(self._seconds, self._begin)

    def _begin(self) -> None:
        self._io.loop.create_task(self._compare())

    async def _compare(self) -> None:
        seen = await run_job(self._io.loop, self._worker, self._look)
        if self._closed:
            return
        if seen != self._seen:
            self._seen = seen
            self._changed()
        self._wait()

    def _look(self) -> _Seen:
        return tuple(_identity(path) for path in self._files)

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()


def _identity(path: Path) -> tuple[int, int, int] | None:
    """Returns values that differ between a file and its replacement; None: the file is not accessible."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
