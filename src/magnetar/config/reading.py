"""Reads the values of a Pulsar property file according to a table of settings, and collects all errors."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from magnetar.config.properties import PropertyError, parse_properties
from magnetar.config.table import Setting, SettingClass, Value, ValueRefused
from magnetar.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
COMMAND_LINE = "command line"
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class ConfigurationError(Exception):
    """The configuration cannot be used; ``problems`` contains each reason with its file and line."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def attribute_name(key: str) -> str:
    """Converts a setting's name to an attribute: ``managedLedgerCacheSizeMB`` becomes
    ``managed_ledger_cache_size_mb``.
    """
    return _WORD_START.sub("_", key).lower()


class SettingsContradict(ValueError):
    """Individually valid settings contradict each other; the message names the settings."""


@dataclass(frozen=True, slots=True)
class Given:
    """A setting that was given, with its position in the file or on the command line."""

    setting: Setting
    text: str
    origin: str


@dataclass(slots=True)
class Read:
    """The settings in a file and on a command line, according to a table."""

    table: Mapping[str, Setting]
    values: dict[str, Value] = field(default_factory=dict)
    """The value of every key of the table; the default if the given value cannot be used."""
    given: dict[str, Given] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """Reasons why the configuration cannot be used, each with file and line."""
    warnings: list[str] = field(default_factory=list)
    everything: dict[str, str] = field(default_factory=dict)
    """All given settings by name, including unknown ones; secrets are not masked."""
    unknown: dict[str, int] = field(default_factory=dict)
    """The line number of each unknown name."""

    @property
    def texts(self) -> dict[str, str]:
        """Returns the effective value of every key of the table as text, with secrets masked."""
        return {key: _as_text(self.table[key], value) for key, value in self.values.items()}


def read_settings(
    path: str | Path | None,
    table: Mapping[str, Setting],
    accept: Iterable[str] = (),
    overrides: Mapping[str, str] | None = None,
    known: re.Pattern[str] | None = None,
) -> Read:
    """Reads the settings in a file; if ``path`` is None, all settings have their defaults.

    :param accept: unsupported keys that the file may set nevertheless
    :param overrides: settings from the command line, which take precedence over the file
    :param known: pattern of further names that are not reported as unknown
    :raises ConfigurationError: the file cannot be read
    """
    accepted = frozenset(accept)
    read = Read(table)
    read.problems += [f"{key} is not the name of a setting" for key in sorted(accepted - table.keys())]
    if path is not None:
        _read_file(Path(path), read, known)
    for key, text in (overrides or {}).items():
        read.given[key] = Given(table[key], text, COMMAND_LINE)
        read.everything[key] = text
    for key, setting in table.items():
        item = read.given.get(key)
        if item is None:
            read.values[key] = setting.parse("")
            continue
        judged = judge(item, accepted)
        read.values[key] = judged.value
        if judged.problem is not None:
            read.problems.append(judged.problem)
        if judged.warning is not None:
            read.warnings.append(judged.warning)
    return read


def typed(kind: type[T], values: Mapping[str, Value]) -> T:
    """Creates an object of the settings class ``kind`` from the values of settings by Pulsar's names."""
    by_attribute: dict[str, object] = {attribute_name(key): value for key, value in values.items()}
    return kind(**{entry.name: by_attribute[entry.name] for entry in fields(kind)})


def _read_file(path: Path, read: Read, known: re.Pattern[str] | None) -> None:
    try:
        # Java reads property files as ISO-8859-1, whatever their encoding.
        properties = parse_properties(path.read_text("iso-8859-1"))
    except OSError as error:
        raise ConfigurationError([f"{path} cannot be read: {error.strerror}"]) from error
    except PropertyError as error:
        raise ConfigurationError([f"{path}:{error.line}: {error}"]) from error
    unknown = read.unknown
    for item in properties:
        read.everything[item.key] = item.value
        setting = read.table.get(item.key)
        if setting is None and known is not None and known.fullmatch(item.key):
            continue
        if setting is None:
            unknown.setdefault(item.key, item.line)
        else:
            read.given[item.key] = Given(setting, item.value, f"{path}:{item.line}")
    if unknown:
        named = ", ".join(f"{key} (line {line})" for key, line in unknown.items())
        read.warnings.append(f"{path}: unknown settings, ignored: {named}")


@dataclass(frozen=True, slots=True)
class Judged:
    """The judgement of a setting: its effective value, and the problem of the given value, if any."""

    value: Value
    """The effective value of the setting."""
    problem: str | None = None
    """The reason why a start is refused; None: the start is not refused."""
    warning: str | None = None


def judge(item: Given, accepted: Container[str] = ()) -> Judged:
    """Returns the judgement of one setting.

    :param accepted: unsupported keys that the file may set nevertheless
    """
    setting = item.setting
    default = setting.parse("")
    try:
        value = setting.parse(item.text)
    except ValueRefused as refusal:
        but = "" if setting.secret else f", not {item.text.strip()!r}"
        return Judged(default, problem=f"{item.origin}: {setting.name} {refusal}{but}")
    if setting.kind not in (SettingClass.LATER, SettingClass.GUARDED):
        return Judged(value)
    if value == default or item.text.strip() in setting.same:
        return Judged(value)
    reason = f" ({setting.note})" if setting.note else ""
    shown = setting.name if setting.secret else f"{setting.name}={item.text.strip()}"
    said = f"{item.origin}: {shown} is not honoured yet{reason}"
    if setting.kind is SettingClass.GUARDED and setting.name not in accepted:
        return Judged(
            value, problem=f"{said}; remove the setting, or start with --accept-unhonoured {setting.name}"
        )
    acts = f"; this release acts as with {setting.default}" if setting.default else ""
    return Judged(value, warning=f"{said}{acts}")


def _as_text(setting: Setting, value: Value) -> str:
    if value is None:
        return ""
    if setting.secret and value:
        return "*****"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)
