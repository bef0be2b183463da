"""Options that are passed to the client: ``pulsar.client.*``, ``pulsar.producer.*``, ``pulsar.reader.*``.

Their names are those of the Java client's configuration. An option that this client does not support is
refused rather than ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from magnetar.client.enums import CompressionType
from magnetar.spark.errors import InvalidOption

__all__ = ["CLIENT", "PRODUCER", "READER", "passed_through"]

CLIENT, PRODUCER, READER = "client", "producer", "reader"

_Parse = Callable[[str], object]


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _seconds(text: str) -> float:
    return _positive(text) / 1000


def _truth(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _compression(text: str) -> CompressionType:
    return {each.name.upper(): each for each in CompressionType}[text.upper()]


_NAMES: dict[str, dict[str, tuple[str, _Parse]]] = {
    CLIENT: {
        "operationtimeoutms": ("operation_timeout_seconds", _seconds),
        "connectiontimeoutms": ("connection_timeout_ms", _positive),
        "connectionsperbroker": ("connections_per_broker", _positive),
        "keepaliveintervalseconds": ("keep_alive_interval_seconds", _positive),
        "listenername": ("listener_name", str),
    },
    PRODUCER: {
        "compressiontype": ("compression_type", _compression),
        "sendtimeoutms": ("send_timeout_millis", _positive),
        "batchingenabled": ("batching_enabled", _truth),
        "batchingmaxmessages": ("batching_max_messages", _positive),
        "batchingmaxbytes": ("batching_max_allowed_size_in_bytes", _positive),
    },
    READER: {
        "receiverqueuesize": ("receiver_queue_size", _positive),
        "readername": ("reader_name", str),
        "subscriptionroleprefix": ("subscription_role_prefix", str),
    },
}


def passed_through(name: str, text: str, into: dict[str, Any]) -> bool:
    """Adds an option to ``into[CLIENT]``, ``into[PRODUCER]`` or ``into[READER]``.

    :returns: whether the option is of this kind
    :raises InvalidOption: the option is of this kind, but unknown, or its value is not valid
    """
    for kind, known in _NAMES.items():
        prefix = f"pulsar.{kind}."
        if not name.lower().startswith(prefix):
            continue
        found = known.get(name.lower().removeprefix(prefix))
        if found is None:
            raise InvalidOption(
                f"{name!r} is not supported; after {prefix} use one of {', '.join(sorted(known))}"
            )
        argument, parse = found
        try:
            into[kind][argument] = parse(text)
        except (ValueError, KeyError) as error:
            raise InvalidOption(f"{name!r} cannot be {text!r}") from error
        return True
    return False
