"""Table views: the latest value of each key of a topic, kept up to date."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.client.attachment import Services
from magnetar.client.exceptions import AlreadyClosed, PulsarException
from magnetar.client.message import Message, Value
from magnetar.client.reader import Reader
from magnetar.client.statements import ClosedByAsyncWith
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import report

Listener = Callable[[str, Value], object]
"""Called in the client's event loop with a key and its new payload (empty after a deletion) or, if the view's
schema decodes values, its new value (None after a deletion).
"""


class TableView(ClosedByAsyncWith):
    """A mapping from each key of a topic to its newest payload or decoded value; see
    ``Client.create_table_view``.
    """

    def __init__(self, services: Services, topic: str, reader: Reader, *, has_values: bool) -> None:
        """:param reader: a reader at the first message of the compacted topic; the view closes this reader

        :param has_values: whether the reader's schema decodes values; otherwise the view maps keys to
            payloads
        """
        self._loop = services.io.loop
        self._reader = reader
        self._tasks = TaskScope(self._loop, f"table view of {topic}")
        self._values: dict[str, Value] = {}
        """The newest value or payload of each key; an exception stands for a value that cannot be decoded."""
        self._deleted = None if has_values else b""
        self._listeners: list[Listener] = []

    async def open(self) -> None:
        """Reads all present messages of the topic; then reads later messages in the background.

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
        key = message.partition_key()
        value: Value = self._deleted
        if message.data():
            try:
                value = self._values[key] = message.value()
            except PulsarException as error:
                value = self._values[key] = error
        else:
            self._values.pop(key, None)
        for listener in self._listeners:
            try:
                listener(key, _readable(value))
            except Exception as error:  # noqa: BLE001 - reported; the view goes on
                report(self._loop, listener, error)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def get(self, key: str) -> Value:
        """Returns the newest payload of a key, or the decoded value if the view has a schema of
        ``magnetar.client.schemas``; None if the topic has no message with this key.

        :param key: the ``partition_key`` of messages
        :raises InvalidMessage: the payload does not match the schema
        :raises PulsarException: the schema with which the message was written could not be looked up
        """
        return _readable(self._values.get(key))

    def contents(self) -> dict[str, Value]:
        """Returns a copy of the mapping: the newest payload or decoded value of each key.

        :raises PulsarException: as for :meth:`get`, for any of the keys
        """
        return {key: _readable(value) for key, value in tuple(self._values.items())}

    def listen(self, listener: Listener) -> dict[str, Value]:
        """Calls ``listener`` for each later change; returns a copy of the mapping before these changes.

        :param listener: called with a key and its new payload (empty after a deletion) or, with a schema, its
            new value (None after a deletion). The listener must not block
        :raises PulsarException: as for :meth:`contents`; the listener is then not registered
        """
        before = self.contents()
        self._listeners.append(listener)
        return before

    async def close(self) -> None:
        """Closes the view. Idempotent.

        :raises PulsarException: the broker refused
        """
        await self._reader.close()
        await self._tasks.close()


def _readable(value: Value) -> Value:
    """Returns a stored value; if an exception is stored in its place, raises the exception.

    :raises PulsarException: the value cannot be decoded
    """
    if isinstance(value, PulsarException):
        raise value
    return value
