"""The ``pulsar-admin`` command: the part of Pulsar's that this release serves."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

from magnetar.admin_client.client import topic_path
from magnetar.admin_client.errors import AdminError
from magnetar.admin_client.http import AdminHttp
from magnetar.naming.errors import InvalidName
from magnetar.naming.namespace_name import NamespaceName

Action = Callable[[AdminHttp, argparse.Namespace], Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; answers the exit code: 0 well, 1 failed, 2 not understood."""
    parser = _parser()
    parsed = parser.parse_args(arguments)
    if not hasattr(parsed, "action"):
        parser.print_help(sys.stderr)
        return 2
    try:
        answer = parsed.action(AdminHttp(parsed.admin_url), parsed)
    except (AdminError, InvalidName) as error:
        sys.stderr.write(f"pulsar-admin: {error}\n")
        return 1
    _print(answer)
    return 0


def _print(answer: Any) -> None:
    """Lists of names one a line, as Pulsar prints them; objects as JSON."""
    if answer is None:
        return
    if isinstance(answer, list):
        sys.stdout.writelines(f"{item}\n" for item in answer)
    elif isinstance(answer, str):
        sys.stdout.write(f"{answer}\n")
    else:
        sys.stdout.write(json.dumps(answer, indent=2) + "\n")


def _list_clusters(http: AdminHttp, parsed: argparse.Namespace) -> Any:
    return http.ask("GET", "/admin/v2/clusters")


def _get_cluster(http: AdminHttp, parsed: argparse.Namespace) -> Any:
    return http.ask("GET", f"/admin/v2/clusters/{quote(parsed.cluster, safe='')}")


def _health_check(http: AdminHttp, parsed: argparse.Namespace) -> Any:
    return http.ask("GET", "/admin/v2/brokers/health")


def _list_topics(http: AdminHttp, parsed: argparse.Namespace) -> Any:
    namespace = NamespaceName.parse(parsed.namespace)
    prefix = "/admin" if namespace.legacy else "/admin/v2"
    return http.ask("GET", f"{prefix}/persistent/{namespace}")


def _of_topic(method: str, rest: str) -> Action:
    """A request without a body on one topic."""

    def action(http: AdminHttp, parsed: argparse.Namespace) -> Any:
        return http.ask(method, topic_path(parsed.topic) + rest)

    return action


def _stats(http: AdminHttp, parsed: argparse.Namespace) -> Any:
    query = {
        "getPreciseBacklog": "true" if parsed.get_precise_backlog else "false",
        "subscriptionBacklogSize": "true" if parsed.get_subscription_backlog_size else "false",
    }
    return http.ask("GET", topic_path(parsed.topic) + "/stats", query)


def _create_partitioned(http: AdminHttp, parsed: argparse.Namespace) -> Any:
    return http.ask("PUT", topic_path(parsed.topic) + "/partitions", body=str(parsed.partitions))


def _delete(http: AdminHttp, parsed: argparse.Namespace) -> Any:
    query = {"force": "true" if parsed.force else "false"}
    return http.ask("DELETE", topic_path(parsed.topic) + parsed.rest, query)


def _terminate(http: AdminHttp, parsed: argparse.Namespace) -> Any:
    last = http.ask("POST", topic_path(parsed.topic) + "/terminate")
    return f"Topic successfully terminated at {last['ledgerId']}:{last['entryId']}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pulsar-admin", description="Asks and steers a broker.")
    parser.add_argument(
        "--admin-url",
        default=os.environ.get("PULSAR_ADMIN_URL", "http://localhost:8080"),
        metavar="URL",
        help="where the broker serves HTTP (PULSAR_ADMIN_URL, http://localhost:8080)",
    )
    groups = parser.add_subparsers(metavar="GROUP")
    clusters = _group(groups, "clusters", "clusters")
    _command(clusters, "list", "list clusters", _list_clusters)
    _command(clusters, "get", "addresses of a cluster", _get_cluster, "cluster")
    brokers = _group(groups, "brokers", "brokers")
    _command(brokers, "healthcheck", "publish and read one message", _health_check)
    _topics(_group(groups, "topics", "topics"))
    return parser


def _topics(topics: Any) -> None:
    _command(topics, "list", "list topics of a namespace", _list_topics, "namespace")
    stats = _command(topics, "stats", "statistics of a topic", _stats, "topic")
    stats.add_argument("-gpb", "--get-precise-backlog", action="store_true")
    stats.add_argument("-sbs", "--get-subscription-backlog-size", action="store_true")
    rows = (
        ("stats-internal", "ledgers and cursors of a topic", "GET", "/internalStats"),
        ("create", "create a topic without partitions", "PUT", ""),
        ("get-partitioned-topic-metadata", "number of partitions", "GET", "/partitions"),
        ("unload", "close a topic; clients come back", "PUT", "/unload"),
    )
    for name, text, method, rest in rows:
        _command(topics, name, text, _of_topic(method, rest), "topic")
    create = _command(
        topics, "create-partitioned-topic", "create a partitioned topic", _create_partitioned, "topic"
    )
    create.add_argument("-p", "--partitions", type=int, required=True, metavar="N")
    for name, rest in (("delete", ""), ("delete-partitioned-topic", "/partitions")):
        delete = _command(topics, name, "delete a topic", _delete, "topic")
        delete.add_argument("-f", "--force", action="store_true", help="disconnect its clients")
        delete.set_defaults(rest=rest)
    _command(topics, "terminate", "end a topic for ever", _terminate, "topic")


def _group(groups: Any, name: str, text: str) -> Any:
    parser = groups.add_parser(name, help=text)
    return parser.add_subparsers(metavar="COMMAND", required=True)


def _command(group: Any, name: str, text: str, action: Action, *operands: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = group.add_parser(name, help=text)
    parser.set_defaults(action=action)
    for operand in operands:
        parser.add_argument(operand)
    return parser


if __name__ == "__main__":
    sys.exit(main())
