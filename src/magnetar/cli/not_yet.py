"""Commands of Pulsar's that a later release brings."""

from __future__ import annotations

import sys

NOT_YET = 2
"""The exit code of a command that is not there yet."""


def say_not_yet(command: str, release: str, instead: str) -> int:
    """One line on standard error; answers the exit code."""
    sys.stderr.write(f"{command}: comes with Magnetar {release}; until then use {instead}\n")
    return NOT_YET
