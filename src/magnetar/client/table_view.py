"""Table views: the latest content of each key of a topic, kept up to date."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.client.attachment import Services
from magnetar.client.exceptions import AlreadyClosed
from magnetar.client.message import Message
from magnetar.client.reader import Reader
from magnetar.client.statements import ClosedByAsyncWith
from magnetar.io.tasks import TaskScope

Listener = Callable[[str, bytes], object]
"""Called in the client's loop with a key and its new content; empty: the key was deleted."""


class TableView(ClosedByAsyncWith):
    """The contents of a topic by key; see ``Client.create_table_view``."""

    def __init__(self, services: Services, topic: str, reader: Reader) -> None:
        """:param reader: reads the compacted topic from its first message; the view closes it"""
        self._loop = services.io.loop
        self._reader = reader
        self._tasks = TaskScope(self._loop, f"table view of {topic}")
        self._contents: dict[str, bytes] = {}
        self._listeners: list[Listener] = []

    async def open(self) -> None:
        """Reads the messages that the topic has now; later ones are read in the background.

        :raises PulsarException: the topic cannot be read
        """
        while await self._reader.has_message_available():
            self._apply(await self._reader.read_next())
        self._tasks.start(self._follow(), "reading the topic", may_fail=True)

    async def _follow(self) -> None:
        try:
            while True:
                self._apply(await self._reader.read_next())
        except AlreadyClosed:
            return

    def _apply(self, message: Message) -> None:
        if not message.has_partition_key():
            return
        key, content = message.partition_key(), message.data()
        if content:
            self._contents[key] = content
        else:
            self._contents.pop(key, None)
        for listener in self._listeners:
            listener(key, content)

    def __len__(self) -> int:
        return len(self._contents)

    def get(self, key: str) -> bytes | None:
        """Returns the content of a key; None: the topic has no message with it.

        :param key: the ``partition_key`` of messages
        """
        return self._contents.get(key)

    def contents(self) -> dict[str, bytes]:
        """Returns a copy of all contents by key."""
        return dict(self._contents)

    def listen(self, listener: Listener) -> dict[str, bytes]:
        """Calls ``listener`` for each later change, and returns a copy of the contents before them.

        :param listener: called with a key and its new content, empty if the key was deleted; it must not
            block
        """
        self._listeners.append(listener)
        return self.contents()

    async def close(self) -> None:
        """Closes the view. Idempotent.

        :raises PulsarException: the broker refused
        """
        await self._reader.close()
        await self._tasks.close()
