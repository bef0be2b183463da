"""Emphasis in output: only on terminals, and not if ``NO_COLOR`` is set (https://no-color.org)."""

from __future__ import annotations

import os
from typing import TextIO

_BOLD, _RED, _PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[0m"


def _shows(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def bold(stream: TextIO, text: str) -> str:
    """Returns a heading for the stream."""
    return f"{_BOLD}{text}{_PLAIN}" if _shows(stream) else text


def red(stream: TextIO, text: str) -> str:
    """Returns an error for the stream."""
    return f"{_RED}{text}{_PLAIN}" if _shows(stream) else text
