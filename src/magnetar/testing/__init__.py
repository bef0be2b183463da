"""Brokers for tests of applications: a pytest plugin whose brokers have an adjustable clock and fault
injection.

See ``docs/testing.md``. The plugin is available in every project with pytest and Magnetar; tests use its
fixtures, and import types and errors from this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.errors import ServerErrorCode
    from magnetar.testing.broker import Broker, HeldReceipts
    from magnetar.testing.channel import BrokerEnded, BrokerNotStarted, BrokerRefused

_PLACES = {
    "Broker": "magnetar.testing.broker",
    "BrokerEnded": "magnetar.testing.channel",
    "BrokerNotStarted": "magnetar.testing.channel",
    "BrokerRefused": "magnetar.testing.channel",
    "HeldReceipts": "magnetar.testing.broker",
    "ServerErrorCode": "magnetar.errors",
}

__all__ = [
    "Broker",
    "BrokerEnded",
    "BrokerNotStarted",
    "BrokerRefused",
    "HeldReceipts",
    "ServerErrorCode",
]


def __getattr__(name: str) -> object:
    # Lazy, because the plugin is in this package, and every test session imports it.
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
