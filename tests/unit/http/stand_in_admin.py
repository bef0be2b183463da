"""What tests of HTTP's own work ask of a broker: a few answers that need none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, cast

from magnetar.broker.admin.all import Admin
from magnetar.broker.stats.figures import MetricsSnapshot
from magnetar.http.metrics.rendering import MetricsOptions
from magnetar.http.routing import Application, Process
from magnetar.security.authentication import Principal
from magnetar.security.authorization import Operation


class StandInAdmin:
    """Clusters, tenants and partitioned topics; notes the topics that it was to make."""

    def __init__(self) -> None:
        self.clusters = Named("standalone")
        self.tenants = Named("public", "sample")
        self.partitions = Partitions()
        self.topics = Topics()
        self.brokers = Alone()
        self.snapshot = MetricsSnapshot(cluster="standalone", broker="127.0.0.1")

    def asked_by(self, _principal: Principal) -> StandInAdmin:
        return self

    def changed(self, _operation: Operation, _names: Mapping[str, str]) -> None:
        """Nobody reads it."""

    async def figures(self) -> MetricsSnapshot:
        return self.snapshot

    def application(self) -> Application:
        process = Process(lambda: True, _nothing, {}, _no_storage, self.figures, _no_bookies)
        return Application(cast(Admin, self), process, MetricsOptions("0"), "1")


async def _nothing(_newer_name: bool) -> None:
    """All is well."""


async def _no_bookies() -> list[str]:
    return []


async def _no_storage(_namespace: str | None) -> Mapping[str, Any]:
    return {}


class Alone:
    async def check_cluster(self, _topic: str) -> None:
        """It serves every namespace."""

    async def check_here(self, _topic: str, *, authoritative: bool) -> None:
        """Everything is."""


class Named:
    def __init__(self, *names: str) -> None:
        self._names = names

    async def names(self) -> Sequence[str]:
        return self._names

    async def get(self, name: str) -> Mapping[str, Any]:
        return {"name": name}


class Partitions:
    def __init__(self) -> None:
        self.made: list[tuple[str, int]] = []

    async def create(self, topic: str, partitions: int, properties: Mapping[str, str]) -> None:
        self.made.append((topic, partitions))


class Topics:
    async def seconds_unused(self, _topic: str) -> float:
        """None is deleted."""
        return inf
