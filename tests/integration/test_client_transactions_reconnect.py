"""Transactions of the client library when connections break and answers are lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from server import Server

from magnetar.client import ClusterAddress
from magnetar.client.aio import Client, ConsumerType, InitialPosition, MessageId, TransactionState
from magnetar.client.exceptions import InvalidTxnStatusError, PulsarException, TransactionOutcomeUnknown
from magnetar.client.lookup import TopicBroker
from magnetar.client.security import parse_service_url

WAIT = 20_000
MESSAGES = 300


@pytest.fixture(scope="module")
def broker(start_server: Callable[..., Server]) -> Server:
    return start_server(transactionCoordinatorEnabled="true")


class Relay:
    """A TCP relay in front of a broker, which can cut connections, and keep the broker's answers back."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: set[asyncio.StreamWriter] = set()
        self.silent = False
        self.port = 0

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, here = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers |= {writer, here}
        await asyncio.gather(
            self._copy(reader, here, is_answer=False), self._copy(there, writer, is_answer=True)
        )

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        try:
            while data := await reader.read(65536):
                if not (is_answer and self.silent):
                    writer.write(data)
                    await writer.drain()
        except ConnectionError:
            return
        finally:
            writer.close()

    def cut(self) -> None:
        writers, self._writers = self._writers, set()
        for writer in writers:
            writer.transport.abort()


@asynccontextmanager
async def through_relay(broker: Server, seconds: float) -> AsyncIterator[tuple[Client, Relay]]:
    """Yields a client whose connections all go through a relay.

    :param seconds: its operation time-out
    """
    relay = Relay(broker.port)
    server = await asyncio.start_server(relay.relay, "127.0.0.1", 0)
    relay.port = server.sockets[0].getsockname()[1]
    url = f"pulsar://127.0.0.1:{relay.port}"
    client = Client(url, operation_timeout_seconds=seconds)
    [address] = parse_service_url(url)

    async def owner(topic: str) -> TopicBroker:
        # Lookups answer the broker's own address, so the relay must stand for the broker itself.
        return TopicBroker(address, address)

    client.services.lookup.owner = owner  # type: ignore[method-assign]
    try:
        yield client, relay
    finally:
        with suppress(PulsarException):
            await client.close()
        relay.cut()
        server.close()


async def contents(broker: Server, topic: str, count: int) -> list[bytes]:
    async with Client(broker.url) as client:
        reader = await client.create_reader(topic, MessageId.earliest)
        return [(await reader.read_next(WAIT)).data() for _ in range(count)]


def test_messages_are_sent_again(broker: Server, topic: str) -> None:
    """Connections are cut while messages of a transaction are underway; none is lost, all are in order."""

    async def work() -> None:
        async with through_relay(broker, 30) as (client, relay):
            source = await client.subscribe(
                f"{topic}-in",
                "s",
                consumer_type=ConsumerType.Shared,
                initial_position=InitialPosition.Earliest,
            )
            await (await client.create_producer(f"{topic}-in")).send(b"input")
            producer = await client.create_producer(topic, producer_name="p", batching_max_messages=10)
            message = await source.receive(WAIT)
            async with client.transaction() as t:
                sends = [
                    asyncio.create_task(producer.send(b"%d" % n, transaction=t)) for n in range(MESSAGES)
                ]
                for _ in range(3):
                    await asyncio.sleep(0.02)
                    relay.cut()
                    await asyncio.sleep(0.3)
                await source.acknowledge(message, transaction=t)
            await asyncio.gather(*sends)
        found = await contents(broker, topic, MESSAGES)
        # Without deduplication, a message whose receipt was lost may be stored twice.
        assert list(dict.fromkeys(found)) == [b"%d" % n for n in range(MESSAGES)]

    asyncio.run(work())


def test_a_commit_whose_answer_is_lost_is_repeated(broker: Server, topic: str) -> None:
    async def work() -> None:
        async with through_relay(broker, 20) as (client, relay):
            producer = await client.create_producer(topic)
            t = await client.transaction().begin()
            await producer.send(b"one", transaction=t)
            relay.silent = True
            committing = asyncio.create_task(t.commit())
            await asyncio.sleep(1)
            assert t.state is TransactionState.COMMITTING
            relay.silent = False
            relay.cut()
            await committing
            assert t.state is TransactionState.COMMITTED
        assert await contents(broker, topic, 1) == [b"one"]

    asyncio.run(work())


def test_an_unknown_outcome(broker: Server, topic: str) -> None:
    async def work() -> None:
        async with through_relay(broker, 1.5) as (client, relay):
            producer = await client.create_producer(topic)
            t = await client.transaction().begin()
            await producer.send(b"one", transaction=t)
            relay.silent = True
            with pytest.raises(TransactionOutcomeUnknown, match="call commit"):
                await t.commit()
            assert t.state is TransactionState.COMMITTING
            assert await contents(broker, topic, 1) == [b"one"]
            relay.silent = False
            relay.cut()
            await t.commit()
            assert t.state is TransactionState.COMMITTED

    asyncio.run(work())


def test_a_restarted_broker(start_server: Callable[..., Server], topic: str) -> None:
    """The coordinator and the topics are loaded again; the transaction goes on."""

    async def work() -> None:
        server = start_server(transactionCoordinatorEnabled="true")
        async with Client(server.url) as client:
            # A topic without a subscription keeps nothing across a restart.
            await client.subscribe(topic, "s")
            producer = await client.create_producer(topic)
            async with client.transaction() as t:
                await producer.send(b"before", transaction=t)
                await asyncio.to_thread(server.restart, kill=True)
                await producer.send(b"behind", transaction=t)
            assert t.state is TransactionState.COMMITTED
        assert await contents(server, topic, 2) == [b"before", b"behind"]

    asyncio.run(work())


def test_a_client_that_is_killed(broker: Server, topic: str) -> None:
    """What it had open is aborted after its time-out, and is never seen."""

    async def work() -> None:
        async with through_relay(broker, 5) as (client, relay):
            producer = await client.create_producer(topic)
            t = await client.transaction(timeout=2).begin()
            await producer.send(b"never", transaction=t)
            relay.silent = True
        async with Client(broker.url) as client:
            await (await client.create_producer(topic)).send(b"plain")
        assert await contents(broker, topic, 1) == [b"plain"]

    asyncio.run(work())


def test_another_cluster(broker: Server, start_server: Callable[..., Server], topic: str) -> None:
    """A client that leaves a cluster leaves its transactions there: elsewhere their ids are others'."""

    async def work() -> None:
        other = start_server(transactionCoordinatorEnabled="true")
        async with Client(broker.url) as client:
            t = await client.transaction().begin()
            client.use_service(ClusterAddress(other.url))
            assert t.state is TransactionState.ERROR
            with pytest.raises(InvalidTxnStatusError, match="uses another cluster now"):
                await t.commit()
            producer = await client.create_producer(topic)
            async with client.transaction() as second:
                await producer.send(b"there", transaction=second)
        assert await contents(other, topic, 1) == [b"there"]

    asyncio.run(work())
