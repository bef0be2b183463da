"""Names with three parts in namespace commands: legacy namespaces, otherwise topics.

Pulsar's cookbook has ``namespaces set-backlog-quota my-tenant/my-ns/my-topic``, which means the policy of a
topic. A missing topic is created, as for a producer: a policy of the whole namespace would change topics that
the command does not name.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from magnetar.admin_client.client import topic_path
from magnetar.admin_client.errors import NotFound
from magnetar.cli.admin.arguments import UsageError
from magnetar.cli.admin.call import Action, Call
from magnetar.naming.namespace_name import NamespaceName

_RENAMED = {"messageTTL": "ttl"}
"""Options of namespace commands that have other names in topic commands."""


def or_topic(name: str, action: Action, topics: Mapping[str, Action]) -> Action:
    """Returns a command for a policy of a namespace, or of a topic if the name has three parts.

    :param name: of the command, without its group
    :param topics: commands for topic policies, by name without the group
    """

    def run(call: Call) -> object:
        if not _means_topic(call, create=name.startswith("set-") and name in topics):
            return action(call)
        if name not in topics:
            raise UsageError(f"{call.named} is not a namespace but a topic, and topics have no {name}")
        sys.stderr.write(f"{call.named} is not a namespace but a topic: the topic's own policy is used\n")
        for key, other in _RENAMED.items():
            if key in call.values:
                call.values[other] = call.values[key]
        return topics[name](call)

    return run


def _means_topic(call: Call, *, create: bool) -> bool:
    """:param create: create the topic if it is missing and its namespace exists

    :raises NotFound: neither the namespace nor the topic exists
    """
    if not NamespaceName.parse(call.named).legacy:
        return False
    try:
        call.ask("GET", call.namespace)
    except NotFound as missing:
        try:
            call.ask("GET", f"{topic_path(call.named)}/partitions")
        except NotFound:
            if not create:
                raise missing from None
            _create(call, missing)
        return True
    return False


def _create(call: Call, missing: NotFound) -> None:
    """:raises NotFound: its namespace does not exist either"""
    path = topic_path(call.named)
    try:
        # With partitions, if the namespace's policy requires them.
        found = call.ask("GET", f"{path}/partitions", {"checkAllowAutoCreation": "true"})
        if not found["partitions"]:
            call.ask("PUT", path)
    except NotFound:
        raise missing from None
    sys.stderr.write(
        f"topic {call.named} did not exist and has been created; if it is not used, it will be deleted "
        "later together with its policies\n"
    )
