"""What happened, step by step: printed when asked for, and a hash that two equal runs share."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from hashlib import blake2b

_KEPT = 60


class Violation(AssertionError):
    """Something happened that must never happen."""


class Trace:
    """:param now: the virtual time

    :param printing: whether each step is written to standard error
    """

    def __init__(self, now: Callable[[], float], *, printing: bool = False) -> None:
        self._now = now
        self._printing = printing
        self._hash = blake2b(digest_size=16)
        self.steps = 0
        self.last: deque[str] = deque(maxlen=_KEPT)

    def note(self, *what: object) -> None:
        """One step; everything in ``what`` must be the same in each run of a seed."""
        self.steps += 1
        line = f"{self._now():12.6f} {' '.join(map(str, what))}"
        self._hash.update(line.encode())
        self.last.append(line)
        if self._printing:
            sys.stderr.write(line + "\n")

    def digest(self) -> str:
        return self._hash.hexdigest()
