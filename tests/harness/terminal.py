"""A command at a terminal of its own, and somebody who types and looks."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

_SECONDS = 30
_CONTROL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Makes standard input the terminal of whom keys and sizes are signals to."""
_FRAME = re.compile(r"\x1b\[\?2026h(.*?)\x1b\[\?2026l", re.DOTALL)
_COMMAND = re.compile(r"\x1b\[[0-9;?]*[@-~]")


class Terminal:
    """Runs a module of Python, or another program."""

    def __init__(
        self,
        *arguments: str,
        environment: Mapping[str, str],
        program: Sequence[str] = (sys.executable, "-m"),
        columns: int = 120,
        lines: int = 30,
    ) -> None:
        self._master, self._slave = os.openpty()
        self.resize(columns, lines)
        self.mode = self._mode()
        """Of the terminal, before anything ran."""
        self.process = subprocess.Popen(
            [sys.executable, "-c", _CONTROL, *program, *arguments],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env={**environment, "TERM": "xterm-256color"},
        )
        self.written = ""
        """All that it wrote."""

    def writes(self, word: str) -> None:
        """Waits until it wrote that."""
        self._until(lambda: word in self.written, word)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def hang_up(self) -> None:
        """The terminal goes away."""
        os.close(self._slave)
        os.close(self._master)
        self._master = self._slave = -1

    def screen(self) -> list[str]:
        """The lines that were drawn last."""
        frames = _FRAME.findall(self.written)
        return [_COMMAND.sub("", line).rstrip() for line in frames[-1].split("\r\n")] if frames else []

    def marks(self, word: str) -> None:
        """Waits until the line with the word is marked, beside the titles."""
        self._until(lambda: any(word in line for line in self._marked()), f"a mark at {word}")

    def _marked(self) -> list[str]:
        frames = _FRAME.findall(self.written)
        return [line for line in frames[-1].split("\r\n")[3:] if "\x1b[7m" in line] if frames else []

    def sees(self, *words: str, without: str = "") -> list[str]:
        """Waits until all of it is on the screen; the screen."""
        self._until(
            lambda: (
                all(word in "\n".join(self.screen()) for word in words)
                and not (without and without in "\n".join(self.screen()))
            ),
            f"{words} without {without!r}",
        )
        return self.screen()

    def until(self, seen: Callable[[list[str]], bool]) -> list[str]:
        """Waits until the screen is as it should be."""
        self._until(lambda: seen(self.screen()), "what is wanted")
        return self.screen()

    def ends(self) -> int:
        """Waits for its end; the exit code."""
        self._until(lambda: self.process.poll() is not None, "an end")
        self._read(0.0)
        return self.process.returncode

    def stopped(self) -> None:
        """Waits until it stopped itself, with the terminal given back."""
        self._until(lambda: self.written.endswith("\x1b[?1049l"), "the terminal")
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def given_back(self) -> bool:
        """Whether the terminal is as it was before."""
        taken, given = self.written.count("\x1b[?1049h"), self.written.count("\x1b[?1049l")
        return self._mode() == self.mode and taken == given > 0 and self.written.count("\x1b[?25h") == given

    def _mode(self) -> object:
        return termios.tcgetattr(self._slave)

    def _until(self, reached: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _SECONDS
        while not reached():
            if time.monotonic() > deadline or (self.process.poll() is not None and not self._read(0.0)):
                shown = "\n".join(self.screen()) or self.written
                raise AssertionError(f"{what} is not there:\n{shown}")
            self._read(0.1)

    def _read(self, seconds: float) -> bool:
        """Whether there was something."""
        before = len(self.written)
        if self._master < 0:
            time.sleep(seconds)
            return False
        while select.select([self._master], [], [], seconds)[0]:
            self.written += os.read(self._master, 65_536).decode("utf-8", "replace")
            seconds = 0.0
        return len(self.written) > before

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        for each in (self._master, self._slave):
            if each >= 0:
                os.close(each)
