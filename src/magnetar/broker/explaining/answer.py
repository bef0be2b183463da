"""The parts of an explanation."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from magnetar.lazy_dataclass import dataclass

Json = Mapping[str, Any]

MOST_NAMED = 20
"""The most consumers, keys or refusals that an explanation lists."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explains one side of a topic: its producers, or one subscription."""

    reason: str
    """A value of ``Reason`` or ``Hindrance``."""
    sentence: str
    since_ms: int | None = None
    """Ms since 1970; None: unknown."""
    figures: Json = field(default_factory=dict)
    attempt: str = ""
    """A command that resolves it; empty: there is none."""
    look: str = ""
    """A command that shows details; empty: there is none."""

    def json(self, now_ms: int) -> dict[str, Any]:
        found: dict[str, Any] = {"reason": self.reason, "sentence": self.sentence}
        if self.since_ms is not None:
            found["since"] = self.since_ms
            found["seconds"] = max(0, now_ms - self.since_ms) / 1000
        found["figures"] = dict(self.figures)
        if self.attempt:
            found["try"] = self.attempt
        if self.look:
            found["look"] = self.look
        return found


def command(*words: str | int) -> str:
    """Returns a command as it is typed into a shell."""
    return shlex.join(str(word) for word in words)


def counted(number: int, one: str, many: str = "") -> str:
    """Returns a number with its noun, like ``1 message`` or ``2 messages``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def waits(number: int) -> str:
    """Says how many messages wait."""
    return (
        "no messages wait"
        if not number
        else counted(number, "message") + (" waits" if number == 1 else " wait")
    )
