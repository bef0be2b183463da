"""The commands that initialize metadata make what Apache's own commands make, node by node."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bookkeeper_servers import setup_options
from java_servers import java
from kazoo.client import KazooClient
from zookeeper_server import ZooKeeperServer

_APACHE = "org.apache.pulsar.PulsarClusterMetadataSetup"
_APACHE_COORDINATORS = "org.apache.pulsar.PulsarTransactionCoordinatorMetadataSetup"
_EVERYTHING = [
    *(
        "--web-service-url-tls",
        "https://127.0.0.1:8443",
        "--broker-service-url-tls",
        "pulsar+ssl://127.0.0.1:6651",
    ),
    *("--tls-enable", "--proxy-url", "pulsar://127.0.0.1:7000", "--proxy-protocol", "SNI"),
    *("--auth-plugin", "x.Y", "--auth-parameters", "a:b", "--default-namespace-bundle-number", "4"),
    *("--initial-num-stream-storage-containers", "300", "--initial-num-transaction-coordinators", "3"),
]


def ours(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "magnetar.cli.magnetar", "initialize-cluster-metadata", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def client(zookeeper: ZooKeeperServer) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper.address)
    client.start()
    yield client
    client.stop()
    client.close()


def tree(client: KazooClient, root: str) -> dict[str, Any]:
    """Every node below a root with what it holds, JSON as what it says."""
    found: dict[str, Any] = {}

    def walk(path: str) -> None:
        value, _stat = client.get(path)
        name = path.removeprefix(root)
        found[name] = json.loads(value) if value.startswith(b"{") else value
        for child in client.get_children(path):
            walk(f"{path}/{child}")

    walk(root)
    return found


def comparable(nodes: dict[str, Any], root: str) -> dict[str, Any]:
    """Without what is made by chance, or by the library that made it."""
    compared = dict(nodes)
    assert len(compared.pop("/ledgers/INSTANCEID")) == 36
    for path in ("/stream", "/stream/servers", "/stream/servers/available"):
        # Apache's library writes its own machine's address into parents that it makes.
        compared[path] = b""
    for path in ("/stream/storage", "/pulsar/functions"):
        compared[path] = compared[path].replace(root.encode(), b"")
    return compared


@pytest.mark.parametrize("more", [[], _EVERYTHING], ids=["plain", "everything"])
def test_both_commands_make_the_same_nodes(
    zookeeper: ZooKeeperServer, client: KazooClient, tmp_path: Path, more: list[str]
) -> None:
    made = {}
    for who in ("apache", "ours"):
        name = f"/{who}{len(more)}"
        roots = [f"{name}/local", f"{name}/shared"]
        options = [*setup_options(*(f"zk:{zookeeper.address}{root}" for root in roots)), *more]
        if who == "apache":
            subprocess.run([*java(tmp_path), _APACHE, *options], check=True, capture_output=True)
        else:
            assert ours(*options).returncode == 0
        made[who] = (comparable(tree(client, roots[0]), roots[0]), tree(client, roots[1]))
    assert made["ours"] == made["apache"]


def test_both_commands_add_the_same_coordinators(
    zookeeper: ZooKeeperServer, client: KazooClient, tmp_path: Path
) -> None:
    made = {}
    for who in ("apache", "ours"):
        store = f"{zookeeper.address}/coordinators-{who}"
        options = [*("--cluster", "lab", "--configuration-store"), f"zk:{store}"]
        options += ["--initial-num-transaction-coordinators", "5"]
        if who == "apache":
            subprocess.run([*java(tmp_path), _APACHE_COORDINATORS, *options], check=True, capture_output=True)
        else:
            command = [sys.executable, "-m", "magnetar.cli.magnetar"]
            command += ["initialize-transaction-coordinator-metadata", *options]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            assert done.stdout == "Cluster lab has 5 transaction coordinators\n"
        made[who] = tree(client, f"/coordinators-{who}")
    assert made["ours"] == made["apache"]


def test_a_second_time_changes_nothing(zookeeper: ZooKeeperServer, client: KazooClient) -> None:
    root = f"zk:{zookeeper.address}/twice"
    assert ours(*setup_options(root, root)).returncode == 0
    first = tree(client, "/twice")
    again = ours(*setup_options(root, root))
    assert (again.returncode, again.stdout) == (0, "The metadata of cluster lab is initialized\n")
    assert tree(client, "/twice") == first


def test_the_older_names_of_the_options(zookeeper: ZooKeeperServer, client: KazooClient) -> None:
    store = f"{zookeeper.address}/older"
    assert ours("-c", "lab", "-zk", store, "-cs", store, "-uw", "http://127.0.0.1:8080").returncode == 0
    assert "/older/admin/clusters/lab".removeprefix("/older") in tree(client, "/older")


def test_another_address_of_the_cluster_is_refused_and_nothing_changes(
    zookeeper: ZooKeeperServer, client: KazooClient
) -> None:
    root = f"zk:{zookeeper.address}/other"
    assert ours(*setup_options(root, root)).returncode == 0
    before = tree(client, "/other")
    refused = ours("-c", "lab", "-md", root, "-cms", root, "-uw", "http://elsewhere:8080")
    assert refused.returncode == 1
    assert "/admin/clusters/lab" in refused.stderr
    assert "serviceUrl" in refused.stderr
    assert "http://elsewhere:8080" in refused.stderr
    assert tree(client, "/other") == before


def test_a_second_cluster_joins_what_clusters_share(zookeeper: ZooKeeperServer, client: KazooClient) -> None:
    shared = f"zk:{zookeeper.address}/joined/shared"
    for name in ("east", "west"):
        local = f"zk:{zookeeper.address}/joined/{name}"
        done = ours("-c", name, "-md", local, "-cms", shared, "-uw", f"http://{name}:8080")
        assert done.returncode == 0, done.stderr
    nodes = tree(client, "/joined/shared")
    assert nodes["/admin/policies/public"]["allowedClusters"] == ["east", "west"]
    assert nodes["/admin/policies/public/default"]["replication_clusters"] == ["east", "west"]


def test_without_zookeeper_it_says_so() -> None:
    refused = ours(*setup_options("zk:127.0.0.1:1", "etcd://elsewhere"))
    assert refused.returncode == 1
    assert "etcd" in refused.stderr
