"""Statistics of a proxy; ``--admin-url`` is the address of the proxy."""

from __future__ import annotations

from magnetar.cli.admin.call import Action, Call, written


def _connections(call: Call) -> object:
    return written(call, call.ask("GET", "/proxy-stats/connections"))


def _topics(call: Call) -> object:
    return written(call, call.ask("GET", "/proxy-stats/topics"))


ACTIONS: dict[str, Action] = {
    "proxy-stats connections": _connections,
    "proxy-stats topics": _topics,
}
