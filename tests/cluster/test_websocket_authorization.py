"""WebSockets without a broker read where brokers are, and who may do what, in what clusters share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import websocket
from kazoo.client import KazooClient
from secured import SUPERUSER, SecuredServer, token
from websocket_process import WebSocketProcess
from zookeeper_server import ZooKeeperServer

TOPIC = "persistent/public/default/granted"
_PROVIDER = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    running = SecuredServer(tmp_path_factory.mktemp("secured"))
    try:
        running.start()
        yield running
    finally:
        running.close()


def policies(**roles: list[str]) -> bytes:
    grants = {"namespace_auth": roles, "destination_auth": {}, "subscription_auth_roles": {}}
    return json.dumps({"auth_policies": grants}).encode()


def status(beside: WebSocketProcess, path: str, role: str) -> int:
    header = {"Authorization": f"Bearer {token(role)}"}
    try:
        websocket.create_connection(beside.urls["ws"] + path, timeout=20, header=header).close()
    except websocket.WebSocketBadStatusException as error:
        return int(error.status_code)
    return 101


def opened(beside: WebSocketProcess, path: str, proof: str) -> websocket.WebSocket:
    header = {"Authorization": f"Bearer {proof}"}
    return websocket.create_connection(beside.urls["ws"] + path, timeout=20, header=header)


def close_code(one: websocket.WebSocket) -> int:
    kind, frame = one.recv_data_frame()
    assert kind == websocket.ABNF.OPCODE_CLOSE
    return int.from_bytes(frame.data[:2], "big")


def test_what_clusters_share_says_who_may_and_where_brokers_are(
    broker: SecuredServer, zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    client = KazooClient(zookeeper.address)
    client.start()
    beside = WebSocketProcess(
        tmp_path,
        clusterName="here",
        configurationMetadataStoreUrl=f"zk:{zookeeper.address}",
        brokerClientAuthenticationPlugin="org.apache.pulsar.client.impl.auth.AuthenticationToken",
        brokerClientAuthenticationParameters=f"token:{token(SUPERUSER)}",
        authenticationEnabled="true",
        authenticationProviders=_PROVIDER,
        tokenSecretKey=f"file://{broker.folder}/secret",
        authorizationEnabled="true",
        superUserRoles=SUPERUSER,
    )
    try:
        cluster = json.dumps({"brokerServiceUrl": broker.url}).encode()
        client.create("/admin/clusters/here", cluster, makepath=True)
        client.create("/admin/policies/public", b'{"adminRoles":["boss"]}', makepath=True)
        client.create("/admin/policies/public/default", policies(reader=["consume"], writer=["produce"]))
        beside.start()
        producer, consumer = f"/ws/v2/producer/{TOPIC}", f"/ws/v2/consumer/{TOPIC}/s"
        asked = {
            (path, role): status(beside, path, role)
            for path in (producer, consumer)
            for role in ("reader", "writer", "boss", "nobody", SUPERUSER)
        }
        assert {key for key, answer in asked.items() if answer == 101} == {
            (producer, "writer"),
            (consumer, "reader"),
            *((path, role) for path in (producer, consumer) for role in ("boss", SUPERUSER)),
        }
        assert set(asked.values()) == {101, 403}
        # Topics in parameters want what topics in paths want.
        dead = f"{consumer}?subscriptionType=Shared&maxRedeliverCount=1&deadLetterTopic=persistent://"
        asked = {
            (topic, role): status(beside, dead + topic, role)
            for topic in ("public/default/dead", "other/space/dead")
            for role in ("reader", "writer", "boss", SUPERUSER)
        }
        assert {key for key, answer in asked.items() if answer == 101} == {
            ("public/default/dead", "boss"),
            *((topic, SUPERUSER) for topic in ("public/default/dead", "other/space/dead")),
        }
        assert set(asked.values()) == {101, 403}
        # What is granted while it runs counts, also for WebSockets that are open; so does the end of a token.
        open_ones = [
            opened(beside, producer, token("writer")),
            opened(beside, consumer + "-of-one", token("reader")),
        ]
        short = opened(beside, producer, token(SUPERUSER, 2))
        client.set("/admin/policies/public/default", policies(writer=["consume"]))
        for _ in range(200):
            if status(beside, producer, "writer") == 403:
                break
        assert (status(beside, producer, "writer"), status(beside, consumer, "writer")) == (403, 101)
        assert [close_code(one) for one in (*open_ones, short)] == [1008, 1008, 1008]
    finally:
        beside.close()
        client.stop()
        client.close()
