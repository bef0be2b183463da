"""The log: one line for each event, to standard error, as ``key=value`` or as JSON.

What belongs to an event besides its text is given as ``extra``:
``log.info("topic loaded", extra={"topic": name})``.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

LogFormat = Literal["text", "json"]

LEVELS = ("debug", "info", "warning", "error")

_MOST_KINDS = 10_000
"""Texts with something particular in them would else be kept for ever."""

_ALWAYS = frozenset({("magnetar.audit", "done")})
"""Loggers and texts whose every line is wanted: somebody known changed something."""

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_PLAIN = re.compile(r"[^\s\"=\\]+")


def configure_logging(style: LogFormat, level: str, stream: TextIO | None = None) -> None:
    """Sends everything logged anywhere in the process to ``stream`` (standard error if None)."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if style == "json" else TextLines())
    handler.addFilter(RateBound())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


class RateBound(logging.Filter):
    """Lets through so many lines of a kind in a second, and says with the next one how many it left out.

    Of a kind are those with the same text, whatever belongs to them besides. Errors are always let through:
    they are rare, and each is somebody's.
    """

    def __init__(self, lines_per_second: float = 20.0, burst: int = 200) -> None:
        super().__init__()
        self._rate = lines_per_second
        self._burst = burst
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.ERROR:
            return True
        key = (record.name, str(record.msg))
        if key in _ALWAYS:
            return True
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _MOST_KINDS:
                self._kinds.clear()
            kind = self._kinds[key] = _Kind(float(self._burst), record.created)
        kind.left = min(self._burst, kind.left + max(0.0, record.created - kind.seen) * self._rate)
        kind.seen = record.created
        if kind.left < 1:
            kind.left_out += 1
            return False
        kind.left -= 1
        if kind.left_out:
            record.left_out = kind.left_out
            kind.left_out = 0
        return True


@dataclass(slots=True)
class _Kind:
    left: float
    """Lines that may be written now."""
    seen: float
    """When the last one came, seconds since 1970."""
    left_out: int = 0


def _time(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """What the event was given besides its text."""
    return {key: value for key, value in vars(record).items() if key not in _OWN}


class TextLines(logging.Formatter):
    """``time LEVEL logger text key=value …``; odd values are quoted, control characters escaped."""

    def format(self, record: logging.LogRecord) -> str:
        parts = [_time(record), record.levelname, record.name, _one_line(record.getMessage())]
        parts += [f"{key}={_quoted(value)}" for key, value in _fields(record).items()]
        if record.exc_info and record.exc_info[0] is not None:
            parts.append(f"trace={_quoted(self.formatException(record.exc_info))}")
        return " ".join(parts)


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "event": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info and record.exc_info[0] is not None:
            event["trace"] = self.formatException(record.exc_info)
        return json.dumps(event, default=str, ensure_ascii=False)


def _one_line(text: str) -> str:
    return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", text)


def _quoted(value: Any) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) and not _CONTROL.search(text) else json.dumps(text)
