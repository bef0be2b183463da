"""Policies of topics whose reader has failed for good are read again, and live topics hear of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from lived import Lived

from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.system_topics.topic_policies_of_cluster import ClusterTopicPolicies
from magnetar.client.client import Client
from magnetar.client.exceptions import AuthenticationError, PulsarException
from magnetar.errors import MetadataFailure, ServiceNotReady
from magnetar.io.waiting import fail
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName

NAMESPACE = NamespaceName.parse("public/default")
TOPIC = TopicName.parse("persistent://public/default/t")
EVENTS = TopicName.parse("persistent://public/default/__change_events")


class Readers:
    """A client whose readers end when they are told to, and cannot be made for a while."""

    def __init__(self, lived: Lived) -> None:
        self.loop = lived.broker.io.loop
        self.made = 0
        self.refused = 0
        self.refusal: Exception = AuthenticationError("no fresh token yet")
        self.unreadable = False
        self.closed = 0
        self.meanwhile: Callable[[], None] | None = None
        self.ended: Any = None

    async def create_reader(self, *_: Any, **__: Any) -> Readers:
        if self.refused:
            self.refused -= 1
            raise self.refusal
        self.made += 1
        self.ended = self.loop.create_future()
        return self

    async def has_message_available(self) -> bool:
        if self.meanwhile is not None:
            self.meanwhile()
        if self.unreadable:
            raise PulsarException("not now")
        return False

    async def read_entries(self, _limit: int) -> list[Any]:
        await self.ended
        return []

    async def close(self) -> None:
        self.closed += 1


def _followed(lived: Lived, readers: Readers, told: list[Any]) -> ClusterTopicPolicies:
    async def tell(namespace: NamespaceName, topic: TopicName | None) -> None:
        told.append((namespace, topic))

    metadata = lived.world.metadata
    return ClusterTopicPolicies(
        lived.broker.topics, "standalone", tell, metadata, lambda: cast(Client, readers)
    )


@pytest.mark.parametrize(
    "refusal", [AuthenticationError("no fresh token yet"), MetadataFailure("nobody answers now")]
)
def test_live_topics_go_by_them_when_they_can_be_read_again(refusal: Exception) -> None:
    lived = Lived(EffectivePolicies())
    readers, told = Readers(lived), list[tuple[NamespaceName, TopicName | None]]()
    policies = _followed(lived, readers, told)
    lived.topic(EVENTS)
    lived.world.run(policies.of(TOPIC))
    assert (readers.made, told) == (1, [])
    readers.refused, readers.refusal = 2, refusal
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


def test_a_reader_that_cannot_read_is_not_left_behind() -> None:
    lived = Lived(EffectivePolicies())
    readers = Readers(lived)
    policies = _followed(lived, readers, [])
    lived.topic(EVENTS)
    readers.unreadable = True
    for _ in range(3):
        with pytest.raises(ServiceNotReady):
            lived.world.run(policies.of(TOPIC))
    lived.world.wait(1)
    assert (readers.made, readers.closed) == (3, 3)


def test_a_namespace_that_goes_while_it_is_read_takes_its_reader_along() -> None:
    lived = Lived(EffectivePolicies())
    readers, told = Readers(lived), list[Any]()
    policies = _followed(lived, readers, told)
    lived.topic(EVENTS)
    readers.meanwhile = lambda: policies.forget(NAMESPACE)
    lived.world.run(policies.of(TOPIC))
    readers.meanwhile = None
    lived.world.run(policies.of(TOPIC))
    lived.world.wait(60)
    assert (readers.made, readers.closed, told) == (2, 1, [])


def test_policies_whose_reader_meets_an_unexpected_error_are_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lived = Lived(EffectivePolicies())
    reported: list[BaseException] = []
    loop = lived.world.simulation.loop
    monkeypatch.setattr(loop, "call_exception_handler", lambda context: reported.append(context["exception"]))
    readers, told = Readers(lived), list[Any]()
    policies = _followed(lived, readers, told)
    lived.topic(EVENTS)
    lived.world.run(policies.of(TOPIC))
    fail(readers.ended, KeyError("a defect"))
    lived.world.wait(10)
    assert [type(error) for error in reported] == [KeyError]
    assert (readers.made, told) == (2, [(NAMESPACE, None)])
