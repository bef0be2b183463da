"""The terminal: switches it to full screen, draws, and restores it."""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from magnetar.cli.printable import fitted

_TAKE = "\x1b[?1049h\x1b[?25l\x1b[?7l"
"""The alternate screen, without a cursor and without line wrap."""
_GIVE_BACK = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_BEGIN, _END = "\x1b[?2026h\x1b[H", "\x1b[?2026l"
"""Surrounds a synchronized update from the upper left; other terminals ignore it."""
_BOLD, _REVERSED, _PLAIN = "\x1b[1m", "\x1b[7m", "\x1b[0m"


def at_terminal() -> bool:
    """Whether input and output are a terminal that can draw."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


@contextmanager
def taken() -> Iterator[None]:
    """Takes the terminal: keys arrive unbuffered, without echo; :kbd:`^S` is disabled, as it would also block
    the end."""
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    changed = termios.tcgetattr(keyboard)
    changed[0] &= ~termios.IXON
    changed[3] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(keyboard, termios.TCSANOW, changed)
    try:
        _write(_TAKE)
        yield
    finally:
        # The terminal may be closed, so that there is nothing to restore.
        with suppress(OSError, termios.error):
            termios.tcsetattr(keyboard, termios.TCSANOW, before)
            _write(_GIVE_BACK)


def drawn(head: str, status: str, lines: Sequence[str], foot: str) -> None:
    """Draws the whole screen; cuts what does not fit.

    :param lines: the first one has the titles
    """
    width, height = size()
    marked = [_BOLD + fitted(head, width) + _PLAIN, fitted(status, width)]
    marked += [_REVERSED + fitted(line, width) + _PLAIN for line in lines[:1]]
    marked += [fitted(line, width) for line in lines[1:]][: max(0, height - 4)]
    marked += [" " * width] * max(0, height - 1 - len(marked))
    marked.append(fitted(foot, width))
    _write(_BEGIN + "\r\n".join(marked[:height]) + _END)


def size() -> tuple[int, int]:
    """Returns the present columns and lines."""
    found = os.get_terminal_size(sys.stdout.fileno())
    # Terminals without a size report 0.
    return found.columns or 80, found.lines or 24


def rows() -> int:
    """Returns the number of lines for topics, without head, status, titles and foot."""
    return max(1, size()[1] - 4)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
