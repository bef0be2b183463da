"""Administration of topics that several brokers serve: each operation is done here or sent to the owner."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from magnetar.broker.ownership.asking import ask
from magnetar.broker.ownership.contract import Asked
from magnetar.broker.service import BrokerService
from magnetar.naming.topic_name import TopicName


async def at_owner_of(
    broker: BrokerService,
    name: TopicName,
    here: Callable[[], Awaitable[Any]],
    method: str,
    suffix: str = "",
    query: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> Any:
    """Does something with a topic at its owner. Returns the result, parsed from JSON if another broker did
    it.

    :param here: does it if this broker is the owner
    :param suffix: of the request's path, after the topic
    :raises ServiceNotReady: the owner cannot be determined or does not answer
    :raises PeerRefused: the owner refuses
    """
    owner = await broker.owner_of(name, Asked.PLACE)
    if owner.here:
        return await here()
    answer = await ask(broker.beside, owner, method, name.admin_path + suffix, query, body)
    return answer.json()
