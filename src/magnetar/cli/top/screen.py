"""The terminal: taken, drawn on, and given back as it was."""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from magnetar.cli.printable import fitted

_TAKE = "\x1b[?1049h\x1b[?25l\x1b[?7l"
"""The other screen, without a cursor; what is too long does not go on in the next line."""
_GIVE_BACK = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_BEGIN, _END = "\x1b[?2026h\x1b[H", "\x1b[?2026l"
"""Around what is to be seen at once, from the upper left; other terminals draw as it comes."""
_BOLD, _REVERSED, _PLAIN = "\x1b[1m", "\x1b[7m", "\x1b[0m"


def at_terminal() -> bool:
    """Whether there is one that can be drawn on and typed at."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


@contextmanager
def taken() -> Iterator[None]:
    """Keys come at once and are not shown; :kbd:`^S` stops nothing, or the end would wait as well."""
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
        # The terminal may be gone, which is why it ends: then there is nothing to give back.
        with suppress(OSError, termios.error):
            termios.tcsetattr(keyboard, termios.TCSANOW, before)
            _write(_GIVE_BACK)


def drawn(head: str, status: str, lines: Sequence[str], foot: str) -> None:
    """All of it at once; what is too much is cut.

    :param lines: the first has the titles
    """
    width, height = size()
    marked = [_BOLD + fitted(head, width) + _PLAIN, fitted(status, width)]
    marked += [_REVERSED + fitted(line, width) + _PLAIN for line in lines[:1]]
    marked += [fitted(line, width) for line in lines[1:]][: max(0, height - 4)]
    marked += [" " * width] * max(0, height - 1 - len(marked))
    marked.append(fitted(foot, width))
    _write(_BEGIN + "\r\n".join(marked[:height]) + _END)


def size() -> tuple[int, int]:
    """Columns and lines, as they are now."""
    found = os.get_terminal_size(sys.stdout.fileno())
    # Terminals without a size say 0.
    return found.columns or 80, found.lines or 24


def rows() -> int:
    """Lines for topics: what head, status, titles and foot leave."""
    return max(1, size()[1] - 4)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
