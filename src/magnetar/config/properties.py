"""Reads Java property files, the format of Pulsar's configuration."""

from __future__ import annotations

from collections.abc import Iterator

from magnetar.lazy_dataclass import dataclass

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"


class PropertyError(ValueError):
    """A line that is not Java property syntax."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class Property:
    """A setting as the file contains it."""

    key: str
    value: str
    line: int
    """The number of the first line of the setting, from 1."""


def parse_properties(text: str) -> list[Property]:
    """Returns all properties of a file in order, including repeated keys (Java uses the last one).

    Comments begin with ``#`` or ``!``; a backslash at the end continues a line; ``=``, ``:`` or blanks
    separate key and value; ``\\t \\n \\r \\f \\uXXXX`` are escapes, any other escaped character stands for
    itself.

    :raises PropertyError: a ``\\u`` escape without four hexadecimal digits, or half of a surrogate pair
    """
    return [_split(line, number) for number, line in _logical_lines(text)]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Joins continued lines; omits blank lines and comments."""
    pending = ""
    begins_at = 0
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        line = raw.lstrip(_BLANKS)
        if not begins_at:
            if not line or line[0] in "#!":
                continue
            begins_at = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield begins_at, pending + line
        pending, begins_at = "", 0
    if begins_at:
        yield begins_at, pending


def _split(line: str, number: int) -> Property:
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    end = min(end, len(line))
    start = end
    while start < len(line) and line[start] in _BLANKS:
        start += 1
    if start < len(line) and line[start] in "=:":
        start += 1
        while start < len(line) and line[start] in _BLANKS:
            start += 1
    return Property(_unescape(line[:end], number), _unescape(line[start:], number), number)


def _unescape(text: str, number: int) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            parts.append(character)
            continue
        escaped = text[position]
        position += 1
        if escaped != "u":
            parts.append(_ESCAPES.get(escaped, escaped))
            continue
        digits = text[position : position + 4]
        if len(digits) < 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
            raise PropertyError(number, f"\\\\u must be followed by four hexadecimal digits, not {digits!r}")
        parts.append(chr(int(digits, 16)))
        position += 4
    try:
        # Two escapes may be the halves of one character, as in Java.
        return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise PropertyError(
            number, "a \\\\u escape is one half of a surrogate pair, and the other half is missing"
        ) from error
