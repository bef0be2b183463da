"""``magnetar broker`` behind wires to everybody: ZooKeeper, each bookie, and its clients."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path

from bookkeeper_servers import BookKeeperServers
from cluster_requests import asked
from ports import free_port
from proxied_broker import ProxiedBroker
from tcp_proxy import TcpProxy

_ANSWER_SECONDS = 2.0
"""To a lookup, of a broker that is well."""


class FrontedBroker(ProxiedBroker):
    """Clients are told the near end of its wire. ``port`` is the far end, for those who pass it by."""

    def __init__(self, folder: Path, servers: BookKeeperServers, **settings: int | str) -> None:
        port = free_port()
        self.front = TcpProxy(port)
        listener = {
            "advertisedListeners": f"front:{self.told_url}",
            "internalListenerName": "front",
            "bindAddress": "127.0.0.1",
        }
        super().__init__(folder, servers, **listener, **settings)
        self.take_ports(port, free_port())

    @property
    def told_url(self) -> str:
        return f"pulsar://127.0.0.1:{self.front.port}"

    def close(self) -> None:
        super().close()
        self.front.close()


def url_of(brokers: Sequence[FrontedBroker]) -> str:
    """Of all of them, for clients."""
    return "pulsar://" + ",".join(broker.told_url.removeprefix("pulsar://") for broker in brokers)


def owner_of(brokers: Sequence[FrontedBroker], topic: str) -> FrontedBroker | None:
    """Who of them has a topic, as the first one tells, or who it sends to; None: somebody else, nobody now,
    or somebody does not answer.
    """
    url = f"{brokers[0].http_url}/lookup/v2/topic/{topic.replace('://', '/')}"
    try:
        status, answer, _ = asked("GET", url, seconds=_ANSWER_SECONDS)
    except (OSError, HTTPException):
        return None
    told = json.loads(answer)["brokerUrl"] if status == 200 else ""
    return next((each for each in brokers if each.told_url == told), None)
