"""Requests live statistics from a broker, and receives its events in a thread."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from magnetar.admin_client.errors import AdminError, NotFound
from magnetar.admin_client.events import EventStream
from magnetar.admin_client.http import AdminHttp
from magnetar.naming.namespace_name import NamespaceName

RETRY_SECONDS = 2.0
_EVENTS = "/dashboard/events/topics"
_BROKER_HEADER = "Magnetar-Broker"
TIMEOUT_SECONDS = 20.0
"""The connection fails if no data arrives for this time, in seconds; brokers send data every two seconds."""
Shown = Mapping[str, Any]
"""An event of the broker: the statistics of the selected topics from index ``first`` on, and ``total``, the
number of all selected topics; without a namespace filter, also ``broker``, the statistics of the broker.
"""


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest event, and the selection of topics that it belongs to."""

    asked: TopicSelection
    shown: Shown
    trouble: str = ""
    """The reason why no newer events arrive; empty: the connection works."""


class Feed:
    """Receives a stream of events in a thread, which ends with the process."""

    def __init__(self, http: AdminHttp, first: Newest, changed: Callable[[], None]) -> None:
        """:param first: the first event

        :param changed: called in the thread when :attr:`told` has changed
        """
        self.told = first
        self._http = http
        self._changed = changed
        self._asked = first.asked
        self._asked_anew = threading.Event()
        self._stream: EventStream | None = None
        self._lock = threading.Lock()
        threading.Thread(target=self._follow, name="top", daemon=True).start()

    def ask(self, asked: TopicSelection) -> None:
        """Changes the selection of topics. Until an event for the new selection arrives, :attr:`told`
        contains an event for the previous selection.
        """
        if asked == self._asked:
            return
        with self._lock:
            self._asked = asked
            self._asked_anew.set()
            if self._stream is not None:
                self._stream.close()

    def _follow(self) -> None:
        while True:
            self._asked_anew.clear()
            asked = self._asked
            try:
                if self._listen(asked):
                    continue
                trouble = "the broker ended the stream without sending anything"
            except AdminError as error:
                trouble = str(error)
            if asked == self._asked:
                self._tell(Newest(self.told.asked, self.told.shown, trouble))
                self._asked_anew.wait(RETRY_SECONDS)

    def _listen(self, asked: TopicSelection) -> bool:
        """Receives events until the connection ends; returns whether any event arrived. The broker ends
        connections at intervals, so that clients authenticate again.
        """
        heard = False
        with opened(self._http, asked) as stream:
            with self._lock:
                self._stream = stream
                if asked != self._asked:
                    return True
            for told in shown(stream):
                if asked != self._asked:
                    return True
                heard = True
                self._tell(Newest(asked, self.told.shown if told is None else told))
        return heard or asked != self._asked

    def _tell(self, told: Newest) -> None:
        self.told = told
        self._changed()


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """The selection of topics that a broker's events must contain."""

    order: str
    count: int
    first: int = 0
    """Index of the first topic, from 0."""
    words: str = ""
    """Words separated by spaces, all of which must occur in the name of a topic."""
    namespace: str = ""
    """Name of a namespace; empty: all namespaces, and the broker's own statistics."""
    broker: str = ""
    """``host:port`` of the broker whose topics a proxy must return; empty: the proxy chooses a broker."""

    def path(self) -> str:
        """Returns the path of the topics in the admin interface.

        :raises InvalidName: the namespace name is not valid
        """
        return f"{_EVENTS}/{NamespaceName.parse(self.namespace)}" if self.namespace else _EVENTS

    def headers(self) -> dict[str, str]:
        return {_BROKER_HEADER: self.broker} if self.broker else {}

    def query(self) -> dict[str, str]:
        found = {"order": self.order, "first": str(self.first), "count": str(self.count)}
        if self.words:
            found["words"] = self.words
        if not self.namespace:
            found["broker"] = "true"
        return found


def opened(http: AdminHttp, asked: TopicSelection) -> EventStream:
    """Opens the stream of live statistics for the selected topics.

    :raises AdminError: the topics are not available; the error text gives the reason
    """
    try:
        return http.events(asked.path(), asked.query(), asked.headers())
    except NotFound as error:
        raise AdminError(
            f"{error}: the server has no live statistics. magnetar top requires a Magnetar broker "
            "with magnetarDashboardEnabled=true",
            error.reason,
            error.status,
        ) from error


def shown(stream: EventStream) -> Iterator[Shown | None]:
    """Yields the contents of each event; None for an event that says that nothing has changed.

    :raises AdminError: the broker ended the stream; the error text gives the reason
    """
    for kind, data in stream:
        if not kind:
            yield None
            continue
        try:
            told = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise AdminError(f"the broker sent an event that is not JSON: {error}") from error
        if not isinstance(told, dict):
            raise AdminError("the broker sent an event that is not a JSON object")
        if kind == "gone":
            raise AdminError(str(told.get("reason", "gone")))
        yield told


def first_shown(http: AdminHttp, asked: TopicSelection) -> Shown:
    """Connects, and returns the contents of the first event.

    :raises AdminError: the topics are not available
    """
    with opened(http, asked) as stream:
        for told in shown(stream):
            if told is not None:
                return told
    raise AdminError("the broker ended the event stream without sending data; try again")
