"""The views of the dashboard: a list of topics, or one topic.

Each open page shows one view, and receives it as a stream of events.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from magnetar.broker.stats.assembled import StatsSelection
from magnetar.broker.stats.topic_board import MOST_LINES, MOST_WATCHERS, Listed, TopicBoard, TopicOrder
from magnetar.errors import BrokerError, InvalidRequest, ServedElsewhere, ServiceNotReady
from magnetar.http.engine.message import Request, Response, json_response
from magnetar.http.routing import Application
from magnetar.http.shapes.fields import whole
from magnetar.http.shapes.names import namespace_of, topic_of
from magnetar.io.interfaces import Future
from magnetar.io.waiting import settle

_STUCK_LINES = 12
"""Maximum number of stuck topics in the overview."""
MOST_CLIENTS = 50
"""Maximum length of each list: the producers and the subscriptions of a topic, and the consumers of a
subscription.
"""
_MOST_WORDS = 8
_HEADERS = (("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"))
MOST_TICKS = 15
"""After this number of events (half a minute), a page must reconnect, so that its user is authorized
again.
"""
Show = Callable[[], Awaitable[Mapping[str, object]]]
EVENTS_TYPE = "text/event-stream"
HEARTBEAT = b":\n\n"
"""A comment line of the stream, which shows that nothing has changed and that the connection is alive."""


class Views:
    """The event streams of the dashboard pages that one HTTP server serves."""

    def __init__(self) -> None:
        self._shown = Shown()

    async def overview(self, application: Application, _request: Request) -> Response:
        board = _board(application)

        async def show() -> Mapping[str, object]:
            stuck = board.page(Listed(order=TopicOrder.WAITING, stuck=True), 0, _STUCK_LINES)
            return {**_broker(application, board), "history": board.history(), "stuck": stuck}

        return self._opened(board, "overview", show)

    async def topics(self, application: Application, request: Request) -> Response:
        """Returns a stream of events with topics; with ``broker=true``, each event also has the overview of
        the broker, for clients that use only one connection.

        :raises InvalidRequest: a parameter is not valid
        """
        board = _board(application)
        listed = _listed(request)
        with_broker = request.flag("broker")
        if with_broker and listed.namespace:
            # A role with permission for one namespace must not see the traffic of all.
            raise InvalidRequest(
                "the query parameter 'broker' can only be used for the topics of all namespaces"
            )
        first = max(0, _number(request, "first", 0))
        count = min(max(1, _number(request, "count", MOST_LINES)), MOST_LINES)

        async def show() -> Mapping[str, object]:
            page = board.page(listed, first, count)
            return {"broker": _broker(application, board), **page} if with_broker else page

        return self._opened(board, f"topics {listed} {first} {count} {with_broker}", show)

    async def topic(self, application: Application, request: Request) -> Response:
        """Returns a stream of events with the statistics of a topic and the reasons why messages wait.

        :raises TopicNotFound: the topic does not exist
        """
        board = _board(application)
        topic = topic_of(request.variables)
        try:
            await application.admin.brokers.check_here(topic)
        except ServedElsewhere as error:
            url = (error.http_url_tls if request.secure else error.http_url) or error.http_url
            answer = json_response({"reason": str(error), "url": url}, HTTPStatus.MISDIRECTED_REQUEST)
            # A browser does not follow Location, so the page shows a link to the other broker. A proxy does.
            return replace(answer, headers=[("Location", f"{url}{request.target}")]) if url else answer

        async def show() -> Mapping[str, object]:
            if await application.admin.partitions.count(topic, create=False):
                return {"topic": topic, "partitions": await application.admin.partitions.describe(topic)}
            explained = await application.admin.explaining.explain(topic, None)
            stats = await application.admin.topics.stats(topic, StatsSelection())
            return {
                "topic": topic,
                "stats": _shortened(stats),
                "explain": _explained(explained),
                "history": board.history_of(topic),
                "latency": board.latency_of(topic),
                "replication": board.replication_of(topic),
            }

        # Before the first event, so that a missing topic is answered with a status.
        await show()
        return self._opened(board, f"topic {topic}", show)

    def _opened(self, board: TopicBoard, key: str, show: Show) -> Response:
        viewing = Viewing(board, self._shown, key, show)
        return Response(HTTPStatus.OK, content_type=EVENTS_TYPE, headers=_HEADERS, streamed=viewing)


def _board(application: Application) -> TopicBoard:
    board = application.process.board
    if board is None:
        raise ServiceNotReady("This process serves no topics")
    return board


def _broker(application: Application, board: TopicBoard) -> Mapping[str, object]:
    return {
        "cluster": application.cluster,
        "version": application.version,
        "serviceUrl": board.service_url,
        "started": board.started_ms,
        "totals": board.totals(),
    }


def _listed(request: Request) -> Listed:
    namespace = namespace_of(request.variables) if "namespace" in request.variables else ""
    words = tuple(request.query.get("words", "").lower().split()[:_MOST_WORDS])
    try:
        order = TopicOrder(request.query.get("order", TopicOrder.NAME.value))
    except ValueError:
        orders = ", ".join(each.value for each in TopicOrder)
        raise InvalidRequest(f"order must be one of {orders}, not {request.query['order']!r}") from None
    return Listed(namespace, words, order, request.flag("stuck"))


def _number(request: Request, name: str, default: int) -> int:
    text = request.query.get(name)
    return default if text is None else int(whole()(name, text))


def _shortened(stats: Mapping[str, Any]) -> Mapping[str, object]:
    """Returns statistics of a topic with lists of at most :data:`MOST_CLIENTS` items; ``publisherCount`` and
    ``consumerCount`` are still the complete numbers.
    """
    publishers, subscriptions = stats["publishers"], stats["subscriptions"]
    return {
        **stats,
        "publisherCount": len(publishers),
        "publishers": publishers[:MOST_CLIENTS],
        "subscriptionCount": len(subscriptions),
        "subscriptions": {
            name: {
                **each,
                "consumerCount": len(each["consumers"]),
                "consumers": each["consumers"][:MOST_CLIENTS],
            }
            for name, each in list(subscriptions.items())[:MOST_CLIENTS]
        },
    }


def _explained(explained: Mapping[str, Any]) -> Mapping[str, object]:
    subscriptions = explained["subscriptions"]
    return {**explained, "subscriptions": dict(list(subscriptions.items())[:MOST_CLIENTS])}


class Shown:
    """The current event of each view; open pages with the same view share it."""

    def __init__(self) -> None:
        self._tick = -1
        self._made: dict[str, bytes] = {}

    async def of(self, board: TopicBoard, key: str, show: Show, *, anew: bool) -> bytes:
        """Returns the encoded event of a view; all pages that request it between two updates of the board get
        the same event.

        :param anew: whether to create a new event even if the view has a current event, because the user may
            just have changed something
        """
        if board.ticks != self._tick:
            self._tick, self._made = board.ticks, {}
        made = None if anew else self._made.get(key)
        if made is None:
            made = encoded(await show())
            if len(self._made) < MOST_WATCHERS:
                self._made[key] = made
        return made


class Viewing:
    """The stream of events of one open page; see :class:`magnetar.http.engine.message.Streamed`."""

    def __init__(self, board: TopicBoard, shown: Shown, key: str, show: Show) -> None:
        """:param key: identifies the view, so that pages share its events
        :param show: returns the contents of the next event
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
    """Encodes an object as JSON on one line."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def event(kind: str, data: bytes) -> bytes:
    """Encodes a server-sent event, as the HTML standard defines it.

    :param data: one line, such as JSON without white space
    """
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), data)
