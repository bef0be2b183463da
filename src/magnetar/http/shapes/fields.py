"""Shapes and checks for values in requests. A shape takes a value from a request and returns it in the form
in which it is stored, or refuses the request.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sized
from itertools import islice
from reprlib import Repr
from typing import Any

from magnetar.errors import InvalidRequest, PreconditionFailed
from magnetar.http.engine.large_json import LARGE_BYTES, WrittenNumber
from magnetar.http.engine.message import Request
from magnetar.lazy_dataclass import dataclass

ACTIONS = ("produce", "consume", "functions", "sources", "sinks", "packages")
"""The actions on which a role can be granted permission."""
EMPTY = "The request entity cannot be empty."
_WHOLE = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER = re.compile(r"[+-]?[0-9]{1,40}(\.[0-9]{0,40})?([eE][+-]?[0-9]{1,3})?")
_LARGEST = sys.float_info.max
_TRUTHS = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
Shape = Callable[[Request], Any]
"""Takes a value from a request, usually from the body, and returns it in its stored form; for a policy, None
removes the stored value.

:raises InvalidRequest: the value does not have this shape
:raises PreconditionFailed: the value is out of range
"""
Check = Callable[[str, Any], Any]
"""Checks and converts a JSON value. The arguments are the name of the value, for errors, and the value."""
_LONGEST = 1000
"""Maximum length of a string that is accepted as a number, in characters."""


def whole(bits: int = 32) -> Check:
    def check(name: str, value: object) -> int:
        given = _number_of(value, int)
        if isinstance(given, float) and given.is_integer():
            given = int(given)
        if type(given) is not int:
            raise InvalidRequest(f"{name} must be a whole number, not {shown(value)}")
        if not -(1 << bits - 1) <= given < 1 << bits - 1:
            raise InvalidRequest(f"{name} must be a whole number that fits into {bits} bits, not {given}")
        return given

    return check


def number(name: str, value: object) -> float:
    given = _number_of(value, float)
    # Python's parser accepts NaN and Infinity, which are not JSON: readers of the stored value would fail.
    if type(given) not in (int, float, WrittenNumber) or not -_LARGEST <= given <= _LARGEST:
        raise InvalidRequest(f"{name} must be a number, not {shown(value)}")
    return float(given)


def _number_of(value: object, kind: type[int] | type[float]) -> Any:
    """Converts a string that contains a number to the number, as Pulsar's interface does; returns other
    values unchanged.
    """
    if not isinstance(value, str):
        return value
    written = _WHOLE if kind is int else _NUMBER
    # A longer text is not a 64-bit number, and Python refuses to convert it.
    return kind(value) if len(value) <= _LONGEST and written.fullmatch(value.strip()) else value


def truth(name: str, value: Any) -> bool:
    """Checks a boolean; like Pulsar's interface, also accepts numbers and strings."""
    given = _TRUTHS.get(value, value) if isinstance(value, str) else value
    if type(given) not in (bool, int):
        raise InvalidRequest(f"{name} must be true or false, not {shown(value)}")
    return bool(given)


def text(name: str, value: Any) -> str:
    """Checks a string; like Pulsar's interface, also accepts numbers and booleans, and returns them as they
    were written.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, WrittenNumber):
        return value.written
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, str):
        raise InvalidRequest(f"{name} must be a string, not {shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{name} must not contain an unpaired surrogate: {shown(value)}") from error
    return value


def choice(*choices: str) -> Check:
    def check(name: str, value: object) -> str:
        if value not in choices:
            raise InvalidRequest(f"{name} must be one of {', '.join(choices)}, not {shown(value)}")
        return str(value)

    return check


_MOST_ITEMS = 20_000
"""Maximum number of items of a list or an object; it is limited because checking the items blocks the event
loop.
"""


def _check_count(name: str, items: Sized) -> None:
    if len(items) > _MOST_ITEMS:
        raise InvalidRequest(f"{name} has {len(items)} items; at most {_MOST_ITEMS} are allowed")


def texts(name: str, value: object) -> list[str]:
    if not isinstance(value, list):
        raise InvalidRequest(f"{name} must be a list, not {shown(value)}")
    _check_count(name, value)
    return list(dict.fromkeys(text(name, item) for item in value))


def choices(*known: str) -> Check:
    """Returns a check for a list of names that must all be in ``known``; the check returns them in the order
    of ``known``.
    """

    def check(name: str, value: object) -> list[str]:
        given = texts(name, value)
        for item in given:
            choice(*known)(name, item)
        return [item for item in known if item in given]

    return check


def by_name(check: Check, names: Check = text) -> Check:
    """Returns a check for an object with any names.

    :param check: checks each value
    :param names: checks each name
    """

    def checked(name: str, value: object) -> dict[str, object]:
        given = an_object(name, value)
        _check_count(name, given)
        return {names(name, key): check(f"{name}.{key}", item) for key, item in given.items()}

    return checked


def an_object(name: str, value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise InvalidRequest(f"{name} must be an object, not {shown(value)}")
    return value


def _text_or_null(name: str, value: object) -> str | None:
    return None if value is None else text(name, value)


class _Shorter(Repr):
    def repr_dict(self, value: dict[object, object], level: int) -> str:
        """Shows a few items, unsorted; the base class would sort all of them."""
        if not value or level <= 0:
            return "{...}" if value else "{}"
        pieces = [
            f"{self.repr1(key, level - 1)}: {self.repr1(item, level - 1)}"
            for key, item in islice(value.items(), self.maxdict)
        ]
        return f"{{{', '.join(pieces)}{', ...' if len(value) > self.maxdict else ''}}}"


_shorter = _Shorter()


def shown(value: object) -> str:
    """Formats a JSON value for error texts, in Python's notation and with at most some hundred characters;
    ``...`` marks omissions.
    """
    return _shorter.repr(value)


text_map = by_name(text)
"""Checks an object whose values are strings."""
text_changes = by_name(_text_or_null)
"""Checks an object whose values are strings, or null for strings to remove."""


def texts_given(name: str, value: object) -> dict[str, str]:
    """Checks an object whose values are strings or null; returns it without the null values."""
    return {key: item for key, item in text_changes(name, value).items() if item is not None}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an object. If the default is None, an absent field is omitted from the result."""

    check: Check
    default: object = None


