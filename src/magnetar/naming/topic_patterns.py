"""Patterns of topics that clients send."""

from __future__ import annotations

import re
from collections.abc import Callable

MAX_PATTERN_LENGTH = 50
"""Characters; Pulsar's default of ``subscriptionPatternMaxLength``."""

_PARTITION = re.compile(r"-partition-\d+$")

Matches = Callable[[str], bool]
"""Whether the full name of a topic matches."""


def compile_pattern(pattern: str) -> Matches | None:
    """Matches the whole name of a topic, domain and partition left out.

    None when the pattern is not of the kind that is matched in linear time (https://github.com/google/re2).
    The client then filters by itself. Python's own expressions would do for all of them, and a client could
    stop the whole broker with one that backtracks for ever.
    """
    # Loaded when the first pattern comes: most brokers never see one.
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern.split("://", 1)[-1], options)
    except re2.error:
        return None
    fullmatch, cut = compiled.fullmatch, _PARTITION.sub
    return lambda name: fullmatch(cut("", name).split("://", 1)[1]) is not None
