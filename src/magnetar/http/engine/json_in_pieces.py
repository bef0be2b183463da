"""Encodes large JSON answers in small pieces, so that they do not block the event loop."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

MANY = 4_000
"""Values that are encoded in one piece: about a millisecond of work."""


def encoded(value: object) -> bytes:
    """Returns compact JSON in UTF-8."""
    return _bytes(_text(value))


def is_large(value: object) -> bool:
    """Whether ``value`` contains more than :data:`MANY` values."""
    return _room_left(value, MANY) < 0


def encoded_in_pieces(value: object) -> Iterator[bytes]:
    """The same as :func:`encoded`, piece by piece; ``value`` must not change meanwhile."""
    for text in _texts(value):
        yield _bytes(text)


def _bytes(text: str) -> bytes:
    # A lone surrogate, which UTF-8 cannot encode, is escaped, as JSON allows.
    return text.encode(errors="backslashreplace")


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _room_left(value: object, room: int) -> int:
    """Returns ``room`` less the number of values in ``value``; below 0 if there are too many."""
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
    """Yields groups of small members that are not large together, and each large member alone."""
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
