"""Administration of what several brokers serve: done here, or asked of whoever serves it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from magnetar.broker.ownership.contract import Asked, Owner
from magnetar.broker.ownership.peers import PeerAnswer, PeerRefused
from magnetar.broker.service import BrokerService
from magnetar.errors import ServiceNotReady
from magnetar.naming.topic_name import TopicName

REDIRECTED = 307
_REDIRECTS = 4


def path_of(name: TopicName) -> str:
    """Of a topic in the admin interface."""
    root = "/admin" if name.namespace_name.legacy else "/admin/v2"
    return f"{root}/{name.domain.value}/{name.namespace_name}/{quote(name.local, '')}"


async def ask_owner(
    broker: BrokerService,
    owner: Owner,
    method: str,
    path: str,
    query: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> PeerAnswer:
    """Asks another broker, and whom that one names.

    :param owner: another broker, which has it or is to be asked first
    :raises ServiceNotReady: it is not known who has it, or that one does not answer
    :raises PeerRefused: whoever has it refuses
    """
    beside = broker.beside
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


async def at_owner_of(
    broker: BrokerService,
    name: TopicName,
    here: Callable[[], Awaitable[Any]],
    method: str,
    suffix: str = "",
    query: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> Any:
    """Does something with a topic where it is served; what that answered, parsed where it was another broker.

    :param here: does it with a topic of this broker's
    :param suffix: of the path, behind the topic
    :raises ServiceNotReady: it is not known who serves it, or that one does not answer
    :raises PeerRefused: whoever serves it refuses
    """
    owner = await broker.owner_of(name, Asked.PLACE)
    if owner.here:
        return await here()
    answer = await ask_owner(broker, owner, method, path_of(name) + suffix, query, body)
    return answer.json()
