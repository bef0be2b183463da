"""What a proxy tells of itself: ``--admin-url`` is its own."""

from __future__ import annotations

import json
from typing import Any

from magnetar.cli.admin.call import Action, Call


def _connections(call: Call) -> Any:
    return _written(call, call.ask("GET", "/proxy-stats/connections"))


def _topics(call: Call) -> Any:
    return _written(call, call.ask("GET", "/proxy-stats/topics"))


def _written(call: Call, value: Any) -> str:
    """On one line unless it is asked for otherwise, as Pulsar's tool writes it."""
    return json.dumps(value, indent=2) if call["indent"] else json.dumps(value, separators=(",", ":"))


ACTIONS: dict[str, Action] = {
    "proxy-stats connections": _connections,
    "proxy-stats topics": _topics,
}
