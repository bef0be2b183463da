"""What becomes of each setting of a file, without a start."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path

from magnetar.config.reading import Given, judge, read_settings
from magnetar.config.table import Setting, SettingClass
from magnetar.lazy_dataclass import dataclass


class Fate(Enum):
    """In the order in which somebody wants to know."""

    REFUSED = "refused"
    """It stops a start."""
    NOT_HONOURED = "not honoured"
    """It asks for something that is not given; a start says so and goes on."""
    UNKNOWN = "unknown"
    """Nobody knows the name; a start says so and goes on."""
    IGNORED = "ignored"
    """It sizes something that does not exist here."""
    HONOURED = "honoured"


@dataclass(frozen=True, slots=True)
class SettingFinding:
    """Of one setting; where a name is given twice, of the last one, which counts."""

    name: str
    value: str
    """As the file has it; secrets are masked."""
    fate: Fate
    said: str
    """What a start says of it; empty: nothing."""


def fates(
    path: Path,
    table: Mapping[str, Setting],
    accept: Iterable[str] = (),
    known: re.Pattern[str] | None = None,
) -> list[SettingFinding]:
    """All settings of a file, in its order.

    :param accept: guarded keys that may be set although they are not honoured
    :param known: names that are none of the table's and still honoured
    :raises ConfigurationError: the file cannot be read
    """
    accepted = frozenset(accept)
    read = read_settings(path, table, known=known)
    return [
        _of(read.given[name], accepted) if name in read.given else _other(path, name, text, read.unknown)
        for name, text in read.everything.items()
    ]


def _of(item: Given, accepted: frozenset[str]) -> SettingFinding:
    setting, judged = item.setting, judge(item, accepted)
    if judged.problem is not None:
        fate = Fate.REFUSED
    elif judged.warning is not None:
        fate = Fate.NOT_HONOURED
    elif setting.kind in (SettingClass.MEANINGLESS, SettingClass.BOOKIE):
        fate = Fate.IGNORED
    else:
        fate = Fate.HONOURED
    value = item.text.strip()
    return SettingFinding(
        setting.name,
        "*****" if setting.secret and value else value,
        fate,
        judged.problem or judged.warning or "",
    )


def _other(path: Path, name: str, text: str, unknown: Mapping[str, int]) -> SettingFinding:
    """What the table does not have may be a secret, too."""
    shown = "*****" if text else ""
    if name not in unknown:
        return SettingFinding(name, shown, Fate.HONOURED, "")
    return SettingFinding(
        name, shown, Fate.UNKNOWN, f"{path}:{unknown[name]}: unknown setting {name}, ignored"
    )
