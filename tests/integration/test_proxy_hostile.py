"""Clients of a proxy that do not keep to the protocol, or do not take what they are sent."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest
from polling import until
from proxy_process import ProxyProcess
from server import Server

from magnetar.protocol.frames import encode_command
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandSubscribe
from magnetar.proxy.broker_connection import Commands

PATIENCE = 30.0
SIZE, MESSAGES = 1 << 20, 60


@pytest.fixture(scope="module")
def broker(plain_broker: Server) -> Server:
    return plain_broker


@pytest.fixture(scope="module")
def proxy(broker: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    running = ProxyProcess(
        tmp_path_factory.mktemp("proxy"),
        brokerServiceURL=broker.url,
        brokerWebServiceURL=broker.http_url,
        keepAliveIntervalSeconds=2,
    )
    try:
        running.start()
        yield running
    finally:
        running.close()


def connect(to_broker: str = "", version: int = 19) -> bytes:
    command = BaseCommand(type=BaseCommand.CONNECT)
    command.connect.client_version = "test"
    command.connect.protocol_version = version
    if to_broker:
        command.connect.proxy_to_broker_url = to_broker
    return encode_command(command)


def subscribe(topic: str) -> bytes:
    command = BaseCommand(type=BaseCommand.SUBSCRIBE)
    asked = command.subscribe
    asked.topic, asked.subscription, asked.subType = topic, "s", CommandSubscribe.Exclusive
    asked.consumer_id = asked.request_id = 1
    asked.initialPosition = CommandSubscribe.Earliest
    return encode_command(command)


def permits() -> bytes:
    flow = BaseCommand(type=BaseCommand.FLOW)
    flow.flow.consumer_id, flow.flow.messagePermits = 1, 1000
    return encode_command(flow)


def wait_for_success(connection: socket.socket) -> None:
    found = b""
    # The type of the command: 13.
    while b"\x08\x0d" not in found:
        piece = connection.recv(65536)
        assert piece
        found += piece


def opened(proxy: ProxyProcess, data: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE)
    connection.sendall(data)
    return connection


def everything(connection: socket.socket) -> bytes:
    """What comes until the proxy has ended the connection."""
    found = bytearray()
    try:
        while piece := connection.recv(65536):
            found += piece
    except ConnectionResetError:
        # It was not even read what else was sent.
        pass
    return bytes(found)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 100,
        (1 << 30).to_bytes(4, "big") + bytes(100),
        b"\x00\x00\x00\x04\x00\x00\x00\x00",
        encode_command(BaseCommand(type=BaseCommand.PING, ping={})),
        subscribe("t"),
        connect(version=9),
        connect() + connect(),
        connect() + subscribe("t"),
        connect("nonsense"),
        connect("127.0.0.1:1"),
        connect("no-such-host.invalid:6650"),
    ],
    ids=lambda data: data[:12].hex(),
)
def test_what_is_not_the_protocol_ends_its_connection_alone(proxy: ProxyProcess, data: bytes) -> None:
    with opened(proxy, data) as connection:
        everything(connection)
    assert proxy.runs
    assert "internal error" not in proxy.log


def test_who_says_nothing_is_left(proxy: ProxyProcess) -> None:
    with opened(proxy) as silent, opened(proxy, connect()[:7]) as halting, opened(proxy, connect()) as dead:
        for connection in (silent, halting):
            assert everything(connection) == b""
        # It is asked whether it is alive, and does not answer.
        assert everything(dead).count(encode_command(BaseCommand(type=BaseCommand.PING, ping={}))) == 1


def test_what_comes_in_pieces_is_understood(proxy: ProxyProcess, broker: Server) -> None:
    with opened(proxy) as connection:
        for byte in connect(broker.url.partition("://")[2]):
            connection.sendall(bytes([byte]))
        assert b"Magnetar" in connection.recv(1000)


def test_more_lookups_at_a_time_than_are_answered_at_a_time(proxy: ProxyProcess) -> None:
    asked = 3000
    lookups = bytearray()
    for number in range(1, asked + 1):
        command = BaseCommand(type=BaseCommand.LOOKUP)
        command.lookupTopic.topic = f"persistent://public/default/of-many-{number % 5}"
        command.lookupTopic.request_id = number
        lookups += encode_command(command)
    answered = Commands(1 << 20)
    seen: set[int] = set()
    with opened(proxy, connect() + bytes(lookups)) as connection:
        while len(seen) < asked:
            answered.feed(connection.recv(65536))
            while (answer := answered.next()) is not None:
                if answer.type == BaseCommand.LOOKUP_RESPONSE:
                    assert answer.lookupTopicResponse.proxy_through_service_url
                    seen.add(answer.lookupTopicResponse.request_id)


def test_what_comes_before_the_broker_has_answered_is_passed_on(proxy: ProxyProcess, broker: Server) -> None:
    topic = "persistent://public/default/early"
    with opened(proxy, connect(broker.url) + subscribe(topic)) as connection:
        wait_for_success(connection)


def test_who_takes_nothing_costs_little(proxy: ProxyProcess, broker: Server) -> None:
    topic = "persistent://public/default/taken-late"
    client = pulsar.Client(broker.url)
    client.subscribe(topic, "s").close()
    producer = client.create_producer(topic)
    for _ in range(MESSAGES):
        producer.send(b"x" * SIZE)
    client.close()
    before = resident_bytes(proxy.pid)
    with opened(proxy, connect(broker.url.partition("://")[2]) + subscribe(topic)) as lazy:
        wait_for_success(lazy)
        lazy.sendall(permits())
        path = topic.replace("://", "/")
        until(lambda: json.loads(broker.ask("GET", f"/admin/v2/{path}/stats")[1])["msgOutCounter"] > 0)
        time.sleep(1)
        assert resident_bytes(proxy.pid) - before < 8 << 20
        received = 0
        while received < MESSAGES * SIZE:
            piece = lazy.recv(1 << 20)
            assert piece
            received += len(piece)


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
