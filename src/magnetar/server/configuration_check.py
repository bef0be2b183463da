"""Checks a configuration file: whether a process would start with the file, and how the process handles each
setting.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from magnetar.config.fates import SettingFinding, fates
from magnetar.config.proxy import OF_PROXIES, load_proxy
from magnetar.config.reading import ConfigurationError, SettingsContradict
from magnetar.config.settings import load
from magnetar.config.table import (
    Setting,
    cluster_settings_table,
    proxy_settings_table,
    settings_table,
    websocket_settings_table,
)
from magnetar.config.websocket import load_websockets
from magnetar.lazy_dataclass import dataclass
from magnetar.server.addresses import bind_addresses, check_listeners, exposures
from magnetar.server.settings import load_entry_filters, offload_fields


@dataclass(frozen=True)
class Checked:
    """The result of a check."""

    findings: list[SettingFinding]
    problems: list[str]
    """The errors because of which the process would not start; empty: the process would start with the file.
    """
    warnings: Sequence[str] = ()
    """Further warnings that a start would log, for example about listeners that other machines can reach."""


@dataclass(frozen=True)
class _Kind:
    table: Callable[[], dict[str, Setting]]
    try_it: Callable[[Path, Iterable[str]], Sequence[str]]
    """Loads a file as the process does at its start; returns the same warnings, and raises the same
    errors."""
    known: re.Pattern[str] | None = None


def _try_broker(path: Path, accept: Iterable[str], *, cluster: bool) -> Sequence[str]:
    settings = load(path, accept, cluster=cluster).settings
    load_entry_filters(settings.entry_filter_names)
    offload_fields(settings)
    listening = bind_addresses(settings)
    check_listeners(settings, listening)
    return [str(exposure) for exposure in exposures(settings, listening)]


def _try_standalone(path: Path, accept: Iterable[str]) -> Sequence[str]:
    return _try_broker(path, accept, cluster=False)


def _try_of_cluster(path: Path, accept: Iterable[str]) -> Sequence[str]:
    return _try_broker(path, accept, cluster=True)


def _try_proxy(path: Path, accept: Iterable[str]) -> Sequence[str]:
    load_proxy(path, accept)
    return ()


def _try_websockets(path: Path, accept: Iterable[str]) -> Sequence[str]:
    load_websockets(path, accept)
    return ()


_KINDS: Mapping[str, _Kind] = {
    "standalone": _Kind(settings_table, _try_standalone),
    "broker": _Kind(cluster_settings_table, _try_of_cluster),
    "proxy": _Kind(proxy_settings_table, _try_proxy, OF_PROXIES),
    "websocket": _Kind(websocket_settings_table, _try_websockets),
}


_METADATA = ("metadataStoreUrl", "zookeeperServers")
"""Settings whose presence indicates a cluster."""


def check(path: Path, kind: str, accept: Iterable[str] = ()) -> Checked:
    """Checks a configuration file, but not the ports, disks, keys and certificates that it names.

    :param kind: the kind of process: ``standalone``, ``broker``, ``proxy`` or ``websocket``
    :param accept: unsupported keys that the file may set nevertheless
    :raises ConfigurationError: the file cannot be read
    """
    asked = _KINDS[kind]
    findings = fates(path, asked.table(), accept, asked.known)
    warnings: Sequence[str] = ()
    problems: list[str] = []
    try:
        warnings = asked.try_it(path, accept)
    except ConfigurationError as error:
        problems = list(error.problems)
    except SettingsContradict as error:
        problems = [str(error)]
    return Checked(findings, problems, warnings)


def kind_of(path: Path) -> str:
    """Returns the kind of process that a file configures, determined from its name or else from its settings.

    :raises ConfigurationError: the file cannot be read
    """
    name = path.name.lower()
    if "proxy" in name or "discovery" in name:
        return "proxy"
    if "websocket" in name:
        return "websocket"
    if "standalone" in name:
        return "standalone"
    given = {each.name: each.value for each in fates(path, settings_table())}
    if "servicePort" in given and "brokerServicePort" not in given:
        return "proxy"
    return "broker" if any(given.get(name) for name in _METADATA) else "standalone"
