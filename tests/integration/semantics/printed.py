"""What ``pulsar-admin`` printed, in a form that can be compared."""

from __future__ import annotations

import json
import re
from typing import Any

_SET = re.compile(r"\[([^\]]*)\]")


def value_of(text: str) -> Any:
    """Parsed where it is JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def comparable(value: Any) -> Any:
    """Lines of a text sorted, and what stands in brackets: Java has them in the order of hashes."""
    if not isinstance(value, str):
        return value
    lines = (_SET.sub(_sorted, line) for line in value.splitlines())
    return sorted(lines)


def _sorted(found: re.Match[str]) -> str:
    return f"[{', '.join(sorted(found[1].split(', ')))}]"
