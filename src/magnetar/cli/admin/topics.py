"""Commands for topics, subscriptions, backlogs and replication clusters of topics."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from magnetar.admin_client import AdminError, topic_path
from magnetar.admin_client.errors import NotFound
from magnetar.cli.admin.arguments import UsageError
from magnetar.cli.admin.call import SILENT, Action, Call, piece, properties_of
from magnetar.cli.admin.rendering import Rows, rows
from magnetar.managed_ledger.position import LATEST_ID
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.replicators import SHADOW_SOURCE
from magnetar.naming.topic_name import Domain, TopicName

_PARTITIONED_METADATA = "application/vnd.partitioned-topic-metadata+json"
_POSITION = re.compile(r"(-?\d+):(-?\d+)")
_OWN = "magnetar-cluster"
"""HTTP header with the name of the broker's cluster; brokers of Apache Pulsar do not send it."""


def message_id(text: str) -> dict[str, int]:
    """Parses ``latest``, ``earliest`` or ``LEDGER:ENTRY``; returns the JSON object for a message id.

    :raises UsageError: the text is not one of these
    """
    if text == "latest":
        return {"ledgerId": LATEST_ID, "entryId": LATEST_ID}
    if text == "earliest":
        return {"ledgerId": -1, "entryId": -1}
    match = _POSITION.fullmatch(text)
    if match is None:
        raise UsageError(f"Invalid message id {text!r}: use latest, earliest or LEDGER:ENTRY")
    return {"ledgerId": int(match[1]), "entryId": int(match[2])}


def _list(call: Call) -> object:
    query = {"bundle": call.get("bundle"), "includeSystemTopic": call.get("include-system-topic")}
    domain = (call.get("topic-domain") or "").replace("_", "-")
    names: list[str] = []
    for wanted in (domain,) if domain else ("persistent", "non-persistent"):
        names += call.ask("GET", call.topics_of_namespace(wanted), query)
    return names


def _create(call: Call) -> object:
    return call.send("PUT", call.topic, None, properties_of(call["metadata"]))


def _create_partitioned(call: Call) -> object:
    path = f"{call.topic}/partitions"
    if not call.get("metadata"):
        return call.send("PUT", path, None, call["partitions"])
    body = {"partitions": call["partitions"], "properties": properties_of(call["metadata"])}
    call.ask("PUT", path, None, body, content_type=_PARTITIONED_METADATA)
    return SILENT


def _create_shadow(call: Call) -> object:
    """Creates a shadow topic with as many partitions as its source topic."""
    source = TopicName.parse(call["source"])
    properties = {**(call.get("properties") or {}), SHADOW_SOURCE: str(source)}
    count = call.ask("GET", f"{topic_path(str(source))}/partitions")["partitions"]
    if not count:
        return call.send("PUT", call.topic, None, properties)
    body = {"partitions": count, "properties": properties}
    call.ask("PUT", f"{call.topic}/partitions", None, body, content_type=_PARTITIONED_METADATA)
    return SILENT


def _delete(call: Call) -> object:
    if not (call.get("r") or call.get("from-file")):
        return call.send("DELETE", call.topic, {"force": call.get("force")})
    names = _matching(call) if call.get("r") else _named_in(call["topic"])
    failed = 0
    for name in names:
        try:
            call.send("DELETE", topic_path(name), {"force": call.get("force")})
        except AdminError as error:
            failed += 1
            sys.stderr.write(f"pulsar-admin: {name} could not be deleted: {error}\n")
    if failed:
        raise AdminError(f"{failed} of {len(names)} topics could not be deleted")
    return SILENT


def _matching(call: Call) -> list[str]:
    """Returns the full names of a namespace's topics that match the command's regular expression, which
    begins with the name of the namespace.

    :raises InvalidName: the pattern does not begin with a namespace
    :raises UsageError: the pattern is not valid
    """
    domain, _, rest = call["topic"].rpartition("://")
    domain = domain or Domain.PERSISTENT.value
    pieces = rest.split("/")
    if domain not in [each.value for each in Domain] or len(pieces) not in (3, 4):
        raise UsageError(
            f"{call['topic']!r} is not a pattern; use a form like persistent://tenant/namespace/orders-.*"
        )
    try:
        pattern = re.compile(f"{domain}://{rest}")
    except re.error as error:
        raise UsageError(f"{call['topic']!r} is not a valid pattern: {error}") from error
    name = NamespaceName.parse("/".join(pieces[:-1]))
    found = call.ask("GET", f"{'/admin' if name.legacy else '/admin/v2'}/{domain}/{name}")
    return [each for each in found if pattern.fullmatch(each)]


