"""A client and the broker it asks for are connected, or neither keeps anything of the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from magnetar.io.interfaces import StreamProtocol
from magnetar.io.real import real_io
from magnetar.protocol.frames import encode_command
from magnetar.protocol.pulsar_api_pb2 import BaseCommand
from magnetar.proxy.broker_connection import Commands
from magnetar.proxy.brokers import AllowedTargets, BrokerTarget, NamedBrokers
from magnetar.proxy.client_connection import ClientConnection
from magnetar.proxy.service import ProxyOptions, ProxyService
from magnetar.security.authentication import NobodyIsAsked

CONNECTED = encode_command(BaseCommand(type=BaseCommand.CONNECTED, connected={"server_version": "broker"}))


class Wire:
    """A transport: what was written to it, and what became of it."""

    def __init__(self) -> None:
        self.protocol: Any = None
        self.written = b""
        self.closed = False

    def get_extra_info(self, _name: str) -> tuple[str, int]:
        return "127.0.0.1", 1

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(lambda: self.protocol.connection_lost(None))

    abort = close

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def set_write_buffer_limits(self, high: int) -> None:
        assert high

    def pause_reading(self) -> None:
        """Nothing comes by itself."""

    resume_reading = pause_reading


class Network:
    """Where one broker is."""

    def __init__(self, ends: bool) -> None:
        self.wire = Wire()
        self._ends = ends

    async def connect(self, _host: str, _port: int, factory: Callable[[], StreamProtocol]) -> Any:
        protocol = self.wire.protocol = factory()
        protocol.connection_made(self.wire)  # type: ignore[arg-type]
        asyncio.get_running_loop().call_soon(self._answer, protocol)
        return self.wire, protocol

    def _answer(self, protocol: StreamProtocol) -> None:
        protocol.data_received(CONNECTED)
        if self._ends:
            # As TLS tells of an end that came in the same piece, though nothing is to be read.
            self.wire.close()


class Lists:
    """A broker that tells which topics there are, and counts how often it was asked."""

    closed = False

    def __init__(self) -> None:
        self.asked = 0

    async def ask(self, command: BaseCommand, _field: str) -> BaseCommand:
        self.asked += 1
        answer = BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE)
        answer.getTopicsOfNamespaceResponse.request_id = 0
        answer.getTopicsOfNamespaceResponse.topics.append(command.getTopicsOfNamespace.namespace * 1000)
        return answer


def begun(network: Network, wire: Wire, to_broker: str = "") -> tuple[ProxyService, ClientConnection]:
    """A client that has sent CONNECT to a proxy."""
    service = ProxyService(
        real_io(asyncio.get_running_loop(), "."),
        ProxyOptions(),
        NamedBrokers("pulsar://b:6650", "", "", ""),
        AllowedTargets(),
        network,
        NobodyIsAsked(),
        None,
    )
    client = wire.protocol = ClientConnection(service)
    client.connection_made(wire)
    asked = BaseCommand(type=BaseCommand.CONNECT)
    asked.connect.client_version, asked.connect.protocol_version = "test", 19
    if to_broker:
        asked.connect.proxy_to_broker_url = to_broker
    client.data_received(encode_command(asked))
    return service, client


async def settled() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def test_a_client_that_takes_nothing_has_one_large_answer_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        wire, broker = Wire(), Lists()
        service, client = begun(Network(ends=False), wire)
        await settled()

        async def known(_target: BrokerTarget) -> Lists:
            return broker

        monkeypatch.setattr(client, "broker", known)
        client.pause_writing()
        asked = BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE)
        for number in range(5):
            asked.getTopicsOfNamespace.namespace, asked.getTopicsOfNamespace.request_id = "n", number
            client.data_received(encode_command(asked))
        await settled()
        assert broker.asked == 0
        client.resume_writing()
        client.pause_writing()
        await settled()
        assert broker.asked == 1
        client.resume_writing()
        await settled()
        assert broker.asked == 5
        client.pause_writing()
        client.data_received(encode_command(asked))
        await settled()
        wire.close()
        await settled()
        assert broker.asked == 5
        assert (service.lookups, service.figures.active_connections) == (0, 0)
        await service.stop()

    asyncio.run(work())


@pytest.mark.parametrize("ends", [False, True])
def test_a_broker_that_ends_while_it_is_handed_over_is_no_broker(ends: bool) -> None:
    async def work() -> None:
        network, wire = Network(ends), Wire()
        service, _client = begun(network, wire, "b:6650")
        await settled()
        told = Commands(1 << 20)
        told.feed(wire.written)
        answer = told.next()
        assert answer is not None
        assert answer.type == (BaseCommand.ERROR if ends else BaseCommand.CONNECTED)
        assert (len(service.tunnels), wire.closed) == ((0, True) if ends else (1, False))
        await asyncio.wait_for(service.stop(), 30)
        await settled()
        assert not service.tunnels
        assert service.figures.active_connections == 0
        assert wire.closed
        assert network.wire.closed

    asyncio.run(work())


def test_a_defect_is_logged_with_one_traceback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        service, client = begun(Network(ends=False), Wire())
        await settled()

        async def defective(_target: BrokerTarget) -> Lists:
            raise RuntimeError("a defect")

        monkeypatch.setattr(client, "broker", defective)
        asked = BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE)
        asked.getTopicsOfNamespace.namespace, asked.getTopicsOfNamespace.request_id = "n", 1
        client.data_received(encode_command(asked))
        await settled()
        await service.stop()

    asyncio.run(work())
    told = [each for each in caplog.records if each.message == "connection failed with an internal error"]
    assert [vars(each)["error"] for each in told] == ["a defect"]
    assert len([each for each in caplog.records if each.exc_info]) == 1
