"""Shapes of the values in request bodies: each converts JSON to the value that is stored, or refuses it."""

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
"""Returns a value of a request, usually from its body; for a policy, None removes the stored value.

:raises InvalidRequest: the value does not have this shape
:raises PreconditionFailed: the value is out of range
"""
Check = Callable[[str, Any], Any]
"""Checks a JSON value and converts it; the text is the name of the value for errors."""
_LONGEST = 1000
"""Maximum length of a text that is accepted as a number, in characters."""


def whole(bits: int = 32) -> Check:
    def check(name: str, value: object) -> int:
        given = _number_of(value, int)
        if isinstance(given, float) and given.is_integer():
            given = int(given)
        if type(given) is not int:
            raise InvalidRequest(f"{name} must be a whole number, not {shown(value)}")
        if not -(1 << bits - 1) <= given < 1 << bits - 1:
            raise InvalidRequest(f"{name} must be a number of {bits} bits, not {given}")
        return given

    return check


def number(name: str, value: object) -> float:
    given = _number_of(value, float)
    # Python's parser accepts NaN and Infinity, which are not JSON: readers of the stored value would fail.
    if type(given) not in (int, float, WrittenNumber) or not -_LARGEST <= given <= _LARGEST:
        raise InvalidRequest(f"{name} must be a number, not {shown(value)}")
    return float(given)


def _number_of(value: object, kind: type[int] | type[float]) -> Any:
    """Converts a text that contains a number, as Pulsar's interface does; returns other values unchanged."""
    if not isinstance(value, str):
        return value
    written = _WHOLE if kind is int else _NUMBER
    # A longer text is not a 64-bit number, and Python refuses to convert it.
    return kind(value) if len(value) <= _LONGEST and written.fullmatch(value.strip()) else value


def truth(name: str, value: Any) -> bool:
    """Accepts numbers and texts for booleans, as Pulsar's interface does."""
    given = _TRUTHS.get(value, value) if isinstance(value, str) else value
    if type(given) not in (bool, int):
        raise InvalidRequest(f"{name} must be true or false, not {shown(value)}")
    return bool(given)


def text(name: str, value: Any) -> str:
    """Accepts numbers and booleans for texts, as written, as Pulsar's interface does."""
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
"""Maximum number of items of a list or an object, because checking the items blocks the event loop."""


def _check_count(name: str, items: Sized) -> None:
    if len(items) > _MOST_ITEMS:
        raise InvalidRequest(f"{name} has {len(items)} items; at most {_MOST_ITEMS} are allowed")


def texts(name: str, value: object) -> list[str]:
    if not isinstance(value, list):
        raise InvalidRequest(f"{name} must be a list, not {shown(value)}")
    _check_count(name, value)
    return list(dict.fromkeys(text(name, item) for item in value))


def choices(*known: str) -> Check:
    """Returns a check for a set of known names, which returns them in the order of ``known``."""

    def check(name: str, value: object) -> list[str]:
        given = texts(name, value)
        for item in given:
            choice(*known)(name, item)
        return [item for item in known if item in given]

    return check


def by_name(check: Check, names: Check = text) -> Check:
    """Returns a check for an object: ``check`` checks the values, and ``names`` checks the names."""

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
    """Returns a JSON value in Python's notation for error texts, at most some hundred characters long;
    ``...`` marks omissions.
    """
    return _shorter.repr(value)


text_map = by_name(text)
"""Checks an object whose values are texts."""
text_changes = by_name(_text_or_null)
"""Checks an object whose values are texts, or null to remove a text."""


def texts_given(name: str, value: object) -> dict[str, str]:
    """Checks an object whose values are texts; returns it without null values."""
    return {key: item for key, item in text_changes(name, value).items() if item is not None}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an object. With the default None, an absent field is omitted."""

    check: Check
    default: object = None


def fields(table: Mapping[str, Field]) -> Check:
    """Returns a check for an object; fields that are not in the table are ignored, and null means absent."""

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
    """Returns the shape of a body that ``check`` checks.

    :param required: the reason for refusing an empty body; None: an empty body removes the stored value
    """

    def shape(request: Request) -> object:
        if not request.has_value:
            if required is not None:
                raise InvalidRequest(required)
            return None
        return check(name, request.json())

    return shape


def bare_text(request: Request, name: str) -> str:
    """Returns a body that is a JSON string or bare text, because some Pulsar clients send bare text.

    :raises InvalidRequest: the body is not a text
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
    """Returns the shape of a number that must be at least ``lowest``; the refusal is ``reason``."""

    def checked(request: Request) -> object:
        value = shape(request)
        if value is not None and value < lowest:
            raise PreconditionFailed(reason)
        return value

    return checked


def cap(name: str) -> Shape:
    """Returns the shape of a whole number, 0 or more."""
    return at_least(0, body(whole(), name), f"{name} must be 0 or more")


def always(value: object) -> Shape:
    """Returns a shape with a fixed value, regardless of the body."""
    return lambda _request: value


def message_position(value: object, name: str = "messageId") -> tuple[int, int]:
    """Returns the ledger id and the entry id of a message id.

    :raises InvalidRequest: the value is not a message id
    """
    if not isinstance(value, dict):
        raise InvalidRequest(f"{name} must be an object with ledgerId and entryId, not {shown(value)}")
    ledger_id, entry_id = value.get("ledgerId", 0), value.get("entryId", 0)
    return whole(64)(f"{name}.ledgerId", ledger_id), whole(64)(f"{name}.entryId", entry_id)


def string_list(name: str) -> Shape:
    """Returns the shape of a body that is a list of texts."""
    return lambda request: texts(name, request.json())


def flag(name: str, default: bool = False) -> Callable[[Request], bool]:
    """Returns the shape of a query parameter that is true or false."""
    return lambda request: request.flag(name, default)


def query(name: str, default: str | None = None) -> Callable[[Request], str | None]:
    """Returns the shape of a query parameter that is text."""
    return lambda request: request.query.get(name, default)


_shorter.maxlist = _shorter.maxtuple = _shorter.maxdict = 6
_shorter.maxlevel = 3
_shorter.maxstring = _shorter.maxother = 200
_shorter.maxlong = 60
