"""The client core on a simulated loop and network that misbehave: it runs where it is told to, and ends."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pytest
from simulated_io.loop import SimulatedLoop

from magnetar.client.acknowledging import Acknowledgements
from magnetar.client.client import Client
from magnetar.client.consumer import Consumer
from magnetar.client.exceptions import (
    AlreadyClosed,
    ConnectError,
    InvalidConfiguration,
    NotConnected,
    PulsarException,
    Timeout,
)
from magnetar.client.message_id import MessageId
from magnetar.client.options import ConsumerOptions, ProducerOptions
from magnetar.client.producer import Producer
from magnetar.client.security import Address
from magnetar.io.interfaces import ClientIo, Clock
from magnetar.protocol.frames import encode_command
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandMessage, MessageIdData, MessageMetadata


class LoopClock:
    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def wall_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()

    def processor(self) -> float:
        return 0.0


class Chance:
    def __init__(self) -> None:
        self._random = Random(1)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)

    def fraction(self) -> float:
        return self._random.random()

    def token(self, length: int) -> bytes:
        return self._random.randbytes(length)


class Wire:
    """A transport to a broker that answers CONNECT, if at all, and nothing else."""

    def __init__(self, network: SilentNetwork, protocol: Any) -> None:
        self._network = network
        self._protocol = protocol
        self.closing = False

    def write(self, data: bytes) -> None:
        self._network.written += 1
        if self._network.answers:
            self._network.answers = False
            command = BaseCommand(type=BaseCommand.CONNECTED)
            command.connected.server_version = "silent"
            self._network.loop.call_soon(self._protocol.data_received, encode_command(command))

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.close()

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            self._network.open -= 1
            self._network.loop.call_soon(self._protocol.connection_lost, None)


class SilentNetwork:
    def __init__(self, loop: SimulatedLoop, *, answers: bool) -> None:
        self.loop = loop
        self.answers = answers
        self.open = 0
        self.written = 0
        self.asked: list[float] = []
        """When somebody looked for who is not there."""

    async def listen(self, host: str, port: int, factory: Any) -> Any:
        raise OSError("nobody listens here")

    async def connect(self, host: str, port: int, factory: Any) -> Any:
        if host == "nobody":
            self.asked.append(self.loop.time())
            raise OSError("nobody answers")
        protocol = factory()
        self.open += 1
        transport = Wire(self, protocol)
        protocol.connection_made(transport)
        return transport, protocol


def world(
    *, answers: bool, host: str = "broker", **options: Any
) -> tuple[SimulatedLoop, SilentNetwork, Client]:
    loop = SimulatedLoop()
    network = SilentNetwork(loop, answers=answers)
    clock: Clock = LoopClock(loop)
    io = ClientIo(loop=loop, clock=clock, randomness=Chance(), network=network)
    return loop, network, Client(f"pulsar://{host}", io=io, operation_timeout_seconds=5, **options)


def test_a_broker_that_does_not_answer_connect() -> None:
    loop, network, client = world(answers=False)
    with pytest.raises(Timeout):
        loop.run_until(client.create_producer("t"))
    assert network.open == 0
    loop.run_until(client.close())


def test_a_broker_that_answers_nothing_is_given_up_after_two_silent_intervals() -> None:
    loop, network, client = world(answers=True)
    failures: list[BaseException] = []

    async def work() -> None:
        try:
            await client.create_producer("t")
        except PulsarException as error:
            failures.append(error)

    loop.run_until(work())
    assert [type(error) for error in failures] == [Timeout]
    loop.run_for(100)
    assert network.open == 0
    loop.run_until(client.close())


def test_nobody_there_is_said_at_the_end_of_the_operation_time() -> None:
    loop, _, client = world(answers=False, host="nobody")
    with pytest.raises(ConnectError):
        loop.run_until(client.create_producer("t"))
    assert 2 < loop.time() <= 5
    loop.run_until(client.close())


def test_delays_between_attempts_are_as_long_as_wanted() -> None:
    loop, network, client = world(
        answers=True, host="nobody", initial_backoff_interval_ms=200, max_backoff_interval_ms=800
    )
    with pytest.raises(ConnectError):
        loop.run_until(client.create_producer("t"))
    delays = [after - before for before, after in pairwise(network.asked)]
    assert all(
        0.8 * wanted <= delay <= wanted
        for delay, wanted in zip(delays, [0.2, 0.4, *[0.8] * (len(delays) - 2)], strict=True)
    )
    assert len(delays) >= 6
    with pytest.raises(InvalidConfiguration):
        world(answers=True, initial_backoff_interval_ms=200, max_backoff_interval_ms=100)


def test_closing_ends_what_is_being_opened() -> None:
    loop, network, client = world(answers=False)

    async def work() -> None:
        creating = loop.create_task(client.create_producer("t"))
        passed = loop.create_future()
        loop.call_later(1, passed.set_result, None)
        await passed
        await client.close()
        with pytest.raises(AlreadyClosed):
            await creating

    loop.run_until(work())
    loop.run_for(1)
    assert network.open == 0
    with pytest.raises(AlreadyClosed):
        loop.run_until(client.create_producer("t"))


class Noted:
    """A connection that notes what is sent."""

    def __init__(self) -> None:
        self.wire = self
        self.closed = False
        self.sent: list[BaseCommand] = []

    def send(self, command: BaseCommand) -> None:
        self.sent.append(command)


def test_permits_of_what_is_thrown_away_go_behind_the_request_for_it() -> None:
    loop, _, client = world(answers=False)
    consumer = Consumer(
        client.services, "persistent://public/default/t", "s", ConsumerOptions(receiver_queue_size=4)
    )
    connection: Any = Noted()
    consumer._attachment.connection = connection
    entry = build_entry(MessageMetadata(producer_name="p", sequence_id=1, publish_time=1), b"content")
    for number in range(3):
        command = CommandMessage(consumer_id=1, message_id=MessageIdData(ledgerId=1, entryId=number))
        consumer.message(command, entry, True)
    assert consumer.take() is not None
    consumer.redeliver_unacknowledged_messages()
    assert [command.type for command in connection.sent] == [
        BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES,
        BaseCommand.FLOW,
    ]
    assert connection.sent[1].flow.messagePermits == 3
    # What was on its way carries no number, or an older one: it is dropped, and its permit given back.
    consumer.message(command, entry, True)
    assert consumer.take() is None
    command.consumer_epoch = 1
    consumer.message(command, entry, True)
    assert consumer.take() is not None
    loop.run_until(client.close())


def test_acknowledgements_that_gather_when_a_subscription_begins_anew_are_not_reported_as_done() -> None:
    loop, _, client = world(answers=False)
    connection: Any = Noted()
    gathering = Acknowledgements(
        loop,
        1,
        lambda: connection,
        ConsumerOptions(ack_group_time_ms=1000, ack_receipt_enabled=True),
        timeout=5,
    )
    told = gathering.individual(MessageId(-1, 1, 2))
    gathering.forget()
    with pytest.raises(NotConnected):
        loop.run_until(told)
    gathering.flush()
    assert connection.sent == []
    loop.run_until(client.close())


def test_closing_a_producer_ends_though_its_broker_does_not_answer() -> None:
    loop, _, client = world(answers=False)
    producer = Producer(client.services, "persistent://public/default/t", ProducerOptions())
    ends: list[BaseException | None] = []
    producer.enqueue(b"never confirmed", lambda _id, error: ends.append(error), None, None)
    # A connection that takes everything and says nothing.
    connection: Any = Noted()
    connection.closed = True
    producer._attachment.connection = connection
    producer.send_batches = lambda: None  # type: ignore[method-assign]
    loop.run_until(producer.close())
    assert [type(error) for error in ends] == [AlreadyClosed]
    loop.run_until(client.close())


def test_connections_that_nothing_uses_are_closed() -> None:
    loop, network, client = world(
        answers=True, connection_max_idle_seconds=20, keep_alive_interval_seconds=1000
    )
    pool, at = client.services.pool, Address("broker", 6650)
    connection = loop.run_until(pool.get(at, at))
    connection.wire.watchers[1] = lambda _lost: None
    loop.run_for(100)
    assert network.open == 1, "a watch uses the connection"
    del connection.wire.watchers[1]
    loop.run_for(15)
    assert loop.run_until(pool.get(at, at)) is connection, "who asks for the connection uses it"
    loop.run_for(19)
    assert network.open == 1
    loop.run_for(11)
    assert network.open == 0
    network.answers = True
    assert loop.run_until(pool.get(at, at)) is not connection
    assert network.open == 1
    loop.run_for(31)
    assert network.open == 0, "later connections are closed, too"
    loop.run_until(client.close())


def test_unused_connections_stay_open_if_that_is_wanted() -> None:
    loop, network, client = world(
        answers=True, connection_max_idle_seconds=0, keep_alive_interval_seconds=1000
    )
    at = Address("broker", 6650)
    loop.run_until(client.services.pool.get(at, at))
    loop.run_for(50)
    assert network.open == 1
    loop.run_until(client.close())


@pytest.mark.parametrize("seconds", [-1, 14.9, float("inf")])
def test_the_time_of_unused_connections_is_checked(seconds: float) -> None:
    with pytest.raises(InvalidConfiguration, match="connection_max_idle_seconds must be 0, or 15 or more"):
        world(answers=True, connection_max_idle_seconds=seconds)
