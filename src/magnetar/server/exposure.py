"""Warnings about listeners that other machines can reach, and about advertised addresses."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import NamedTuple

from magnetar.config.settings import Settings
from magnetar.server.bind_addresses import BindAddress

_ALL_ADDRESSES = ("", "0.0.0.0", "::")  # nosec B104 - compared, not bound to


class Exposure(NamedTuple):
    """A warning about a listener."""

    found: str
    advice: str

    def __str__(self) -> str:
        return f"{self.found}. {self.advice}"


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach a listener on ``host``.

    :param host: an address or a name, as in ``bindAddress``. The only name that is loopback is ``localhost``
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def exposures(settings: Settings, listening: Sequence[BindAddress]) -> Sequence[Exposure]:
    """Returns warnings about listeners that other machines can reach.

    :param listening: see :func:`magnetar.server.bind_addresses.bind_addresses`
    """
    reached = [bind for bind in listening if not is_loopback(bind.host)]
    return [*_unauthenticated(settings, reached), *_misled(settings, reached)]


def _unauthenticated(settings: Settings, reached: Sequence[BindAddress]) -> Sequence[Exposure]:
    if settings.authentication_enabled or not reached:
        return []
    where = ", ".join(f"{bind.scheme} on {_shown(bind)}" for bind in reached)
    found = (
        f"Other machines reach {where} without authentication: anyone there may publish, consume and "
        "administer"
    )
    return [Exposure(found, "Set authenticationEnabled=true, or bindAddress=127.0.0.1")]


def _misled(settings: Settings, reached: Sequence[BindAddress]) -> Sequence[Exposure]:
    """Returns warnings about lookups that would send clients on other machines to their own machine."""
    if settings.advertised_address or settings.advertised_listeners:
        return []
    if not any(bind.host in _ALL_ADDRESSES for bind in reached):
        return []
    found = (
        "The broker listens on all addresses but advertises localhost, so clients on other machines "
        "connect to themselves"
    )
    return [
        Exposure(found, "Set advertisedAddress to a name or address at which other machines reach this one")
    ]


def _shown(bind: BindAddress) -> str:
    host = f"[{bind.host}]" if ":" in bind.host else bind.host or "all addresses"
    return f"{host}:{bind.port}"
