"""Producers and consumers on a simulated loop, and the one broker that they talk with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from simulated_io import Simulation, simulated_io

from magnetar.client.attachment import Services
from magnetar.client.consumer import Consumer
from magnetar.client.exceptions import ConsumerBusy, PulsarException, Timeout, TopicNotFound
from magnetar.client.lookup import Lookup, TopicBroker
from magnetar.client.options import ConsumerOptions, ProducerOptions
from magnetar.client.pool import ConnectionPool
from magnetar.client.producer import Producer
from magnetar.client.security import Address
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandMessage, MessageIdData, MessageMetadata

BROKER = Address("broker", 6650)
TOPIC = "persistent://public/default/t"
BUSY = TOPIC + "-busy"


class Broker:
    """A connection, and whoever answers on it: with SUCCESS, but for what it was told to be silent about."""

    def __init__(self, simulation: Simulation) -> None:
        self._loop = simulation.loop
        self.wire: Any = self
        self.closed = False
        self.producers: dict[int, Any] = {}
        self.consumers: dict[int, Any] = {}
        self.max_message_size = 5 << 20
        self.silent: set[int] = set()
        self.gone: set[str] = set()
        self.refused: dict[int, str] = {}
        """Why an acknowledgement counts for nothing, by the type of the command."""
        self.asked: list[BaseCommand] = []
        self.flows: list[BaseCommand] = []
        self.acks: list[BaseCommand] = []
        """Acknowledgements that nobody waits for."""
        self.redeliveries: list[tuple[float, list[int]]] = []
        """Requests for redelivery: when, and of which entries; none: of all."""
        self._ids = 0

    def new_request_id(self) -> int:
        self._ids += 1
        return self._ids

    def send(self, sent: BaseCommand | bytes | bytearray) -> None:
        if isinstance(sent, BaseCommand) and sent.type == BaseCommand.FLOW:
            self.flows.append(sent)
        elif isinstance(sent, BaseCommand) and sent.type == BaseCommand.ACK:
            self.acks.append(sent)
        elif isinstance(sent, BaseCommand) and sent.type == BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES:
            asked = sent.redeliverUnacknowledgedMessages.message_ids
            self.redeliveries.append((round(self._loop.time(), 3), [each.entryId for each in asked]))

    def ask(self, _request_id: int, command: BaseCommand, seconds: float, **_options: bool) -> Any:
        self.asked.append(command)
        answer = self._loop.create_future()
        if command.type in self.silent:
            self._loop.call_later(seconds, lambda: answer.done() or answer.set_exception(Timeout("silent")))
        elif command.type == BaseCommand.SUBSCRIBE and command.subscribe.topic == BUSY:
            answer.set_exception(ConsumerBusy("somebody consumes"))
        elif command.type == BaseCommand.SUBSCRIBE and command.subscribe.topic in self.gone:
            answer.set_exception(TopicNotFound("it was deleted"))
        else:
            found = BaseCommand(type=BaseCommand.SUCCESS)
            if command.type in self.refused:
                found.ackResponse.error = 13  # type: ignore[assignment]
                found.ackResponse.message = self.refused[command.type]
            answer.set_result(found)
        return answer

    def count(self, kind: int) -> int:
        return sum(command.type == kind for command in self.asked)


class World:
    def __init__(self, *, partitions_seconds: float = 60) -> None:
        self.simulation = simulated_io(1)
        self.loop = self.simulation.loop
        self.broker = Broker(self.simulation)
        self.connects: Callable[[], Any] = lambda: self.broker
        self.services = Services(
            cast(Any, self.simulation.io),
            cast(ConnectionPool, self),
            cast(Lookup, self),
            operation_timeout=10,
            open_producer=cast(Any, None),
            partitions_seconds=partitions_seconds,
        )
        self.counts: dict[str, int] = {}
        """Partitions by topic."""
        self.looks: list[bool] = []
        """For each question for partitions: whether it may make the topic."""

    async def next(self, _broker: Address, _through: Address) -> Any:
        return self.connects()

    async def owner(self, _topic: str) -> TopicBroker:
        return TopicBroker(BROKER, BROKER)

    async def partitions(self, topic: str, *, makes_topic: bool = True) -> int:
        self.looks.append(makes_topic)
        return self.counts.get(topic, 0)

    def consumer(self, **options: Any) -> Consumer:
        consumer = Consumer(self.services, TOPIC, "s", ConsumerOptions(**options))
        self.loop.run_until(consumer.open())
        return consumer

    def producer(self, **options: Any) -> Producer:
        producer = Producer(self.services, TOPIC, ProducerOptions(**options))
        self.loop.run_until(producer.open())
        return producer

    def fails(self, kind: type[PulsarException], work: Awaitable[object]) -> PulsarException:
        with pytest.raises(kind) as failure:
            self.loop.run_until(work)
        return failure.value


def arrives(consumer: Consumer, number: int, redeliveries: int, **keys: Any) -> None:
    """:param keys: fields of the message's metadata"""
    entry = build_entry(
        MessageMetadata(producer_name="p", sequence_id=number, publish_time=1, **keys), f"m{number}".encode()
    )
    command = CommandMessage(
        consumer_id=1, message_id=MessageIdData(ledgerId=1, entryId=number), redelivery_count=redeliveries
    )
    consumer.message(command, entry, True)
