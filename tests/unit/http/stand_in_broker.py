"""A broker made of plain values, for tests of the HTTP side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from magnetar import errors
from magnetar.http.services import (
    Json,
    LookupAnswer,
    MessageIdAnswer,
    MetricsSnapshot,
    StatsOptions,
)


class StandInBroker:
    """Knows one topic, ``persistent://public/default/t``, and its legacy sister; notes what it was asked."""

    def __init__(self) -> None:
        self.admin: Any = _Admin(self)
        self.ready = True
        self.health_error: Exception | None = None
        self.asked: list[tuple[object, ...]] = []
        self.known = {
            "persistent://public/default/t",
            "persistent://sample/standalone/ns1/t",
        }
        self.snapshot = MetricsSnapshot(cluster="standalone", broker="127.0.0.1")

    def need(self, topic: str) -> None:
        if topic not in self.known:
            raise errors.TopicNotFound(f"Topic {topic} not found")

    def is_ready(self) -> bool:
        return self.ready

    async def check_health(self) -> None:
        if self.health_error is not None:
            raise self.health_error

    def broker_ids(self) -> Sequence[str]:
        return ["127.0.0.1:8080"]

    def leader(self) -> Json:
        return {"brokerId": "127.0.0.1:8080", "serviceUrl": "http://127.0.0.1:8080"}

    def internal_configuration(self) -> Json:
        return {"metadataStoreUrl": "sqlite:metadata"}

    def runtime_settings(self) -> Mapping[str, str]:
        return {"clusterName": "standalone"}

    async def clusters(self) -> Sequence[str]:
        return ["standalone"]

    async def cluster(self, name: str) -> Json:
        if name != "standalone":
            raise errors.ClusterNotFound("Cluster does not exist")
        return {"serviceUrl": "http://127.0.0.1:8080"}

    async def tenants(self) -> Sequence[str]:
        return ["public", "sample"]

    async def tenant(self, name: str) -> Json:
        if name not in ("public", "sample"):
            raise errors.TenantNotFound("Tenant does not exist")
        return {"adminRoles": [], "allowedClusters": ["standalone"]}

    async def namespaces(self, tenant: str) -> Sequence[str]:
        await self.tenant(tenant)
        return [f"{tenant}/default"]

    async def topics(self, namespace: str, *, mode: str, system: bool) -> Sequence[str]:
        if namespace not in ("public/default", "sample/standalone/ns1"):
            raise errors.NamespaceNotFound("Namespace does not exist")
        return sorted(name for name in self.known if name.startswith(f"persistent://{namespace}/"))

    async def partitioned_topics(self, namespace: str, *, persistent_ones: bool) -> Sequence[str]:
        return [f"persistent://{namespace}/p"]

    async def lookup(self, topic: str, *, authoritative: bool, listener: str | None) -> LookupAnswer:
        self.asked.append(("lookup", topic, authoritative, listener))
        if "/elsewhere/" in topic:
            return LookupAnswer("pulsar://other:6650", "http://other:8080", redirect=True)
        return LookupAnswer("pulsar://127.0.0.1:6650", "http://127.0.0.1:8080")

    async def bundle(self, topic: str) -> str:
        return "0x00000000_0x40000000"

    async def partitions(self, topic: str, *, create: bool) -> int:
        self.need(topic)
        return 3 if create else 0

    async def create_topic(self, topic: str, properties: Mapping[str, str]) -> None:
        self.asked.append(("create", topic, dict(properties)))
        if topic in self.known:
            raise errors.AlreadyExists("This topic already exists")

    async def topic_stats(self, topic: str, options: StatsOptions) -> Json:
        self.need(topic)
        return {"msgRateIn": 0.0, "precise": options.precise_backlog, "name": topic}

    async def internal_stats(self, topic: str, *, metadata: bool) -> Json:
        self.need(topic)
        return {"state": "LedgerOpened", "metadata": metadata}

    async def unload(self, topic: str) -> None:
        self.need(topic)
        self.asked.append(("unload", topic))

    async def terminate(self, topic: str) -> MessageIdAnswer:
        self.need(topic)
        return MessageIdAnswer(6, -1)

    async def metrics(self) -> MetricsSnapshot:
        return self.snapshot


class _Admin:
    """What operators ask, as far as the tests of HTTP do."""

    def __init__(self, broker: StandInBroker) -> None:
        self.namespaces = _Namespaces()
        self.topics = _Topics(broker)
        self.partitions = _Partitions(broker)


class _Namespaces:
    async def policies(self, namespace: str) -> Json:
        return {"namespace": namespace}


class _Topics:
    def __init__(self, broker: StandInBroker) -> None:
        self._broker = broker

    async def delete(self, topic: str, *, force: bool) -> None:
        self._broker.need(topic)
        self._broker.asked.append(("delete", topic, force))


class _Partitions:
    def __init__(self, broker: StandInBroker) -> None:
        self._broker = broker

    async def create(self, topic: str, partitions: int, properties: Mapping[str, str]) -> None:
        self._broker.asked.append(("create partitioned", topic, partitions, dict(properties)))
        if partitions < 1:
            raise errors.PartitionCountRefused("Number of partitions should be more than 0")

    async def delete(self, topic: str, *, force: bool) -> None:
        self._broker.asked.append(("delete partitioned", topic, force))
