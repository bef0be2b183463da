"""Messages over WebSocket: the parts that a scripted conversation does not show."""

from __future__ import annotations

import json
import re
import socket
import time
import urllib.request
import zlib
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulsar
import pytest
import websocket
from raw_client import Client
from server import Server
from websocket_talk import payload

from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CompressionType, MessageMetadata

StartServer = Callable[..., Server]
SECONDS = 20.0
KEYS = Path(__file__).parent / "semantics" / "keys"


@pytest.fixture(scope="module")
def served(start_server: StartServer) -> Server:
    return start_server(webSocketMaxTextFrameSize=2000, webSocketPingDurationSeconds=1)


def opened(server: Server, path: str, **options: Any) -> websocket.WebSocket:
    url = server.http_url.replace("http", "ws", 1) + path
    return websocket.create_connection(url, timeout=SECONDS, **options)


def refused(server: Server, path: str, **options: Any) -> int:
    with pytest.raises(websocket.WebSocketBadStatusException) as error:
        opened(server, path, **options)
    return int(error.value.status_code)


def said(connection: websocket.WebSocket, message: Any) -> None:
    connection.send(json.dumps(message))


def heard(connection: websocket.WebSocket) -> dict[str, Any]:
    """The next message; pings are answered on the way."""
    found: dict[str, Any] = json.loads(connection.recv())
    return found


def path_of(topic: str) -> str:
    return topic.replace("://", "/")


def published(server: Server, topic: str, *contents: str, query: str = "") -> None:
    producer = opened(server, f"/ws/v2/producer/{path_of(topic)}{query}")
    for content in contents:
        said(producer, {"payload": payload(content)})
        assert heard(producer)["result"] == "ok"
    producer.close()


def content(message: dict[str, Any]) -> str:
    return b64decode(message["payload"]).decode()


def test_messages_go_to_and_from_official_clients(served: Server, topic: str) -> None:
    client = pulsar.Client(served.url)
    try:
        consumer = client.subscribe(topic, "official")
        over = opened(served, f"/ws/v2/consumer/{path_of(topic)}/web?subscriptionType=Shared")
        published(served, topic, "from the web", query="?compressionType=LZ4&batchingEnabled=true")
        message = consumer.receive(20000)
        assert message.data() == b"from the web"
        assert content(heard(over)) == "from the web"
        # A batch of theirs is acknowledged message by message.
        producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=200)
        for number in range(3):
            producer.send_async(b"%d" % number, lambda *_: None, partition_key="k")
        producer.flush()
        for number in range(3):
            got = heard(over)
            assert (content(got), got["key"]) == (str(number), "k")
            said(over, {"messageId": got["messageId"]})
        over.close()
    finally:
        client.close()


def test_dead_letters(served: Server, topic: str) -> None:
    dead = opened(served, f"/ws/v2/consumer/{path_of(topic)}-s-DLQ/dead")
    consumer = opened(
        served,
        f"/ws/v2/consumer/{path_of(topic)}/s?subscriptionType=Shared&maxRedeliverCount=2"
        "&negativeAckRedeliveryDelay=100&ackTimeoutMillis=1000",
    )
    published(served, topic, "poison")
    seen = []
    for _ in range(3):
        message = heard(consumer)
        seen.append(message["redeliveryCount"])
        if message["redeliveryCount"] != 1:
            # The second one is left to the time-out.
            said(consumer, {"type": "negativeAcknowledge", "messageId": message["messageId"]})
    assert seen == [0, 1, 2]
    buried = heard(dead)
    assert content(buried) == "poison"
    assert buried["properties"]["REAL_TOPIC"] == topic
    assert buried["properties"]["REAL_SUBSCRIPTION"] == "s"
    # Nothing of it is left.
    published(served, topic, "next")
    assert content(heard(consumer)) == "next"
    consumer.close()
    dead.close()


