import asyncio
import json
from collections.abc import Callable, Sequence

from magnetar.broker.namespaces.registry import bootstrap
from magnetar.metadata.interface import MUST_NOT_EXIST, BadVersion, Change, Node, SessionEvent


class NodesInMemory:
    """The metadata store's contract as far as this test needs it."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.puts = 0

    async def get(self, path: str) -> Node | None:
        return self.nodes.get(path)

    async def put(
        self,
        path: str,
        value: bytes,
        expected_version: int | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Node:
        parent = path.rpartition("/")[0]
        if parent and parent not in self.nodes:
            await self.put(parent, b"")
        old = self.nodes.get(path)
        found = MUST_NOT_EXIST if old is None else old.version
        if expected_version not in (None, found):
            raise BadVersion(path)
        self.nodes[path] = Node(path, value, found + 1, 0, 0, ephemeral)
        self.puts += 1
        return self.nodes[path]

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        del self.nodes[path]

    async def exists(self, path: str) -> bool:
        return path in self.nodes

    async def children(self, path: str) -> Sequence[str]:
        return sorted(name for at in self.nodes for up, _, name in [at.rpartition("/")] if up == path)

    def listen(self, listener: Callable[[Change], None]) -> None: ...

    def listen_session(self, listener: Callable[[SessionEvent], None]) -> None: ...

    async def close(self) -> None: ...

    def value(self, path: str) -> dict[str, object]:
        return dict(json.loads(self.nodes[path].value))


def run(store: NodesInMemory, http_url: str = "http://127.0.0.1:8080") -> None:
    asyncio.run(bootstrap(store, "standalone", http_url, "pulsar://127.0.0.1:6650", 4))


def test_a_fresh_store_gets_cluster_tenants_and_namespaces() -> None:
    store = NodesInMemory()
    run(store)
    assert store.value("/admin/clusters/standalone")["brokerServiceUrl"] == "pulsar://127.0.0.1:6650"
    for tenant in ("public", "sample"):
        expected = {"adminRoles": [], "allowedClusters": ["standalone"]}
        assert store.value(f"/admin/policies/{tenant}") == expected
    for namespace in ("public/default", "sample/standalone/ns1"):
        policies = store.value(f"/admin/policies/{namespace}")
        assert policies["replication_clusters"] == ["standalone"]
        assert policies["bundles"] == {
            "boundaries": ["0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"],
            "numBundles": 4,
        }
        local = store.value(f"/admin/local-policies/{namespace}")
        assert local["bundles"] == policies["bundles"]


def test_a_second_start_writes_nothing() -> None:
    store = NodesInMemory()
    run(store)
    before = store.puts
    run(store)
    assert store.puts == before


def test_what_was_changed_stays_and_addresses_follow() -> None:
    store = NodesInMemory()
    run(store)
    policies = {**store.value("/admin/policies/public/default"), "message_ttl_in_seconds": 5}
    asyncio.run(store.put("/admin/policies/public/default", json.dumps(policies).encode()))
    cluster = {**store.value("/admin/clusters/standalone"), "peerClusterNames": ["a"]}
    asyncio.run(store.put("/admin/clusters/standalone", json.dumps(cluster).encode()))
    run(store, "http://elsewhere:1")
    assert store.value("/admin/policies/public/default") == policies
    assert store.value("/admin/clusters/standalone") == {**cluster, "serviceUrl": "http://elsewhere:1"}
