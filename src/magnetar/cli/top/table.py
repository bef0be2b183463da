"""Formats topics as lines of text, and keeps the state of the view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from magnetar.cli.explain import duration
from magnetar.cli.printable import cells, fitted, fitted_end, printable, size
from magnetar.cli.top.feed import Shown, TopicSelection
from magnetar.cli.top.flags import MOST

_NARROW = 90
"""On screens with fewer columns than this, the table omits the numbers of producers and consumers."""
_PHONE = 60
"""On screens with fewer columns than this, the backlog is the only number."""
_NUMBERS = (("in/s", 9), ("out/s", 9), ("backlog", 10))
_CLIENTS = (("prod", 5), ("cons", 5), ("subs", 5))
_LEAST_NAME = 12
_MOST_REPLICATION = 48
"""Maximum width of the replication lags on a screen, in columns; the largest lag comes first."""
ORDER_KEYS = {"n": "name", "i": "in", "o": "out", "b": "backlog", "w": "waiting"}
_MOST_LETTERS = 200
"""Maximum length of a filter, in characters."""


def place(shown: Shown, namespace: str) -> str:
    """Describes what the screen shows: the broker's cluster and service URL, or the namespace."""
    broker = shown.get("broker")
    return printable(namespace if broker is None else f"{broker['cluster']} {broker['serviceUrl']}")


def head(shown: Shown) -> str:
    """Returns the text of the first line: the broker's totals or, for a single namespace, its number of
    topics.
    """
    if "broker" not in shown:
        return f"topics {_whole(shown['total'])}"
    totals = shown["broker"]["totals"]
    asleep = f" (+{_whole(totals['notLoaded'])} not loaded)" if totals["notLoaded"] else ""
    return "   ".join(
        (
            f"in {rate(totals['rateIn'])} msg/s {size(totals['throughputIn'])}/s",
            f"out {rate(totals['rateOut'])} msg/s {size(totals['throughputOut'])}/s",
            f"topics {_whole(totals['topics'])}{asleep}",
            f"backlog {_whole(totals['backlog'])}",
            f"stuck {_whole(totals['waiting'])}",
        )
    )


