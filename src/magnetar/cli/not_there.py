"""Commands of Pulsar's that a later release brings: all tools answer alike."""

from __future__ import annotations

import sys

NOT_THERE = 1
"""The exit code of a command that is not there, as Pulsar's tools have it."""


def not_there(command: str) -> str:
    """The sentence about a command."""
    return f"{command} is not supported by this release yet"


def say_not_there(program: str, command: str) -> int:
    """One line on standard error; answers the exit code."""
    sys.stderr.write(f"{program}: {not_there(command)}\n")
    return NOT_THERE
