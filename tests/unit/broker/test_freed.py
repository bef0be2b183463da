"""What has ended is freed by reference counting alone: the collector of cycles is not needed for it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from peers import Brokers, Peer, send_frame, subscribe_frame

from magnetar.broker.topics.persistent import Topic
from magnetar.errors import ServiceNotReady
from magnetar.managed_ledger.errors import ManagedLedgerClosed
from magnetar.managed_ledger.position import EARLIEST
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

MANY = 5
KINDS = ("persistent", "non-persistent")


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def used(kind: str, type_of_subscription: int) -> tuple[Brokers, Peer]:
    """Topics with a producer, a subscription and a consumer each, of which one was sent messages."""
    brokers = Brokers()
    peer = Peer(brokers)
    for number in range(1, MANY + 1):
        topic = f"{kind}://public/default/t{number}"
        peer.send(BaseCommand.PRODUCER, "producer", topic=topic, producer_id=number, request_id=number)
        peer.connection.data_received(subscribe_frame(number, "s", type_of_subscription, topic))
    brokers.until(lambda: peer.count(BaseCommand.SUCCESS) == peer.count(BaseCommand.PRODUCER_SUCCESS) == MANY)
    for number in range(1, MANY + 1):
        peer.send(BaseCommand.FLOW, "flow", consumer_id=number, messagePermits=100)
    peer.connection.data_received(b"".join(send_frame(number) for number in range(5)))
    brokers.until(lambda: peer.count(BaseCommand.MESSAGE) == peer.count(BaseCommand.SEND_RECEIPT) == 5)
    peer.may_be_closed = True
    return brokers, peer


def parts(topic: Any) -> list[weakref.ref[Any]]:
    found = [
        topic,
        *topic.subscriptions.values(),
        *(each.dispatcher for each in topic.subscriptions.values()),
    ]
    if isinstance(topic, Topic):
        ledger = topic.managed_ledger
        found += [ledger, ledger.trimmer, ledger.reader, *ledger.cursors.values(), *ledger.cursors.storages()]
    return [weakref.ref(each) for each in found if hasattr(type(each), "__weakref__")]


def end_all(brokers: Brokers, *, delete: bool) -> list[weakref.ref[Any]]:
    known: list[weakref.ref[Any]] = []
    for topic in list(brokers.broker.topics.loaded.values()):
        known += parts(topic)
        work = (
            brokers.broker.topics.delete_topic(topic) if delete else brokers.broker.topics.unload_topic(topic)
        )
        ended = brokers.loop.create_task(work)
        brokers.until(ended.done)
        ended.result()
    return known


def left(brokers: Brokers, known: list[weakref.ref[Any]]) -> list[Any]:
    # A timer that was cancelled goes when its time has come; the longest is that of a load.
    brokers.loop.run_for(120)
    # Drops the tasks that have ended.
    brokers.loop.pending_tasks()
    return [found for each in known if (found := each()) is not None]


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("delete", [False, True])
@pytest.mark.parametrize("type_of_subscription", range(4))
@pytest.mark.parametrize("kind", KINDS)
def test_topics_that_ended_are_freed(kind: str, type_of_subscription: int, delete: bool, lost: bool) -> None:
    brokers, peer = used(kind, type_of_subscription)
    if lost:
        peer.connection.connection_lost(None)
    known = end_all(brokers, delete=delete)
    assert len(known) >= MANY * (7 if kind == "persistent" else 2)
    assert left(brokers, known) == []
    del peer


def test_topics_that_were_disowned_are_freed() -> None:
    brokers, _peer = used("persistent", 1)
    for topic in brokers.broker.topics.loaded.values():
        topic.disown()
    del topic
    assert left(brokers, end_all(brokers, delete=False)) == []


def test_a_closed_topic_still_answers() -> None:
    brokers, _peer = used("persistent", 1)
    topic = next(iter(brokers.broker.topics.loaded.values()))
    assert isinstance(topic, Topic)
    end_all(brokers, delete=False)
    for create in (False, True):
        asked = brokers.loop.create_task(
            topic.subscriptions.subscribe("s", EARLIEST, {}, durable=True, create=create)
        )
        brokers.until(asked.done)
        assert isinstance(asked.exception(), ServiceNotReady)
    topic.managed_ledger.start_roll()
    topic.managed_ledger.trimmer.schedule()
    with pytest.raises(ManagedLedgerClosed):
        topic.managed_ledger.append(b"", None, None, 0, 0, None)  # type: ignore[arg-type]
    assert topic.subscriptions.consumer_count() == 0
    topic.tick(60.0)


def test_subscriptions_that_outlive_their_topic_send_clients_to_look_it_up() -> None:
    brokers, _peer = used("persistent", 1)
    topic = next(iter(brokers.broker.topics.loaded.values()))
    subscriptions, known = topic.subscriptions, weakref.ref(topic)
    end_all(brokers, delete=False)
    del topic
    assert left(brokers, [known]) == []
    asked = brokers.loop.create_task(subscriptions.subscribe("s", EARLIEST, {}, durable=True, create=True))
    brokers.until(asked.done)
    assert isinstance(asked.exception(), ServiceNotReady)
