"""The log: one line for each event, to standard error, as ``key=value`` or as JSON.

Fields of an event are given as ``extra``:
``log.info("topic loaded", extra={"topic": name})``.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Literal, TextIO

from magnetar.lazy_dataclass import dataclass

LogFormat = Literal["text", "json"]

LEVELS = ("debug", "info", "warning", "error")

_MOST_KINDS = 10_000
"""Maximum number of distinct messages that are tracked; bounds the memory if messages have varying parts."""

_ALWAYS = frozenset({("magnetar.audit", "done")})
"""Pairs of logger and message whose lines are never suppressed: the audit log of changes."""

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_MOST_OF_TEXT = 4_000
"""Maximum length of a message in a log line, in characters. The text of a field may have half as many
characters. Of a longer stack trace, this many characters at the beginning and as many at the end are written.
"""
_PLAIN = re.compile(r"[^\s\"=\\]+")


def configure_logging(style: LogFormat, level: str, stream: TextIO | None = None) -> None:
    """Writes all log lines of the process to ``stream`` (None: standard error)."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if style == "json" else TextLines())
    handler.addFilter(RateBound())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


class RateBound(logging.Filter):
    """Limits the number of lines of one kind per second; after suppressed lines, the next line of that kind
    reports their number (``left_out``).

    Lines with the same message are of one kind, regardless of their fields. Errors are never suppressed.
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
    """Number of lines that can be written now."""
    seen: float
    """Time of the last line, in seconds since 1970."""
    left_out: int = 0


def _time(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """Returns the extra fields of a log record."""
    return {key: value for key, value in vars(record).items() if key not in _OWN}


class TextLines(logging.Formatter):
    """A formatter of lines ``time LEVEL logger text key=value …``.

    Values are quoted if necessary, and control characters are escaped.
    """

    def format(self, record: logging.LogRecord) -> str:
        parts = [_time(record), record.levelname, record.name, _one_line(_message(record))]
        parts += [f"{key}={_quoted(value)}" for key, value in _fields(record).items()]
        if record.exc_info and record.exc_info[0] is not None:
            parts.append(f"trace={json.dumps(_trace(self, record))}")
        return " ".join(parts)


class JsonLines(logging.Formatter):
    """A formatter that writes each event as a JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "event": _message(record),
            **{key: _bounded(value) for key, value in _fields(record).items()},
        }
        if record.exc_info and record.exc_info[0] is not None:
            event["trace"] = _trace(self, record)
        line = json.dumps(event, default=str, ensure_ascii=False)
        # Characters that are not printable occur only within strings, where escapes mean the same.
        return line if line.isprintable() else "".join(map(_in_json, line))


def _in_json(letter: str) -> str:
    return letter if letter.isprintable() else json.dumps(letter)[1:-1]


def _message(record: logging.LogRecord) -> str:
    return _cut(record.getMessage(), _MOST_OF_TEXT)


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    assert record.exc_info is not None
    text = formatter.formatException(record.exc_info)
    if len(text) <= 2 * _MOST_OF_TEXT:
        return text
    return f"{text[:_MOST_OF_TEXT]} ... {text[-_MOST_OF_TEXT:]}"


def _cut(text: str, most: int = _MOST_OF_TEXT // 2) -> str:
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


def _bounded(value: object) -> object:
    """Returns a value for JSON, in which long texts are truncated; a list or an object that is too long is
    converted to text and truncated.
    """
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return _cut(value)
    text = str(value)
    return value if len(text) <= _MOST_OF_TEXT // 2 else _cut(text)


def _one_line(text: str) -> str:
    return text if text.isprintable() else "".join(map(_in_text, text))


def _in_text(letter: str) -> str:
    if letter.isprintable():
        return letter
    return f"\\x{ord(letter):02x}" if ord(letter) < 256 else f"\\u{ord(letter):04x}"


def _quoted(value: object) -> str:
    text = _cut(str(value))
    return text if _PLAIN.fullmatch(text) and text.isprintable() else json.dumps(text)
