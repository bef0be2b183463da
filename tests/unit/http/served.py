"""A broker on a simulated world, asked over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from world import World

from magnetar.broker.admin.all import Admin
from magnetar.broker.dispatch.contract import DispatchSettings
from magnetar.broker.namespaces.registry import bootstrap
from magnetar.broker.service import BrokerService
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.stats.figures import MetricsSnapshot
from magnetar.broker.stats.snapshot import take_snapshot
from magnetar.broker.stats.topic_board import TopicBoard
from magnetar.broker.topics.persistent import Topic, TopicSettings
from magnetar.broker.transactions import TransactionSettings
from magnetar.http.engine.message import Request, Response
from magnetar.http.metrics.rendering import MetricsOptions
from magnetar.http.routing import Access, Application, Process
from magnetar.http.server import HttpServer
from magnetar.io.wheel import TimerWheel
from magnetar.naming.topic_name import TopicName

TOPIC = "persistent://public/default/t"
LEGACY = "persistent://sample/standalone/ns1/t"
URLS = ("http://127.0.0.1:8080", "pulsar://127.0.0.1:6650")


class Served:
    """Has one topic, :data:`TOPIC`, and its legacy sister."""

    def __init__(self, *, transactions: bool = False) -> None:
        """:param transactions: coordinator 0 is loaded, and has transactions (0,0) and (0,1)"""
        self.world = World()
        io = self.world.simulation.io
        self.world.run(bootstrap(self.world.metadata, "standalone", *URLS, 4))
        topic = TopicSettings(
            DispatchSettings(), transactions=TransactionSettings() if transactions else None
        )
        known = BrokerSettings(
            "standalone",
            URLS[1],
            URLS[0],
            topic,
            broker_id="127.0.0.1:8080",
            metadata_url="sqlite:metadata",
            runtime={"clusterName": "standalone"},
        )
        wheel = TimerWheel(io.loop)
        self.broker = BrokerService(io, wheel, self.world.metadata, self.world.managed, known)
        if self.broker.coordinators is not None:
            self.world.run(self.broker.coordinators.start())
            coordinator = self.world.run(self.broker.coordinators.connect(0))
            for _ in range(2):
                self.world.run(coordinator.begin(600_000, None))
        self.ready = True
        self.health_error: Exception | None = None
        self.checked: list[bool] = []
        """How its health was asked for."""
        self.bookies: list[str] = []
        process = Process(
            lambda: self.ready, self._check, known.runtime, self._storage, self._figures, self._bookies
        )
        self.http = HttpServer(io)
        self._application = Application(
            Admin(self.broker), process, MetricsOptions("0"), "1.2.3", "standalone"
        )
        self.http.serve(self._application)
        for name in (TOPIC, LEGACY):
            self.topic(name)

    @contextmanager
    def access(self, access: Access) -> Iterator[None]:
        """Goes by other rules of who is let in, and to what."""
        self.http.serve(replace(self._application, access=access))
        try:
            yield
        finally:
            self.http.serve(self._application)

    def watched_by(self, board: TopicBoard) -> None:
        """From now on pages may watch it."""
        process = replace(self._application.process, board=board)
        self._application = replace(self._application, process=process)
        self.http.serve(self._application)

    async def _bookies(self) -> list[str]:
        return self.bookies

    async def _check(self, newer_name: bool) -> None:
        self.checked.append(newer_name)
        if self.health_error is not None:
            raise self.health_error

    async def _storage(self, namespace: str | None) -> dict[str, Any]:
        return {"namespace": namespace}

    async def _figures(self) -> MetricsSnapshot:
        return await take_snapshot(self.broker)

    def topic(self, name: str) -> Topic:
        return self.world.run(self.broker.topics.load(TopicName.parse(name), create=True))

    def ask(
        self,
        method: str,
        path: str,
        body: str = "",
        query: dict[str, str] | None = None,
        content_type: str = "application/json",
        *,
        secure: bool = False,
    ) -> Response:
        headers = {"content-type": content_type}
        request = Request(method, path, query or {}, headers, body.encode(), secure=secure)
        return self.world.run(self.http.answer(request))

    def get(self, path: str) -> Any:
        return answer(self.ask("GET", path))


def answer(response: Response) -> Any:
    return json.loads(response.body) if response.body else None
