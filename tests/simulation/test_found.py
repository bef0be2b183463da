"""Defects that the simulation has found, each told as the shortest story that shows it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

import magnetar.client.connection
from magnetar.broker.dispatch.key_shared.dispatcher import KeySharedDispatcher
from magnetar.client.exceptions import PulsarException
from magnetar.io.waiting import sleep
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandSubscribe,
    MessageIdData,
    MessageMetadata,
    Subscription,
    TxnAction,
)
from simulation import limits
from simulation.connection import Connection, command
from simulation.core import CoreClient
from simulation.model import Sent, SubscriptionModel, TopicModel
from simulation.scenario import Scenario
from simulation.world import World

TOPIC = "persistent://public/default/found"


class Remembers:
    """A producer or consumer that keeps what it gets."""

    def __init__(self) -> None:
        self.got: list[tuple[int, Any]] = []

    def received(self, kind: int, message: Any, entry: bytes) -> None:
        self.got.append((kind, message))

    def disconnected(self) -> None:
        """See ``Connection.closed``."""


def tell(
    story: Callable[[World, Connection], Awaitable[None]], seed: int = 1, *, transactions: bool = False
) -> None:
    """Tells a story with one connection to a broker that nothing happens to."""
    drawn = limits.draw(Random(seed))
    if transactions:
        drawn = limits.transactional(drawn, Random(seed))
    world = World(Random(seed), drawn)

    async def told() -> None:
        assert await world.broker.start()
        host = world.network.host(world.loop, "client")
        await story(world, await Connection.open("c", host, world.trace, world.steps, world.address, 10.0))
        assert await world.broker.stop()

    try:
        with limits.in_effect(drawn):
            world.drive(told())
    finally:
        world.close()


async def publish(world: World, connection: Connection, count: int) -> list[MessageIdData]:
    """Publishes entries; where they are stored."""
    producer = Remembers()
    connection.producers[1] = producer
    await connection.ask(BaseCommand.PRODUCER, topic=TOPIC, producer_id=1)
    for number in range(count):
        metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1)
        connection.send(
            command(BaseCommand.SEND, producer_id=1, sequence_id=number), build_entry(metadata, b"x")
        )
    while len(producer.got) < count:
        await world.sleep(0.01)
    return [message.message_id for _kind, message in producer.got]


def test_an_acknowledgement_for_a_closed_consumer_is_not_confirmed() -> None:
    """It was answered as if it counted, and the message came again."""

    async def story(world: World, connection: Connection) -> None:
        ids = await publish(world, connection, 2)
        connection.consumers[2] = Remembers()
        await connection.ask(
            BaseCommand.SUBSCRIBE,
            topic=TOPIC,
            subscription="s",
            consumer_id=2,
            subType=CommandSubscribe.Exclusive,
            initialPosition=CommandSubscribe.Earliest,
        )
        await connection.ask(BaseCommand.SEEK, consumer_id=2, message_id=ids[0])
        answer = await connection.ask(BaseCommand.ACK, consumer_id=2, ack_type=0, message_id=[ids[0]])
        assert answer.HasField("error")
        assert "not found" in answer.message

    tell(story)


def test_a_client_that_gives_up_opening_a_producer_leaves_no_unhandled_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It sends CLOSE and nobody waits for the answer: when the connection went, that was reported."""
    ask = magnetar.client.connection.Connection.ask

    async def story(world: World, _connection: Connection) -> None:
        def ask_into_silence(
            self: Any, request_id: int, built: BaseCommand, *args: Any, **options: Any
        ) -> Any:
            if built.type == BaseCommand.PRODUCER:
                for link in world.network.links.values():
                    link.silent = True
            return ask(self, request_id, built, *args, **options)

        monkeypatch.setattr(magnetar.client.connection.Connection, "ask", ask_into_silence)
        client = CoreClient(world, "core", Random(3))
        opened: list[str] = []

        async def give_up() -> None:
            try:
                await client.client.create_producer(TOPIC)
            except PulsarException as error:
                opened.append(type(error).__name__)

        giving_up = client.spawn(give_up())
        await world.finished(giving_up)
        assert opened == ["Timeout"]
        for link in list(world.network.links.values()):
            link.reset()
        await world.sleep(1.0)
        await client.close()

    tell(story)


