"""Patterns of topic names that clients send."""

from __future__ import annotations

import re
from collections.abc import Callable

MAX_PATTERN_LENGTH = 50
"""In characters; Pulsar's default of ``subscriptionPatternMaxLength``."""

_PARTITION = re.compile(r"-partition-\d+$")

Matches = Callable[[str], bool]
"""Whether the full name of a topic matches."""


def compile_pattern(pattern: str) -> Matches | None:
    """Returns a function that matches the whole name of a topic, without domain and partition.

    Returns None if the pattern cannot be matched in linear time (https://github.com/google/re2); the client
    then filters by itself. Python's own expressions would support all patterns, but a client could stop the
    whole broker with one that backtracks forever.
    """
    # Imported for the first pattern: most brokers never get one.
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern.split("://", 1)[-1], options)
    except re2.error:
        return None
    fullmatch, cut = compiled.fullmatch, _PARTITION.sub
    return lambda name: fullmatch(cut("", name).split("://", 1)[1]) is not None
