"""Topics that match a pattern a client sent."""

from __future__ import annotations

import re
from collections.abc import Sequence

MAX_PATTERN_LENGTH = 50
"""Characters; Pulsar's ``subscriptionPatternMaxLength``."""

_PARTITION = re.compile(r"-partition-\d+$")


def topics_matching(names: Sequence[str], pattern: str) -> list[str] | None:
    """The full names of those whose name, domain and partition left out, matches the whole pattern.

    None when the pattern is not for the broker: too long, or not of the kind that is matched in linear time
    (https://github.com/google/re2). The client then filters by itself. Python's own expressions would do for
    all of them, and a client could stop the whole broker with one that backtracks for ever.
    """
    if len(pattern) > MAX_PATTERN_LENGTH:
        return None
    # Loaded when the first pattern comes: most brokers never see one.
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern.split("://", 1)[-1], options)
    except re2.error:
        return None
    return [name for name in names if compiled.fullmatch(_PARTITION.sub("", name).split("://", 1)[1])]
