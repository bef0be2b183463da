"""The tables of all settings: Pulsar's names, types, defaults and ranges, and the effect of each setting in
Magnetar.
"""

from __future__ import annotations

import re
from dataclasses import replace
from enum import Enum
from functools import cache
from math import isfinite
from pathlib import Path

from magnetar.lazy_dataclass import dataclass

_FOLDER = Path(__file__).parent
"""The folder of the tables. ``importlib.resources`` would cost each start 5 ms."""

Value = bool | int | float | str | tuple[str, ...] | None

_WHOLE = re.compile(r"[+-]?[0-9]+")
_SECRET = re.compile(r"password|secret|params$|parameters$|tokenPublicKey|basicAuthConf", re.IGNORECASE)
_BITS = {"int": 31, "long": 63}


class SettingClass(Enum):
    """The effect of a setting in this release."""

    HONOURED = "honoured"
    OPTION = "option"
    """Honoured: read by the authentication provider that the setting configures."""
    MEANINGLESS = "meaningless"
    """Sets the size of something that does not exist in Magnetar; accepted silently."""
    BOOKIE = "bookie"
    """A key of BookKeeper's server, as in Pulsar's ``standalone.conf``; accepted silently."""
    LATER = "later"
    """Not honoured yet; a value other than the effective one causes a warning."""
    GUARDED = "guarded"
    """Not honoured yet, although it promises security, durability or isolation: a value that requires the
    missing feature is refused at the start."""


class ValueRefused(ValueError):
    """A value that is malformed or out of range; the message says what is expected."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The description of a setting: one row of the table of settings."""

    name: str
    type: str
    unit: str
    default: str
    """The value that applies if the setting is missing; empty: unset."""
    pulsar: str
    """The default in Pulsar's code; empty: unset, or computed from cores and memory."""
    range: str
    """The valid values, as ``low..high``; ``low`` or ``high`` may be missing."""
    dynamic: bool
    kind: SettingClass
    same: tuple[str, ...]
    """Further values that are accepted, because they do not require the missing feature."""
    note: str

    @property
    def secret(self) -> bool:
        """Whether the value must not be printed."""
        return _SECRET.search(self.name) is not None

    def parse(self, text: str) -> Value:
        """Returns the typed value of ``text``; an empty string means the default.

        :raises ValueRefused: the value is malformed or out of range
        """
        text = text.strip()
        if text == "":
            text = self.default
        kind = self.type.removesuffix("?")
        if kind == "string":
            return text
        if kind.startswith("list"):
            return self._list(text)
        if text == "":
            return None
        if kind == "bool":
            return self._truth(text)
        if kind.startswith("enum"):
            return self._choice(text)
        number = self._fraction(text) if kind == "double" else self._whole(text, _BITS[kind])
        self._check_range(number)
        return number

    def _truth(self, text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise ValueRefused("must be true or false")
        return text.lower() == "true"

    def _choice(self, text: str) -> str:
        choices = self.type.removeprefix("enum{").rstrip("}?").split(",")
        if text not in choices:
            raise ValueRefused(f"must be one of {', '.join(choices)}")
        return text

    def _list(self, text: str) -> tuple[str, ...]:
        parts = tuple(part.strip() for part in text.split(",") if part.strip())
        if self.type.startswith("list{"):
            choices = self.type.removeprefix("list{").rstrip("}").split(",")
            if not set(parts) <= set(choices):
                raise ValueRefused(f"must be a list of {', '.join(choices)}")
        return parts

    def _whole(self, text: str, bits: int) -> int:
        if not _WHOLE.fullmatch(text):
            raise ValueRefused("must be a whole number")
        number = int(text)
        if not -(1 << bits) <= number < 1 << bits:
            raise ValueRefused(f"must be a whole number that fits into {bits + 1} bits")
        return number

    def _fraction(self, text: str) -> float:
        try:
            number = float(text)
        except ValueError as error:
            raise ValueRefused("must be a number") from error
        if not isfinite(number):
            raise ValueRefused("must be a finite number")
        return number

    def _check_range(self, number: float) -> None:
        if not self.range:
            return
        low, high = self.range.split("..")
        if (low and number < float(low)) or (high and number > float(high)):
            raise ValueRefused(f"must be {_range_text(low, high)}")


def _range_text(low: str, high: str) -> str:
    if low and high:
        return f"a value from {low} to {high}"
    return f"at least {low}" if low else f"at most {high}"


@cache
def settings_table() -> dict[str, Setting]:
    """Returns, by name and in the table's order, every known setting of a broker, as it applies to a
    standalone broker.
    """
    return _table_of("settings.tsv")


@cache
def proxy_settings_table() -> dict[str, Setting]:
    """Returns, by name, every known setting of a proxy."""
    return _table_of("proxy.tsv")


@cache
def websocket_settings_table() -> dict[str, Setting]:
    """Returns, by name, every known setting of a WebSocket server without a broker."""
    return _table_of("websocket.tsv")


def _table_of(name: str) -> dict[str, Setting]:
    text = (_FOLDER / name).read_text("utf-8")
    table: dict[str, Setting] = {}
    for line in text.splitlines()[1:]:
        name, kind, unit, default, pulsar, bounds, dynamic, group, same, note = line.split("\t")
        table[name] = Setting(
            name=name,
            type=kind,
            unit=unit,
            default=default,
            pulsar=pulsar,
            range=bounds,
            dynamic=dynamic == "yes",
            kind=SettingClass(group),
            same=tuple(same.split("|")) if same else (),
            note=note,
        )
    return table


@cache
def cluster_settings_table() -> dict[str, Setting]:
    """Returns, by name, every known setting of a broker, as it applies to a broker on ZooKeeper and
    BookKeeper.
    """
    text = (_FOLDER / "cluster.tsv").read_text("utf-8")
    table = dict(settings_table())
    for line in text.splitlines()[1:]:
        name, default, group, same, note = line.split("\t")
        table[name] = replace(
            table[name],
            default=default,
            kind=SettingClass(group),
            same=tuple(same.split("|")) if same else (),
            note=note,
        )
    return table
