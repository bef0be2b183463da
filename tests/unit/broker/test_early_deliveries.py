"""Messages with a delivery time are delivered at once, which is told: once in the log, and by a counter."""

from __future__ import annotations

import logging

import pytest
from test_turns_of_many import TOPIC, Brokers, Peer

from magnetar.broker.stats.snapshot import take_snapshot
from magnetar.protocol.frames import encode_with_payload
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata

EXCLUSIVE, SHARED, KEY_SHARED = 0, 1, 3
HOUR_MS = 3_600_000


def timed_frame(sequence_id: int, deliver_at: int) -> bytes:
    command = BaseCommand(type=BaseCommand.SEND)
    command.send.producer_id = 1
    command.send.sequence_id = sequence_id
    metadata = MessageMetadata(
        producer_name="p", sequence_id=sequence_id, publish_time=1, deliver_at_time=deliver_at
    )
    return encode_with_payload(command, build_entry(metadata, b"x"))


def publish(brokers: Brokers, peer: Peer, times: list[int]) -> None:
    peer.forget()
    peer.connection.data_received(b"".join(timed_frame(n, time) for n, time in enumerate(times)))
    brokers.until(lambda: peer.count(BaseCommand.SEND_RECEIPT) == len(times))


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_they_are_delivered_and_counted(kind: int, caplog: pytest.LogCaptureFixture) -> None:
    brokers = Brokers()
    publisher = brokers.publisher()
    consumer = brokers.subscribed("s", kind)
    consumer.send(BaseCommand.FLOW, "flow", consumer_id=1, messagePermits=1000)
    now = brokers.broker.io.clock.wall_ms()
    publish(brokers, publisher, [now + HOUR_MS, 1, now + HOUR_MS])
    publish(brokers, publisher, [now + 2 * HOUR_MS])
    brokers.until(lambda: consumer.count(BaseCommand.MESSAGE) == 4)
    assert brokers.broker.topics[TOPIC].early.count == 3
    told = [record for record in caplog.records if "before their time" in record.getMessage()]
    assert [(record.levelno, vars(record)["topic"]) for record in told] == [(logging.WARNING, TOPIC)]
    figures = brokers.world.run(take_snapshot(brokers.broker))
    assert figures.extra["magnetar_early_deliveries"] == 3


def test_types_that_deliver_in_order_wait_for_nothing_in_pulsar_either() -> None:
    brokers = Brokers()
    publisher = brokers.publisher()
    consumer = brokers.subscribed("s", EXCLUSIVE)
    consumer.send(BaseCommand.FLOW, "flow", consumer_id=1, messagePermits=1000)
    publish(brokers, publisher, [brokers.broker.io.clock.wall_ms() + HOUR_MS])
    brokers.until(lambda: consumer.count(BaseCommand.MESSAGE) == 1)
    assert brokers.broker.topics[TOPIC].early.count == 0
