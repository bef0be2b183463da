"""The settings of a file combined with changes at run time, and the settings that can change."""

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
    "transactionLogBatchedWriteEnabled": "coordinators read it when they start",
    "transactionPendingAckBatchedWriteEnabled": "subscriptions read it when their log is opened",
    "bookkeeperUseV2WireProtocol": "connections to bookies keep their protocol version",
    "brokerShutdownTimeoutMs": "it is read from the configuration file when the broker stops",
    "entryFilterNames": "filters are code, which only the configuration file may load",
    "loadManagerClassName": "there is only one load manager",
}
"""Honoured settings that Pulsar can change at run time, with the reasons why this broker cannot change
them."""


class ChangingSettings(Generic[S, T]):
    """Settings and an object derived from them. Both are immutable; a change replaces both.

    :param of_file: the settings as the configuration file sets them
    :param table: the description of each setting
    :param read: derives the object from settings. :raises SettingsContradict: the settings contradict each
        other
    """

    def __init__(self, of_file: S, table: Mapping[str, Setting], read: Callable[[S], T]) -> None:
        """:raises SettingsContradict: see ``read``"""
        self._of_file = of_file
        self._table = table
        self._read = read
        self._changed: Mapping[str, Value] = {}
        self.now = read(of_file)

    def changeable(self, names: Iterable[str]) -> Mapping[str, Changeable]:
        """Returns, by name, the functions that check and apply changes of the settings ``names``."""
        return {name: Changeable(partial(self._take, name), partial(self._check, name)) for name in names}

    def _check(self, name: str, text: str) -> None:
        try:
            self._with(name, text)
        except (ValueRefused, SettingsContradict) as error:
            raise SettingRefused(str(error)) from error

    def _with(self, name: str, text: str | None) -> tuple[Mapping[str, Value], T]:
        """Returns the changes so far together with one further change, and the object derived from the
        settings with all these changes.

        :param text: the new value; None: the setting gets back the value in the file
        """
        changed = dict(self._changed)
        changed.pop(attribute_name(name), None)
        if text is not None:
            changed[attribute_name(name)] = self._table[name].parse(text)
        return changed, self._read(replace(self._of_file, **changed))

    def _take(self, name: str, text: str | None) -> bool:
        """Applies a change, and returns whether the derived object differs now. An unusable value is ignored.

        :param text: the new value; None: the setting gets back the value in the file
        """
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
    """The current settings of a broker, whichever stores it uses."""

    def __init__(self, settings: Settings, *, cluster: bool) -> None:
        """:param cluster: whether the broker uses ZooKeeper and BookKeeper"""
        table = cluster_settings_table() if cluster else settings_table()
        self._changing: ChangingSettings[Settings, Settings] = ChangingSettings(settings, table, _themselves)
        own = [name for name in changeable_names(cluster=cluster) if hasattr(settings, attribute_name(name))]
        self.dynamic = self._changing.changeable(own)
        """The settings that can change at run time, and the functions that apply their changes."""
        self.refused = unchangeable(cluster=cluster)
        """Settings that Pulsar can change at run time but this broker cannot, each with the reason."""

    @property
    def now(self) -> Settings:
        return self._changing.now


def _themselves(settings: Settings) -> Settings:
    return settings


def changeable_names(*, cluster: bool) -> list[str]:
    """Returns the names of the settings whose changes take effect immediately."""
    return [
        row.name
        for row in _dynamic(cluster=cluster)
        if row.kind is SettingClass.HONOURED and row.name not in _FOR_GOOD
    ]


def unchangeable(*, cluster: bool) -> Mapping[str, str]:
    """Returns the settings that Apache Pulsar can change at run time but this broker cannot, each with the
    reason.
    """
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
