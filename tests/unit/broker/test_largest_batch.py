"""The number of messages that a producer states for an entry reaches no check of internal state."""

from __future__ import annotations

import pytest
from peers import TOPIC, Brokers

from magnetar.protocol.frames import encode_command, encode_with_payload
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata

LARGEST = 2**31 - 1


def batch(sequence_id: int, messages: int) -> bytes:
    command = BaseCommand(type=BaseCommand.SEND)
    command.send.producer_id = 1
    command.send.sequence_id = sequence_id
    command.send.num_messages = messages
    metadata = MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1)
    metadata.num_messages_in_batch = messages
    return encode_with_payload(command, build_entry(metadata, b"x"))


def ack(consumer_id: int, ledger_id: int, entry_id: int) -> bytes:
    command = BaseCommand(type=BaseCommand.ACK)
    command.ack.consumer_id = consumer_id
    command.ack.ack_type = command.ack.Individual
    command.ack.message_id.add(ledgerId=ledger_id, entryId=entry_id)
    return encode_command(command)


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
@pytest.mark.parametrize("kind", [0, 1, 2, 3], ids=["Exclusive", "Shared", "Failover", "Key_Shared"])
def test_batches_of_the_largest_stated_size_end_nothing(domain: str, kind: int) -> None:
    brokers = Brokers()
    topic = TOPIC.replace("persistent", domain, 1)
    producer, consumer = brokers.publisher(topic), brokers.subscribed("s", kind, topic)
    live = brokers.broker.topics.loaded[topic]
    brokers.loop.run_for(1.5)
    for sequence_id in range(4):
        # Each entry exceeds the permits by as much as possible.
        permits = 1 if not sequence_id else 2**31 - 1
        consumer.send(BaseCommand.FLOW, "flow", consumer_id=1, messagePermits=permits)
        producer.connection.data_received(batch(sequence_id, LARGEST))
        brokers.loop.run_for(0.1)
    assert producer.count(BaseCommand.SEND_RECEIPT) == 4
    messages = consumer.received(BaseCommand.MESSAGE)
    assert messages
    for each in messages:
        place = each.message.message_id
        # Twice: the second one acknowledges nothing.
        for _ in range(2):
            consumer.connection.data_received(ack(1, place.ledgerId, place.entryId))
    consumer.send(
        BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, "redeliverUnacknowledgedMessages", consumer_id=1
    )
    brokers.loop.run_for(0.5)
    assert live.failure is None
    assert not live.closing
    for subscription in live.subscriptions.values():
        for each_consumer in subscription.consumers:
            assert each_consumer.unacked >= 0
