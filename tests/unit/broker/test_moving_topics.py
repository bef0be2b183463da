"""What clients are told of a topic that has moved to another cluster."""

from __future__ import annotations

import pytest
from peers import TOPIC, Brokers, Peer, send_frame, subscribe_frame
from replicating import Replicator, replicated

from magnetar.broker.connections.session import SessionState
from magnetar.broker.flow.connection import Assigned
from magnetar.broker.topics.any_topic import move
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.frames import encode_command
from magnetar.protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandAck,
    CommandTopicMigrated,
    ServerError,
)

THERE = Assigned("pulsar://green:6650", "pulsar+ssl://green:6651")
NON_PERSISTENT = TOPIC.replace("persistent://", "non-persistent://")


def moved(world: Brokers, topic: str = TOPIC) -> None:
    loaded = world.broker.topics.loaded[str(TopicName.parse(topic))]
    world.world.run(move(loaded, THERE))


def asking(world: Brokers, topic: str = TOPIC, version: int = 21) -> Peer:
    """A client that has asked for producer 7."""
    peer = Peer(world, connect=False)
    peer.send(BaseCommand.CONNECT, "connect", client_version="test", protocol_version=version)
    world.until(lambda: peer.connection.session.state is SessionState.OPEN and peer.reading)
    peer.forget()
    peer.send(BaseCommand.PRODUCER, "producer", topic=topic, producer_id=7, request_id=1)
    return peer


@pytest.mark.parametrize("topic", [TOPIC, NON_PERSISTENT])
def test_producers_are_closed_and_sent_on_when_they_come_back(topic: str) -> None:
    world = Brokers()
    before = world.publisher(topic)
    moved(world, topic)
    world.until(lambda: before.count(BaseCommand.CLOSE_PRODUCER))
    peer = asking(world, topic)
    world.until(lambda: peer.count(BaseCommand.CLOSE_PRODUCER))
    migrated, closed = peer.told()
    told = migrated.topicMigrated
    assert (told.resource_id, told.resource_type) == (7, CommandTopicMigrated.Producer)
    assert (told.brokerServiceUrl, told.brokerServiceUrlTls) == THERE
    assert (closed.close_producer.producer_id, closed.close_producer.request_id) == (7, 2**64 - 1)


def test_an_old_client_is_told_that_the_topic_has_ended() -> None:
    world = Brokers()
    world.publisher()
    moved(world)
    peer = asking(world, version=19)
    world.until(lambda: peer.count(BaseCommand.ERROR))
    (answer,) = peer.told()
    assert answer.error.error == ServerError.TopicTerminatedError
    assert answer.error.message == "The topic has moved to pulsar://green:6650"


def test_what_is_on_its_way_is_stored_and_confirmed_first() -> None:
    world = Brokers()
    peer = world.publisher()
    peer.forget()
    peer.connection.data_received(b"".join(send_frame(n) for n in range(10)))
    assert not peer.told()
    moved(world)
    told = [command.type for command in peer.told()]
    assert told == [BaseCommand.SEND_RECEIPT] * 10 + [BaseCommand.CLOSE_PRODUCER]
    assert world.broker.topics.loaded[TOPIC].terminated


def test_a_consumer_is_sent_on_when_nothing_is_left_for_it() -> None:
    world = Brokers()
    peer = world.publisher()
    behind, finished = world.subscribed("behind"), world.subscribed("finished", number=2)
    world.publish(peer, 3)
    subscriptions = world.broker.topics.loaded[TOPIC].subscriptions
    subscriptions["finished"].skip_to(world.broker.topics.loaded[TOPIC].max_read_position)
    moved(world)
    world.until(lambda: finished.count(BaseCommand.CLOSE_CONSUMER))
    (told,) = finished.received(BaseCommand.TOPIC_MIGRATED)
    assert (told.topicMigrated.resource_id, told.topicMigrated.resource_type) == (
        2,
        CommandTopicMigrated.Consumer,
    )
    assert not behind.count(BaseCommand.TOPIC_MIGRATED)
    subscriptions["behind"].skip_to(world.broker.topics.loaded[TOPIC].max_read_position)
    world.until(lambda: behind.count(BaseCommand.CLOSE_CONSUMER))
    assert behind.count(BaseCommand.TOPIC_MIGRATED) == 1
    assert not finished.count(BaseCommand.REACHED_END_OF_TOPIC)


def test_a_subscription_with_nothing_left_is_no_answer_but_the_other_cluster() -> None:
    world = Brokers()
    world.publisher()
    moved(world)
    peer = Peer(world)
    peer.forget()
    peer.connection.data_received(subscribe_frame(5, "fresh", 0))
    world.until(lambda: peer.count(BaseCommand.CLOSE_CONSUMER))
    assert [command.type for command in peer.told()] == [
        BaseCommand.TOPIC_MIGRATED,
        BaseCommand.CLOSE_CONSUMER,
    ]


@pytest.mark.parametrize("kind", [0, 1, 2, 3])
def test_a_consumer_is_sent_on_when_all_that_was_left_are_markers(kind: int) -> None:
    world = Brokers()
    publisher = world.publisher()
    consumer = world.subscribed("s", kind)
    world.publish(publisher, 1)
    replicator = Replicator(world)
    replicator.connection.data_received(replicated(1, None, marker=10))
    world.until(lambda: replicator.count(BaseCommand.SEND_RECEIPT))
    consumer.send(BaseCommand.FLOW, "flow", consumer_id=1, messagePermits=1)
    world.until(lambda: consumer.count(BaseCommand.MESSAGE))
    moved(world)
    consumer.connection.data_received(ack_of(consumer, request_id=9))
    consumer.send(BaseCommand.FLOW, "flow", consumer_id=1, messagePermits=1)
    world.until(lambda: consumer.count(BaseCommand.CLOSE_CONSUMER))
    assert consumer.count(BaseCommand.TOPIC_MIGRATED) == 1


def ack_of(consumer: Peer, request_id: int) -> bytes:
    """Of the one message that it was sent."""
    (message,) = consumer.received(BaseCommand.MESSAGE)
    command = BaseCommand(type=BaseCommand.ACK)
    command.ack.consumer_id = 1
    command.ack.ack_type = CommandAck.Individual
    command.ack.request_id = request_id
    command.ack.message_id.add().CopyFrom(message.message.message_id)
    return encode_command(command)


@pytest.mark.parametrize("kind", [0, 1, 2, 3])
def test_the_last_acknowledgement_is_answered_before_its_consumer_is_sent_on(kind: int) -> None:
    world = Brokers()
    publisher = world.publisher()
    consumer = world.subscribed("s", kind)
    world.publish(publisher, 1)
    consumer.send(BaseCommand.FLOW, "flow", consumer_id=1, messagePermits=10)
    world.until(lambda: consumer.count(BaseCommand.MESSAGE))
    ack = ack_of(consumer, request_id=9)
    moved(world)
    consumer.forget()
    consumer.connection.data_received(ack)
    world.until(lambda: consumer.count(BaseCommand.CLOSE_CONSUMER))
    told = [command.type for command in consumer.told()]
    assert told == [BaseCommand.ACK_RESPONSE, BaseCommand.TOPIC_MIGRATED, BaseCommand.CLOSE_CONSUMER]
