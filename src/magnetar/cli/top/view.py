"""The state of the view, and its changes by keys."""

from __future__ import annotations

from dataclasses import dataclass, replace

from magnetar.cli.top.asking import TopicSelection
from magnetar.cli.top.flags import MOST

ORDER_KEYS = {"n": "name", "i": "in", "o": "out", "b": "backlog", "w": "waiting"}
_MOST_LETTERS = 200
"""Largest length of a filter."""


@dataclass(frozen=True, slots=True)
class View:
    order: str
    namespace: str = ""
    words: str = ""
    top: int = 0
    """Index of the first line on the screen."""
    typed: str | None = None
    """The filter that is being typed."""

    def pressed(self, key: str, rows: int, total: int) -> View:
        """:param key: a letter, or a name of :mod:`magnetar.cli.top.keys`, such as ``up`` or ``enter``

        :param rows: number of lines for topics on the screen
        """
        if self.typed is not None:
            return self._typing(self.typed, key)
        if key in ORDER_KEYS:
            return replace(self, order=ORDER_KEYS[key], top=0)
        if key == "/":
            return replace(self, typed=self.words)
        if key == "escape":
            return replace(self, words="", top=0)
        end = max(0, total - rows)
        wanted = {
            "up": self.top - 1,
            "down": self.top + 1,
            "page up": self.top - rows,
            "page down": self.top + rows,
            "home": 0,
            "end": end,
        }.get(key)
        return self if wanted is None else replace(self, top=min(max(0, wanted), end))

    def within(self, rows: int, total: int) -> View:
        """Returns the view scrolled so that no lines after the last topic are empty."""
        return replace(self, top=min(self.top, max(0, total - rows)))

    def _typing(self, typed: str, key: str) -> View:
        if key == "enter":
            return replace(self, words=" ".join(typed.split()), typed=None, top=0)
        if key == "escape":
            return replace(self, typed=None)
        if key == "backspace":
            return replace(self, typed=typed[:-1])
        if len(key) == 1 and key.isprintable() and len(typed) < _MOST_LETTERS:
            return replace(self, typed=typed + key)
        return self

    def asked(self, rows: int) -> TopicSelection:
        """Returns a selection with more topics than the screen shows, so that scrolling needs fewer requests.

        :param rows: 1 to :data:`MOST`
        """
        step = max(1, MOST - rows)
        return TopicSelection(self.order, MOST, self.top - self.top % step, self.words, self.namespace)
