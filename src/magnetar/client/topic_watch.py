"""Watches a namespace: a broker reports at once when topics that match a pattern are created or deleted
(PIP-145).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from magnetar.client.attachment import Services
from magnetar.client.connection import Connection
from magnetar.client.exceptions import PulsarException, is_retryable
from magnetar.io.interfaces import Future
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.io.waiting import settle, sleep
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

log = logging.getLogger(__name__)


class TopicWatch:
    """Watches the topics of a namespace on one connection at a time. If the broker does not have this feature
    or refuses, the watch ends; the consumer's periodic checks then find the changes.
    """

    def __init__(
        self, services: Services, namespace: str, pattern: str, changed: Callable[[], object]
    ) -> None:
        """:param changed: called after each change, and after an interruption that can hide changes"""
        self._services = services
        self._loop = services.io.loop
        self._namespace = namespace
        self._pattern = pattern
        self._changed = changed
        self._id = services.new_id()
        self._lost: Future[None] | None = None
        self._connection: Connection | None = None
        self._tasks = TaskScope(self._loop, f"watch of {pattern}", owner_goes_on)

    def begin(self) -> None:
        """Starts to watch the namespace."""
        self._tasks.start(self._watch(), "watching topics")

    def end(self) -> None:
        """Stops watching, and closes the watcher at the broker."""
        self._tasks.cancel()
        connection, self._connection = self._connection, None
        if connection is None or connection.closed:
            return
        connection.wire.watchers.pop(self._id, None)
        command = BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST_CLOSE)
        command.watchTopicListClose.request_id = connection.wire.new_request_id()
        command.watchTopicListClose.watcher_id = self._id
        connection.wire.send(command)

    async def _watch(self) -> None:
        backoff = self._services.backoff()
        while True:
            try:
                connection = await self._services.lookup.connection()
                if not connection.wire.offers_topic_watches:
                    return
                await self._ask(connection)
                backoff.reset()
                self._changed()
                if self._lost is not None:
                    await self._lost
            except PulsarException as error:
                log.debug("cannot watch the topics of %s: %s", self._pattern, error)
                if not is_retryable(error):
                    return
            await sleep(self._loop, backoff.next())

    async def _ask(self, connection: Connection) -> None:
        """Sends WATCH_TOPIC_LIST, and waits for the answer.

        :raises PulsarException: the broker refused, or the connection was lost
        """
        wire = connection.wire
        self._connection, self._lost = connection, self._loop.create_future()
        wire.watchers[self._id] = self._told
        command = BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST)
        wanted = command.watchTopicList
        wanted.request_id = wire.new_request_id()
        wanted.watcher_id = self._id
        wanted.namespace = self._namespace
        wanted.topics_pattern = self._pattern
        try:
            await connection.ask(wanted.request_id, command, self._services.operation_timeout)
        except PulsarException:
            wire.watchers.pop(self._id, None)
            raise

    def _told(self, lost: PulsarException | None) -> None:
        """Called when topics were created or deleted, or when the connection is lost.

        :param lost: why the connection ended; None: topics were created or deleted
        """
        if lost is None:
            self._changed()
            return
        self._connection = None
        if self._lost is not None:
            settle(self._lost)
