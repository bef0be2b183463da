"""Publishes from the tasks themselves, at least once: a repeated task sends everything again."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType

from magnetar.client import client as core
from magnetar.client.aio import Client
from magnetar.io.real.loop_thread import LoopThread
from magnetar.spark.options import QueryOptions
from magnetar.spark.writing.cutting import CutEntry
from magnetar.spark.writing.publishing import TopicPublisher, open_producer

__all__ = ["DirectPublisher"]


class DirectPublisher:
    """A blocking publisher; its connections run in a separate thread, so that slow rows do not end them."""

    def __init__(self, options: QueryOptions) -> None:
        self._options = options
        self._thread = LoopThread("spark")
        self._publishers: dict[str, TopicPublisher] = {}
        self._client: core.Client | None = None

    def partitions(self, topic: str) -> int:
        """Returns the number of a topic's partitions; 0: not partitioned."""
        return self._thread.run(self._partitions(topic))

    def publish(self, entries: Iterable[CutEntry]) -> None:
        """Publishes entries; returns when all are sent, and all except a window of them are confirmed.

        :raises NotPublished: the cluster does not accept an entry
        """
        self._thread.run(self._publish(entries))

    def finish(self) -> None:
        """Returns when all entries are confirmed.

        :raises NotPublished: the cluster does not accept an entry
        """
        self._thread.run(self._finish())

    async def _opened(self) -> core.Client:
        if self._client is None:
            self._client = Client(self._options.service_url, **self._options.client)
        return self._client

    async def _partitions(self, topic: str) -> int:
        return await (await self._opened()).partitions(topic)

    async def _publish(self, entries: Iterable[CutEntry]) -> None:
        client = await self._opened()
        for entry in entries:
            publisher = self._publishers.get(entry.topic)
            if publisher is None:
                producer = await open_producer(client, self._options, entry.topic, None, entry.schema)
                publisher = self._publishers[entry.topic] = TopicPublisher(producer, 0, -1)
            await publisher.put(entry)

    async def _finish(self) -> None:
        for publisher in self._publishers.values():
            await publisher.finish()

    async def _close(self) -> None:
        if self._client is not None:
            await self._client.close()

    def __enter__(self) -> DirectPublisher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._thread.run(self._close())
        finally:
            self._thread.close()
