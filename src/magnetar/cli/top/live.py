"""``magnetar top``: prints one table, or runs the interactive screen."""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import sys
import time

from magnetar.admin_client.errors import AdminError
from magnetar.admin_client.http import AdminHttp
from magnetar.cli.cluster_access import AccessRefused, cluster_access
from magnetar.cli.command_lines import access_values
from magnetar.cli.printable import printable
from magnetar.cli.streams import discard_output
from magnetar.cli.top import screen
from magnetar.cli.top.explained import Explained
from magnetar.cli.top.feed import TIMEOUT_SECONDS, Feed, Newest, Shown, TopicSelection, first_shown
from magnetar.cli.top.flags import MOST
from magnetar.cli.top.screen import ENDING, Keys, Signals
from magnetar.cli.top.table import View, head, place, table
from magnetar.exit_codes import FAILED, SUCCEEDED, ended_by
from magnetar.naming.name_rules import InvalidName

_ESCAPE_SECONDS = 0.05
"""Time in seconds after which an incomplete escape sequence is taken for the key Escape."""
_FOOT = (
    "i in  o out  b backlog  w waiting  n name   / filter  esc all   arrows, enter explain   ? help   q end"
)
_EXPLAINED_FOOT = "arrows, pages scroll   esc, q back to the topics"
_HELP = (
    "key, column     meaning",
    "i o b w n       order by rate in, rate out, backlog, time of waiting, name",
    "/  Escape       show topics with some words only; show all again",
    "arrows, pages   mark another topic; Home and End mark the first and the last",
    "Enter           explain why messages of the marked topic wait; Escape goes back",
    "q               end",
    "in/s  out/s     messages per second that producers send and consumers get",
    "backlog         entries that subscriptions have not acknowledged",
    "prod cons subs  numbers of producers, consumers and subscriptions (wide screens)",
    "replication     how far other clusters are behind, if the topic is replicated",
    "waits           the stuck subscription with the largest backlog, and why",
    "",
    "Enter shows what magnetar explain TOPIC prints: what to do about a subscription that waits.",
)
_READ_BYTES = 1024
_COUNT = 20


def watch(http: AdminHttp, view: View, first: Newest, most: int) -> int:
    """Runs the screen until the user quits; returns the exit code.

    :param most: maximum number of lines with topics
    """
    signals = Signals()
    live = _Live(view, http, Feed(http, first, signals.wake), signals, most)
    try:
        with signals.noted():
            while True:
                with screen.taken():
                    number = live.shown()
                if number != signal.SIGTSTP:
                    break
                # The terminal is restored; SIGCONT continues.
                os.kill(os.getpid(), signal.SIGSTOP)
    except OSError:
        # The terminal was closed.
        discard_output()
        number = signal.SIGHUP
    return SUCCEEDED if number in (None, signal.SIGINT) else ended_by(number)


