"""Answers as ``pulsar-admin`` prints them: names one a line, objects as JSON with Pulsar's spacing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any


def render(answer: Any) -> str:
    """What is printed, with its line end; of a list of texts one a line, of nothing ``null``."""
    if isinstance(answer, Rows):
        return answer.text
    if isinstance(answer, str):
        return f"{answer}\n"
    if isinstance(answer, list) and all(isinstance(item, str) for item in answer):
        return "".join(f"{item}\n" for item in answer)
    return f"{_json(answer, '')}\n"


def rows(answer: Any) -> Any:
    """A map as Pulsar prints some: a row for each key."""
    return Rows(f"{key}    {_plain(value)}\n" for key, value in (answer or {}).items())


class Rows:
    """Printed as it is."""

    def __init__(self, lines: Iterable[str]) -> None:
        """:param lines: each with its line end"""
        self.text = "".join(lines)


def objects(answer: Any) -> Any:
    """A list that Pulsar prints as JSON."""
    return Rows([f"{_json(answer, '')}\n"])


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, dict):
        # That of a backlog quota is the only one.
        return f"BacklogQuotaImpl({', '.join(f'{key}={item}' for key, item in value.items())})"
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _json(value: Any, indent: str) -> str:
    if isinstance(value, dict):
        if not value:
            return "{ }"
        inner = indent + "  "
        rows = (f"{inner}{json.dumps(key)} : {_json(item, inner)}" for key, item in value.items())
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
    if isinstance(value, list):
        return f"[ {', '.join(_json(item, indent) for item in value)} ]" if value else "[ ]"
    return json.dumps(value)
