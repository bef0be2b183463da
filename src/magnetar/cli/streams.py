"""Handles standard streams that are closed before a command runs or while it prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from io import FileIO, TextIOWrapper

Main = Callable[[Sequence[str] | None], int]


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
            return 1
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
