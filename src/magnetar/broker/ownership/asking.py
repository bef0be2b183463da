"""Requests to the broker that owns a bundle, which may have moved meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from magnetar.broker.ownership.contract import Owner
from magnetar.broker.ownership.peers import Beside, PeerAnswer, PeerRefused
from magnetar.errors import ServiceNotReady

REDIRECTED = 307
_REDIRECTS = 4


async def ask(
    beside: Beside | None,
    owner: Owner,
    method: str,
    path: str,
    query: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> PeerAnswer:
    """Sends a request to another broker and follows its redirects.

    :param beside: the other brokers of the cluster; None in a standalone broker
    :param owner: another broker, which owns the bundle or is to be asked first
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