@pytest.mark.parametrize("seed", [4215])
def test_a_read_that_nobody_waits_for_any_more_is_no_error(seed: int) -> None:
    """A topic closed while entries were read from the disk, then the store: the log spoke of an error."""
    Scenario(seed).run()


@pytest.mark.parametrize("seed", [32023])
def test_pending_acknowledgements_that_are_being_loaded_end_with_their_topic(seed: int) -> None:
    """The next life of the topic took them for those of another broker."""
    Scenario(seed).run()


@pytest.mark.parametrize("seed", [21086, 21337])
def test_an_abort_gives_back_what_tiered_storage_cannot_be_asked_for(seed: int) -> None:
    """The failed read of a key failed the topic."""
    Scenario(seed).run()


def test_what_an_abort_gives_back_comes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the broker asked the disk for its key, it was delivered; then it was taken for a batch that is
    unacknowledged in part, and delivered once more."""
    hash_at = KeySharedDispatcher._hash_at

    async def story(world: World, connection: Connection) -> None:
        stored = (await publish(world, connection, 1))[0]
        await connection.ask(BaseCommand.TC_CLIENT_CONNECT_REQUEST, tc_id=0)
        begun = await connection.ask(BaseCommand.NEW_TXN, tc_id=0, txn_ttl_seconds=60_000)
        ids = {"txnid_most_bits": begun.txnid_most_bits, "txnid_least_bits": begun.txnid_least_bits}
        gets: list[Remembers] = []
        for number in (2, 3):
            gets.append(Remembers())
            connection.consumers[number] = gets[-1]
            await connection.ask(
                BaseCommand.SUBSCRIBE,
                topic=TOPIC,
                subscription="s",
                consumer_id=number,
                subType=CommandSubscribe.Key_Shared,
                initialPosition=CommandSubscribe.Earliest,
            )
            if number == 2:
                connection.send(command(BaseCommand.FLOW, consumer_id=2, messagePermits=100))
                await world.sleep(1.0)
                subscription = Subscription(topic=TOPIC, subscription="s")
                await connection.ask(BaseCommand.ADD_SUBSCRIPTION_TO_TXN, subscription=[subscription], **ids)
                await connection.ask(BaseCommand.ACK, consumer_id=2, ack_type=0, message_id=[stored], **ids)
                await connection.ask(BaseCommand.CLOSE_CONSUMER, consumer_id=2)

        async def delivered_meanwhile(self: Any, position: Any) -> int:
            connection.send(command(BaseCommand.FLOW, consumer_id=3, messagePermits=100))
            while not gets[1].got:
                await sleep(self._subscription.topic.loop, 0.01)
            return await hash_at(self, position)

        monkeypatch.setattr(KeySharedDispatcher, "_hash_at", delivered_meanwhile)
        await connection.ask(BaseCommand.END_TXN, txn_action=TxnAction.ABORT, **ids)
        await world.sleep(5.0)
        assert [len(each.got) for each in gets] == [1, 1]

    tell(story, transactions=True)


def test_a_pending_seek_may_skip_an_entry_that_was_delivered_before_it() -> None:
    """Seed 45370: the model owed an entry that a seek by time had skipped."""
    subscription = SubscriptionModel(TopicModel("t", once=False), "s")
    subscription.exists(1)
    subscription.life_ended(5, 0.0, 0.0)
    subscription.unsettle()
    subscription.receipted((4, 7), Sent(b"", 1, first_step=6))
    subscription.deliver((4, 7), _Barrier(7), None)
    assert not subscription.missing()
    subscription.settle(8)
    subscription.deliver((4, 7), _Barrier(9), None)
    assert not subscription.missing()
    subscription.life_ended(10, 0.0, 0.0)
    subscription.deliver((4, 7), _Barrier(11), None)
    assert subscription.missing() == {(4, 7)}


@dataclass
class _Barrier:
    barrier: int
