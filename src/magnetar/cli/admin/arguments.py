"""Parses command lines according to the table ``commands.tsv``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from magnetar.cli.numbers import SIZES, quantity

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}
_TRUE = ("true",)


class UsageError(Exception):
    """The command line cannot be understood; the text says why."""


@dataclass(frozen=True, slots=True)
class Option:
    names: tuple[str, ...]
    arity: int
    required: bool
    type: str
    default: str
    """``-`` for none."""
    purpose: str

    @property
    def key(self) -> str:
        """The first name without dashes."""
        return self.names[0].lstrip("-")

    def parse(self, text: str) -> Any:
        """Returns the typed value. :raises UsageError: the text has another form"""
        kind = self.type.removesuffix(" comma").removesuffix("(int)")
        try:
            if kind in ("int", "long"):
                return int(text)
            if kind == "double":
                return float(text)
            if kind.startswith("duration"):
                return quantity(text, _UNITS) * (1000 if kind.endswith("ms") else 1)
            if kind.startswith("size"):
                return quantity(text, SIZES)
        except ValueError:
            wanted = kind.partition(">")[0]
            raise UsageError(
                f"Invalid value for option '{self.names[0]}': {text!r} is not a value of type {wanted}"
            ) from None
        if kind.startswith("enum"):
            return self._choice(text, kind)
        parts = text.split(",") if self.type.endswith(" comma") else [text]
        if kind.startswith("list"):
            return [part.strip() for part in parts if part.strip()]
        if kind.startswith("map"):
            return dict(_pair(self.names[0], part) for part in parts)
        return text

    def _choice(self, text: str, kind: str) -> str:
        choices = kind[5:-1].split(",")
        if text not in choices:
            raise UsageError(
                f"Invalid value for option '{self.names[0]}': must be one of {', '.join(choices)}"
            )
        return text

    def initial(self) -> object:
        """Returns the value of an absent option."""
        if self.type == "flag":
            return self.default in _TRUE
        if self.default == "-":
            return None
        if self.type.startswith("duration>ms"):
            return int(self.default)
        return self.parse(self.default)


def advice(wanted: str, known: Iterable[str]) -> str:
    """Returns similar names, as the end of a sentence; empty: there are none."""
    # Imported only for mistyped names.
    from difflib import get_close_matches

    close = get_close_matches(wanted, list(known), 3)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def _pair(option: str, text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator:
        raise UsageError(f"Value for option '{option}' should be in KEY=VALUE format but was {text!r}")
    return key.strip(), value.strip()


@dataclass(slots=True)
class AdminCommand:
    name: str
    """``group command``."""
    purpose: str
    operands: list[Option] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)

    def parse(self, words: Sequence[str]) -> dict[str, Any]:
        """Returns values by option and operand.

        :raises UsageError: an option is unknown, or an argument is missing or superfluous
        """
        values = {option.key: option.initial() for option in (*self.options, *self.operands)}
        known = {name: option for option in self.options for name in option.names}
        given: set[str] = set()
        rest: list[str] = []
        waiting = list(words)
        while waiting:
            word = waiting.pop(0)
            name, equals, attached = word.partition("=")
            option = known.get(name)
            if option is None:
                if word.startswith("-") and not re.fullmatch(r"-\d+.*", word):
                    raise UsageError(f"Unknown option: '{word}'{advice(name, known)}")
                rest.append(word)
                continue
            given.add(option.key)
            if option.arity == 0:
                values[option.key] = option.default not in _TRUE
                continue
            if not equals and not waiting:
                raise UsageError(f"Missing required parameter for option '{name}'")
            value = option.parse(attached if equals else waiting.pop(0))
            values[option.key] = _joined(values[option.key] if option.key in given else None, value, option)
        self._take_operands(values, rest)
        missing = [option.names[0] for option in self.options if option.required and option.key not in given]
        if missing:
            raise UsageError(f"Missing required option: '{missing[0]}'")
        return values

    def _take_operands(self, values: dict[str, object], rest: list[str]) -> None:
        wanted = [operand for operand in self.operands if operand.required]
        if len(rest) < len(wanted):
            raise UsageError(f"Missing required parameter: '{wanted[len(rest)].names[0]}'")
        if len(rest) > len(self.operands):
            raise UsageError(f"Unmatched argument: '{rest[len(self.operands)]}'")
        for operand, word in zip(self.operands, rest, strict=False):
            values[operand.key] = operand.parse(word)


def _joined(before: Any, value: Any, option: Option) -> Any:
    """Combines repeated options that are lists or maps."""
    if option.type.startswith("list") and before:
        return [*before, *value]
    if option.type.startswith("map") and before:
        return {**before, **value}
    return value


@cache
def commands() -> dict[str, AdminCommand]:
    """Returns all commands by name, in the table's order."""
    found: dict[str, AdminCommand] = {}
    # Read as a file next to this one, because importlib.resources is slow to import.
    for line in (Path(__file__).parent / "commands.tsv").read_text("utf-8").splitlines()[1:]:
        name, names, arity, required, kind, default, purpose = line.split("\t")
        if names == "-":
            found[name] = AdminCommand(name, purpose)
            continue
        operand = names.startswith("<")
        parts = (names.strip("<>"),) if operand else tuple(part.strip() for part in names.split(","))
        option = Option(parts, int(arity), required == "yes", kind, default, purpose)
        (found[name].operands if operand else found[name].options).append(option)
    return found
