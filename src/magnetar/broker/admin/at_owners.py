"""Administration of what several brokers serve: done here, or asked of whoever serves it."""

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
    """Does something with a topic where it is served; what that answered, parsed where it was another broker.

    :param here: does it with a topic of this broker's
    :param suffix: of the path, behind the topic
    :raises ServiceNotReady: it is not known who serves it, or that one does not answer
    :raises PeerRefused: whoever serves it refuses
    """
    owner = await broker.owner_of(name, Asked.PLACE)
    if owner.here:
        return await here()
    answer = await ask(broker.beside, owner, method, name.admin_path + suffix, query, body)
    return answer.json()
