"""Host names that plain HTTP requests may use for a process: its own, and those of its settings."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Protocol
from urllib.parse import urlsplit

from magnetar.config.reading import SettingsContradict
from magnetar.config.settings import Settings
from magnetar.http.engine.origins import ANY, Hosts
from magnetar.server.bind_addresses import advertised, bind_addresses


class NameSettings(Protocol):
    @property
    def bind_address(self) -> str: ...
    @property
    def magnetar_http_allowed_hosts(self) -> tuple[str, ...]: ...
    @property
    def magnetar_http_allowed_origins(self) -> tuple[str, ...]: ...


def hosts_of(settings: NameSettings, own: Iterable[str] = ()) -> Hosts:
    """Returns the accepted names: ``own``, those of the machine, and allowed ones. Origins that may change
    something may also read.

    :raises SettingsContradict: an allowed name is malformed
    """
    allowed = settings.magnetar_http_allowed_hosts
    origins = settings.magnetar_http_allowed_origins
    if ANY in origins:
        allowed = (*allowed, ANY)
    named = (urlsplit(origin).hostname or "" for origin in origins if origin != ANY)
    try:
        return Hosts((settings.bind_address, socket.gethostname(), *own, *named), allowed)
    except ValueError as error:
        raise SettingsContradict(str(error)) from error


def hosts_of_broker(settings: Settings, host: str) -> Hosts:
    """:param host: the advertised address

    :raises SettingsContradict: an allowed name is malformed, or listeners contradict each other
    """
    told = advertised(settings, host, {})
    urls = [
        url
        for at in (told.main, *told.listeners.values())
        for url in (at.binary, at.binary_tls, at.http, at.http_tls)
        if url
    ]
    named = [urlsplit(url).hostname or "" for url in urls]
    return hosts_of(settings, (host, *named, *(bind.host for bind in bind_addresses(settings))))