def table(topics: Sequence[Mapping[str, Any]], width: int | None, now_ms: int) -> list[str]:
    """Returns the lines of the table: the titles, then a line for each topic.

    :param width: maximum width in columns; None: no limit
    :param now_ms: the present time, in milliseconds since 1970
    """
    numbers = _columns(width)
    names = [name(each["topic"]) for each in topics]
    longest = max((cells(each) for each in (*names, "topic")), default=0)
    behind = [replication_of(each) for each in topics]
    room = max((cells(each) for each in (*behind, "replication")), default=0) if any(behind) else 0
    if width is not None:
        # A blank follows each number, and the name.
        left = width - sum(columns + 1 for _, columns in numbers) - 1
        if room:
            room = min(room, _MOST_REPLICATION, max(_LEAST_NAME, left // 3))
            left -= room + 1
        waits = any("waiting" in each for each in topics)
        longest = max(_LEAST_NAME, min(longest, left * 3 // 5 if waits else left))
    titles = [title.rjust(columns) for title, columns in numbers]
    lag = (fitted("replication", room),) if room else ()
    lines = [" ".join((*titles, fitted("topic", longest), *lag, "waits"))]
    for each, named, lagging in zip(topics, names, behind, strict=True):
        lag = (fitted(lagging, room),) if room else ()
        figures = _figures(each)
        texts = (figures[title].rjust(columns) for title, columns in numbers)
        lines.append(" ".join((*texts, fitted_end(named, longest), *lag, waits_of(each, now_ms))))
    return [line.rstrip() if width is None else fitted(line, width) for line in lines]


def _columns(width: int | None) -> Sequence[tuple[str, int]]:
    """Returns the titles and widths of the columns that fit, except the column of topic names."""
    if width is None or width >= _NARROW:
        return _NUMBERS + _CLIENTS
    return _NUMBERS if width >= _PHONE else _NUMBERS[-1:]


def _figures(topic: Mapping[str, Any]) -> Mapping[str, str]:
    """Returns the texts of a topic's columns, by column title."""
    if not topic.get("loaded", True):
        return dict.fromkeys((title for title, _ in _NUMBERS + _CLIENTS), "-")
    counts = {"backlog": "backlog", "prod": "producers", "cons": "consumers", "subs": "subscriptions"}
    return {
        "in/s": rate(topic["rateIn"]),
        "out/s": rate(topic["rateOut"]),
        **{title: _whole(topic[field]) for title, field in counts.items()},
    }


def waits_of(topic: Mapping[str, Any], now_ms: int) -> str:
    """Returns the text on the waiting subscription with the largest backlog: its name and its reason; an
    empty string if no subscription waits.
    """
    waiting = topic.get("waiting")
    if waiting is None:
        return ""
    passed = duration(max(0, now_ms - waiting["since"]) / 1000)
    others = f", and {waiting['subscriptions'] - 1} more" if waiting["subscriptions"] > 1 else ""
    return (
        f"{printable(waiting['subscription'])}: {waiting['reason']} for {passed}, "
        f"{_whole(waiting['backlog'])} behind{others}"
    )


def replication_of(topic: Mapping[str, Any]) -> str:
    """Returns the text on replication: the lag of each remote cluster, in seconds and entries, largest first;
    an empty string without replication.
    """
    return "; ".join(
        f"{printable(each['cluster'])} {duration(each['lagSeconds'])}, {_whole(each['backlog'])}"
        + ("" if each["connected"] else " (disconnected)")
        for each in topic.get("replication", ())
    )


def name(topic: str) -> str:
    """Returns a printable topic name without the prefix ``persistent://``."""
    return printable(topic.removeprefix("persistent://"))


def rate(per_second: float) -> str:
    """Formats a rate, with one decimal place if it is small."""
    return f"{per_second:.1f}" if per_second < 100 else f"{per_second:,.0f}"


def _whole(number: int) -> str:
    return f"{number:,}"


@dataclass(frozen=True, slots=True)
class View:
    """The user's choices: filters and the scroll position. Each key makes a new view."""

    order: str
    namespace: str = ""
    words: str = ""
    top: int = 0
    """Index of the topic in the first line on the screen."""
    mark: int = 0
    """Index of the marked line on the screen, from 0."""
    typed: str | None = None
    """The filter that the user is typing; None: no filter is being typed."""
    broker: str = ""
    """``host:port`` of the broker whose topics a proxy must return; empty: the proxy chooses a broker."""
    help: bool = False
    """Whether the screen explains keys and columns instead of showing topics."""

    def pressed(self, key: str, rows: int, total: int) -> View:
        """Returns the view that follows when the user presses a key.

        :param key: a letter, or a name of :mod:`magnetar.cli.top.screen`, such as ``up`` or ``enter``
        :param rows: number of lines for topics on the screen
        """
        if self.typed is not None:
            return self._typing(self.typed, key)
        if self.help or key == "?":
            return replace(self, help=not self.help)
        if key in ORDER_KEYS:
            return replace(self, order=ORDER_KEYS[key], top=0, mark=0)
        if key == "/":
            return replace(self, typed=self.words)
        if key == "escape":
            return replace(self, words="", top=0, mark=0)
        step = {"up": -1, "down": 1, "page up": -rows, "page down": rows, "home": -total, "end": total}.get(
            key
        )
        if step is None:
            return self
        chosen = min(max(0, self.top + self.mark + step), max(0, total - 1))
        # Pages scroll by a whole screen; other keys scroll only as far as the marked line needs.
        top = self.top + step if abs(step) == rows else min(max(self.top, chosen - rows + 1), chosen)
        top = min(max(0, top), max(0, total - rows))
        return replace(self, top=top, mark=chosen - top)

    def within(self, rows: int, total: int) -> View:
        """Returns the view, adjusted to the number of topics: the view ends at the last topic, and the marked
        line shows a topic.

        :param rows: number of lines for topics on the screen
        :param total: number of topics
        """
        top = min(self.top, max(0, total - rows))
        return replace(self, top=top, mark=max(0, min(self.mark, rows - 1, total - 1 - top)))

    def _typing(self, typed: str, key: str) -> View:
        if key == "enter":
            return replace(self, words=" ".join(typed.split()), typed=None, top=0, mark=0)
        if key == "escape":
            return replace(self, typed=None)
        if key == "backspace":
            return replace(self, typed=typed[:-1])
        if len(key) == 1 and key.isprintable() and len(typed) < _MOST_LETTERS:
            return replace(self, typed=typed + key)
        return self

    def asked(self, rows: int) -> TopicSelection:
        """Returns a selection with more topics than the screen shows, so that fewer requests are needed for
        scrolling.

        :param rows: number of lines for topics on the screen, from 1 to :data:`MOST`
        """
        step = max(1, MOST - rows)
        return TopicSelection(
            self.order, MOST, self.top - self.top % step, self.words, self.namespace, self.broker
        )
