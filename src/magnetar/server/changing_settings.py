"""Settings of a file with what is changed of them while a broker runs, and which those are."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

from magnetar.broker.policies.dynamic import Changeable, SettingRefused
from magnetar.config.settings import Settings, SettingsContradict, attribute_name
from magnetar.config.table import (
    Setting,
    SettingClass,
    Value,
    ValueRefused,
    cluster_settings_table,
    settings_table,
)

log = logging.getLogger(__name__)

S = TypeVar("S", bound=Any)
T = TypeVar("T")

_FOR_GOOD = {
    "bookkeeperUseV2WireProtocol": "connections to bookies keep their protocol version",
    "brokerShutdownTimeoutMs": "it is read from the configuration file when the broker stops",
    "entryFilterNames": "filters are code, which only the configuration file may load",
    "loadManagerClassName": "there is only one load manager",
}
"""Settings that Pulsar changes while a broker runs, that are honoured here, and why they stay as they are."""


class ChangingSettings(Generic[S, T]):
    """Both are immutable; another one takes their place.

    :param of_file: the settings as the file has them
    :param table: what is known of each
    :param read: makes what is gone by of them. :raises SettingsContradict: they do not go together
    """

    def __init__(self, of_file: S, table: Mapping[str, Setting], read: Callable[[S], T]) -> None:
        """:raises SettingsContradict: see ``read``"""
        self._of_file = of_file
        self._table = table
        self._read = read
        self._changed: Mapping[str, Value] = {}
        self.now = read(of_file)

    def changeable(self, names: Iterable[str]) -> Mapping[str, Changeable]:
        """Settings of these names, and what takes them."""
        return {name: Changeable(partial(self._take, name), partial(self._check, name)) for name in names}

    def _check(self, name: str, text: str) -> None:
        try:
            self._with(name, text)
        except (ValueRefused, SettingsContradict) as error:
            raise SettingRefused(str(error)) from error

    def _with(self, name: str, text: str | None) -> tuple[Mapping[str, Value], T]:
        """What is changed, and what is gone by, with one more change."""
        changed = dict(self._changed)
        changed.pop(attribute_name(name), None)
        if text is not None:
            changed[attribute_name(name)] = self._table[name].parse(text)
        return changed, self._read(replace(self._of_file, **changed))

    def _take(self, name: str, text: str | None) -> bool:
        """What cannot be used counts for nothing: what was said before does."""
        if text is None and attribute_name(name) not in self._changed:
            # A start asks about every setting: a copy of all for each of them would take 10 ms.
            return False
        before = self.now
        try:
            self._changed, self.now = self._with(name, text)
        except (ValueRefused, SettingsContradict) as error:
            log.error("cannot apply a changed setting", extra={"setting": name, "error": str(error)})
            return False
        return before != self.now


class BrokerOptions:
    """What a broker goes by, whatever stores it has, as it is now."""

    def __init__(self, settings: Settings, *, cluster: bool) -> None:
        """:param cluster: it is one on ZooKeeper and BookKeeper"""
        table = cluster_settings_table() if cluster else settings_table()
        self._changing: ChangingSettings[Settings, Settings] = ChangingSettings(settings, table, _themselves)
        own = [name for name in changeable_names(cluster=cluster) if hasattr(settings, attribute_name(name))]
        self.dynamic = self._changing.changeable(own)
        """The settings that can change, and what takes them when they do."""
        self.refused = unchangeable(cluster=cluster)
        """Those that Pulsar changes, and why they stay as they are."""

    @property
    def now(self) -> Settings:
        return self._changing.now


def _themselves(settings: Settings) -> Settings:
    return settings


def changeable_names(*, cluster: bool) -> list[str]:
    """Settings that count at once when they are changed."""
    return [
        row.name
        for row in _dynamic(cluster=cluster)
        if row.kind is SettingClass.HONOURED and row.name not in _FOR_GOOD
    ]


def unchangeable(*, cluster: bool) -> Mapping[str, str]:
    """Settings that Apache Pulsar changes while a broker runs, and why that cannot be done here."""
    changeable = changeable_names(cluster=cluster)
    return {
        row.name: _why_not(row, cluster=cluster)
        for row in _dynamic(cluster=cluster)
        if row.name not in changeable
    }


def _dynamic(*, cluster: bool) -> list[Setting]:
    table = cluster_settings_table() if cluster else settings_table()
    return [row for row in table.values() if row.dynamic]


def _why_not(row: Setting, *, cluster: bool) -> str:
    if row.kind is SettingClass.HONOURED:
        return _FOR_GOOD[row.name]
    if not cluster and cluster_settings_table()[row.name].kind is SettingClass.HONOURED:
        return "it has an effect only on a broker with ZooKeeper and BookKeeper"
    what = "it has no meaning here" if row.kind is SettingClass.MEANINGLESS else "it has no effect yet"
    return f"{what}: {row.note}" if row.note else what
