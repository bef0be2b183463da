"""The clusters of a namespace: a list without the broker's own cluster deletes data."""

from __future__ import annotations

import json
from typing import Any

from magnetar.cli.admin.backlogs import agreed
from magnetar.cli.admin.call import SILENT, Action, Call

_OWN = "magnetar-cluster"
"""A header by which brokers name their cluster; brokers of Apache Pulsar send none."""


def _set_clusters(call: Call) -> Any:
    path = f"{call.namespace}/replication"
    wanted = [name.strip() for name in call["clusters"].split(",") if name.strip()]
    if not call["force"]:
        question = _question(call, path, wanted)
        if question and not agreed(call, question):
            return SILENT
    return call.send("POST", path, None, wanted)


def _question(call: Call, path: str, wanted: list[str]) -> str:
    """What has to be confirmed; empty: nothing is deleted."""
    headers, listed = call.fetch(path)
    own = headers.get(_OWN)
    allowed = call.ask("GET", f"{call.namespace}/allowedClusters")
    candidates = json.loads(listed) if own is None else [own]
    left = [name for name in candidates if name not in wanted and name not in allowed]
    if not left:
        return ""
    condition = "" if own is not None else "if the broker is in that cluster: "
    clusters = " or ".join(left)
    return (
        f"{condition}All topics of {call.named} in cluster {clusters} are deleted with their messages. Go on?"
    )


ACTIONS: dict[str, Action] = {"namespaces set-clusters": _set_clusters}
