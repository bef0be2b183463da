"""The progress of a command, shown to the user."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TextIO, TypeVar

T = TypeVar("T")

_WIDTH = 30
_EVERY_SECONDS = {True: 0.1, False: 10.0}
"""Seconds between two updates: on a terminal (True), where an update redraws the line, and on another output
(False), where an update writes a further line.
"""


class ProgressBar:
    """Draws a bar on a terminal, and writes a line at intervals elsewhere."""

    def __init__(self, name: str, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._name = name
        self._stream = stream if stream is not None else sys.stderr
        self._terminal = self._stream.isatty()
        self._quiet = quiet
        self._begun = self._told = time.monotonic()
        self._step = ""

    def during(self, text: str, work: Callable[[], T]) -> T:
        """Shows ``text`` as the step while ``work`` runs; returns the result of ``work``."""
        before = self._step
        self.step(text)
        result = work()
        if before:
            self.step(before)
        return result

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Writes the last line, so that later output begins on a new line."""
        self.finish("done" if kind is None else "stopped")

    def step(self, text: str) -> None:
        """Starts the next step."""
        self._step = text
        self._begun = time.monotonic()
        self._tell(f"{self._name}: {text}", final=not self._terminal)

    def update(self, done: int, total: int | None = None, unit: str = "messages") -> None:
        """Shows ``done`` of ``total`` (None: unknown) since the start of the step."""
        now = time.monotonic()
        if now - self._told < _EVERY_SECONDS[self._terminal]:
            return
        self._told = now
        self._tell(self._line(done, total, unit, now - self._begun), final=not self._terminal)

    def done(self, done: int, unit: str = "messages") -> None:
        """Writes the line with the final number of a step."""
        text = self._line(done, None, unit, time.monotonic() - self._begun)
        self._tell(text, final=not self._terminal)

    def finish(self, text: str) -> None:
        """Writes the last line."""
        self._tell(f"{self._name}: {text}", final=True)

    def _line(self, done: int, total: int | None, unit: str, seconds: float) -> str:
        rate = done / seconds if seconds > 0 else 0.0
        bar = ""
        if total:
            filled = min(_WIDTH, _WIDTH * done // total)
            bar = f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {min(100, 100 * done // total)} % "
        of = f" of {total:,}" if total else ""
        return f"{self._name}: {self._step} {bar}{done:,}{of} {unit}, {rate:,.0f}/s"

    def _tell(self, text: str, *, final: bool) -> None:
        if self._quiet:
            return
        if self._terminal:
            self._stream.write(f"\r\x1b[2K{text}" + ("\n" if final else ""))
        else:
            self._stream.write(text + "\n")
        self._stream.flush()
