"""Lists of clusters: a list without the broker's own cluster deletes data and must be confirmed."""

from __future__ import annotations

import json

from magnetar.admin_client.errors import NotFound
from magnetar.cli.admin.backlogs import agreed
from magnetar.cli.admin.call import SILENT, Action, Call
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName

_OWN = "magnetar-cluster"
"""A header with the broker's cluster; brokers of Apache Pulsar do not send it."""


def _set_of_namespace(call: Call) -> object:
    wanted = _wanted(call)
    if not _confirmed(call, call.namespace, wanted, f"All topics of {call.named} in cluster"):
        return SILENT
    return call.send("POST", f"{call.namespace}/replication", None, wanted)


def _set_of_topic(call: Call) -> object:
    wanted, everywhere = _wanted(call), call.get("global")
    if everywhere:
        namespace = _path_of(TopicName.parse(call.named).namespace_name)
        if not _confirmed(call, namespace, wanted, f"{call.named} in cluster"):
            return SILENT
    return call.send("POST", f"{call.topic}/replication", {"isGlobal": everywhere}, wanted)


def _wanted(call: Call) -> list[str]:
    return [name.strip() for name in call["clusters"].split(",") if name.strip()]


def _path_of(namespace: NamespaceName) -> str:
    return f"{'/admin' if namespace.legacy else '/admin/v2'}/namespaces/{namespace}"


def _confirmed(call: Call, namespace: str, wanted: list[str], deleted: str) -> bool:
    """:param namespace: the path of the namespace

    :param deleted: description of what a list without the broker's cluster deletes
    """
    if call.get("force"):
        return True
    headers, listed = call.fetch(f"{namespace}/replication")
    own = headers.get(_OWN)
    left = [name for name in (json.loads(listed) if own is None else [own]) if name not in wanted]
    if left:
        allowed = _allowed(call, namespace)
        left = [name for name in left if name not in allowed]
    if not left:
        return True
    condition = "" if own is not None else ", if the broker is in it,"
    return agreed(
        call, f"{deleted} {' or '.join(left)}{condition} will be deleted with all messages. Continue?"
    )


def _allowed(call: Call, namespace: str) -> list[str]:
    try:
        found: list[str] = call.ask("GET", f"{namespace}/allowedClusters")
    except NotFound:
        # Brokers before Apache Pulsar 4.0 do not have this list.
        return []
    return found


ACTIONS: dict[str, Action] = {
    "namespaces set-clusters": _set_of_namespace,
    "topics set-replication-clusters": _set_of_topic,
    "topicPolicies set-replication-clusters": _set_of_topic,
}
