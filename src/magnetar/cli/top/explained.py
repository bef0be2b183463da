"""The explanation of one topic, which a thread keeps up to date while the screen shows it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from textwrap import wrap

from magnetar.admin_client.client import topic_path
from magnetar.admin_client.errors import AdminError
from magnetar.admin_client.http import AdminHttp
from magnetar.cli.explain import text
from magnetar.naming.name_rules import InvalidName

_AGAIN_SECONDS = 2.0
_LEAST_WIDTH = 20


class Explained:
    """The explanation of one topic, as ``magnetar explain`` prints it, and the scroll position."""

    def __init__(self, http: AdminHttp, topic: str, changed: Callable[[], None]) -> None:
        """:param changed: called in the thread when the explanation has changed"""
        self.topic = topic
        self.trouble = ""
        """Why the explanation could not be updated; empty: it is up to date."""
        self.top = 0
        """Index of the first line on the screen."""
        self._http = http
        self._changed = changed
        self._found: dict[str, object] | None = None
        self._over = threading.Event()
        threading.Thread(target=self._ask, name="explain", daemon=True).start()

    def close(self) -> None:
        self._over.set()

    def lines(self, width: int) -> list[str]:
        """Returns the explanation in lines of at most ``width`` columns. Until an explanation has arrived,
        returns one line, which says that the broker is being asked, or no line if :attr:`trouble` is set.
        """
        if self._found is None:
            return [] if self.trouble else ["The broker is asked…"]
        found = []
        for line in text(self._found).rstrip("\n").split("\n"):
            indent = " " * (len(line) - len(line.lstrip()) + 2)
            found += wrap(line, max(width, _LEAST_WIDTH), subsequent_indent=indent) or [""]
        return found

    def pressed(self, key: str, rows: int, width: int) -> bool:
        """Handles a key: scrolls, or returns True if the key leads back to the list of topics.

        :param rows: number of lines on the screen
        """
        if key in ("escape", "q"):
            return True
        end = max(0, len(self.lines(width)) - rows)
        steps = {"up": -1, "down": 1, "page up": -rows, "page down": rows, "home": -self.top, "end": end}
        self.top = min(max(0, self.top + steps.get(key, 0)), end)
        return False

    def _ask(self) -> None:
        while not self._over.is_set():
            try:
                found: Mapping[str, object] = self._http.ask("GET", f"{topic_path(self.topic)}/explain")
                self._found, self.trouble = dict(found), ""
            except (AdminError, InvalidName) as error:
                self.trouble = str(error)
            self._changed()
            self._over.wait(_AGAIN_SECONDS)
