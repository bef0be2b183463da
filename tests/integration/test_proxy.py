"""A proxy before one broker, used through the official client and the admin interface."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pulsar
import pytest
from proxy_process import ProxyProcess
from server import Server

_numbers = count()


@pytest.fixture(scope="module")
def broker(plain_broker: Server) -> Server:
    return plain_broker


@pytest.fixture(scope="module")
def proxy(broker: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    running = before(broker, tmp_path_factory.mktemp("proxy"))
    try:
        running.start()
        yield running
    finally:
        running.close()


def before(broker: Server, folder: Path, **settings: int | str) -> ProxyProcess:
    return ProxyProcess(folder, brokerServiceURL=broker.url, brokerWebServiceURL=broker.http_url, **settings)


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/through-{next(_numbers)}"


def exchanged(url: str, topic: str, messages: list[bytes]) -> list[bytes]:
    """What a consumer gets of what a producer sends, both at ``url``."""
    client = pulsar.Client(url, operation_timeout_seconds=20)
    try:
        consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        producer = client.create_producer(topic)
        for message in messages:
            producer.send_async(message, lambda _result, _id: None)
        producer.flush()
        received = []
        for _ in messages:
            message = consumer.receive(20_000)
            consumer.acknowledge(message)
            received.append(message.data())
        return received
    finally:
        client.close()


def metrics(proxy: ProxyProcess) -> dict[str, float]:
    status, body = proxy.ask("GET", "/metrics")
    assert status == 200
    lines = [line.split() for line in body.decode().splitlines() if not line.startswith("#")]
    return {name.partition("{")[0]: float(value) for name, value in lines}


def test_messages_go_through(proxy: ProxyProcess, topic: str) -> None:
    messages = [b"%d" % number for number in range(500)]
    assert exchanged(proxy.url, topic, messages) == messages


def test_messages_of_a_megabyte_go_through_in_their_order(proxy: ProxyProcess, topic: str) -> None:
    messages = [bytes([number]) * (1 << 20) for number in range(20)]
    assert exchanged(proxy.url, topic, messages) == messages


def test_partitions_and_lists_are_answered(proxy: ProxyProcess, broker: Server, topic: str) -> None:
    path = topic.replace("persistent://", "/admin/v2/persistent/")
    assert proxy.ask("PUT", f"{path}/partitions", "3")[0] == 204
    assert proxy.ask("GET", f"{path}/partitions") == broker.ask("GET", f"{path}/partitions")
    client = pulsar.Client(proxy.url)
    try:
        assert client.get_topic_partitions(topic) == [f"{topic}-partition-{number}" for number in range(3)]
        pattern = re.compile(topic + ".*")
        client.subscribe(pattern, "s", consumer_type=pulsar.ConsumerType.Shared).close()
    finally:
        client.close()
    assert sorted(exchanged(proxy.url, topic, [b"a", b"b", b"c"])) == [b"a", b"b", b"c"]


def test_a_slow_consumer_gets_everything_and_the_proxy_keeps_little(
    proxy: ProxyProcess, broker: Server, topic: str
) -> None:
    size, number = 1 << 20, 60
    client = pulsar.Client(broker.url)
    producer = client.create_producer(topic)
    slow = pulsar.Client(proxy.url)
    try:
        slow.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest).close()
        for _ in range(number):
            producer.send(b"x" * size)
        before_bytes = resident_bytes(proxy.pid)
        consumer = slow.subscribe(topic, "s", receiver_queue_size=1000)
        received = 0
        while received < number:
            message = consumer.receive(20_000)
            assert len(message.data()) == size
            consumer.acknowledge(message)
            received += 1
        assert resident_bytes(proxy.pid) - before_bytes < 40 << 20
    finally:
        client.close()
        slow.close()


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096


def test_what_is_counted_is_told(proxy: ProxyProcess, topic: str) -> None:
    before_it = metrics(proxy)
    client = pulsar.Client(proxy.url)
    try:
        producer = client.create_producer(topic)
        producer.send(b"x" * 10_000)
        told = json.loads(proxy.ask("GET", "/proxy-stats/connections")[1])
        assert any(each["brokerAddress"].startswith("127.0.0.1:") for each in told)
        assert all(
            set(each) == {"requestRate", "byteRate", "clientAddress", "brokerAddress"} for each in told
        )
        now = metrics(proxy)
        assert now["pulsar_proxy_active_connections"] >= 1
        for name, least in (
            ("pulsar_proxy_binary_bytes_total", 10_000),
            ("pulsar_proxy_binary_ops_total", 2),
            ("pulsar_proxy_lookup_requests_total", 1),
            ("pulsar_proxy_partitions_metadata_requests_total", 1),
            ("pulsar_proxy_new_connections_total", 2),
        ):
            assert now[name] - before_it[name] >= least, name
    finally:
        client.close()
    assert proxy.ask("GET", "/proxy-stats/topics")[0] == 412


def test_the_tool_asks_a_proxy(proxy: ProxyProcess, topic: str) -> None:
    client = pulsar.Client(proxy.url)
    try:
        client.create_producer(topic)
        command = [sys.executable, "-m", "magnetar.cli.pulsar_admin", "--admin-url", proxy.http_url]
        asked = [*command, "proxy-stats", "connections"]
        done = subprocess.run(asked, capture_output=True, text=True, check=True)
        assert all(each["clientAddress"] and each["brokerAddress"] for each in json.loads(done.stdout))
    finally:
        client.close()


def test_a_client_is_connected_with_allowed_targets_only(broker: Server, tmp_path: Path, topic: str) -> None:
    other = before(broker, tmp_path, brokerProxyAllowedTargetPorts="6650,6651")
    other.start()
    try:
        client = pulsar.Client(other.url, operation_timeout_seconds=3)
        with pytest.raises(pulsar.PulsarException):
            client.create_producer(topic)
        client.close()
        assert metrics(other)["magnetar_proxy_denied_targets_total"] >= 1
    finally:
        other.close()


def test_too_many_connections_of_an_address_are_refused(broker: Server, tmp_path: Path) -> None:
    other = before(broker, tmp_path, maxConcurrentInboundConnectionsPerIp=2)
    other.start()
    try:
        port = other.port
        kept = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
        with socket.create_connection(("127.0.0.1", port), timeout=20) as third:
            answer = bytearray()
            while piece := third.recv(1000):
                answer += piece
        assert b"Too many connections" in answer
        assert metrics(other)["pulsar_proxy_rejected_connections_total"] == 1
        for each in kept:
            each.close()
    finally:
        other.close()


def test_clients_come_back_when_the_proxy_does(broker: Server, tmp_path: Path, topic: str) -> None:
    other = before(broker, tmp_path)
    other.start()
    client = pulsar.Client(other.url)
    try:
        producer = client.create_producer(topic)
        producer.send(b"before")
        other.restart(kill=False)
        producer.send(b"between")
        other.restart(kill=True)
        producer.send(b"after")
    finally:
        client.close()
        other.close()
    assert exchanged(broker.url, topic, [b"last"]) == [b"before"]


def test_a_load_balancer_says_where_a_client_is(broker: Server, tmp_path: Path) -> None:
    other = before(broker, tmp_path, haProxyProtocolEnabled="true", maxConcurrentInboundConnectionsPerIp=2)
    other.start()
    try:
        port = other.port
        kept = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
        for each in kept:
            each.sendall(b"PROXY TCP4 192.0.2.1 192.0.2.9 5 6\r\n")
        with socket.create_connection(("127.0.0.1", port), timeout=20) as another:
            another.sendall(b"PROXY TCP4 192.0.2.1 192.0.2.9 7 8\r\n")
            assert b"Too many connections" in another.recv(1000)
        for each in kept:
            each.close()
        assert exchanged(other.url, f"persistent://public/default/ha-{port}", [b"x"]) == [b"x"]
    finally:
        other.close()


def test_a_header_of_somebody_else_is_not_believed(broker: Server, tmp_path: Path) -> None:
    other = before(
        broker, tmp_path, haProxyProtocolEnabled="true", magnetarHaProxyTrustedAddresses="192.0.2.0/24"
    )
    other.start()
    try:
        with socket.create_connection(("127.0.0.1", other.port), timeout=20) as client:
            client.sendall(b"PROXY TCP4 192.0.2.1 192.0.2.9 5 6\r\n")
            assert client.recv(1000) == b""
        assert "magnetarHaProxyTrustedAddresses" in other.log
    finally:
        other.close()


def test_the_rotation_file_says_whether_the_proxy_is_to_be_used(broker: Server, tmp_path: Path) -> None:
    marker = tmp_path / "in-rotation"
    other = before(broker, tmp_path / "proxy", statusFilePath=str(marker))
    other.start()
    try:
        assert other.ask("GET", "/status.html")[0] == 404
        marker.write_text("")
        assert other.ask("GET", "/status.html") == (200, b"OK")
    finally:
        other.close()


def test_requests_that_nobody_serves_and_reverse_proxies(broker: Server, tmp_path: Path) -> None:
    other = before(broker, tmp_path)
    config = tmp_path / "standalone.conf"
    with config.open("a") as file:
        file.write(f"httpReverseProxy.x.path=/x\nhttpReverseProxy.x.proxyTo={broker.http_url}/admin/v2\n")
    other.start()
    try:
        assert other.ask("GET", "/nothing")[0] == 404
        assert other.ask("GET", "/administration")[0] == 404
        assert other.ask("GET", "/x/clusters") == broker.ask("GET", "/admin/v2/clusters")
        assert other.ask("GET", "/admin/v2/clusters") == broker.ask("GET", "/admin/v2/clusters")
    finally:
        other.close()
