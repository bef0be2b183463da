"""Whether a process would start with a file of settings, and what becomes of each, without a start."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from magnetar.config.fates import Finding, fates
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
from magnetar.server.doors import check_listeners, doors
from magnetar.server.entry_filters import load_entry_filters


@dataclass(frozen=True)
class Checked:
    """What is found out about a file."""

    findings: list[Finding]
    problems: list[str]
    """Why a start would be refused, as it would say it; empty: it would not, for what the file says."""


@dataclass(frozen=True)
class _Kind:
    table: Callable[[], dict[str, Setting]]
    try_it: Callable[[Path, Iterable[str]], None]
    """Raises what a start would."""
    known: re.Pattern[str] | None = None


def _try_broker(path: Path, accept: Iterable[str], *, cluster: bool) -> None:
    settings = load(path, accept, cluster=cluster).settings
    load_entry_filters(settings.entry_filter_names)
    check_listeners(settings, doors(settings))


def _try_standalone(path: Path, accept: Iterable[str]) -> None:
    _try_broker(path, accept, cluster=False)


def _try_of_cluster(path: Path, accept: Iterable[str]) -> None:
    _try_broker(path, accept, cluster=True)


def _try_proxy(path: Path, accept: Iterable[str]) -> None:
    load_proxy(path, accept)


def _try_websockets(path: Path, accept: Iterable[str]) -> None:
    load_websockets(path, accept)


_KINDS: Mapping[str, _Kind] = {
    "standalone": _Kind(settings_table, _try_standalone),
    "broker": _Kind(cluster_settings_table, _try_of_cluster),
    "proxy": _Kind(proxy_settings_table, _try_proxy, OF_PROXIES),
    "websocket": _Kind(websocket_settings_table, _try_websockets),
}


_METADATA = ("metadataStoreUrl", "zookeeperServers")
"""Set where there is a cluster."""


def check(path: Path, kind: str, accept: Iterable[str] = ()) -> Checked:
    """Ports, disks, keys and certificates are not looked at.

    :param kind: of process: ``standalone``, ``broker``, ``proxy`` or ``websocket``
    :param accept: guarded keys that may be set although they are not honoured
    :raises ConfigurationError: the file cannot be read
    """
    asked = _KINDS[kind]
    findings = fates(path, asked.table(), accept, asked.known)
    try:
        asked.try_it(path, accept)
        problems: list[str] = []
    except ConfigurationError as error:
        problems = list(error.problems)
    except SettingsContradict as error:
        problems = [str(error)]
    return Checked(findings, problems)


def kind_of(path: Path) -> str:
    """The process that a file is for, by its name, else by what it sets.

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
