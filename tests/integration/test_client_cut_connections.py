"""Connections of the client that are cut after each command, in either direction.

Nothing that was acknowledged is lost, and with deduplication nothing is stored twice. The broker is Magnetar,
or Apache Pulsar where MAGNETAR_PEER_URL names it (make client-on-pulsar).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from any_broker import Broker, broker, topic

from magnetar.client import ConsumerType, InitialPosition, PulsarException, aio
from magnetar.client.exceptions import Timeout
from magnetar.io.interfaces import Buffer, ClientIo, ConnectingNetwork, StreamProtocol, Transport
from magnetar.io.real import running_client_io

__all__ = ["broker", "topic"]

MESSAGES = 30
SECONDS = 60
AT_ONCE = 12


class Frames:
    """Cuts a stream of bytes into frames: a size of four bytes, and as many bytes."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def of(self, data: Buffer) -> list[bytes]:
        """Returns the frames that the data completes."""
        self._bytes += data
        found = []
        while len(self._bytes) >= 4:
            end = 4 + int.from_bytes(self._bytes[:4], "big")
            if len(self._bytes) < end:
                break
            found.append(bytes(self._bytes[:end]))
            del self._bytes[:end]
        return found


class Cut:
    """The points at which the connections of one client are cut: every ``after`` commands in one direction,
    at most ``times`` times."""

    def __init__(self, *, outward: bool, after: int, times: int) -> None:
        self.outward = outward
        self.after = after
        self.left = times
        self.counted = 0
        self.done = 0

    def is_due(self, outward: bool) -> bool:
        """Counts one command; returns whether the connection ends after it."""
        if outward != self.outward or not self.left:
            return False
        self.counted += 1
        if self.counted < self.after:
            return False
        self.counted = 0
        self.left -= 1
        self.done += 1
        return True


class CutConnection:
    """The client's handler of one connection, and its transport: passes whole commands on, up to the cut."""

    def __init__(self, inner: StreamProtocol, cut: Cut) -> None:
        self.inner = inner
        self._cut = cut
        self._in, self._out = Frames(), Frames()
        self._transport: Transport | None = None
        self._is_cut = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)

    # The handler's side

    def connection_made(self, transport: Transport) -> None:
        self._transport = transport
        self.inner.connection_made(self)  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        for frame in self._in.of(data):
            if self._is_cut:
                return
            self.inner.data_received(frame)
            if self._cut.is_due(outward=False):
                self._end()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()

    # The transport's side

    def write(self, data: Buffer) -> None:
        assert self._transport is not None
        for frame in self._out.of(data):
            if self._is_cut:
                return
            self._transport.write(frame)
            if self._cut.is_due(outward=True):
                self._end()

    def _end(self) -> None:
        """What was written before reaches the broker; what it answers does not reach the client."""
        assert self._transport is not None
        self._is_cut = True
        self._transport.close()


class CuttingNetwork:
    """Connects, and cuts."""

    def __init__(self, real: ConnectingNetwork, cut: Cut) -> None:
        self._real = real
        self._cut = cut

    async def connect(
        self, host: str, port: int, factory: Callable[[], StreamProtocol]
    ) -> tuple[Transport, StreamProtocol]:
        made: list[CutConnection] = []

        def handler() -> StreamProtocol:
            made.append(CutConnection(factory(), self._cut))
            return made[0]  # type: ignore[return-value]

        await self._real.connect(host, port, handler)
        return made[0], made[0].inner  # type: ignore[return-value]


def cutting(cut: Cut) -> ClientIo:
    io = running_client_io()
    return replace(io, network=CuttingNetwork(io.network, cut))  # type: ignore[arg-type]


async def published(client: aio.Client, topic: str, *, batched: bool) -> dict[int, bool]:
    """Sends numbers without waiting in between; returns whether each was confirmed."""
    producer = await client.create_producer(
        topic,
        producer_name="numbers",
        initial_sequence_id=-1,
        batching_enabled=batched,
        batching_max_messages=4,
    )
    sent = [asyncio.ensure_future(producer.send(b"%d" % number)) for number in range(MESSAGES)]
    ended = await asyncio.gather(*sent, return_exceptions=True)
    await producer.close()
    for each in ended:
        assert not isinstance(each, BaseException) or isinstance(each, PulsarException), each
    return {number: not isinstance(each, BaseException) for number, each in enumerate(ended)}


