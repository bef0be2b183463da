"""Backlogs: expiring, analysing and clearing them."""

from __future__ import annotations

import sys
from typing import Any

from magnetar.cli.admin.arguments import UsageError
from magnetar.cli.admin.call import SILENT, Action, Call, piece
from magnetar.cli.admin.topics import message_id


def _expire(call: Call) -> Any:
    seconds, position = call["expireTime"], call.get("position")
    given = seconds is not None and seconds >= 0
    if given and position:
        raise UsageError("Can't expire message by time and by message position at the same time")
    if given:
        return call.send("POST", f"{call.subscription}/expireMessages/{seconds}")
    if not position:
        raise UsageError("Either time (--expireTime) or message position (--position) has to be provided")
    body: dict[str, Any] = message_id(position)
    body["excluded"] = bool(call.get("exclude-reset-position"))
    return call.send("POST", f"{call.subscription}/expireMessages", None, body)


def _expire_all(call: Call) -> object:
    return call.send("POST", f"{call.topic}/all_subscription/expireMessages/{call['expireTime']}")


def _analyze(call: Call) -> Any:
    path = f"{call.subscription}/analyzeBacklog"
    position = call.get("position")
    return call.ask("POST", path) if not position else call.ask("POST", path, None, message_id(position))


def agreed(call: Call, question: str) -> bool:
    """Whether to continue: ``--force`` is given, or the answer to the question is y."""
    if call["force"]:
        return True
    sys.stdout.write(f"{question} (Y or N) ")
    sys.stdout.flush()
    answer = sys.stdin.readline()
    if not answer:
        raise UsageError("no answer on standard input; use --force to skip the confirmation")
    return answer.strip().lower() in ("y", "yes")


def _clear(call: Call) -> Any:
    subscription, bundle = call["sub"], call["bundle"]
    if not agreed(call, f"Are you sure you want to clear the backlog of {call.named}?"):
        return SILENT
    path = f"{call.namespace}/{bundle}" if bundle else call.namespace
    return call.send("POST", f"{path}/clearBacklog" + (f"/{piece(subscription)}" if subscription else ""))


def _check_quotas(call: Call) -> str:
    call.ask("GET", "/admin/v2/brokers/backlog-quota-check")
    return "ok"


_TOPICS: dict[str, Action] = {
    "expire-messages": _expire,
    "expire-messages-all-subscriptions": _expire_all,
    "truncate": lambda call: call.send("DELETE", f"{call.topic}/truncate"),
}

ACTIONS: dict[str, Action] = {
    **{f"{group} {name}": action for group in ("topics", "persistent") for name, action in _TOPICS.items()},
    "topics analyze-backlog": _analyze,
    "namespaces clear-backlog": _clear,
    "brokers backlog-quota-check": _check_quotas,
}
