"""WebSockets of a broker that asks who its clients are."""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import websocket
from secured import SUPERUSER, SecuredServer, token
from websocket_talk import payload

TOPIC = "persistent/public/default/secured"
_PLUGIN = "org.apache.pulsar.client.impl.auth.AuthenticationToken"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    running = SecuredServer(
        tmp_path_factory.mktemp("secured"),
        brokerClientAuthenticationPlugin=_PLUGIN,
        brokerClientAuthenticationParameters=f"token:{token(SUPERUSER)}",
    )
    try:
        running.start()
        granted(running, "reader", "consume")
        granted(running, "writer", "produce")
        granted(running, "both", "produce", "consume")
        yield running
    finally:
        running.close()


def granted(server: SecuredServer, role: str, *actions: str) -> None:
    admin(server, "POST", f"/namespaces/public/default/permissions/{role}", actions)


def admin(server: SecuredServer, method: str, path: str, body: Any = None) -> Any:
    """What the superuser's request is answered."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token(SUPERUSER)}"}
    data = None if body is None else json.dumps(body).encode()
    url = f"{server.http_url}/admin/v2{path}"
    with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method)) as response:
        answer = response.read()
    return json.loads(answer) if answer else None


def status(server: SecuredServer, path: str, role: str | None, *, in_query: bool = False) -> int:
    url = server.http_url.replace("http", "ws", 1) + path
    header = {}
    if role is not None and in_query:
        url += ("&" if "?" in url else "?") + f"token={token(role)}"
    elif role is not None:
        header = {"Authorization": f"Bearer {token(role)}"}
    try:
        websocket.create_connection(url, timeout=20, header=header).close()
    except websocket.WebSocketBadStatusException as error:
        return int(error.status_code)
    return 101


@pytest.mark.parametrize(
    ("path", "may"),
    [
        (f"/ws/v2/producer/{TOPIC}", "writer"),
        (f"/ws/v2/consumer/{TOPIC}/s", "reader"),
        (f"/ws/v2/reader/{TOPIC}", "reader"),
        (f"/ws/v3/consumer/v3?topics={TOPIC.replace('/', '://', 1)}", "reader"),
        ("/ws/v3/consumer/v4?topicsPattern=persistent://public/default/sec.*", "reader"),
    ],
)
def test_who_may_is_let_in_and_nobody_else(secured: SecuredServer, path: str, may: str) -> None:
    other = "reader" if may == "writer" else "writer"
    assert status(secured, path, None) == 401
    assert status(secured, path, other) == 403
    assert status(secured, path, other, in_query=True) == 403
    assert status(secured, path, may) == 101
    assert status(secured, path, may, in_query=True) == 101


def test_names_of_replicators_are_not_for_everybody(secured: SecuredServer) -> None:
    path = f"/ws/v2/producer/{TOPIC}?producerName=pulsar.repl.east--%3Estandalone"
    assert status(secured, path, "writer") == 403
    assert status(secured, path, SUPERUSER) == 101


def test_one_that_may_not_of_several_topics(secured: SecuredServer) -> None:
    topics = f"{TOPIC.replace('/', '://', 1)},persistent://public/elsewhere/t"
    assert status(secured, f"/ws/v3/consumer/v3?topics={topics}", "reader") == 403


@pytest.mark.parametrize(
    ("path", "statuses"),
    [
        (
            f"/ws/v2/consumer/{TOPIC}/dead?maxRedeliverCount=1&deadLetterTopic=persistent://public/default/dead",
            (403, 101),
        ),
        (f"/ws/v2/consumer/{TOPIC}/dead?subscriptionType=Shared&maxRedeliverCount=1", (403, 101)),
        (
            f"/ws/v2/consumer/{TOPIC}/dead?maxRedeliverCount=1&deadLetterTopic=persistent://public/elsewhere/dead",
            (403, 403),
        ),
        (f"/ws/v2/consumer/{TOPIC}/dead?maxRedeliverCount=1&deadLetterTopic=dead/letters", (400, 400)),
        (f"/ws/v2/consumer/{TOPIC}/x%2Fy?subscriptionType=Shared&maxRedeliverCount=1", (403, 403)),
        (
            "/ws/v3/consumer/dead?topicsPattern=persistent://public/default/sec.*"
            "&subscriptionType=Shared&maxRedeliverCount=1",
            (403, 101),
        ),
        ("/ws/v3/consumer/s?topicsPattern=persistent://public/default/x/.*", (400, 400)),
    ],
)
def test_dead_letters_go_only_where_the_user_may_publish(
    secured: SecuredServer, path: str, statuses: tuple[int, int]
) -> None:
    assert (status(secured, path, "reader"), status(secured, path, "both")) == statuses


def test_no_dead_letter_reaches_a_topic_the_user_may_not_publish_to(secured: SecuredServer) -> None:
    """A topic with partitions has other default names for dead letters than the request tells."""
    admin(secured, "PUT", "/persistent/public/default/parted/partitions", 1)
    admin(secured, "PUT", "/persistent/public/default/parted-buried-DLQ")
    for topic in ("parted", "parted-buried-DLQ"):
        actions = ["produce", "consume"]
        admin(secured, "POST", f"/persistent/public/default/{topic}/permissions/split", actions)
    url = secured.http_url.replace("http", "ws", 1)
    header = {"Authorization": f"Bearer {token('split')}"}
    consumer = websocket.create_connection(
        f"{url}/ws/v2/consumer/persistent/public/default/parted/buried?subscriptionType=Shared"
        "&maxRedeliverCount=1&negativeAckRedeliveryDelay=50",
        timeout=20,
        header=header,
    )
    producer = websocket.create_connection(
        f"{url}/ws/v2/producer/persistent/public/default/parted", timeout=20, header=header
    )
    producer.send(json.dumps({"payload": payload("x")}))
    assert json.loads(producer.recv())["result"] == "ok"
    counts = []
    for _ in range(4):
        message = json.loads(consumer.recv())
        counts.append(message["redeliveryCount"])
        consumer.send(json.dumps({"type": "negativeAcknowledge", "messageId": message["messageId"]}))
    assert counts == [0, 1, 2, 3]
    topics = admin(secured, "GET", "/persistent/public/default")
    assert [name for name in topics if "-DLQ" in name] == ["persistent://public/default/parted-buried-DLQ"]
    consumer.close()
    producer.close()


def test_over_tls(secured: SecuredServer) -> None:
    url = secured.https_url.replace("https", "wss", 1)
    producer = websocket.create_connection(
        f"{url}/ws/v2/producer/{TOPIC}?token={token('writer')}",
        timeout=20,
        sslopt={"cert_reqs": ssl.CERT_REQUIRED, "ca_certs": str(secured.authority.trust)},
    )
    producer.send(json.dumps({"payload": payload("x")}))
    assert json.loads(producer.recv())["result"] == "ok"
    producer.close()


def test_a_broker_that_is_not_let_in_by_itself_says_so(tmp_path: Path) -> None:
    running = SecuredServer(tmp_path)
    try:
        running.start()
        url = running.http_url.replace("http", "ws", 1)
        with pytest.raises(websocket.WebSocketBadStatusException) as error:
            websocket.create_connection(f"{url}/ws/v2/producer/{TOPIC}?token={token(SUPERUSER)}", timeout=20)
        assert error.value.status_code == 401
        assert b"brokerClientAuthenticationPlugin" in error.value.resp_body
    finally:
        running.close()
