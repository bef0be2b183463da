"""Determines how each setting in a configuration file is handled, without starting a broker."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path

from magnetar.config.reading import Given, judge, read_settings
from magnetar.config.table import Setting, SettingClass
from magnetar.lazy_dataclass import dataclass


class Fate(Enum):
    """The ways in which a setting can be handled, the most serious first."""

    REFUSED = "refused"
    """The broker refuses to start."""
    NOT_HONOURED = "not honoured"
    """The setting requires an unsupported feature; a start logs a warning and continues."""
    UNKNOWN = "unknown"
    """The name is unknown; a start logs a warning and continues."""
    IGNORED = "ignored"
    """The setting configures a part that does not exist in Magnetar."""
    HONOURED = "honoured"


@dataclass(frozen=True, slots=True)
class SettingFinding:
    """The way in which one setting is handled; if a name occurs twice, the last occurrence counts."""

    name: str
    value: str
    """The value in the file, with secrets masked."""
    fate: Fate
    said: str
    """The message that a start logs; empty: no message."""


def fates(
    path: Path,
    table: Mapping[str, Setting],
    accept: Iterable[str] = (),
    known: re.Pattern[str] | None = None,
) -> list[SettingFinding]:
    """Returns the findings for all settings of a file, in the order of the file.

    :param accept: unsupported keys that the file may set nevertheless
    :param known: pattern of further honoured names, which are not in the table
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
    """Returns the finding for a setting outside the table; masks the value, which can be a secret."""
    shown = "*****" if text else ""
    if name not in unknown:
        return SettingFinding(name, shown, Fate.HONOURED, "")
    return SettingFinding(
        name, shown, Fate.UNKNOWN, f"{path}:{unknown[name]}: unknown setting {name}, ignored"
    )
