"""Administration requests to other brokers of the cluster, for example to the owner of a bundle."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from magnetar.broker.ownership.brokers import BrokerRecord, Leadership, LiveBrokers
from magnetar.broker.ownership.contract import Addresses, Owner, Placement
from magnetar.errors import BrokerError, ServiceNotReady
from magnetar.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from magnetar.client.client import Client

REDIRECTED = 307
_REDIRECTS = 4


class PeerRefused(BrokerError):
    """Another broker refused a request; the text of this error is the reason in the answer."""

    def __init__(self, status: int, reason: str, location: str = "") -> None:
        """:param status: the HTTP status, from 300 on

        :param location: the target of a redirect; empty if the answer is not a redirect
        """
        super().__init__(reason)
        self.status = status
        self.location = location

    @property
    def http_status(self) -> int:
        return self.status


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """The answer of another broker."""

    status: int
    body: bytes
    location: str = ""
    """The target of a redirect; empty if the answer is not a redirect."""

    def json(self) -> Any:
        """Returns the body as a JSON value.

        :raises ValueError: the body is not JSON
        """
        return json.loads(self.body) if self.body else None


class PeerAdmin(Protocol):
    """Sends requests to the HTTP interface of other brokers, with this broker's own credentials."""

    async def call(
        self,
        broker: BrokerRecord,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> PeerAnswer:
        """Sends an HTTP request to another broker, and returns its answer.

        :param path: the absolute path, encoded as in a URL
        :param body: the body of the request, JSON
        :raises ServiceNotReady: the broker does not answer, or not in time
        :raises PeerRefused: the answer is not a success; redirects are not followed
        """
        ...


@dataclass(frozen=True, slots=True)
class Beside:
    """The other brokers of a broker's cluster, and the means to send requests to them."""

    brokers: LiveBrokers
    leadership: Leadership
    placement: Placement
    admin: PeerAdmin
    client: Callable[[Addresses], Client]
    """Returns a client for a broker's addresses, with this broker's own credentials."""


async def ask(
    beside: Beside | None,
    owner: Owner,
    method: str,
    path: str,
    query: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> PeerAnswer:
    """Sends a request to another broker and follows its redirects, because the bundle may have moved in the
    meantime.

    :param beside: the other brokers of the cluster; None in a standalone broker
    :param owner: the broker to ask first, usually the owner of the bundle
    :raises ServiceNotReady: the owner is unknown or does not answer
    :raises PeerRefused: the owner refuses the request
    """
    record = beside.brokers.get(owner.broker_id) if beside is not None else None
    authoritative = "true" if owner.authoritative and not owner.settled else "false"
    for _ in range(_REDIRECTS):
        if beside is None or record is None:
            break
        wanted = {**(query or {}), "authoritative": authoritative}
        try:
            return await beside.admin.call(record, method, path, wanted, body)
        except PeerRefused as error:
            if error.status != REDIRECTED:
                raise
            told = urlsplit(error.location)
            record = beside.brokers.at_http(f"{told.scheme}://{told.netloc}")
            authoritative = "true" if "authoritative=true" in told.query else "false"
    raise ServiceNotReady(f"The broker that serves {path} was not found")


async def ask_object(
    beside: Beside | None, owner: Owner, path: str, query: Mapping[str, str] | None = None
) -> dict[str, object]:
    """Returns the JSON object with which another broker answers a GET request; see :func:`ask`.

    :raises ServiceNotReady: the owner is unknown, does not answer, or answers with another value
    :raises PeerRefused: the owner refuses the request
    """
    answer = await ask(beside, owner, "GET", path, query)
    try:
        told = answer.json()
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise ServiceNotReady(f"{owner.broker_id} did not answer {path} with a JSON object")
    return told
