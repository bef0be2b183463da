"""Whether a process would start with a file of settings, and what becomes of each, without a start."""

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
from magnetar.server.bind_addresses import bind_addresses, check_listeners
from magnetar.server.entry_filters import load_entry_filters
from magnetar.server.exposure import exposures


@dataclass(frozen=True)
class Checked:
    """What is found out about a file."""

    findings: list[SettingFinding]
    problems: list[str]
    """Why a start would be refused, as it would say it; empty: it would not, for what the file says."""
    warnings: Sequence[str] = ()
    """What a start would warn of besides: listeners that other machines reach."""


@dataclass(frozen=True)
class _Kind:
    table: Callable[[], dict[str, Setting]]
    try_it: Callable[[Path, Iterable[str]], Sequence[str]]
    """Returns what a start would warn of, and raises what a start would."""
    known: re.Pattern[str] | None = None


def _try_broker(path: Path, accept: Iterable[str], *, cluster: bool) -> Sequence[str]:
    settings = load(path, accept, cluster=cluster).settings
    load_entry_filters(settings.entry_filter_names)
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
"""Set where there is a cluster."""


def check(path: Path, kind: str, accept: Iterable[str] = ()) -> Checked:
    """Ports, disks, keys and certificates are not looked at.

    :param kind: of process: ``standalone``, ``broker``, ``proxy`` or ``websocket``
    :param accept: guarded keys that may be set although they are not honoured
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