def _named_in(file: str) -> list[str]:
    """Returns the topics that a file lists, one per line.

    :raises UsageError: the file cannot be read
    """
    try:
        lines = Path(file).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from error
    return [line.strip() for line in lines if line.strip()]


def _create_subscription(call: Call) -> object:
    body: dict[str, Any] = message_id(call.get("messageId") or "latest")
    if call.get("property"):
        body["properties"] = call["property"]
    return call.send("PUT", call.subscription, {"replicated": call.get("replicated")}, body)


def _update_subscription_properties(call: Call) -> object:
    properties = {} if call["clear"] else call["property"]
    if properties is None:
        raise UsageError("no properties are given; use --property or --clear")
    return call.send("PUT", f"{call.subscription}/properties", None, properties)


def _replicate(call: Call) -> object:
    wanted = bool(call["enable"])
    if wanted == bool(call["disable"]):
        raise UsageError("Need to specify either --enable or --disable")
    return call.send("POST", f"{call.subscription}/replicatedSubscriptionStatus", None, wanted)


def _reset_cursor(call: Call) -> object:
    if call.get("messageId"):
        body: dict[str, Any] = message_id(call["messageId"])
        body["excluded"] = bool(call.get("exclude-reset-position"))
        return call.send("POST", f"{call.subscription}/resetcursor", None, body)
    if call.get("time") is None:
        raise UsageError("Either Timestamp (--time) or messageId (--messageId) has to be provided")
    return call.send("POST", f"{call.subscription}/resetcursor/{int(time.time() * 1000) - call['time']}")


def _terminate(call: Call) -> object:
    last = call.ask("POST", f"{call.topic}/terminate")
    partition = TopicName.parse(call.named).partition_index
    return f"Topic successfully terminated at {last['ledgerId']}:{last['entryId']}:{partition}"


def _terminate_partitions(call: Call) -> object:
    ends = call.ask("POST", f"{call.topic}/terminate/partitions")
    return Rows((f"{index} - {end['ledgerId']}:{end['entryId']}\n" for index, end in ends.items()), ends)


def _compact(call: Call) -> object:
    call.send("PUT", f"{call.topic}/compaction")
    return f"Topic compaction requested for {TopicName.parse(call.named)}"


def _compaction_status(call: Call) -> object:
    return _state_of(call, "compaction", "Compaction", "compacting")


def _state_of(call: Call, path: str, name: str, verb: str) -> str:
    """Returns the state of an operation that a user started, such as a compaction, as a sentence.

    :param path: the last segment of the operation's path, such as ``compaction``
    :param name: the operation, as the subject of the sentence, such as ``Compaction``
    :param verb: the operation, in the text of an error, such as ``compacting``
    :raises AdminError: the operation failed
    """
    told = call.ask("GET", f"{call.topic}/{path}")
    while call.get("wait-complete") and told["status"] == "RUNNING":
        time.sleep(1)
        told = call.ask("GET", f"{call.topic}/{path}")
    if told["status"] == "ERROR":
        print(f"Error in {path}")
        raise AdminError(f"Error {verb}: {told['lastError']}")
    texts = {
        "NOT_RUN": f"{name} has not been run for {TopicName.parse(call.named)} since broker startup",
        "RUNNING": f"{name} is currently running",
        "SUCCESS": f"{name} was a success",
    }
    return texts[told["status"]]


def _offload(call: Call) -> object:
    found = call.ask("GET", f"{call.topic}/internalStats")
    ledgers = found["ledgers"]
    if not ledgers:
        raise AdminError("Topic doesn't have any data")
    ledgers[-1]["size"] = found["currentLedgerSize"]
    name = TopicName.parse(call.named)
    kept, younger = 0, ledgers[-1]["ledgerId"]
    for ledger in reversed(ledgers):
        kept += ledger["size"]
        if kept > call["size-threshold"]:
            call.ask("PUT", f"{call.topic}/offload", None, {"ledgerId": younger, "entryId": 0})
            return f"Offload triggered for {name} for messages before {younger}:0:-1"
        younger = ledger["ledgerId"]
    return "Nothing to offload"