async def consumed(client: aio.Client, topic: str, kind: ConsumerType) -> list[int]:
    """Receives and acknowledges until each number has come; returns them as they came."""
    consumer = await client.subscribe(
        topic,
        "s",
        consumer_type=kind,
        initial_position=InitialPosition.Earliest,
        receiver_queue_size=7,
        ack_group_time_ms=1,
    )
    got: list[int] = []
    while len(set(got)) < MESSAGES:
        message = await consumer.receive(SECONDS * 1000)
        got.append(int(message.data()))
        await consumer.acknowledge(message)
    await consumer.close()
    return got


async def stored(client: aio.Client, topic: str) -> list[int]:
    """Returns all numbers in the topic."""
    reader = await client.create_reader(topic, aio.MessageId.earliest)
    found = []
    while await reader.has_message_available():
        found.append(int((await reader.read_next(SECONDS * 1000)).data()))
    await reader.close()
    return found


def deduplicate(broker: Broker, topic: str) -> None:
    """Switches deduplication on for a new topic."""
    broker.admin.create_topic(topic)
    broker.admin.set_topic_deduplication(topic, True)


def cuts(*, outward: bool, boundaries: int) -> list[Cut]:
    """One cut after each command, and several in one program."""
    once = [Cut(outward=outward, after=after, times=1) for after in range(1, boundaries + 1)]
    return once + [Cut(outward=outward, after=after, times=5) for after in (5, 7, 11)]


@pytest.mark.parametrize("outward", [True, False], ids=["to the broker", "from the broker"])
@pytest.mark.parametrize("batched", [True, False], ids=["batched", "unbatched"])
def test_a_cut_producer_stores_each_message_once_and_in_order(
    broker: Broker, topic: str, *, batched: bool, outward: bool
) -> None:
    wanted = cuts(outward=outward, boundaries=14 if batched else MESSAGES + 6)
    for number in range(len(wanted)):
        deduplicate(broker, f"{topic}-{number}")

    async def program(number: int, cut: Cut) -> None:
        name = f"{topic}-{number}"
        client = aio.Client(broker.url, io=cutting(cut))
        confirmed = await published(client, name, batched=batched)
        await client.close()
        assert all(confirmed.values()), (number, confirmed)
        async with aio.Client(broker.url) as other:
            assert await stored(other, name) == list(range(MESSAGES)), number

    reached = run(wanted, program)
    assert reached > len(wanted) // 2


@pytest.mark.parametrize("outward", [True, False], ids=["to the broker", "from the broker"])
@pytest.mark.parametrize("kind", [ConsumerType.Exclusive, ConsumerType.Shared])
def test_a_cut_consumer_gets_each_message_and_acknowledges_all(
    broker: Broker, topic: str, kind: ConsumerType, *, outward: bool
) -> None:
    wanted = cuts(outward=outward, boundaries=24)

    async def program(number: int, cut: Cut) -> None:
        name = f"{topic}-{number}"
        async with aio.Client(broker.url) as other:
            assert all((await published(other, name, batched=number % 2 == 0)).values())
            client = aio.Client(broker.url, io=cutting(cut))
            got = await consumed(client, name, kind)
            await client.close()
            first = list(dict.fromkeys(got))
            assert sorted(first) == list(range(MESSAGES)), number
            if kind is ConsumerType.Exclusive:
                assert first == list(range(MESSAGES)), number
            await acknowledge_the_rest(other, name, kind)

    reached = run(wanted, program)
    assert reached > len(wanted) // 2
    for number in range(len(wanted)):
        assert broker.admin.topic_stats(f"{topic}-{number}")["subscriptions"]["s"]["msgBacklog"] == 0


async def acknowledge_the_rest(client: aio.Client, topic: str, kind: ConsumerType) -> None:
    """Acknowledges what comes again: acknowledgements on a connection that was cut may be lost."""
    consumer = await client.subscribe(topic, "s", consumer_type=kind, ack_receipt_enabled=True)
    while True:
        try:
            message = await consumer.receive(300)
        except Timeout:
            break
        assert 0 <= int(message.data()) < MESSAGES
        await consumer.acknowledge(message)
    await consumer.close()


def run(wanted: list[Cut], program: Callable[[int, Cut], object]) -> int:
    """Runs the program for each cut, several at once; returns how many cuts were reached."""

    async def main() -> None:
        room = asyncio.Semaphore(AT_ONCE)

        async def one(number: int, cut: Cut) -> None:
            async with room:
                await asyncio.wait_for(program(number, cut), SECONDS)  # type: ignore[arg-type]

        await asyncio.gather(*(one(number, cut) for number, cut in enumerate(wanted)))

    asyncio.run(main())
    return sum(cut.done > 0 for cut in wanted)
