"""Clearing backlogs and deleting subscriptions of one bundle: those of the others stay."""

from __future__ import annotations

from array import array

import pytest
from served import Served

from magnetar.broker.topics.persistent import Topic
from magnetar.http.engine.message import Request
from magnetar.managed_ledger.position import EARLIEST
from magnetar.naming.namespace_name import NamespaceName
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata

NAMESPACE = "/admin/v2/namespaces/public/default"


def topics_of(served: Served, count: int = 8) -> list[Topic]:
    """Topics with a message that subscriptions ``s`` and ``t`` have not consumed, in several bundles."""
    entry = build_entry(MessageMetadata(producer_name="p", sequence_id=1, publish_time=1), b"x")
    found = []
    for number in range(count):
        topic = served.topic(f"persistent://public/default/t{number}")
        for name in ("s", "t"):
            served.world.run(topic.subscriptions.subscribe(name, EARLIEST, {}, durable=True, create=True))
        topic.managed_ledger.append(entry, array("q", [0]), array("q", [len(entry)]), 1, len(entry), None)
        found.append(topic)
    served.world.wait(0.5)
    return found


def first_bundle(served: Served, topics: list[Topic]) -> tuple[str, list[Topic], list[Topic]]:
    """A bundle as requests name it, the topics in it, and the others."""
    edges = [int(text, 16) for text in served.get(f"{NAMESPACE}/bundles")["boundaries"]]
    hashes = sorted(topic.name.bundle_hash for topic in topics)
    low = max(edge for edge in edges if edge <= hashes[0])
    high = edges[edges.index(low) + 1]
    inside = [topic for topic in topics if low <= topic.name.bundle_hash < high]
    outside = [topic for topic in topics if topic not in inside]
    assert inside
    assert outside
    return f"0x{low:08x}_0x{high:08x}", inside, outside


@pytest.mark.parametrize("subscription", ["", "/s"])
def test_backlogs_of_a_bundle_are_cleared(subscription: str) -> None:
    served = Served()
    bundle, inside, outside = first_bundle(served, topics_of(served))
    assert served.ask("POST", f"{NAMESPACE}/{bundle}/clearBacklog{subscription}").status == 204
    assert [topic.subscriptions["s"].backlog() for topic in inside] == [0] * len(inside)
    left = 1 if subscription else 0
    assert [topic.subscriptions["t"].backlog() for topic in inside] == [left] * len(inside)
    assert [topic.subscriptions["s"].backlog() for topic in outside] == [1] * len(outside)


def test_a_subscription_of_a_bundle_is_deleted() -> None:
    served = Served()
    bundle, inside, outside = first_bundle(served, topics_of(served))
    assert served.ask("POST", f"{NAMESPACE}/{bundle}/unsubscribe/s").status == 204
    assert all(set(topic.subscriptions) == {"t"} for topic in inside)
    assert all(set(topic.subscriptions) == {"s", "t"} for topic in outside)
    assert served.ask("POST", f"{NAMESPACE}/0x00000000_0x00000001/unsubscribe/t").status == 412


def test_calls_that_come_while_backlogs_are_cleared_share_one_more_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each would load all topics of the namespace anew."""
    served = Served()
    topics = topics_of(served)
    loop, namespaces = served.world.simulation.loop, served.broker.namespaces
    listed = 0
    look = namespaces.persistent_topics

    async def counted(namespace: NamespaceName) -> list[str]:
        nonlocal listed
        listed += 1
        return await look(namespace)

    monkeypatch.setattr(namespaces, "persistent_topics", counted)
    request = Request("POST", f"{NAMESPACE}/clearBacklog")
    first = loop.create_task(served.http.answer(request))
    while listed < 4:
        served.world.wait(0.0001)
    assert not first.done()
    others = [loop.create_task(served.http.answer(request)) for _ in range(10)]
    assert [served.world.run(task).status for task in (first, *others)] == [204] * 11
    assert listed == 8
    assert [topic.subscriptions["s"].backlog() for topic in topics] == [0] * len(topics)


def test_topics_are_loaded_several_at_a_time_to_be_cleared() -> None:
    """One after another three thousand take half a minute."""
    served = Served()
    topics = topics_of(served, 64)
    served.world.run(served.broker.topics.unload_topics(list(topics)))
    assert served.broker.topics.loading_count == 0
    task = served.world.simulation.loop.create_task(
        served.http.answer(Request("POST", f"{NAMESPACE}/clearBacklog"))
    )
    most = 0
    while not task.done():
        served.world.wait(0.0001)
        most = max(most, served.broker.topics.loading_count)
    assert task.result().status == 204
    bundles = len(served.get(f"{NAMESPACE}/bundles")["boundaries"]) - 1
    assert bundles < most <= 8 * bundles
    for topic in topics:
        found = served.topic(topic.full_name)
        assert [subscription.backlog() for subscription in found.subscriptions.values()] == [0, 0]


def test_a_call_whose_topics_are_unloaded_meanwhile_may_be_made_again() -> None:
    served = Served()
    topics_of(served, 16)
    loop = served.world.simulation.loop
    found = set()
    for steps in range(0, 60, 2):
        clearing = loop.create_task(served.http.answer(Request("POST", f"{NAMESPACE}/clearBacklog")))
        served.world.wait(steps * 0.0001)
        unloading = loop.create_task(served.http.answer(Request("PUT", f"{NAMESPACE}/unload")))
        assert served.world.run(unloading).status == 204
        found.add(served.world.run(clearing).status)
    assert found == {204, 503}