def _offload_status(call: Call) -> object:
    return _state_of(call, "offload", "Offload", "offloading")


def _lookup_path(call: Call) -> str:
    return _lookup_of(TopicName.parse(call["topicName"] if call.get("topicName") else call["topic"]))


def _lookup_of(name: TopicName) -> str:
    kind = "destination" if name.legacy else "topic"
    return f"/lookup/v2/{kind}/{name.domain.value}/{name.namespace_name}/{piece(name.local)}"


def _lookup(call: Call) -> object:
    return call.ask("GET", _lookup_path(call))["brokerUrl"]


def _partitioned_lookup(call: Call) -> object:
    """Looks up all partitions of a topic; returns the broker of each partition or, with ``--sort-by-broker``,
    the partitions of each broker.
    """
    count = call.ask("GET", f"{call.topic}/partitions")["partitions"]
    if not count:
        raise AdminError("Topic is not a partitioned topic")
    name = TopicName.parse(call.named)
    found: dict[str, str] = {}
    for index in range(count):
        partition = f"{name}-partition-{index}"
        found[partition] = call.ask("GET", _lookup_of(TopicName.parse(partition)))["brokerUrl"]
    if not call.get("sort-by-broker"):
        return rows(found)
    brokers: dict[str, list[str]] = {}
    for partition, broker in found.items():
        brokers.setdefault(broker, []).append(partition)
    return rows(brokers)


def _stats(call: Call) -> object:
    query = {
        "getPreciseBacklog": call.get("get-precise-backlog"),
        "subscriptionBacklogSize": "true" if call.get("get-subscription-backlog-size") else "false",
        "getEarliestTimeInBacklog": call.get("get-earliest-time-in-backlog"),
    }
    return call.ask("GET", f"{call.topic}/stats", query)


def _partitioned_stats(call: Call) -> object:
    query = {
        "perPartition": "true" if call.get("per-partition") else "false",
        "getPreciseBacklog": call.get("get-precise-backlog"),
        "subscriptionBacklogSize": "true" if call.get("get-subscription-backlog-size") else "false",
        "getEarliestTimeInBacklog": call.get("get-earliest-time-in-backlog"),
    }
    return call.ask("GET", f"{call.topic}/partitioned-stats", query)


def _backlog_size(call: Call) -> object:
    return call.ask("PUT", f"{call.topic}/backlogSize", None, message_id(call["messageId"]))


