"""Standard streams: those that are closed before or while a command prints, and emphasis.

Emphasis is only on terminals, and not if ``NO_COLOR`` is set (https://no-color.org).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from io import FileIO, TextIOWrapper
from typing import TextIO

from magnetar.exit_codes import FAILED

Main = Callable[[Sequence[str] | None], int]
_BOLD, _RED, _PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[0m"


def on_standard_streams(main: Main) -> Callable[..., int]:
    """Returns a command that works with closed streams, and ends quietly when its output is closed."""

    @wraps(main)
    def run(arguments: Sequence[str] | None = None) -> int:
        _open_missing()
        try:
            code = main(arguments)
            sys.stdout.flush()
        except BrokenPipeError:
            discard_output()
            return FAILED
        return code

    return run


def discard_output() -> None:
    """Discards further output after a closed pipe, because the interpreter flushes once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_missing() -> None:
    """Opens closed streams: otherwise the next file or socket would get their number, and the output."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = TextIOWrapper(FileIO(1, "w", closefd=False), "utf-8")
    if sys.stderr is None:
        sys.stderr = TextIOWrapper(FileIO(2, "w", closefd=False), "utf-8")


def _shows(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def bold(stream: TextIO, text: str) -> str:
    """Returns a heading for the stream."""
    return f"{_BOLD}{text}{_PLAIN}" if _shows(stream) else text


def red(stream: TextIO, text: str) -> str:
    """Returns an error for the stream."""
    return f"{_RED}{text}{_PLAIN}" if _shows(stream) else text
