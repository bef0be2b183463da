"""Three brokers of ours under load, one of them in trouble: others take what it had, and it does no harm."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from bookkeeper_servers import BookKeeperServers
from cluster_broker import SESSION_MS
from cluster_faults import LOST_SESSION
from deposed_owner import LATE, SUBSCRIPTION, DeposedOwner
from fronted_broker import FrontedBroker, owner_of, url_of
from topic_load import PATIENCE, TopicLoad

from magnetar.client.aio import Client, Consumer, ConsumerType

_TOPICS = int(os.environ.get("MAGNETAR_TROUBLED_TOPICS", "200"))
_ALL = _TOPICS >= 1000
_PROBES = 3
"""Topics that somebody goes on using at the broker in trouble."""
_SESSION_SECONDS = SESSION_MS / 1000
_LONG = 6.0
"""Seconds, longer than bookies may take to answer."""
_NEW = b"new"
_numbers = count()
_KEPT_FOR_EVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}


@dataclass(frozen=True)
class Trouble:
    """What befalls a broker."""

    begin: Callable[[FrontedBroker], None]
    end: Callable[[FrontedBroker], None]
    deposed: bool = True
    """Others have its bundles before it ends."""
    at_once: bool = True
    """What its old clients ask for may be sent before others have its bundles: nothing can be granted then,
    either."""
    hears: bool = False
    """It hears of that at once, and may tell that it has taken note of acknowledgements."""
    seconds: float = 0.0
    """How long it lasts where nobody is deposed."""


def _nothing(_broker: FrontedBroker) -> None:
    """It lasts."""


def _heal(broker: FrontedBroker) -> None:
    broker.wires.heal()
    broker.front.heal()


def _cut_all(broker: FrontedBroker) -> None:
    for wire in broker.wires.all:
        wire.stall()


def _cut_bookies(broker: FrontedBroker) -> None:
    for wire in broker.wires.bookies:
        wire.stall()


SHORT = {
    "killed": Trouble(FrontedBroker.kill, _nothing),
    "stopped beyond its session": Trouble(
        lambda broker: broker.signal(signal.SIGSTOP), lambda broker: broker.signal(signal.SIGCONT)
    ),
    "without ZooKeeper": Trouble(lambda broker: broker.wires.zookeeper.stall(), _heal, at_once=False),
}
LONG = {
    **SHORT,
    "without ZooKeeper, refused": Trouble(
        lambda broker: broker.wires.zookeeper.refuse(), _heal, at_once=False
    ),
    "without ZooKeeper and bookies": Trouble(_cut_all, _heal, hears=True),
    "without bookies": Trouble(_cut_bookies, _heal, deposed=False, seconds=_LONG),
    "without clients": Trouble(lambda broker: broker.front.stall(), _heal, deposed=False, seconds=_LONG),
    "without clients, refused": Trouble(
        lambda broker: broker.front.refuse(), _heal, deposed=False, seconds=_LONG
    ),
}


@pytest.fixture
def brokers(cluster: BookKeeperServers, tmp_path: Path) -> Iterator[list[FrontedBroker]]:
    found = [FrontedBroker(tmp_path / f"broker{number}", cluster) for number in range(3)]
    try:
        for broker in found:
            broker.start()
        yield found
    finally:
        for broker in found:
            if broker.runs:
                broker.signal(signal.SIGCONT)
            broker.close()


@pytest.mark.timeout(1200)
def test_what_a_broker_in_trouble_had_is_served_by_others_and_nothing_is_lost(
    brokers: list[FrontedBroker],
) -> None:
    namespace = f"public/trouble{next(_numbers)}"
    policies = {"bundles": {"numBundles": 12}, "retention_policies": _KEPT_FOR_EVER}
    status, answer = brokers[0].ask("PUT", f"/admin/v2/namespaces/{namespace}", json.dumps(policies))
    assert status == 204, answer
    asyncio.run(_live(brokers, namespace))


async def _live(brokers: list[FrontedBroker], namespace: str) -> None:
    load = TopicLoad(url_of(brokers), [f"persistent://{namespace}/t{number}" for number in range(_TOPICS)])
    try:
        await load.start()
        await load.more(2)
        for number, (kind, trouble) in enumerate((LONG if _ALL else SHORT).items()):
            broker = brokers[number % len(brokers)]
            began = time.monotonic()
            await _befall(brokers, broker, trouble, f"{namespace}/{number}")
            ended = time.monotonic()
            await load.more(2)
            print(f"{kind}: {ended - began:.1f} s, the last topic {time.monotonic() - ended:.1f} s after")
            await _revive(broker, trouble)
        print(f"{await load.finish()} messages in {_TOPICS} topics")
    finally:
        await load.close()


async def _befall(brokers: list[FrontedBroker], broker: FrontedBroker, trouble: Trouble, prefix: str) -> None:
    others = [each for each in brokers if each is not broker]
    topics = await asyncio.to_thread(_topics_of, brokers, broker, f"persistent://{prefix}-", _PROBES)
    [fleeting] = await asyncio.to_thread(_topics_of, brokers, broker, f"non-persistent://{prefix}-", 1)
    old = await asyncio.to_thread(DeposedOwner, broker, topics, fleeting)
    new = Client(url_of(others), operation_timeout_seconds=60, max_backoff_interval_ms=500)
    try:
        trouble.begin(broker)
        if not trouble.deposed:
            await asyncio.sleep(trouble.seconds)
            trouble.end(broker)
            return
        if trouble.at_once:
            old.ask_for_more(receipts=not trouble.hears)
        for topic in (*topics, fleeting):
            await asyncio.to_thread(_until_served, others, topic)
            producer = await new.create_producer(topic, send_timeout_millis=0)
            await producer.send(_NEW)
        if not trouble.at_once:
            old.ask_for_more()
        trouble.end(broker)
        await asyncio.to_thread(old.check_nothing_was_granted, _SESSION_SECONDS)
        for topic in topics:
            await _check_successor(new, others, topic, old.before)
    finally:
        old.close()
        await asyncio.wait([asyncio.create_task(new.close())], timeout=10)


def _topics_of(brokers: list[FrontedBroker], broker: FrontedBroker, prefix: str, wanted: int) -> list[str]:
    """New names, as many as wanted, that one broker has or takes."""
    found: list[str] = []
    deadline = time.monotonic() + PATIENCE
    for number in count():
        if len(found) == wanted:
            return found
        assert time.monotonic() < deadline, f"{prefix}: the broker has nothing"
        topic = f"{prefix}{number}"
        if owner_of(brokers, topic) is broker:
            found.append(topic)
    raise AssertionError


def _until_served(brokers: list[FrontedBroker], topic: str) -> None:
    """Returns when one of these has a topic."""
    deadline = time.monotonic() + PATIENCE
    while owner_of(brokers, topic) is None:
        assert time.monotonic() < deadline, topic
        time.sleep(0.05)


async def _check_successor(
    client: Client, others: list[FrontedBroker], topic: str, before: list[bytes]
) -> None:
    """Whoever has the topic now has all acknowledged ones, in order, and nothing else; none is consumed."""
    consumer = await client.subscribe(topic, SUBSCRIPTION, consumer_type=ConsumerType.Shared)
    assert isinstance(consumer, Consumer)
    found = [(await consumer.receive(timeout_millis=30_000)).data() for _ in range(len(before) + 1)]
    assert found == [*before, _NEW]
    assert LATE not in found
    owner = owner_of(others, topic)
    assert owner is not None
    path = f"/admin/v2/persistent/{topic.removeprefix('persistent://')}/subscriptions"
    status, answer = await asyncio.to_thread(owner.ask, "GET", path)
    assert (status, json.loads(answer)) == (200, [SUBSCRIPTION])
    await consumer.close()


async def _revive(broker: FrontedBroker, trouble: Trouble) -> None:
    """As whoever supervises a broker does: it ends by itself when its session is lost, and only then."""
    if trouble.deposed:
        if trouble is not SHORT["killed"]:
            assert await asyncio.to_thread(broker.ended, PATIENCE) == LOST_SESSION, broker.log[-3000:]
        await asyncio.to_thread(broker.start)
    assert broker.runs, broker.log[-3000:]
