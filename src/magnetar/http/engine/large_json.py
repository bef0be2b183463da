"""Parses and encodes large JSON on the event loop in small pieces, and refuses bodies with too many values.

The C decoder of :mod:`json` holds Python's global lock for a whole body, on any thread: parsing a body of 8
MB and freeing its objects blocks the event loop for up to 200 ms. This decoder yields after every piece.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Generator, Iterator
from typing import Any, Self

from magnetar.errors import InvalidRequest

LARGE_BYTES = 64 * 1024
"""Bodies above this size in bytes are parsed by this module; :mod:`json` parses smaller ones in about a
millisecond.
"""
MOST_VALUES = 100_000
"""Maximum number of values in a large body, including nested values; a single list or object can have at most
20,000 values.
"""
MOST_SPACE = 1 << 20
"""Maximum white space before the first value of a large body, in bytes."""
_DEEPEST = 500
"""Maximum nesting of lists and objects; the C decoder fails at about 1,000, minus the depth of the call
stack.
"""
_WINDOW_BYTES = 64 * 1024
_TOKENS = 256
"""Number of tokens that are parsed between two pauses, which takes about a third of a millisecond."""
_AHEAD = 5_000
"""Number of characters that are decoded ahead of the parser, so that a number is complete; Python parses no
integer with more than 4,300 digits.
"""
_TOKEN = re.compile(
    r"""[ \t\n\r]*+(?:
        ([\[\]{},:"])
        | (-?(?:0|[1-9][0-9]*+)(\.[0-9]++)?([eE][-+]?[0-9]++)?)
        | (null|true|false|NaN|-?Infinity)
    )""",
    re.VERBOSE,
)
_SPACE = re.compile(r"[ \t\n\r]*+")
_PLAIN_TEXT = re.compile(r'([^"\\\x00-\x1f]*+)"')
_TEXT = re.compile(
    # A high surrogate belongs to a low one after it: both match together, or the high one if it is alone.
    r"""(?:[^"\\\x00-\x1f]++ | \\["\\/bfnrt] | \\u(?![dD][89abAB])[0-9a-fA-F]{4}
        | \\u[dD][89abAB][0-9a-fA-F]{2}
          (?:\\u[dD][c-fC-F][0-9a-fA-F]{2} | (?=[^\\]|\\[^u]|\\u[^dD]|\\u[dD][^c-fC-F]))
    ){1,1000}+""",
    re.VERBOSE,
)
_WORDS = {
    "null": None,
    "true": True,
    "false": False,
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": -float("inf"),
}
_VALUE, _FIRST_VALUE, _NAME, _FIRST_NAME, _COLON, _AFTER = range(6)
"""The states of the parser, named after the token that must come next. In the states with FIRST, the list or
object may also end.
"""
_BEFORE_TEXTS = (_VALUE, _FIRST_VALUE, _NAME, _FIRST_NAME)
MANY = 4_000
"""Number of values that are encoded in one piece, about a millisecond of work."""


def parse_in_pieces(
    body: bytes | bytearray, window: int = _WINDOW_BYTES, ahead: int = _AHEAD
) -> Generator[None, None, object]:
    """A generator that parses JSON: yields after every piece of work, which takes less than a millisecond,
    and returns the value.

    :param window: number of bytes that are decoded at a time
    :param ahead: maximum length of a number in characters, at least 12
    :raises ValueError: the body is not JSON
    :raises RecursionError: the body is nested too deeply
    :raises InvalidRequest: the body has more than :data:`MOST_VALUES` values
    """
    return _Parser(body, window, ahead).run()


class _Parser:
    """The state of a parse: ``text`` is the decoded part of the body, and ``at`` the current index in it."""

    def __init__(self, body: bytes | bytearray, window: int, ahead: int) -> None:
        self._body = body
        self._window = window
        self._ahead = ahead
        self._decoder = codecs.getincrementaldecoder(json.detect_encoding(body))("surrogatepass")
        self._decoded = 0
        self._dropped = 0
        self._text = ""
        self._at = 0
        self._values = 0
        self._open: list[Any] = []
        """Lists and objects that are not complete, the innermost last."""
        self._names: list[str] = []
        """For each open object, the name whose value is being read."""
        self._expected = _VALUE
        self._value: Any = None
        """The value that was completed last."""

    def run(self) -> Generator[None, None, object]:
        tokens = 0
        while True:
            if self._needs_more():
                self._decode_more()
                yield
                continue
            found = _TOKEN.match(self._text, self._at)
            if found is None:
                self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
                if self._needs_more():
                    continue
                if self._expected == _AFTER and not self._open and self._at == len(self._text):
                    return self._value
                raise self._wrong()
            tokens += 1
            if tokens % _TOKENS == 0:
                yield
            sign = found[1]
            if sign == '"' and self._expected in _BEFORE_TEXTS:
                self._at = found.end()
                self._take_text((yield from self._string()))
            elif sign is None and self._expected in (_VALUE, _FIRST_VALUE):
                self._at = found.start(5) if found[2] is None else found.start(2)
                if self._needs_more():
                    # White space used up the window: the end of the value may be missing.
                    continue
                self._count()
                self._keep(self._simple(found))
                self._at = found.end()
            else:
                self._take_sign(sign)
                self._at = found.end()

    @property
    def _whole(self) -> bool:
        """Whether the body is decoded to its end."""
        return self._decoded >= len(self._body)

    def _needs_more(self) -> bool:
        return not self._whole and len(self._text) - self._at < self._ahead

    def _decode_more(self) -> None:
        upto = self._decoded + self._window
        more = self._decoder.decode(bytes(self._body[self._decoded : upto]), upto >= len(self._body))
        self._decoded = upto
        self._dropped += self._at
        self._text = self._text[self._at :] + more
        self._at = 0

    def _wrong(self, reason: str = "") -> ValueError:
        if not reason:
            after = self._expected == _AFTER and not self._open
            reason = "Extra data" if after else _WANTED[self._expected]
        return ValueError(f"{reason} at character {self._dropped + self._at}")

    def _count(self) -> None:
        self._values += 1
        if self._values > MOST_VALUES:
            raise InvalidRequest(
                f"The body has more than {MOST_VALUES} values: send them in several requests"
            )

    def _take_sign(self, sign: str | None) -> None:
        expected, around = self._expected, self._open[-1] if self._open else None
        if sign in ("[", "{") and expected in (_VALUE, _FIRST_VALUE):
            self._count()
            if len(self._open) >= _DEEPEST:
                raise RecursionError
            self._open.append([] if sign == "[" else {})
            self._expected = _FIRST_VALUE if sign == "[" else _FIRST_NAME
        elif sign == ":" and expected == _COLON:
            self._expected = _VALUE
        elif sign == "," and expected == _AFTER and around is not None:
            self._expected = _NAME if isinstance(around, dict) else _VALUE
        elif (sign == "]" and expected in (_FIRST_VALUE, _AFTER) and isinstance(around, list)) or (
            sign == "}" and expected in (_FIRST_NAME, _AFTER) and isinstance(around, dict)
        ):
            self._keep(self._open.pop())
        else:
            raise self._wrong()

    def _take_text(self, text: str) -> None:
        if self._expected in (_NAME, _FIRST_NAME):
            self._names.append(text)
            self._expected = _COLON
        else:
            self._count()
            self._keep(text)

    def _keep(self, value: object) -> None:
        """Adds a complete value to the enclosing list or object."""
        self._value = value
        self._expected = _AFTER
        if not self._open:
            return
        around = self._open[-1]
        if isinstance(around, dict):
            around[self._names.pop()] = value
        else:
            around.append(value)

    def _simple(self, found: re.Match[str]) -> object:
        number = found[2]
        if number is None:
            return _WORDS[found[5]]
        if found.end() == len(self._text) and not self._whole:
            raise self._wrong(f"A number has more than {self._ahead} characters")
        return int(number) if found[3] is None and found[4] is None else WrittenNumber(number)

    def _string(self) -> Generator[None, None, str]:
        """Reads a string, after its opening quotation mark, up to and including the closing one."""
        plain = _PLAIN_TEXT.match(self._text, self._at)
        if plain is not None:
            self._at = plain.end()
            return plain[1]
        pieces: list[str] = []
        while True:
            found = _TEXT.match(self._text, self._at)
            if found is not None:
                pieces.append(json.loads(f'"{found[0]}"'))
                self._at = found.end()
                yield
            elif self._needs_more():
                self._decode_more()
                yield
            elif self._text.startswith('"', self._at):
                self._at += 1
                return "".join(pieces)
            else:
                raise self._wrong("A string is not closed, or has a control character or unknown escape,")


_WANTED = {
    _VALUE: "Expecting value",
    _FIRST_VALUE: "Expecting value",
    _NAME: "Expecting property name enclosed in double quotes",
    _FIRST_NAME: "Expecting property name enclosed in double quotes",
    _COLON: "Expecting ':' delimiter",
    _AFTER: "Expecting ',' delimiter",
}


class WrittenNumber(float):
    """A number with a fraction or an exponent that remembers how it was written, for ``parse_float`` of
    :mod:`json`. The class is needed because Pulsar accepts numbers in place of strings, and then uses the
    text of the numbers.
    """

    __slots__ = ("written",)
    written: str
    """The text of the number, such as ``1.50`` or ``1e3``, which a float would format differently."""

    def __new__(cls, written: str) -> Self:
        found = super().__new__(cls, written)
        found.written = written
        return found


def parse_json(body: bytes | bytearray) -> object:
    """Parses a JSON body, and returns its value.

    :raises ValueError: the body is not JSON
    :raises RecursionError: the body is nested too deeply
    """
    return json.loads(body, parse_float=WrittenNumber)


def encoded(value: object) -> bytes:
    """Encodes a value as compact JSON in UTF-8."""
    return _bytes(_text(value))


def is_large(value: object) -> bool:
    """Whether ``value`` contains more than :data:`MANY` values."""
    return _room_left(value, MANY) < 0


def encoded_in_pieces(value: object) -> Iterator[bytes]:
    """Like :func:`encoded`, in pieces; ``value`` must not change until the last piece."""
    for text in _texts(value):
        yield _bytes(text)


def _bytes(text: str) -> bytes:
    # A lone surrogate, which UTF-8 cannot encode, is escaped, as JSON allows.
    return text.encode(errors="backslashreplace")


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _room_left(value: object, room: int) -> int:
    """Returns ``room`` minus the number of values in ``value``; below 0 if the number exceeds ``room``."""
    room -= 1
    if isinstance(value, dict | list | tuple):
        if len(value) > room:
            return -1
        for each in value.values() if isinstance(value, dict) else value:
            room = _room_left(each, room)
            if room < 0:
                break
    return room


def _texts(value: Any) -> Iterator[str]:
    if not is_large(value):
        yield _text(value)
        return
    yield "{" if isinstance(value, dict) else "["
    comma = ""
    for group in _groups(value):
        [*members] = group.values() if isinstance(group, dict) else group
        if len(members) == 1 and is_large(members[0]):
            name = f"{_text(dict.fromkeys(group, 0))[1:-2]}" if isinstance(group, dict) else ""
            yield comma + name
            yield from _texts(members[0])
        else:
            yield comma + _text(group)[1:-1]
        comma = ","
    yield "}" if isinstance(value, dict) else "]"


def _groups(
    value: dict[object, object] | list[object] | tuple[object, ...],
) -> Iterator[dict[object, object] | list[object]]:
    """Splits an object or a list: yields groups of small members, each group with at most :data:`MANY`
    values, and each large member alone.
    """
    group: dict[object, object] = {}
    room = MANY
    members = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in members:
        room = _room_left(each, room)
        if room < 0 and group:
            yield group if isinstance(value, dict) else list(group.values())
            group, room = {}, _room_left(each, MANY)
        group[key] = each
    if group:
        yield group if isinstance(value, dict) else list(group.values())
