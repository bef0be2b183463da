"""Ends publishing while there is no room for more, so that consumers can drain what is there.

The storage says when; here it is told to producers in the way of backlog quotas, which clients understand:
they are closed, and on coming back get an error with the reason.
"""

from __future__ import annotations

import logging
from typing import Any

from magnetar.broker.publishing.hindrances import Hindrance
from magnetar.broker.serving.topics import ServedTopics
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.broker.topics.persistent import Topic
from magnetar.errors import QuotaExceeded
from magnetar.io.slices import let_others

log = logging.getLogger(__name__)


class StorageGate:
    """One for all persistent topics of a broker."""

    def __init__(self, served: ServedTopics) -> None:
        self.refused = 0
        """Producers that were refused or closed since the broker started."""
        self._served = served
        self._reason = ""
        self._wanted = False
        """It was shut, and producers were not looked at since: some may have come while it was open."""
        self._closing: Any = None

    @property
    def reason(self) -> str:
        """Why nothing is stored; empty: there is room."""
        return self._reason

    def shut(self, reason: str) -> None:
        """Closes all producers of persistent topics, and lets none in."""
        self._reason = reason
        self._wanted = True
        self._begin_closing()

    def _begin_closing(self) -> None:
        if self._closing is None and self._wanted and self._reason:
            self._wanted = False
            self._closing = self._served.io.loop.create_task(self._close_producers())
            self._closing.add_done_callback(self._closed)

    def open(self) -> None:
        """Clients come back by themselves."""
        self._reason = ""

    def check_producer(self, topic: AnyTopic) -> None:
        """:raises QuotaExceeded: there is no room"""
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

    def _closed(self, task: Any) -> None:
        self._closing = None
        if task.cancelled():
            return
        if task.exception() is not None:
            log.error("producers are not closed although there is no room", exc_info=task.exception())
        self._begin_closing()
