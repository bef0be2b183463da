"""A replicator of another cluster, as a client of a broker in a simulated world."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from peers import TOPIC, Brokers, Peer, frame

from magnetar.broker.connections.session import SessionState
from magnetar.broker.topics.persistent import Topic
from magnetar.naming.replicators import DEFAULT_PREFIX, SOURCE_POSITION, producer_name
from magnetar.protocol.frames import encode_command, encode_with_payload
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandSendError, MessageMetadata

NONE = 2**64 - 1
"""As ``highest_sequence_id``: none; and as ids of a message: it is stored already."""
NAME = producer_name(DEFAULT_PREFIX, "east", "standalone")


class Replicator(Peer):
    """Of the cluster ``east``.

    :param by_position: whether it announces that it knows receipts with source positions
    """

    def __init__(
        self, world: Brokers, *, by_position: bool = True, name: str = NAME, topic: str = TOPIC
    ) -> None:
        super().__init__(world, connect=False)
        connect = BaseCommand(type=BaseCommand.CONNECT)
        connect.connect.client_version = "Pulsar-Java-v4.0.8"
        connect.connect.protocol_version = 21
        connect.connect.feature_flags.supports_repl_dedup_by_lid_and_eid = by_position
        self.command(connect)
        world.until(lambda: self.connection.session.state is SessionState.OPEN and self.reading)
        self.open(name, topic)

    def command(self, command: BaseCommand) -> None:
        self.connection.data_received(encode_command(command))

    def open(self, name: str = NAME, topic: str = TOPIC) -> None:
        """Opens producer 1, as a replicator does."""
        before = self.count(BaseCommand.PRODUCER_SUCCESS) + self.count(BaseCommand.ERROR)
        fields: dict[str, Any] = {"topic": topic, "producer_id": 1, "request_id": 1, "producer_name": name}
        self.connection.data_received(
            frame(BaseCommand.PRODUCER, "producer", user_provided_producer_name=True, **fields)
        )
        self.world.until(
            lambda: self.count(BaseCommand.PRODUCER_SUCCESS) + self.count(BaseCommand.ERROR) > before
        )


def replicated(sequence_id: int, position: str | None, *, marker: int | None = None, **fields: Any) -> bytes:
    """A SEND of a message of the producer ``alpha`` of the cluster ``east``.

    :param position: where the message is in its topic there; None: it does not say
    :param marker: the type of a marker
    :param fields: more of the metadata
    """
    command = BaseCommand(type=BaseCommand.SEND)
    command.send.producer_id = 1
    command.send.sequence_id = sequence_id
    metadata = MessageMetadata(
        producer_name="alpha", sequence_id=sequence_id, publish_time=1, replicated_from="east", **fields
    )
    if position is not None:
        metadata.properties.add(key=SOURCE_POSITION, value=position)
    if marker is not None:
        command.send.marker = True
        metadata.marker_type = marker
    return encode_with_payload(command, build_entry(metadata, b"payload"))


def told(receipt: BaseCommand) -> Mapping[str, int]:
    """The numbers of a SEND_RECEIPT."""
    sent = receipt.send_receipt
    return {
        "sequence_id": sent.sequence_id,
        "highest_sequence_id": sent.highest_sequence_id,
        "ledger": sent.message_id.ledgerId,
        "entry": sent.message_id.entryId,
    }


def receipts(sender: Replicator, count: int) -> list[tuple[int, int, int]]:
    """Sequence ids, highest ones, and entry ids of the next receipts."""
    sender.world.until(lambda: sender.count(BaseCommand.SEND_RECEIPT) >= count)
    found = [told(each) for each in sender.received(BaseCommand.SEND_RECEIPT)]
    sender.forget()
    return [(each["sequence_id"], each["highest_sequence_id"], each["entry"]) for each in found]


def refusal(sender: Replicator) -> CommandSendError:
    sender.world.until(lambda: sender.count(BaseCommand.SEND_ERROR))
    [found] = sender.received(BaseCommand.SEND_ERROR)
    sender.forget()
    return found.send_error


def publish(sender: Replicator, *frames: bytes) -> None:
    sender.connection.data_received(b"".join(frames))


def the_topic(world: Brokers) -> Topic:
    [topic] = world.broker.topics.loaded.values()
    assert isinstance(topic, Topic)
    return topic


def stored(world: Brokers) -> int:
    return the_topic(world).managed_ledger.last_confirmed[1] + 1


def deduplicate(world: Brokers) -> None:
    topic = the_topic(world)
    topic.apply_policies(replace(topic.policies, deduplication=True))
    world.world.run(topic.prepare())
