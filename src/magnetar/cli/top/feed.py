"""Follows the events of a broker in a thread, on one connection that is reopened when it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from magnetar.admin_client.errors import AdminError
from magnetar.admin_client.events import EventStream
from magnetar.admin_client.http import AdminHttp
from magnetar.cli.top.asking import Shown, TopicSelection, opened, shown

RETRY_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest event, which replaces earlier ones."""

    asked: TopicSelection
    shown: Shown
    trouble: str = ""
    """Why no newer events arrive; empty: the connection works."""


class Feed:
    """The feed; its thread ends with the process."""

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
        """Changes the selection. :attr:`told` may still have an event of the former one."""
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
        """Follows events until the connection ends; returns whether there were any. A broker ends it at
        intervals, to authenticate the client again."""
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