def test_partitions_and_readers_of_them(served: Server, topic: str) -> None:
    url = f"{served.http_url}/admin/v2/{path_of(topic)}/partitions"
    asked = urllib.request.Request(url, b"3", {"Content-Type": "application/json"}, method="PUT")
    urllib.request.urlopen(asked).close()
    contents = [str(number) for number in range(6)]
    published(served, topic, *contents, query="?messageRoutingMode=RoundRobinPartition")
    reader = opened(served, f"/ws/v2/reader/{path_of(topic)}?messageId=earliest&readerName=r")
    assert sorted(content(heard(reader)) for _ in contents) == contents
    reader.close()
    listed = opened(
        served, f"/ws/v3/consumer/s?topics={topic}&subscriptionInitialPosition=Earliest&receiverQueueSize=6"
    )
    got = [heard(listed) for _ in contents]
    assert sorted(map(content, got)) == contents
    for message in got:
        said(listed, {"messageId": message["messageId"]})
    # Once more is once too often, and does no harm.
    said(listed, {"messageId": got[0]["messageId"]})
    published(served, topic, "more")
    assert content(heard(listed)) == "more"
    listed.close()
    id_of_one = got[0]["messageId"].replace("+", "%2B")
    assert refused(served, f"/ws/v2/reader/{path_of(topic)}?messageId={id_of_one}") == 400


def test_legacy_names(served: Server) -> None:
    url = f"{served.http_url}/admin/namespaces/public/standalone/old"
    urllib.request.urlopen(urllib.request.Request(url, method="PUT")).close()
    consumer = opened(served, "/ws/consumer/persistent/public/standalone/old/t/s")
    producer = opened(served, "/ws/producer/persistent/public/standalone/old/t")
    said(producer, {"payload": payload("x")})
    assert heard(producer)["result"] == "ok"
    assert content(heard(consumer)) == "x"
    reader = opened(served, "/ws/reader/persistent/public/standalone/old/t?messageId=earliest")
    assert content(heard(reader)) == "x"
    for each in (consumer, producer, reader):
        each.close()


def test_what_is_too_large_or_binary_ends_it(served: Server, topic: str) -> None:
    producer = opened(served, f"/ws/v2/producer/{path_of(topic)}")
    producer.send(json.dumps({"payload": payload("x" * 3000)}))
    assert _end_of(producer) == 1009
    producer = opened(served, f"/ws/v2/producer/{path_of(topic)}")
    producer.send_binary(b"{}")
    assert _end_of(producer) == 1003


def _end_of(connection: websocket.WebSocket) -> int:
    while True:
        kind, data = connection.recv_data(control_frame=True)
        if kind == websocket.ABNF.OPCODE_CLOSE:
            return int.from_bytes(data[:2], "big")


def test_pings_come_and_are_answered(served: Server, topic: str) -> None:
    consumer = opened(served, f"/ws/v2/consumer/{path_of(topic)}/s")
    kind, data = consumer.recv_data(control_frame=True)
    assert (kind, data) == (websocket.ABNF.OPCODE_PING, b"PING")
    consumer.ping(b"mine")
    while True:
        kind, data = consumer.recv_data(control_frame=True)
        if kind == websocket.ABNF.OPCODE_PONG:
            break
    assert data == b"mine"
    consumer.close()


def test_who_is_idle_is_sent_away(start_server: StartServer, topic: str) -> None:
    server = start_server(webSocketSessionIdleTimeoutMillis=300)
    assert _end_of(opened(server, f"/ws/v2/consumer/{path_of(topic)}/s")) == 1001


def test_pages_from_elsewhere_are_refused(served: Server, topic: str) -> None:
    path = f"/ws/v2/producer/{path_of(topic)}"
    assert refused(served, path, origin="http://elsewhere.example") == 403
    opened(served, path, origin=served.http_url).close()
    # A page that has a proof was given it.
    opened(served, f"{path}?token=anything", origin="http://elsewhere.example").close()


