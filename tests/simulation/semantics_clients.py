"""The clients of the model-based test, and the broker they talk to."""

from __future__ import annotations

from random import Random
from typing import Any

from magnetar.config.settings import default_settings
from magnetar.ledger.embedded.settings import EmbeddedSettings
from magnetar.managed_ledger.records import bits_from_words
from magnetar.managed_ledger.settings import EntryCacheSettings, ManagedLedgerSettings
from magnetar.protocol.metadata import build_entry, parse_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageIdData, MessageMetadata
from simulation import limits
from simulation.connection import Connection, command
from simulation.semantics_model import Position, Stored, SubscriptionState, Topic

NOWHERE = 2**64 - 1
"""The ledger in the receipt of what was stored before."""


class Consumer:
    """Takes what it has permits for, and acknowledges what it is told to."""

    def __init__(
        self, name: str, state: SubscriptionState, connection: Connection, sent: dict[bytes, Stored]
    ) -> None:
        self.name = name
        self._sent = sent
        self.state = state
        self.connection = connection
        self.number = connection.next_id()
        connection.consumers[self.number] = self
        self.inbox: dict[Position, int] = {}
        """What it holds: how many messages were delivered of each."""
        self.open = True
        self.active = False
        """Failover: it is the one that is served."""

    def received(self, kind: int, message: Any, entry: bytes) -> None:
        if kind == BaseCommand.CLOSE_CONSUMER:
            self.open = False
            return
        if kind == BaseCommand.ACTIVE_CONSUMER_CHANGE:
            if message.is_active:
                self.state.last.pop(self.name, None)
            self.active = message.is_active
            return
        position = (message.message_id.ledgerId, message.message_id.entryId)
        remaining = bits_from_words(message.ack_set) if message.ack_set else None
        payload = parse_entry(entry).payload
        # It may come before its producer's receipt.
        self.state.topic.found(position, self._sent[payload])
        self.state.delivered(self.name, position, payload, remaining, message.redelivery_count)
        self.inbox[position] = self.state.topic.entries[position].messages

    def disconnected(self) -> None:
        self.open = False


def tiny_limits(seed: int) -> limits.Limits:
    """Ledgers of a few entries, a cache that holds little; nothing is trimmed."""
    random = Random(seed)
    return limits.Limits(
        default_settings(
            broker_service_port=limits.BROKER_PORT,
            acknowledgment_at_batch_index_level_enabled=True,
            active_consumer_failover_delay_time_millis=random.choice((0, 20)),
            dispatcher_max_round_robin_batch_size=random.choice((1, 3, 20)),
            subscription_key_shared_use_consistent_hashing=random.random() < 0.7,
            key_shared_look_ahead_msg_in_replay_threshold_per_consumer=random.choice((1, 5, 2000)),
            keep_alive_interval_seconds=600,
            broker_deduplication_enabled=random.random() < 0.5,
            broker_deduplication_entries_interval=random.choice((2, 1000)),
            delayed_delivery_tick_time_millis=random.choice((1, 1000)),
            magnetar_delayed_messages_in_memory=random.choice((1, 5, 30_000)),
        ),
        EmbeddedSettings(segment_bytes=256 << 10, first_segment_bytes=64 << 10, reserve_bytes=0),
        ManagedLedgerSettings(
            max_entries_per_ledger=random.choice((7, 1000)), min_rollover_ms=0, retention=limits.FOREVER
        ),
        EntryCacheSettings(max_bytes=random.choice((0, 4 << 10, 1 << 20))),
        disk_seconds=0.001,
    )


class Producer:
    """Publishes entries in order and knows which of them were never receipted.

    Sequence ids number messages; the first one's is also the time of an entry.
    """

    def __init__(self, topic: Topic, sent: dict[bytes, Stored]) -> None:
        self._topic = topic
        self._sent = sent
        self._connection: Connection | None = None
        self.number = 0
        self.sequence = 0
        self.open = False
        self.waiting: dict[int, Stored] = {}
        """What was sent and not receipted, by sequence id."""
        self.receipted: dict[int, Stored] = {}

    async def attach(self, connection: Connection, topic: str) -> None:
        self._connection = connection
        self.number = connection.next_id()
        connection.producers[self.number] = self
        await connection.ask(
            BaseCommand.PRODUCER,
            topic=topic,
            producer_id=self.number,
            producer_name="p",
            user_provided_producer_name=True,
        )
        self.open = True

    @property
    def connection(self) -> Connection | None:
        """None when it has none that is open."""
        return None if self._connection is None or self._connection.closed else self._connection

    def publish(self, key: str, messages: int, due: int = 0) -> None:
        first = self.sequence + 1
        self.sequence += messages
        stored = Stored(key, b"%d" % first, messages, first, due)
        self._sent[stored.payload] = stored
        self.send(stored)

    def send(self, stored: Stored) -> None:
        """For the first time or again."""
        assert self._connection is not None
        first, last = stored.time, stored.time + stored.messages - 1
        self.waiting[first] = stored
        metadata = MessageMetadata(
            producer_name="p", sequence_id=first, publish_time=stored.time, partition_key=stored.key
        )
        if stored.due:
            metadata.deliver_at_time = stored.due
        fields = {}
        if stored.messages > 1:
            metadata.num_messages_in_batch = fields["num_messages"] = stored.messages
            metadata.highest_sequence_id = fields["highest_sequence_id"] = last
        self._connection.send(
            command(BaseCommand.SEND, producer_id=self.number, sequence_id=first, **fields),
            build_entry(metadata, stored.payload),
        )

    def received(self, kind: int, message: Any, _entry: bytes) -> None:
        if kind == BaseCommand.CLOSE_PRODUCER:
            self.open = False
            return
        assert kind == BaseCommand.SEND_RECEIPT, message
        stored = self.receipted[message.sequence_id] = self.waiting.pop(message.sequence_id)
        if message.message_id.ledgerId != NOWHERE:
            self._topic.found((message.message_id.ledgerId, message.message_id.entryId), stored)

    def disconnected(self) -> None:
        self.open = False


def id_of(position: Position) -> MessageIdData:
    return MessageIdData(ledgerId=position[0], entryId=position[1])
