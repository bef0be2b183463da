"""Explains why a topic or a subscription receives nothing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from magnetar.broker.admin.partitions import PartitionAdmin
from magnetar.broker.admin.topics import TopicAdmin
from magnetar.broker.service import BrokerService
from magnetar.errors import BrokerError
from magnetar.naming.topic_name import TopicName

Json = Mapping[str, Any]
_NOT_FOUND = 404


class ExplainAdmin:
    """Topics are given by their full names."""

    def __init__(self, broker: BrokerService, partitions: PartitionAdmin, topics: TopicAdmin) -> None:
        self._broker = broker
        self._partitions = partitions
        self._topics = topics

    async def explain(self, topic: str, subscription: str | None) -> Json:
        """Explains a topic, or each partition of a partitioned topic, where it is served.

        :param subscription: only this one; None: all of them
        :raises TopicNotFound: no such topic
        :raises SubscriptionNotFound: no such subscription
        """
        name = self._broker.parse_topic(topic)
        await self._broker.namespaces.check(name.namespace_name)
        if not await self._broker.namespaces.partitions(name):
            return await self._here(name, subscription)
        query = {} if subscription is None else {"subscription": subscription}
        each: dict[str, Json] = {}
        missing: BrokerError | None = None
        for part in await self._topics.parts(topic):
            try:
                each[str(part)] = await self._partitions.at_owner(
                    part, partial(self._here, part, subscription), "GET", "/explain", query
                )
            except BrokerError as error:
                # A partition is created by its first client, and not every partition need have the
                # subscription.
                if error.http_status != _NOT_FOUND:
                    raise
                missing = error
        if missing is not None and not each:
            raise missing
        return {"topic": str(name), "partitions": each}

    async def _here(self, name: TopicName, subscription: str | None) -> Json:
        # A topic that is being unloaded cannot be loaded, but can still be explained.
        found = self._broker.topics.get(str(name)) or await self._broker.topic(name, create=False)
        # Imported on first use, as most brokers are never asked.
        from magnetar.broker.explaining.topic import explain_topic

        return await explain_topic(self._broker, found, subscription)
