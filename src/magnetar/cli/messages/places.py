"""Parses positions in a topic."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

_AGO = re.compile(r"(\d{1,9})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_ID = re.compile(r"(\d{1,18}):(\d{1,18})")


@dataclass(frozen=True, slots=True)
class Start:
    """A start position: exactly one of an end, an entry, or a time."""

    end: str = ""
    """``earliest`` or ``latest``."""
    position: tuple[int, int] | None = None
    """(ledger id, entry id)."""
    time_ms: int | None = None
    """Since 1970."""


def start_of(text: str, now: float) -> Start:
    """Parses ``earliest``, ``latest``, ``LEDGER:ENTRY`` or a time.

    :param now: seconds since 1970
    :raises ValueError: the text has another form
    """
    if text in ("earliest", "latest"):
        return Start(end=text)
    found = _ID.fullmatch(text)
    if found is not None:
        return Start(position=(int(found[1]), int(found[2])))
    try:
        return Start(time_ms=time_of(text, now))
    except ValueError as error:
        raise ValueError(f"{text!r} is not earliest, latest, LEDGER:ENTRY or a time") from error


def time_of(text: str, now: float) -> int:
    """Returns ms since 1970 for ``10m`` before now (s, m, h, d), or for ISO 8601, local without a zone.

    :param now: seconds since 1970
    :raises ValueError: the text is not a time
    """
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(0, int((now - int(ago[1]) * _SECONDS[ago[2]]) * 1000))
    try:
        return max(0, int(datetime.fromisoformat(text).timestamp() * 1000))
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"{text!r} is not a time like 2026-01-31T12:00:00Z or an age like 10m (s, m, h, d)"
        ) from error
