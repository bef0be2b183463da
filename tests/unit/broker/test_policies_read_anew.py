"""Policies of topics whose reader has failed for good are read again, and live topics hear of it."""

from __future__ import annotations

from typing import Any, cast

from lived import Lived

from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.system_topics.topic_policies_of_cluster import ClusterTopicPolicies
from magnetar.client.client import Client
from magnetar.client.exceptions import AuthenticationError, PulsarException
from magnetar.io.waiting import fail
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName

NAMESPACE = NamespaceName.parse("public/default")
EVENTS = TopicName.parse("persistent://public/default/__change_events")


class Readers:
    """A client whose readers end when they are told to, and cannot be made for a while."""

    def __init__(self, lived: Lived) -> None:
        self.loop = lived.broker.io.loop
        self.made = 0
        self.refused = 0
        self.ended: Any = None

    async def create_reader(self, *_: Any, **__: Any) -> Readers:
        if self.refused:
            self.refused -= 1
            raise AuthenticationError("no fresh token yet")
        self.made += 1
        self.ended = self.loop.create_future()
        return self

    async def has_message_available(self) -> bool:
        return False

    async def read_entries(self, _limit: int) -> list[Any]:
        await self.ended
        return []

    async def close(self) -> None:
        """It keeps nothing."""


def test_live_topics_go_by_them_when_they_can_be_read_again() -> None:
    lived = Lived(EffectivePolicies())
    readers, told = Readers(lived), list[tuple[NamespaceName, TopicName | None]]()

    async def tell(namespace: NamespaceName, topic: TopicName | None) -> None:
        told.append((namespace, topic))

    policies = ClusterTopicPolicies(
        lived.broker, "standalone", tell, lived.world.metadata, lambda: cast(Client, readers)
    )
    lived.topic(EVENTS)
    lived.world.run(policies.of(TopicName.parse("persistent://public/default/t")))
    assert (readers.made, told) == (1, [])
    readers.refused = 2
    fail(readers.ended, PulsarException("the reader has failed for good"))
    lived.world.wait(0.5)
    assert readers.made == 1
    lived.world.wait(10)
    assert (readers.made, told) == (2, [(NAMESPACE, None)])
    fail(readers.ended, PulsarException("once more"))
    lived.world.wait(0.5)
    lived.world.run(policies.close())
    lived.world.wait(60)
    assert readers.made == 2