_COMMON: dict[str, Action] = {
    "list": _list,
    "list-partitioned-topics": lambda call: call.ask(
        "GET",
        f"{call.topics_of_namespace('persistent')}/partitioned",
        {"includeSystemTopic": call.get("include-system-topic")},
    ),
    "permissions": lambda call: rows(call.ask("GET", f"{call.topic}/permissions")),
    "grant-permission": lambda call: call.send(
        "POST", f"{call.topic}/permissions/{piece(call['role'])}", None, call["actions"]
    ),
    "revoke-permission": lambda call: call.send("DELETE", f"{call.topic}/permissions/{piece(call['role'])}"),
    "lookup": _lookup,
    "bundle-range": lambda call: call.ask("GET", f"{_lookup_path(call)}/bundle"),
    "delete": _delete,
    "unload": lambda call: call.send("PUT", f"{call.topic}/unload"),
    "subscriptions": lambda call: call.ask("GET", f"{call.topic}/subscriptions"),
    "unsubscribe": lambda call: call.send("DELETE", call.subscription, {"force": call.get("force")}),
    "create-subscription": _create_subscription,
    "stats": _stats,
    "stats-internal": lambda call: call.ask(
        "GET", f"{call.topic}/internalStats", {"metadata": call.get("metadata")}
    ),
    "partitioned-stats": _partitioned_stats,
    "partitioned-stats-internal": lambda call: call.ask("GET", f"{call.topic}/partitioned-internalStats"),
    "skip": lambda call: call.send("POST", f"{call.subscription}/skip/{call['count']}"),
    "skip-all": lambda call: call.send("POST", f"{call.subscription}/skip_all"),
    "create-partitioned-topic": _create_partitioned,
    "update-partitioned-topic": lambda call: call.send(
        "POST",
        f"{call.topic}/partitions",
        {"updateLocalTopicOnly": call.get("update-local-only"), "force": call.get("force")},
        call["partitions"],
    ),
    "get-partitioned-topic-metadata": lambda call: call.ask("GET", f"{call.topic}/partitions"),
    "delete-partitioned-topic": lambda call: call.send(
        "DELETE", f"{call.topic}/partitions", {"force": call.get("force")}
    ),
    "info-internal": lambda call: call.ask("GET", f"{call.topic}/internal-info"),
    "last-message-id": lambda call: call.ask("GET", f"{call.topic}/lastMessageId"),
    "reset-cursor": _reset_cursor,
    "terminate": _terminate,
    "compact": _compact,
    "compaction-status": _compaction_status,
}
_TOPICS: dict[str, Action] = {
    "offload": _offload,
    "offload-status": _offload_status,
    "clear-backlog": _COMMON["skip-all"],
    "update-subscription-properties": _update_subscription_properties,
    "get-subscription-properties": lambda call: call.ask("GET", f"{call.subscription}/properties"),
    "create": _create,
    "create-shadow-topic": _create_shadow,
    "get-shadow-source": lambda call: call.ask("GET", f"{call.topic}/properties").get(SHADOW_SOURCE),
    "create-missed-partitions": lambda call: call.send("POST", f"{call.topic}/createMissedPartitions"),
    "get-properties": lambda call: rows(call.ask("GET", f"{call.topic}/properties")),
    "update-properties": lambda call: call.send(
        "PUT", f"{call.topic}/properties", None, call["property"] or {}
    ),
    "remove-properties": lambda call: call.send("DELETE", f"{call.topic}/properties", {"key": call["key"]}),
    "partitioned-terminate": _terminate_partitions,
    "get-backlog-size": _backlog_size,
    "partitioned-lookup": _partitioned_lookup,
    "set-replicated-subscription-status": _replicate,
    "get-replicated-subscription-status": lambda call: rows(
        call.ask("GET", f"{call.subscription}/replicatedSubscriptionStatus")
    ),
    "trim-topic": lambda call: call.send("POST", f"{call.topic}/trim"),
}
ACTIONS: dict[str, Action] = {
    **{f"{group} {name}": action for group in ("topics", "persistent") for name, action in _COMMON.items()},
    **{f"topics {name}": action for name, action in _TOPICS.items()},
    **{
        f"non-persistent {name}": _COMMON[name]
        for name in ("create-partitioned-topic", "lookup", "stats", "stats-internal")
    },
    "non-persistent get-partitioned-topic-metadata": _COMMON["get-partitioned-topic-metadata"],
    "non-persistent list-in-bundle": lambda call: call.ask(
        "GET", f"{call.topics_of_namespace('non-persistent')}/{piece(call['bundle'])}"
    ),
    "non-persistent list": lambda call: call.ask("GET", call.topics_of_namespace("non-persistent")),
}


def _expire(call: Call) -> object:
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
    """Asks for confirmation unless ``--force`` is given; returns whether to continue."""
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


_COMMON_TOPICS: dict[str, Action] = {
    "offload": _offload,
    "offload-status": _offload_status,
    "expire-messages": _expire,
    "expire-messages-all-subscriptions": _expire_all,
    "truncate": lambda call: call.send("DELETE", f"{call.topic}/truncate"),
}
BACKLOG_ACTIONS: dict[str, Action] = {
    **{
        f"{group} {name}": action
        for group in ("topics", "persistent")
        for name, action in _COMMON_TOPICS.items()
    },
    "topics analyze-backlog": _analyze,
    "namespaces clear-backlog": _clear,
    "brokers backlog-quota-check": _check_quotas,
}


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
    """Asks for confirmation if the clusters in ``wanted`` do not include the broker's own cluster, because
    the broker then deletes topics; returns whether to continue.

    :param namespace: the path of the namespace in the admin interface
    :param deleted: description of the topics that the broker would delete
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


CLUSTER_LIST_ACTIONS: dict[str, Action] = {
    "namespaces set-clusters": _set_of_namespace,
    "topics set-replication-clusters": _set_of_topic,
    "topicPolicies set-replication-clusters": _set_of_topic,
}
