"""Transfers a bundle to a known broker, which takes it before clients are redirected there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from magnetar.broker.flow.connection import Assigned
from magnetar.broker.ownership.brokers import BrokerRecord
from magnetar.broker.ownership.peers import Beside
from magnetar.broker.settings import BrokerSettings
from magnetar.errors import BrokerError
from magnetar.io.interfaces import Loop
from magnetar.io.waiting import finished, sleep
from magnetar.naming.topic_name import TopicName

log = logging.getLogger(__name__)

_SECONDS = 3.0
"""After this time, clients look the topic up themselves: they wait meanwhile."""
_RETRY_SECONDS = 0.05


class HandingOver:
    def __init__(self, loop: Loop, beside: Beside, own: Callable[[], BrokerSettings]) -> None:
        self._loop = loop
        self._beside = beside
        self._own = own

    def target(self, broker_id: str | None) -> BrokerRecord | None:
        """Returns the broker that clients can be redirected to; None: they must look the topic up.

        With several listeners, only a lookup knows which one the client uses.
        """
        own = self._own()
        if broker_id is None or broker_id == own.broker_id or len(own.listeners) > 1:
            return None
        return self._beside.brokers.get(broker_id)

    async def take(self, target: BrokerRecord, topic: TopicName) -> Assigned | None:
        """Has the broker take the bundle of a topic, as if a lookup had come there from the leader.

        :returns: where the bundle's owner is now; None: it is not known
        """
        asked = self._loop.create_task(self._take(target, topic))
        if not await finished(self._loop, asked, lambda end: self._loop.call_later(_SECONDS, end)):
            asked.cancel()
            return None
        found: Assigned | None = asked.result()
        return found

    async def _take(self, target: BrokerRecord, topic: TopicName) -> Assigned | None:
        kind = "destination" if topic.namespace_name.legacy else "topic"
        path = f"/lookup/v2/{kind}/{topic.domain.value}/{topic.namespace_name}/{quote(topic.local, '')}"
        try:
            answer = (await self._beside.admin.call(target, "GET", path, {"authoritative": "true"})).json()
        except (BrokerError, ValueError) as error:
            log.info(
                "next owner did not accept the topic; clients will look it up",
                extra={"broker": target.broker_id, "reason": str(error) or "not JSON"},
            )
            return None
        found = _assigned(answer)
        if found is not None and self._is_here(found):
            # That broker does not know yet that the bundle is free.
            await sleep(self._loop, _RETRY_SECONDS)
            return await self._take(target, topic)
        return found

    def _is_here(self, found: Assigned) -> bool:
        own = self._own()
        return found.url == own.service_url != "" or found.url_tls == own.service_url_tls != ""


def _assigned(answer: Any) -> Assigned | None:
    if not isinstance(answer, dict):
        return None
    url, url_tls = (answer.get(name) or "" for name in ("brokerUrl", "brokerUrlTls"))
    told = isinstance(url, str) and isinstance(url_tls, str) and bool(url or url_tls)
    return Assigned(url, url_tls) if told else None
