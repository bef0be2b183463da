"""Stops publishing while storage is full, so that consumers can drain what is there.

The storage reports the condition. Producers see it like a backlog quota, which clients understand: they are
closed, and get an error with the reason when they reconnect.
"""

from __future__ import annotations

import logging

from magnetar.broker.publishing.hindrances import Hindrance
from magnetar.broker.serving.topics import ServedTopics
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.broker.topics.persistent import Topic
from magnetar.errors import QuotaExceeded
from magnetar.io.interfaces import Task
from magnetar.io.slices import let_others

log = logging.getLogger(__name__)


class StorageGate:
    """One gate for all persistent topics of a broker."""

    def __init__(self, served: ServedTopics) -> None:
        self.refused = 0
        """Producers that were refused or closed since the start of the broker."""
        self._served = served
        self._reason = ""
        self._wanted = False
        """The gate was shut, and producers have not been checked since: some may have connected while it was
        open."""
        self._closing: Task[None] | None = None

    @property
    def reason(self) -> str:
        """Why nothing is stored; empty while there is room."""
        return self._reason

    def shut(self, reason: str) -> None:
        """Closes all producers of persistent topics, and refuses new ones."""
        self._reason = reason
        self._wanted = True
        self._begin_closing()

    def _begin_closing(self) -> None:
        if self._closing is None and self._wanted and self._reason:
            self._wanted = False
            self._closing = self._served.io.loop.create_task(self._close_producers())
            self._closing.add_done_callback(self._closed)

    def open(self) -> None:
        """Opens the gate; clients reconnect by themselves."""
        self._reason = ""

    def check_producer(self, topic: AnyTopic) -> None:
        """:raises QuotaExceeded: storage is full"""
        if self._reason and isinstance(topic, Topic):
            self.refused += 1
            topic.hindered(Hindrance.STORAGE_FULL, self._reason)
            raise QuotaExceeded(self._reason)

    def stop(self) -> None:
        if self._closing is not None:
            self._closing.cancel()

    async def _close_producers(self) -> None:
        topics = self._served.topics.values()
        for topic in [each for each in topics if isinstance(each, Topic) and each.producers]:
            if not self._reason:
                return
            if not topic.closing:
                self.refused += len(topic.producers)
                topic.hindered(Hindrance.STORAGE_FULL, self._reason)
                await topic.close_producers_in_order()
            await let_others(self._served.io.loop)

    def _closed(self, task: Task[None]) -> None:
        self._closing = None
        if task.cancelled():
            return
        if task.exception() is not None:
            log.error("closing producers on a full disk failed", exc_info=task.exception())
        self._begin_closing()
