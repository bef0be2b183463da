"""Brokers, and what stands before them, on a ZooKeeper that wants TLS, certificates and users."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pulsar
import pytest
from bookkeeper_servers import CLUSTER, BookKeeperServers, setup_options
from certificates import Authority, Pair
from cluster_broker import BrokerProcess
from java_servers import listens
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl
from ports import free_port
from proxy_process import ProxyProcess
from websocket_process import WebSocketProcess

from magnetar.io.real import real_io
from magnetar.metadata.interface import MetadataRefused
from magnetar.metadata.zookeeper.address import ensemble_address
from magnetar.metadata.zookeeper.messages import NotAllowed
from magnetar.metadata.zookeeper.store import ZooKeeperMetadataStore
from magnetar.server.cluster_access import session_settings, zookeeper_access

PASSWORD = "br:ö ker"
POLICIES = "/admin/policies/public/default"


class Secured(NamedTuple):
    servers: BookKeeperServers
    address: str
    """Of the listener with TLS."""
    own: str
    """A certificate with its key that the server takes."""
    trust: str
    client: str
    """The file for clients of it."""
    password: str
    """The file with the user who may read the policies."""


def in_one_file(pair: Pair, path: Path) -> str:
    path.write_text(Path(pair.key).read_text() + Path(pair.certificate).read_text())
    return str(path)


def client_file(path: Path, trust: str, own: str = "") -> str:
    lines = ["zookeeper.client.secure=true", f"zookeeper.ssl.trustStore.location={trust}"]
    lines += [f"zookeeper.ssl.keyStore.location={own}"] * bool(own)
    path.write_text("\n".join(lines))
    return str(path)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder)
    server = in_one_file(authority.server(hosts=("127.0.0.1",)), folder / "server.pem")
    own = in_one_file(authority.client("broker"), folder / "own.pem")
    password = folder / "user"
    password.write_text(f"broker:{PASSWORD}\n")
    servers, port = BookKeeperServers(folder, bookies=1), free_port()
    lines = {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "secureClientPort": port,
        "secureClientPortAddress": "127.0.0.1",
        "ssl.keyStore.location": server,
        "ssl.trustStore.location": authority.trust,
        "ssl.clientAuth": "need",
    }
    servers.zookeeper.set(**lines)
    try:
        servers.start()
        assert listens(port)
        guard(servers, POLICIES)
        client = client_file(folder / "client.conf", authority.trust, own)
        yield Secured(servers, f"127.0.0.1:{port}", own, authority.trust, client, f"file://{password}")
    finally:
        servers.close()


def guard(servers: BookKeeperServers, path: str) -> None:
    """Nobody but the user gets at a node any more."""
    client = KazooClient(servers.zookeeper.address)
    client.start()
    try:
        client.set_acls(path, [make_digest_acl("broker", PASSWORD, all=True)])
    finally:
        client.stop()
        client.close()


def value_of(address: str, path: str, config: str, password: str = "") -> bytes:
    """As a process reads it that opens ZooKeeper by such a file and user."""

    async def scenario() -> bytes:
        access = zookeeper_access("config", config, session_settings(5000, password))
        outside = access.outside(real_io(asyncio.get_running_loop(), Path("/")))
        place = ensemble_address(address)
        store = await ZooKeeperMetadataStore.open_store(outside, place, access.session, wait_seconds=3)
        try:
            node = await store.get(path)
            assert node is not None
            return node.value
        finally:
            await store.close()

    return asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_broker_a_proxy_and_websockets_serve_on_it(secured: Secured, tmp_path: Path) -> None:
    """What the broker cannot read without its user is the policies of the namespace."""
    store = f"zk:{secured.address}"
    one = {f"managedLedgerDefault{name}": 1 for name in ("EnsembleSize", "WriteQuorum", "AckQuorum")}
    own = {"magnetarZooKeeperConfigPath": secured.client, "magnetarZooKeeperPassword": secured.password}
    broker = BrokerProcess(
        tmp_path / "broker",
        secured.servers,
        metadataStoreUrl=store,
        metadataStoreConfigPath=secured.client,
        magnetarZooKeeperPassword=secured.password,
        **one,
    )
    proxy = ProxyProcess(tmp_path / "proxy", metadataStoreUrl=store, **own)
    websockets = WebSocketProcess(
        tmp_path / "websockets", configurationMetadataStoreUrl=store, clusterName=CLUSTER, **own
    )
    try:
        broker.start()
        proxy.start()
        # Where brokers are it has read there.
        websockets.start()
        client = pulsar.Client(proxy.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        try:
            client.create_producer("secured").send(b"by TLS")
            reader = client.create_reader("secured", pulsar.MessageId.earliest)
            assert reader.read_next(10_000).data() == b"by TLS"
        finally:
            client.close()
        assert PASSWORD not in broker.log
    finally:
        for each in (websockets, proxy, broker):
            each.close()


def test_a_cluster_is_set_up_on_it(secured: Secured, tmp_path: Path) -> None:
    apart = f"zk:{secured.address}/apart"
    command = [sys.executable, "-m", "magnetar.cli.magnetar", "initialize-cluster-metadata"]
    command += [*setup_options(apart, apart), "--zookeeper-password", secured.password]
    options = ["--metadata-store-config-path", secured.client]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert b"127.0.0.1" in value_of(apart, f"/admin/clusters/{CLUSTER}", secured.client)
    path = tmp_path / "missing"
    done = subprocess.run([*command, "-mscp", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert (
        f"cannot initialize the cluster: --metadata-store-config-path: {path} cannot be read" in done.stderr
    )


def test_a_node_that_only_a_user_reads_is_read_by_that_user(secured: Secured, tmp_path: Path) -> None:
    assert b"bundles" in value_of(secured.address, POLICIES, secured.client, secured.password)
    for password in ("", "broker:another", "stranger:x"):
        with pytest.raises(NotAllowed, match=POLICIES):
            value_of(secured.address, POLICIES, secured.client, password)


def test_a_server_that_somebody_else_vouches_for_is_told_nothing(secured: Secured, tmp_path: Path) -> None:
    trust = Authority(tmp_path, "other").trust
    with pytest.raises(MetadataRefused, match="certificate verify failed"):
        value_of(secured.address, "/", client_file(tmp_path / "client.conf", trust, secured.own))


def test_who_shows_no_certificate_is_refused_by_the_server(secured: Secured, tmp_path: Path) -> None:
    with pytest.raises(MetadataRefused, match=r"alert (bad certificate|certificate required)"):
        value_of(secured.address, "/", client_file(tmp_path / "client.conf", secured.trust))


def test_who_does_not_begin_with_tls_is_refused_by_the_server(secured: Secured) -> None:
    with pytest.raises(MetadataRefused, match=secured.address):
        value_of(secured.address, "/", "")
