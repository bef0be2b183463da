"""Handles standard streams that are closed before or while a command prints; formats emphasized text.

Text is emphasized on terminals only, unless ``NO_COLOR`` is set (https://no-color.org).
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
    """Decorates the ``main`` function of a command: the command then tolerates closed standard streams, and
    ends silently when a pipe closes its output.
    """

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
    """Redirects standard output to the null device after a pipe was closed, because the interpreter flushes
    the streams again when it exits.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_missing() -> None:
    """Opens the null device for each standard stream that is closed; otherwise the next file that is opened
    would get the stream's descriptor, and output to the stream would be written to this file.
    """
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
    """Returns the text in bold if the stream is a terminal."""
    return f"{_BOLD}{text}{_PLAIN}" if _shows(stream) else text


def red(stream: TextIO, text: str) -> str:
    """Returns the text in red if the stream is a terminal."""
    return f"{_RED}{text}{_PLAIN}" if _shows(stream) else text
