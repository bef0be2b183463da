"""Stops the process after a failed write or sync."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.io.interfaces import Io


class StoreFailure:
    """The first failure stops the process, because the state of the disk is unknown then."""

    def __init__(self, io: Io) -> None:
        self.happened = False
        self._io = io
        self._last_words: list[Callable[[str], None]] = []

    def before_stopping(self, last_words: Callable[[str], None]) -> None:
        """Calls ``last_words`` with the failed operation before the process stops."""
        self._last_words.append(last_words)

    def __call__(self, what: str, error: BaseException) -> None:
        self.happened = True
        for say in self._last_words:
            say(what)
        self._io.stop_process(f"{what}: {error}; the process stops, nothing acknowledged is lost")