def test_who_asks_for_none_is_told(served: Server, topic: str) -> None:
    with socket.create_connection(("127.0.0.1", int(served.http_url.rpartition(":")[2]))) as plain:
        plain.sendall(f"GET /ws/v2/reader/{path_of(topic)} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert plain.recv(1000).startswith(b"HTTP/1.1 426 ")
        # The connection is still one of HTTP.
        plain.sendall(b"GET /admin/v2/clusters HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(0.2)
        assert b'["standalone"]' in plain.recv(2000)
    assert refused(served, f"/ws/v2/reader/{path_of(topic)}", header={"Sec-WebSocket-Version": "12"}) == 426


def test_a_client_that_takes_nothing_costs_nothing(served: Server, topic: str) -> None:
    """What it does not take waits in the topic, not in the broker."""
    consumer = opened(
        served,
        f"/ws/v2/consumer/{path_of(topic)}/s",
        sockopt=((socket.SOL_SOCKET, socket.SO_RCVBUF, 4096),),
    )
    large = "x" * 1000
    published(served, topic, *(large for _ in range(1500)))
    stats_url = f"{served.http_url}/admin/v2/proxy-stats/{path_of(topic)}/stats"
    with urllib.request.urlopen(stats_url) as answer:
        told = json.loads(answer.read())
    # Unless it acknowledges it is sent no more than so many.
    assert told["consumerStats"][0]["numberOfMsgDelivered"] <= 1000
    got = 0
    while got < 1500:
        message = heard(consumer)
        said(consumer, {"messageId": message["messageId"]})
        got += 1
    consumer.close()


def test_not_served_where_it_is_switched_off(start_server: StartServer, topic: str) -> None:
    server = start_server(webSocketServiceEnabled="false")
    assert refused(server, f"/ws/v2/producer/{path_of(topic)}") == 404


def test_encrypted_messages_come_as_they_are_to_who_wants_them(served: Server, topic: str) -> None:
    client = pulsar.Client(served.url)
    try:
        keys = pulsar.CryptoKeyReader(str(KEYS / "public.pem"), str(KEYS / "private.pem"))
        producer = client.create_producer(
            topic, encryption_key="test", crypto_key_reader=keys, batching_enabled=True
        )
        producer.send(b"secret")
    finally:
        client.close()
    reader = opened(served, f"/ws/v2/reader/{path_of(topic)}?messageId=earliest&cryptoFailureAction=CONSUME")
    message = heard(reader)
    assert b"secret" not in b64decode(message["payload"])
    assert list(message["encryptionContext"]["keys"]) == ["test"]
    assert (message["encryptionContext"]["compressionType"], message["encryptionContext"]["batchSize"]) == (
        "NONE",
        1,
    )
    reader.close()


def test_the_documented_conversation(served: Server, capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "websocket.md").read_text()
    code = text.split("```python\n")[1].split("```")[0]
    exec(code.replace("ws://localhost:8080", served.http_url.replace("http", "ws", 1)), {})
    printed = capsys.readouterr().out
    documented = text.split("```\n{")[1].split("```")[0]
    differing = re.compile('"messageId":"[^"]*"')
    assert differing.sub("", printed) == differing.sub("", "{" + documented)


def stored_compressed(server: Server, topic: str, *sizes: int) -> None:
    """Messages of zeros, as a producer of its own would send them."""
    client = Client(server.port)
    producer, _success = client.produce(topic)
    for index, size in enumerate(sizes):
        metadata = MessageMetadata(producer_name="raw", sequence_id=index, publish_time=1)
        metadata.compression = CompressionType.ZLIB
        metadata.uncompressed_size = size
        entry = build_entry(metadata, zlib.compress(bytes(size), 9))
        client.publish(producer, index, entry)
        client.take(BaseCommand.SEND_RECEIPT, producer_id=producer)
    client.close()


def test_large_compressed_messages_arrive_and_those_that_are_too_large_end_the_reader(served: Server) -> None:
    topic = "persistent://public/default/packed"
    sizes = (10, 8 << 20, 70_000, 8 << 20, 3)
    stored_compressed(served, topic, *sizes, 128 << 20)
    path = f"/ws/v2/reader/{path_of(topic)}?messageId=earliest"
    # Else the client looks at each byte, in Python, longer than the broker waits for it at the end.
    reader = opened(served, path, skip_utf8_validation=True)
    assert [len(b64decode(heard(reader)["payload"])) for _ in sizes] == list(sizes)
    code, frame = reader.recv_data_frame()
    while code == websocket.ABNF.OPCODE_PING:
        code, frame = reader.recv_data_frame(control_frame=True)
    assert code == websocket.ABNF.OPCODE_CLOSE
    assert frame.data[:2] == (1011).to_bytes(2, "big")
    assert b"134217728 bytes after decompression; at most 16777216" in frame.data


def test_readers_of_bombs_share_their_memory(served: Server) -> None:
    topic = "persistent://public/default/bombs"
    stored_compressed(served, topic, *[16 << 20] * 3)
    before = resident_mib(served)
    readers = [opened(served, f"/ws/v2/reader/{path_of(topic)}?messageId=earliest") for _ in range(12)]
    most = 0
    for _ in range(40):
        most = max(most, resident_mib(served) - before)
        time.sleep(0.05)
    assert most < 200
    for reader in readers:
        # Whoever goes lets the next one in.
        reader.sock.close()
    path = f"/ws/v2/reader/{path_of(topic)}?messageId=earliest"
    last = opened(served, path, skip_utf8_validation=True)
    assert len(b64decode(heard(last)["payload"])) == 16 << 20
    last.close()


def resident_mib(server: Server) -> int:
    [line] = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{server.pid}/status").read_text())
    return int(line) // 1024
