"""A simulated broker whose topic's messages are to be delivered some time from now."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from peers import TOPIC, Brokers, Peer
from simulated_io import SimulatedDisk

from magnetar.broker.delays.tracker import DelaySettings
from magnetar.broker.policies.values import DelayedDelivery
from magnetar.broker.stats.taken import of_subscription
from magnetar.managed_ledger.settings import ManagedLedgerSettings
from magnetar.protocol.frames import encode_command, encode_with_payload
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandAck, MessageMetadata

EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = 0, 1, 2, 3
SECOND = 1000
HOUR = 3_600_000


def timed_frame(sequence_id: int, deliver_at: int | None, publish_time: int = 1, key: str = "") -> bytes:
    command = BaseCommand(type=BaseCommand.SEND)
    command.send.producer_id = 1
    command.send.sequence_id = sequence_id
    metadata = MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=publish_time)
    if deliver_at is not None:
        metadata.deliver_at_time = deliver_at
    if key:
        metadata.partition_key = key
    return encode_with_payload(command, build_entry(metadata, b"x"))


class Delays(Brokers):
    """A broker whose topic's messages are published some time from now."""

    def __init__(
        self,
        *,
        disk: SimulatedDisk | None = None,
        ledgers: ManagedLedgerSettings | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(disk=disk, ledgers=ledgers)
        self._next = 0
        self.settings = settings
        self.producer = self.publisher()
        self.use(**settings)

    def use(self, **settings: Any) -> None:
        topic = self.topic
        delays = DelaySettings(**settings)
        topic.settings = replace(topic.settings, dispatch=replace(topic.settings.dispatch, delays=delays))
        policy = DelayedDelivery(delays.active, delays.tick_ms, topic.policies.delayed_delivery.max_delay_ms)
        topic.apply_policies(replace(topic.policies, delayed_delivery=policy))

    @property
    def topic(self) -> Any:
        return self.broker.topics.loaded[TOPIC]

    @property
    def now(self) -> int:
        return self.broker.io.clock.wall_ms()

    def send(self, *after: int | None, keys: str = "") -> None:
        """Publishes messages due so many ms from now; None: without a delivery time."""
        self.producer.forget()
        frames = []
        for place, delay in enumerate(after):
            at = None if delay is None else self.now + delay
            frames.append(timed_frame(self._next, at, self.now, keys[place : place + 1]))
            self._next += 1
        self.producer.connection.data_received(b"".join(frames))
        self.until(lambda: self.producer.count(BaseCommand.SEND_RECEIPT) == len(after))

    def consumer(self, kind: int, name: str = "s", permits: int = 1000, number: int = 1) -> Peer:
        peer = self.subscribed(name, kind, number=number)
        flow(peer, permits, number)
        return peer

    def run_for(self, milliseconds: int) -> None:
        """Lets everything happen that happens in that time."""
        end = self.now + milliseconds
        passed: list[bool] = []
        self.loop.call_later(milliseconds / 1000, passed.append, True)
        self.until(lambda: bool(passed))
        assert self.now >= end

    def subscription(self, name: str = "s") -> Any:
        return self.topic.subscriptions[name]

    def delayed(self, name: str = "s") -> int:
        return of_subscription(self.subscription(name)).delayed


def flow(peer: Peer, permits: int, number: int = 1) -> None:
    peer.send(BaseCommand.FLOW, "flow", consumer_id=number, messagePermits=permits)


def got(peer: Peer) -> list[int]:
    """Entry ids, in the order they came."""
    return [command.message.message_id.entryId for command in peer.received(BaseCommand.MESSAGE)]


def acknowledge(brokers: Delays, peer: Peer, *entries: int, number: int = 1) -> None:
    ledger_id = brokers.topic.managed_ledger.current_ledger.ledger_id
    for entry_id in entries:
        command = BaseCommand(type=BaseCommand.ACK)
        command.ack.consumer_id = number
        command.ack.ack_type = CommandAck.Individual
        command.ack.message_id.add(ledgerId=ledger_id, entryId=entry_id)
        peer.connection.data_received(encode_command(command))