class _Live:
    def __init__(self, view: View, http: AdminHttp, feed: Feed, signals: Signals, most: int) -> None:
        self._view = view
        self._http = http
        self._feed = feed
        self._signals = signals
        self._most = most
        self._keys = Keys()
        self._drawn = feed.told
        """The event that the screen shows."""
        self._explained: Explained | None = None
        """The explanation that is shown instead of the topics; None: topics are shown."""

    def shown(self) -> int | None:
        """Draws the screen and handles keys until the user quits or a signal arrives; returns the signal, or
        None if the user quit.
        """
        keyboard = sys.stdin.fileno()
        while True:
            self._draw()
            wait = _ESCAPE_SECONDS if self._keys.begun else None
            ready, _, _ = select.select([keyboard, self._signals.readable], [], [], wait)
            came = self._signals.take()
            for each in (*ENDING, signal.SIGTSTP):
                if each in came:
                    return each
            if keyboard in ready or not ready:
                data = os.read(keyboard, _READ_BYTES) if ready else b""
                if ready and not data:
                    return signal.SIGHUP
                if self._pressed(data):
                    return None

    def _rows(self) -> int:
        return min(screen.rows(), self._most)

    def _pressed(self, data: bytes) -> bool:
        """Handles keys; returns whether the user quit."""
        for key in self._keys.of(data):
            if self._explained is not None:
                if self._explained.pressed(key, screen.rows(), screen.size()[0]):
                    self._explained.close()
                    self._explained = None
                continue
            if key == "enter" and self._view.typed is None and not self._view.help:
                topic = self._marked()
                if topic:
                    self._explained = Explained(self._http, topic, self._signals.wake)
                continue
            if key == "q" and self._view.typed is None and not self._view.help:
                return True
            self._view = self._view.pressed(key, self._rows(), self._total(self._feed.told))
        return False

    def _marked(self) -> str:
        """Returns the name of the marked topic; empty if no topic is marked."""
        shown = self._drawn.shown
        index = self._view.top + self._view.mark - shown["first"]
        return str(shown["topics"][index]["topic"]) if 0 <= index < len(shown["topics"]) else ""

    def _total(self, told: Newest) -> int:
        """Returns the number of topics that can be scrolled through."""
        total = int(told.shown["total"])
        return total if self._most >= MOST else min(total, self._most)

    def _draw(self) -> None:
        if self._explained is not None:
            self._draw_explained(self._explained)
            return
        rows, told = self._rows(), self._feed.told
        asked = self._view.asked(rows)
        if told.asked == asked:
            self._view = self._view.within(rows, self._total(told))
            asked = self._view.asked(rows)
        self._feed.ask(asked)
        begin = max(0, self._view.top - told.shown["first"])
        topics = told.shown["topics"][begin : begin + rows]
        lines = table(topics, screen.size()[0], int(time.time() * 1000))
        self._drawn = told
        if self._view.help:
            screen.drawn(head(told.shown), "Keys and columns", _HELP, "any key: back to the topics")
            return
        screen.drawn(head(told.shown), self._status(told), lines, _FOOT, self._view.mark + 1)

    def _draw_explained(self, explained: Explained) -> None:
        width = screen.size()[0]
        explained.pressed("", screen.rows(), width)
        title = printable(f"magnetar explain {explained.topic}")
        status = printable(f"Outdated: {explained.trouble}; retrying") if explained.trouble else ""
        lines = explained.lines(width)[explained.top :]
        screen.drawn(title, status, ["Why messages wait", *lines], _EXPLAINED_FOOT)

    def _status(self, told: Newest) -> str:
        view = self._view
        if view.typed is not None:
            return f"/{view.typed}_   Enter: only topics with these words, Escape: as before"
        if told.trouble:
            return printable(f"Outdated: {told.trouble}; retrying")
        total = told.shown["total"]
        found = f"{total:,} topics with {view.words}" if view.words else f"{total:,} topics"
        at = f", from {view.top + 1:,} on" if view.top else ""
        return printable(f"{place(told.shown, view.namespace)}   by {view.order}: {found}{at}")


def run_top(parsed: argparse.Namespace) -> int:
    """Runs ``magnetar top``; returns the exit code: 0 success, also after an interrupt; 1 the topics are not
    available; after a signal that ended the program, 128 plus its number.
    """
    where = "the broker"
    try:
        access = cluster_access(access_values(parsed))
        where = access.admin_url
        http = access.http(timeout_seconds=TIMEOUT_SECONDS)
        namespace = parsed.namespace or ""
        if not (parsed.once or parsed.output == "json"):
            from magnetar.cli.top.screen import at_terminal, rows

            if at_terminal():
                from magnetar.cli.top.feed import Newest
                from magnetar.cli.top.table import View

                view, most = View(parsed.order, namespace, broker=parsed.broker), parsed.count or MOST
                asked = view.asked(min(rows(), most))
                return watch(http, view, Newest(asked, first_shown(http, asked)), most)
        asked = TopicSelection(
            parsed.order, parsed.count or _COUNT, namespace=namespace, broker=parsed.broker
        )
        _print(first_shown(http, asked), parsed)
    except (AccessRefused, AdminError, InvalidName) as error:
        sys.stderr.write(f"magnetar: cannot watch {where}: {error}\n")
        return FAILED
    except KeyboardInterrupt:
        return SUCCEEDED
    return SUCCEEDED


def _print(shown: Shown, parsed: argparse.Namespace) -> None:
    if parsed.output == "json":
        sys.stdout.write(json.dumps(shown, indent=2) + "\n")
        return
    title = f"{place(shown, parsed.namespace or '')}   {head(shown)}"
    lines = [title, "", *table(shown["topics"], None, int(time.time() * 1000))]
    left = shown["total"] - len(shown["topics"])
    if left > 0:
        lines.append(f"and {left:,} more")
    sys.stdout.write("\n".join(lines) + "\n")
