"""One open page: the events that it gets at each tick until its end."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping

from magnetar.broker.stats.topic_board import MOST_WATCHERS, TopicBoard
from magnetar.errors import BrokerError
from magnetar.http.engine.events import HEARTBEAT, event
from magnetar.io.interfaces import Future
from magnetar.io.waiting import settle

MOST_TICKS = 15
"""After half a minute a page reconnects, and its user is authenticated and authorized again."""

Show = Callable[[], Awaitable[Mapping[str, object]]]


class Shown:
    """Events of open pages, kept for one tick: pages with the same view share them."""

    def __init__(self) -> None:
        self._tick = -1
        self._made: dict[str, bytes] = {}

    async def of(self, board: TopicBoard, key: str, show: Show, *, anew: bool) -> bytes:
        """:param anew: ignore earlier events, because the user may just have changed something"""
        if board.ticks != self._tick:
            self._tick, self._made = board.ticks, {}
        made = None if anew else self._made.get(key)
        if made is None:
            made = encoded(await show())
            if len(self._made) < MOST_WATCHERS:
                self._made[key] = made
        return made


class Viewing:
    """See :class:`magnetar.http.engine.message.Streamed`."""

    def __init__(self, board: TopicBoard, shown: Shown, key: str, show: Show) -> None:
        """:param key: identifies the view

        :raises TooManyRequests: too many pages are open
        """
        board.enter()
        self._board = board
        self._shown = shown
        self._key = key
        self._show = show
        self._left = MOST_TICKS
        self._last = b""
        self._tick: Future[None] | None = None
        self._closed = False

    async def next(self) -> bytes:
        tick = self._tick
        if tick is None:
            await self._board.looked()
        else:
            await tick
        if self._closed or not self._left:
            return b""
        self._left -= 1
        self._tick = self._board.next_tick()
        try:
            data = await self._shown.of(self._board, self._key, self._show, anew=tick is None)
        except BrokerError as error:
            self._left = 0
            return event("gone", encoded({"reason": str(error), "status": error.http_status}))
        if data == self._last:
            return HEARTBEAT
        self._last = data
        return event("shown", data)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._board.leave()
        if self._tick is not None:
            settle(self._tick)


def encoded(value: Mapping[str, object]) -> bytes:
    """Returns JSON on one line."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
