"""The official client's table views."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from magnetar.client import table_view
from magnetar.io.real.loop_thread import CallThread
from magnetar.pulsar.boundary import Calls
from magnetar.pulsar.schema.schema import Schema

log = logging.getLogger("magnetar.client.pulsar")
KeyListener = Callable[[str, object], object]


class KeyTable:
    """A table view: the latest value of each key of a topic, kept up to date; see
    ``Client.create_table_view``.
    """

    def __init__(
        self,
        calls: Calls,
        view: table_view.TableView,
        thread: CallThread,
        topic: str,
        subscription: str | None,
        schema: Schema,
    ) -> None:
        """:param thread: the thread that calls the listeners"""
        self._calls = calls
        self._view = view
        self._thread = thread
        self._topic = topic
        self._subscription = subscription
        self._schema = schema

    def get(self, key: str) -> object:
        """Returns the value of a key; None: the topic has no message with this key."""
        content = self._view.get(key)
        return None if content is None else self._schema.decode(content)

    def for_each(self, callback: KeyListener) -> None:
        """Calls ``callback(key, value)`` for each key in the view."""
        for key, content in self._calls.run(self._contents()).items():
            callback(key, self._schema.decode(content))

    async def _contents(self) -> dict[str, bytes]:
        return self._view.contents()

    def for_each_and_listen(self, callback: KeyListener) -> None:
        """Calls ``callback(key, value)`` for each key in the view, and later, in another thread, for each
        change.
        """

        def call(key: str, content: bytes) -> None:
            try:
                callback(key, self._schema.decode(content))
            except Exception:
                log.exception("a message listener failed; it gets the next message")

        def changed(key: str, content: bytes) -> None:
            self._thread.start(partial(call, key, content))

        for key, content in self._calls.run(self._listen(changed)).items():
            callback(key, self._schema.decode(content))

    async def _listen(self, changed: table_view.Listener) -> dict[str, bytes]:
        return self._view.listen(changed)

    def close(self) -> None:
        """Closes the view. Idempotent."""
        if not self._calls.closed:
            self._calls.run(self._view.close())

    def __len__(self) -> int:
        return len(self._view)

    def __str__(self) -> str:
        if self._subscription is None:
            return f"TableView(topic={self._topic})"
        return f"TableView(topic={self._topic}, subscription={self._subscription})"

    __repr__ = __str__


TableView = KeyTable
"""The name of the class in the official client."""
