"""Full-screen mode: draws on the terminal, decodes keys, and delays signals until the terminal is
restored.
"""

from __future__ import annotations

import codecs
import os
import re
import signal
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from magnetar.cli.printable import fitted

_TAKE = "\x1b[?1049h\x1b[?25l\x1b[?7l"
"""Escape sequences that switch to the alternate screen, hide the cursor and disable line wrap."""
_GIVE_BACK = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_BEGIN, _END = "\x1b[?2026h\x1b[H", "\x1b[?2026l"
"""Escape sequences that begin a synchronized update and move the cursor to the upper left, and that end the
update; a terminal without synchronized updates draws at once.
"""
_BOLD, _REVERSED, _PLAIN = "\x1b[1m", "\x1b[7m", "\x1b[0m"
_NAMES = {
    "A": "up",
    "B": "down",
    "H": "home",
    "F": "end",
    "1~": "home",
    "4~": "end",
    "5~": "page up",
    "6~": "page down",
    "7~": "home",
    "8~": "end",
}
_SEQUENCE = re.compile(r"\x1b(?:O(.)|\[([0-9;?]*)([@-~]))", re.DOTALL)
_BEGUN = re.compile(r"\x1b(?:O|\[[0-9;?]{0,16})?")
_LETTERS = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\b": "backspace", "\x1b": "escape"}
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NOTED = (*ENDING, signal.SIGTSTP, signal.SIGWINCH)


def at_terminal() -> bool:
    """Whether input and output are a terminal on which the program can draw."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


@contextmanager
def taken() -> Iterator[None]:
    """A context manager that puts the terminal into full-screen raw mode: keys arrive unbuffered and without
    echo. :kbd:`^S` is disabled, because it would also block the end of the program.
    """
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


def drawn(head: str, status: str, lines: Sequence[str], foot: str, mark: int = 0) -> None:
    """Draws the whole screen; cuts lines and texts that do not fit.

    :param lines: the lines of the table; the first contains the titles
    :param mark: index of the marked line in ``lines``; 0, the index of the titles: no line is marked
    """
    width, height = size()
    marked = [_BOLD + fitted(head, width) + _PLAIN, fitted(status, width)]
    marked += [
        _REVERSED + fitted(line, width) + _PLAIN if index in (0, mark) else fitted(line, width)
        for index, line in enumerate(lines[: max(1, height - 3)])
    ]
    marked += [" " * width] * max(0, height - 1 - len(marked))
    marked.append(fitted(foot, width))
    _write(_BEGIN + "\r\n".join(marked[:height]) + _END)


def size() -> tuple[int, int]:
    """Returns the current number of columns and of lines of the terminal."""
    found = os.get_terminal_size(sys.stdout.fileno())
    # Terminals without a size report 0.
    return found.columns or 80, found.lines or 24


def rows() -> int:
    """Returns the number of lines for topics, excluding head, status, titles and foot."""
    return max(1, size()[1] - 4)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


class Keys:
    """Decodes keys from bytes; the sequence of a key can arrive in pieces."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        self._rest = ""

    @property
    def begun(self) -> bool:
        """Whether the bytes so far end in the middle of an escape sequence."""
        return bool(self._rest)

    def of(self, data: bytes) -> list[str]:
        """Returns the pressed keys: letters, and other keys by name; unknown keys are left out.

        :param data: the next bytes; empty: no more bytes have followed in time, so an incomplete sequence is
            the key Escape
        """
        text = self._rest + self._decoder.decode(data)
        self._rest = ""
        found: list[str] = []
        while text:
            sequence = _SEQUENCE.match(text)
            if sequence is not None:
                known = _NAMES.get(sequence[1] or f"{sequence[2]}{sequence[3]}")
                found += [known] if known else []
                text = text[sequence.end() :]
                continue
            if data and _BEGUN.fullmatch(text):
                self._rest = text
                break
            found.append(_LETTERS.get(text[0], text[0]))
            text = text[1:]
        return found


class Signals:
    """Records signals; a file descriptor becomes readable when a signal has arrived."""

    def __init__(self) -> None:
        self.readable, self._writable = os.pipe()
        os.set_blocking(self.readable, False)
        os.set_blocking(self._writable, False)
        self._came: set[int] = set()

    @contextmanager
    def noted(self) -> Iterator[None]:
        """A context manager: while its block runs, signals are only recorded, without their default
        effect.
        """
        before = {each: signal.signal(each, lambda number, _: self._came.add(number)) for each in _NOTED}
        woken_before = signal.set_wakeup_fd(self._writable, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(woken_before)
            for number, handler in before.items():
                signal.signal(number, handler)

    def wake(self) -> None:
        """Wakes the thread that waits on the file descriptor; callable from any thread."""
        # A full pipe wakes as well.
        with suppress(BlockingIOError):
            os.write(self._writable, b"\0")

    def take(self) -> set[int]:
        """Returns the numbers of the signals that have arrived since the last call."""
        with suppress(BlockingIOError):
            while os.read(self.readable, 4096):
                pass
        came, self._came = self._came, set()
        return came
