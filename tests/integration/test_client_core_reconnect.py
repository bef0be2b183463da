"""The client core when connections break: everything is published once more in order, and received."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest
from server import Server

from magnetar.client.aio import Client, ConsumerType, InitialPosition, MessageId
from magnetar.client.exceptions import ConnectError, InvalidUrl, PulsarException, Timeout

WAIT = 30_000
MESSAGES = 3000


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("server"), {})
    try:
        running.start()
        yield running
    finally:
        running.close()


class Cutter:
    """A TCP relay in front of a broker that cuts all its connections when told."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.url = ""

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.url = f"pulsar://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, here = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers |= {writer, here}
        await asyncio.gather(self._copy(reader, here), self._copy(there, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            return
        finally:
            writer.close()

    def cut(self) -> int:
        """How many connections there were, from both sides."""
        writers, self._writers = self._writers, set()
        for writer in writers:
            writer.transport.abort()
        return len(writers)

    async def close(self) -> None:
        assert self._server is not None
        self.cut()
        self._server.close()


def test_pending_messages_are_sent_again_in_order_when_connections_are_cut(
    broker: Server, topic: str
) -> None:
    async def work() -> None:
        cutter = Cutter(broker.port)
        await cutter.open()
        # Lookups answer the broker's own address, so the relay must stand for the broker itself.
        client = Client(cutter.url)
        client.services.lookup.owner = _through(client, cutter.url)  # type: ignore[method-assign]
        consumer = await client.subscribe(
            topic, "s", initial_position=InitialPosition.Earliest, consumer_type=ConsumerType.Exclusive
        )
        producer = await client.create_producer(
            topic, batching_enabled=False, max_pending_messages=200, block_if_queue_full=True
        )

        ids: list[MessageId] = []
        for first in range(0, MESSAGES, 500):
            sending = [
                asyncio.ensure_future(producer.send(b"%d" % index)) for index in range(first, first + 500)
            ]
            await sending[50]
            assert cutter.cut()
            ids += await asyncio.gather(*sending)
        assert ids == sorted(ids)
        assert len(set(ids)) == MESSAGES
        last_of_each: list[int] = []
        seen: set[int] = set()
        while len(seen) < MESSAGES:
            number = int((await consumer.receive(WAIT)).data())
            if number not in seen:
                last_of_each.append(number)
                seen.add(number)
        # Doubles may come, as without deduplication they must; first comings are in order.
        assert last_of_each == list(range(MESSAGES))
        await client.close()
        await cutter.close()

    asyncio.run(work())


def _through(client: Client, url: str) -> object:
    from magnetar.client.lookup import TopicBroker
    from magnetar.client.security import parse_service_url

    address = parse_service_url(url)[0]

    async def owner(topic: str) -> TopicBroker:
        return TopicBroker(address, address)

    return owner


@pytest.mark.parametrize("kill", [True, False])
def test_everything_goes_on_after_the_broker_restarted(broker: Server, topic: str, kill: bool) -> None:
    async def work() -> None:
        client = Client(broker.url)
        consumer = await client.subscribe(topic, "s", initial_position=InitialPosition.Earliest)
        reader = await client.create_reader(topic, MessageId.earliest)
        producer = await client.create_producer(topic)
        for index in range(5):
            await producer.send(b"before-%d" % index)
        received = [await consumer.receive(WAIT) for _ in range(5)]
        await consumer.acknowledge_cumulative(received[2])
        assert [(await reader.read_next(WAIT)).data() for _ in range(3)] == [
            b"before-0",
            b"before-1",
            b"before-2",
        ]
        await asyncio.sleep(0.5)
        await asyncio.to_thread(broker.restart, kill=kill)
        sent = [asyncio.ensure_future(producer.send(b"after-%d" % index)) for index in range(3)]
        ids = await asyncio.gather(*sent)
        assert ids == sorted(ids)
        found = [(await consumer.receive(WAIT)).data() for _ in range(5)]
        assert found == [b"before-3", b"before-4", b"after-0", b"after-1", b"after-2"]
        # A reader goes on behind what it has read.
        read = [(await reader.read_next(WAIT)).data() for _ in range(5)]
        assert read == [b"before-3", b"before-4", b"after-0", b"after-1", b"after-2"]
        await client.close()

    asyncio.run(work())


def test_a_closed_topic_is_taken_up_again(broker: Server, topic: str) -> None:
    async def work() -> None:
        client = Client(broker.url)
        consumer = await client.subscribe(topic, "s", initial_position=InitialPosition.Earliest)
        producer = await client.create_producer(topic, batching_enabled=False)
        name = topic.rpartition("/")[2]
        for index in range(3):
            status, _ = await asyncio.to_thread(
                broker.ask, "PUT", f"/admin/v2/persistent/public/default/{name}/unload"
            )
            assert status == 204
            await producer.send(b"%d" % index)
            message = await consumer.receive(WAIT)
            while message.data() != b"%d" % index:
                message = await consumer.receive(WAIT)
            await consumer.acknowledge(message)
        await client.close()

    asyncio.run(work())


def test_sends_time_out_together_while_there_is_no_broker(broker: Server, topic: str) -> None:
    async def work() -> None:
        client = Client(broker.url)
        producer = await client.create_producer(topic, send_timeout_millis=300)
        await asyncio.to_thread(broker.kill)
        results = await asyncio.gather(*(producer.send(b"x") for _ in range(3)), return_exceptions=True)
        assert [type(result) for result in results] == [Timeout] * 3
        await asyncio.to_thread(broker.start)
        for _ in range(WAIT // 10):
            if producer.is_connected():
                break
            await asyncio.sleep(0.01)
        assert (await producer.send(b"y")).entry_id() >= 0
        await client.close()

    asyncio.run(work())


def test_several_hosts_are_tried_in_turn(broker: Server, topic: str) -> None:
    async def work() -> None:
        url = broker.url.replace("pulsar://", "pulsar://127.0.0.1:1,")
        client = Client(url, connections_per_broker=3)
        producers = [await client.create_producer(topic) for _ in range(6)]
        await asyncio.gather(*(producer.send(b"x") for producer in producers))
        attached = [each._attachment.connection for each in producers]  # type: ignore[union-attr]
        connections = {id(each): each for each in attached}
        assert [len(each.wire.producers) for each in connections.values() if each] == [2, 2, 2]
        await client.close()

    asyncio.run(work())


def test_a_dead_host_is_left_for_the_next_at_once(broker: Server, topic: str) -> None:
    """One that refuses connections, and one that is there and says nothing."""

    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            hosts = f"pulsar://127.0.0.1:1,127.0.0.1:{silent.getsockname()[1]},"
            url = broker.url.replace("pulsar://", hosts)
            client = Client(url, connection_timeout_ms=300)
            for number in range(5):
                assert await client.get_topic_partitions(f"{topic}-{number}") == [f"{topic}-{number}"]
            found = await client.services.lookup.connection()
            again = await client.services.lookup.connection()
            assert found is again
            await client.close()

    asyncio.run(work())


def test_nobody_there(topic: str) -> None:
    async def work() -> None:
        client = Client("pulsar://127.0.0.1:1", operation_timeout_seconds=0.5)
        with pytest.raises(ConnectError):
            await client.create_producer(topic)
        with pytest.raises(PulsarException):
            await client.get_topic_partitions(topic)
        await client.close()
        for wrong in ("ftp://localhost:8080", "pulsar://", "pulsar://a:b", "pulsar://a:70000", "localhost"):
            with pytest.raises(InvalidUrl):
                Client(wrong)

    asyncio.run(work())
