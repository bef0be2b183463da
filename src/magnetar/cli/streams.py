"""Standard streams that are closed, before a command runs or while it prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from io import FileIO, TextIOWrapper

Main = Callable[[Sequence[str] | None], int]


def on_standard_streams(main: Main) -> Callable[..., int]:
    """A command that runs quietly with closed streams, and ends quietly when nobody reads what it prints."""

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
    """For who found that nobody reads it: the interpreter flushes once more when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_missing() -> None:
    """A closed stream's number would go to the next file or socket, and what is printed into that."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = TextIOWrapper(FileIO(1, "w", closefd=False), "utf-8")
    if sys.stderr is None:
        sys.stderr = TextIOWrapper(FileIO(2, "w", closefd=False), "utf-8")
