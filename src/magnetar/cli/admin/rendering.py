"""Prints answers in the form of Pulsar's ``pulsar-admin``, as JSON, or as a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from magnetar.cli.printable import aligned

TEXT, JSON, TABLE = FORMS = ("text", "json", "table")


def render(answer: object, form: str = TEXT) -> str:
    """Returns an answer as text that ends with a newline. In the form ``text``, a list of strings becomes one
    line per string, None becomes ``null``, and other values become JSON with Pulsar's spacing.

    :param form: one of :data:`FORMS`
    """
    if form == JSON:
        return f"{json.dumps(_value(answer), indent=2, ensure_ascii=False)}\n"
    if form == TABLE:
        return _table(_value(answer))
    if isinstance(answer, Rows):
        return answer.text
    if isinstance(answer, str):
        return f"{answer}\n"
    if isinstance(answer, list) and all(isinstance(item, str) for item in answer):
        return "".join(f"{item}\n" for item in answer)
    return f"{_json(answer, '')}\n"


class Rows:
    """An answer in two versions: lines for the form ``text``, and a value for the forms JSON and table."""

    def __init__(self, lines: Iterable[str], value: object) -> None:
        """:param lines: the lines for the form ``text``, with line ends
        :param value: the value for the other forms
        """
        self.text = "".join(lines)
        self.value = value


def rows(answer: Any) -> object:
    """Formats a dictionary with one line for each key, as Pulsar prints some answers."""
    return Rows((f"{key}    {_plain(value)}\n" for key, value in (answer or {}).items()), answer or {})


def objects(answer: object) -> object:
    """Formats a list as JSON instead of one item per line, as Pulsar prints some answers."""
    return Rows([f"{_json(answer, '')}\n"], answer)


def _value(answer: object) -> object:
    return answer.value if isinstance(answer, Rows) else answer


def _plain(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, dict):
        # The only nested object is a backlog quota.
        return f"BacklogQuotaImpl({', '.join(f'{key}={item}' for key, item in value.items())})"
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _json(value: object, indent: str) -> str:
    if isinstance(value, dict):
        if not value:
            return "{ }"
        inner = indent + "  "
        lines = (f"{inner}{json.dumps(key)} : {_json(item, inner)}" for key, item in value.items())
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list):
        return f"[ {', '.join(_json(item, indent) for item in value)} ]" if value else "[ ]"
    return json.dumps(value)


def _table(value: object) -> str:
    """Returns a table: a line for each object of a list, or a line for each field of a single object."""
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return _records([("", item) for item in value])
    if isinstance(value, dict) and value and all(isinstance(item, dict) for item in value.values()):
        return _records(list(value.items()))
    if isinstance(value, dict):
        return _aligned([[str(name), _cell(item)] for name, item in value.items()])
    return "".join(f"{_cell(item)}\n" for item in (value if isinstance(value, list) else [value]))


def _records(records: Sequence[tuple[str, dict[str, object]]]) -> str:
    """Formats objects as a table with one line for each object.

    :param records: the objects, each as (name, object); if all names are empty, the column of names is left
        out
    """
    fields = dict.fromkeys(name for _, record in records for name in record)
    named = any(name for name, _ in records)
    lines = [["NAME"] * named + [field.upper() for field in fields]]
    lines += [[name] * named + [_cell(record.get(field)) for field in fields] for name, record in records]
    return _aligned(lines)


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    return "".join(f"{line}\n" for line in aligned(lines))


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
