"""Why nothing arrives, as it is told: by ``magnetar explain``, by REST and by metrics."""

from __future__ import annotations

import re
import shlex
import urllib.request
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any, NamedTuple, Protocol

from polling import until_wanted

from magnetar.admin_client import AdminClient
from magnetar.cli import magnetar, pulsar_admin

PRODUCERS = "producers"
"""The side of a topic that is no subscription."""
_WELL = "at_end"
"""The reason that is no sample."""
_SAMPLE = re.compile(
    r"^(magnetar_subscription_waiting_seconds|magnetar_topic_refused)\{(.*)\} \S+$", re.MULTILINE
)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class Asked(Protocol):
    """Whoever has a door for HTTP."""

    @property
    def http_url(self) -> str: ...


class Door(NamedTuple):
    """One by its address alone."""

    http_url: str


def asked(server: Asked, topic: str, subscription: str | None = None) -> dict[str, Any]:
    return AdminClient(server.http_url).explain(topic, subscription)


def _printed_by(main: Callable[[list[str]], int], *words: str) -> str:
    """Runs a command in this process, which takes no time to start it."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(list(words))
    assert code == 0, err.getvalue()
    return out.getvalue()


def shown(server: Asked, topic: str, *arguments: str) -> str:
    return _printed_by(magnetar.main, "explain", topic, "--admin-url", server.http_url, *arguments)


def administer(server: Asked, words: str) -> str:
    """Runs a command as it was told, or is typed."""
    program, *rest = shlex.split(words)
    assert program == "pulsar-admin"
    return _printed_by(pulsar_admin.main, "--admin-url", server.http_url, *rest)


def side_of(server: Asked, topic: str, side: str = "s") -> dict[str, Any]:
    """What REST tells of a subscription, or of :data:`PRODUCERS`."""
    found = asked(server, topic)
    return dict(found[PRODUCERS] if side == PRODUCERS else found["subscriptions"][side])


def told(server: Asked, topic: str, reason: str, side: str = "s") -> dict[str, Any]:
    """What REST tells once it is that reason; and the command and the metrics tell the same.

    :param side: the subscription, or :data:`PRODUCERS`
    """

    found = until_wanted(lambda: side_of(server, topic, side), lambda each: each["reason"] == reason)
    until_wanted(lambda: _reason_in(shown(server, topic), side), lambda each: each == reason)
    if side == PRODUCERS:
        refused = {("", each["reason"]) for each in found["refused"]}
        until_wanted(lambda: _measured(server, topic), refused.issubset)
    elif reason != _WELL:
        until_wanted(lambda: _measured(server, topic), lambda each: (side, reason) in each)
    return found


def _reason_in(text: str, side: str) -> str:
    """The reason that the command gives for one side."""
    title = side if side == PRODUCERS else f"subscription {side}"
    line = next(line for line in text.splitlines() if line.startswith(f"{title}:"))
    return line.removeprefix(f"{title}: ").split()[0]


def _measured(server: Asked, topic: str) -> set[tuple[str, str]]:
    """Subscriptions of a topic with the reason for which they wait; of refusals the name is empty."""
    with urllib.request.urlopen(f"{server.http_url}/metrics/") as answer:
        text = answer.read().decode()
    labels = [dict(_LABEL.findall(found[2])) for found in _SAMPLE.finditer(text)]
    return {(each.get("subscription", ""), each["reason"]) for each in labels if each["topic"] == topic}
