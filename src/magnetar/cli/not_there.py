"""The common answer of all tools to commands of Pulsar that do not exist yet."""

from __future__ import annotations

import sys

NOT_THERE = 1
"""The exit code for an unsupported command, as in Pulsar's tools."""


def not_there(command: str) -> str:
    """Returns the sentence about a command."""
    return f"{command} is not supported by this release yet"


def say_not_there(program: str, command: str) -> int:
    """Writes one line to standard error; returns the exit code."""
    sys.stderr.write(f"{program}: {not_there(command)}\n")
    return NOT_THERE