def fields(table: Mapping[str, Field]) -> Check:
    """Returns a check for an object with the fields in ``table``. The check ignores other fields, and treats
    null as absent.
    """

    def check(name: str, value: object) -> dict[str, object]:
        found: dict[str, object] = {}
        all_given = an_object(name, value)
        for key, field in table.items():
            given = all_given.get(key)
            kept = field.default if given is None else field.check(f"{name}.{key}", given)
            if kept is not None:
                found[key] = kept
        return found

    return check


def body(check: Check, name: str, *, required: str | None = EMPTY) -> Shape:
    """Returns a shape that takes the body of a request and checks it with ``check``.

    :param required: the reason with which an empty body is refused; None: an empty body is accepted, and
        removes the stored value
    """

    def shape(request: Request) -> object:
        if not request.has_value:
            if required is not None:
                raise InvalidRequest(required)
            return None
        return check(name, request.json())

    return shape


def bare_text(request: Request, name: str) -> str:
    """Returns a body that is a JSON string, or text without quotation marks, which some Pulsar clients send.

    :raises InvalidRequest: the body is no string
    """
    if len(request.body) > LARGE_BYTES:
        # A bare text of this size would be longer than any name.
        return text(name, request.json())
    try:
        given = request.body.decode().strip()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{name} must be valid UTF-8: {error}") from error
    return text(name, request.json()) if given.startswith('"') else given


def at_least(lowest: int, shape: Shape, reason: str) -> Shape:
    """Returns a shape that refuses numbers below ``lowest`` with ``reason``.

    :param shape: the shape of the number
    """

    def checked(request: Request) -> object:
        value = shape(request)
        if value is not None and value < lowest:
            raise PreconditionFailed(reason)
        return value

    return checked


def cap(name: str) -> Shape:
    """Returns a shape that takes a whole number, 0 or more, from the body of a request."""
    return at_least(0, body(whole(), name), f"{name} must be 0 or more")


def always(value: object) -> Shape:
    """Returns a shape that returns the same value for every request."""
    return lambda _request: value


def message_position(value: object, name: str = "messageId") -> tuple[int, int]:
    """Checks a message id in JSON; returns (ledger id, entry id).

    :raises InvalidRequest: the value is not a message id
    """
    if not isinstance(value, dict):
        raise InvalidRequest(f"{name} must be an object with ledgerId and entryId, not {shown(value)}")
    ledger_id, entry_id = value.get("ledgerId", 0), value.get("entryId", 0)
    return whole(64)(f"{name}.ledgerId", ledger_id), whole(64)(f"{name}.entryId", entry_id)


def string_list(name: str) -> Shape:
    """Returns a shape that takes a list of strings from the body of a request."""
    return lambda request: texts(name, request.json())


def flag(name: str, default: bool = False) -> Callable[[Request], bool]:
    """Returns a shape that takes a query parameter, which is true or false, from a request."""
    return lambda request: request.flag(name, default)


def query(name: str, default: str | None = None) -> Callable[[Request], str | None]:
    """Returns a shape that takes a query parameter, which is a string, from a request."""
    return lambda request: request.query.get(name, default)


_shorter.maxlist = _shorter.maxtuple = _shorter.maxdict = 6
_shorter.maxlevel = 3
_shorter.maxstring = _shorter.maxother = 200
_shorter.maxlong = 60
