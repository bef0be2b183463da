"""The operations of the admin interface as methods."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from magnetar.admin_client.errors import AdminError, BadRequest, PreconditionFailed
from magnetar.admin_client.http import AdminHttp
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName, subscription_piece
from magnetar.security.client_authentication.authentication import Authentication, AuthenticationToken

if TYPE_CHECKING:
    from magnetar.io.tls import ClientTls

_READ_PLANS = "/admin/v2/magnetar/read-plans"
_TRANSACTIONS = "/admin/v3/transactions"
_TRANSACTIONS_OFF = "transactionCoordinatorEnabled"
_SNAPSHOTS = "/admin/v2/magnetar/snapshots"


def topic_path(text: str) -> str:
    """Returns the path of a topic in the admin interface.

    :raises InvalidName: the string is not a valid topic name
    """
    name = TopicName.parse(text)
    return f"{_path(name.namespace_name, name.domain.value)}/{quote(name.local, safe='')}"


def _in_transactions(kind: str, topic: str) -> str:
    """Returns the path of information on a topic's transactions."""
    return f"{_TRANSACTIONS}/{kind}/{topic_path(topic).removeprefix('/admin/v2/persistent/')}"


def namespace_path(text: str) -> str:
    """Returns the path of a namespace in the admin interface.

    :raises InvalidName: the string is not a valid namespace name
    """
    return _path(NamespaceName.parse(text), "namespaces")


def topics_path(namespace: str, domain: str = "persistent") -> str:
    """Returns the path of the topics of a namespace.

    :raises InvalidName: the string is not a valid namespace name
    """
    return _path(NamespaceName.parse(namespace), domain)


def _path(namespace: NamespaceName, kind: str) -> str:
    return f"{'/admin' if namespace.legacy else '/admin/v2'}/{kind}/{namespace}"


class SnapshotFile(NamedTuple):
    """A file of a snapshot; its paths are relative to the data directory."""

    path: str
    """The path at which a broker expects the file."""
    source: str
    """The current path of the file."""
    bytes: int
    """Number of bytes from the start of the file that belong to the snapshot; -1: the whole file."""
    sealed: bool
    """Whether the file does not change while the snapshot is kept."""


class BrokerSnapshot(NamedTuple):
    """A snapshot of the state of a standalone broker."""

    snapshot_id: str
    data_directory: str
    """The path of the data directory on the broker's machine."""
    store: str
    """The id of the ledger store."""
    taken_ms: int
    """The time of the snapshot, in milliseconds since 1970."""
    files: Sequence[SnapshotFile]


class AdminClient:
    """Calls the admin interface. Raises the error of ``magnetar.admin_client.errors`` for the HTTP status,
    and InvalidName for invalid names.
    """

    def __init__(
        self,
        admin_url: str,
        *,
        token: str | None = None,
        authentication: Authentication | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        """:param admin_url: a URL like ``http://localhost:8080``, or ``https://…``
        :param token: short for ``authentication=AuthenticationToken(token)``
        :param authentication: the credentials of each request
        :param tls: TLS settings for ``https``; None: the system's CA certificates, with a check of host names
        :raises AdminError: ``admin_url`` is not an HTTP URL
        :raises NoCredentials: the token is not valid
        """
        if token is not None:
            authentication = AuthenticationToken(token)
        self._http = AdminHttp(admin_url, authentication=authentication, tls=tls)

    # Topics

    def topics(self, namespace: str) -> list[str]:
        """Returns the persistent topics of a namespace, with a separate item for each partition."""
        return list(self._http.ask("GET", topics_path(namespace)))

    def partitioned_topics(self, namespace: str) -> list[str]:
        return list(self._http.ask("GET", topics_path(namespace) + "/partitioned"))

    def create_topic(self, topic: str) -> None:
        """Creates a topic without partitions."""
        self._http.ask("PUT", topic_path(topic))

    def delete_topic(self, topic: str, *, force: bool = False) -> None:
        """Deletes a topic that is not partitioned.

        :param force: whether to delete the topic even if clients are connected
        """
        self._http.ask("DELETE", topic_path(topic), {"force": _truth(force)})

    def create_partitioned_topic(self, topic: str, partitions: int) -> None:
        self._http.ask("PUT", topic_path(topic) + "/partitions", body=str(partitions))

    def update_partitioned_topic(self, topic: str, partitions: int) -> None:
        """Adds partitions to a topic.

        :param partitions: the new number of partitions, above the current number
        """
        self._http.ask("POST", topic_path(topic) + "/partitions", body=str(partitions))

    def delete_partitioned_topic(self, topic: str, *, force: bool = False) -> None:
        """Deletes a partitioned topic with its partitions.

        :param force: whether to delete the topic even if clients are connected
        """
        self._http.ask("DELETE", topic_path(topic) + "/partitions", {"force": _truth(force)})

    def partitions(self, topic: str) -> int:
        """Returns the number of partitions of a topic; 0: the topic is not partitioned."""
        return int(self._http.ask("GET", topic_path(topic) + "/partitions")["partitions"])

    def topic_stats(self, topic: str, *, precise_backlog: bool = False) -> dict[str, Any]:
        """Returns the statistics of a topic.

        :param precise_backlog: whether to count the backlog instead of estimating it
        """
        query = {"getPreciseBacklog": _truth(precise_backlog)}
        return dict(self._http.ask("GET", topic_path(topic) + "/stats", query))

    def explain(self, topic: str, subscription: str | None = None) -> dict[str, Any]:
        """Returns the reasons why a topic's messages wait or cannot be published; supported only by Magnetar.

        :param subscription: the subscription to explain; None: all subscriptions
        """
        query = {} if subscription is None else {"subscription": subscription}
        return dict(self._http.ask("GET", topic_path(topic) + "/explain", query))

    def explain_placement(self, bundle: str) -> dict[str, Any]:
        """Returns the reasons why a broker owns a bundle, and the conditions that would move the bundle;
        supported only by Magnetar.

        :param bundle: ``tenant/namespace/0xSTART_0xEND``
        """
        return dict(self._http.ask("GET", f"/admin/v2/magnetar/explain-placement/{quote(bundle)}"))

    def storage(self, namespace: str | None = None) -> dict[str, Any]:
        """Returns the used space of disk, ledger store and topics; supported only by Magnetar.

        :param namespace: the namespace whose topics are reported; None: all topics
        """
        query = {} if namespace is None else {"namespace": namespace}
        return dict(self._http.ask("GET", "/admin/v2/magnetar/storage", query))

    def topic_internal_stats(self, topic: str) -> dict[str, Any]:
        return dict(self._http.ask("GET", topic_path(topic) + "/internalStats"))

    def offloaded_ledgers(self, topic: str) -> dict[int, str]:
        """Returns the UUID of each ledger of a topic in tiered storage, by ledger id."""
        found = self._http.ask("GET", topic_path(topic) + "/internal-info")
        return {
            int(each["ledgerId"]): str(each["offloadedContextUuid"])
            for each in found["ledgers"]
            if each.get("isOffloaded") and each.get("offloadedContextUuid")
        }

    def aborted_transactions(self, topic: str) -> set[tuple[int, int]] | None:
        """Returns the ids of a topic's aborted transactions as pairs (most, least significant 64 bits).

        None: the topic has aborted transactions, but the broker does not list them; only Magnetar's broker
        does. The set is also empty if transactions are disabled at the broker.
        """
        found = self._transaction_buffer(topic, {"abortedTransactions": "true"})
        if found is None:
            return set()
        if "abortedTransactions" not in found:
            return None if found["totalAbortedTransactions"] else set()
        return {(most, least) for most, least in found["abortedTransactions"]}

    def visible_end(self, topic: str) -> tuple[int, int] | None:
        """Returns (ledger id, entry id) of a topic's last entry before any open transaction; None:
        transactions are disabled at the broker.
        """
        found = self._transaction_buffer(topic)
        if found is None:
            return None
        ledger, _, entry = str(found["maxReadPosition"]).partition(":")
        return int(ledger), int(entry)

    def is_open_or_aborted(self, topic: str, transaction: tuple[int, int]) -> bool:
        """Returns whether a topic has a transaction that is open or was aborted."""
        most, least = transaction
        found = self._http.ask("GET", f"{_in_transactions('transactionInBufferStats', topic)}/{most}/{least}")
        return bool(found.get("aborted") or found.get("startPosition"))

    def _transaction_buffer(self, topic: str, query: dict[str, str] | None = None) -> dict[str, Any] | None:
        """Returns ``TransactionBufferStats`` of a topic; None: transactions are disabled."""
        try:
            return dict(self._http.ask("GET", _in_transactions("transactionBufferStats", topic), query))
        except AdminError as error:
            if error.status != HTTPStatus.SERVICE_UNAVAILABLE or _TRANSACTIONS_OFF not in str(error):
                raise
            return None

    def message_ttl(self, topic: str) -> int:
        """Returns the effective time to live of a topic in seconds; 0: messages never expire."""
        return int(self._http.ask("GET", topic_path(topic) + "/messageTTL", {"applied": "true"}) or 0)

    def set_topic_deduplication(self, topic: str, enabled: bool) -> None:
        """Enables or disables deduplication for a topic, which overrides the policy of the namespace."""
        self._http.ask("POST", topic_path(topic) + "/deduplicationEnabled", body=json.dumps(enabled))

    def message_id_at(self, topic: str, time_ms: int) -> tuple[int, int]:
        """Returns (ledger id, entry id) of the first message that was published at or after a time.

        :param time_ms: the time, in milliseconds since 1970
        """
        found = self._http.ask("GET", f"{topic_path(topic)}/messageid/{time_ms}")
        return int(found["ledgerId"]), int(found["entryId"])

    def entry_from_the_end(self, topic: str, number: int) -> tuple[int, int] | None:
        """Returns (ledger id, entry id) of the ``number``-th entry from the end (1: the last entry); None:
        the topic has fewer entries.

        :raises NotAllowed: the topic is partitioned, or non-persistent
        """
        query = {"initialPosition": "latest", "messagePosition": str(number)}
        try:
            headers, _ = self._http.fetch(topic_path(topic) + "/examinemessage", query)
        except (BadRequest, PreconditionFailed):
            return None
        ledger, entry = headers["x-pulsar-message-id"].split(":")[:2]
        return int(ledger), int(entry)

    def reset_subscription(self, topic: str, subscription: str, ledger: int, entry: int) -> None:
        """Resets a subscription to a position: (ledger, entry) is the next message to deliver."""
        path = f"{topic_path(topic)}/subscription/{subscription_piece(subscription)}/resetcursor"
        body = {"ledgerId": ledger, "entryId": entry, "partitionIndex": -1}
        self._http.ask("POST", path, body=json.dumps(body))

    def create_subscription(self, topic: str, subscription: str, ledger: int, entry: int) -> None:
        """Creates a durable subscription, for which (ledger, entry) is the next message to deliver."""
        path = f"{topic_path(topic)}/subscription/{subscription_piece(subscription)}"
        body = {"ledgerId": ledger, "entryId": entry, "partitionIndex": -1}
        self._http.ask("PUT", path, body=json.dumps(body))

    def schema(self, topic: str, version: int | None = None) -> dict[str, Any]:
        """Returns a schema of a topic: ``type``, ``data``, ``properties``, ``version``.

        :param version: the version; None: the newest version
        :raises NotFound: the topic has no schema
        """
        name = TopicName.parse(topic)
        path = f"/admin/v2/schemas/{name.namespace_name}/{quote(name.local, safe='')}/schema"
        return dict(self._http.ask("GET", path if version is None else f"{path}/{version}"))

    def unload_topic(self, topic: str) -> None:
        """Makes the broker close the topic; its clients reconnect."""
        self._http.ask("PUT", topic_path(topic) + "/unload")

    def compact_topic(self, topic: str) -> None:
        """Starts the compaction of a topic.

        :raises Conflict: a compaction is in progress
        """
        self._http.ask("PUT", topic_path(topic) + "/compaction")

    def compaction_status(self, topic: str) -> dict[str, Any]:
        """Returns ``status`` (NOT_RUN, RUNNING, SUCCESS, ERROR) and ``lastError``."""
        return dict(self._http.ask("GET", topic_path(topic) + "/compaction"))

    def terminate_topic(self, topic: str) -> tuple[int, int]:
        """Terminates a topic; returns (ledger id, entry id) of its last message."""
        last = self._http.ask("POST", topic_path(topic) + "/terminate")
        return int(last["ledgerId"]), int(last["entryId"])

    def delete_subscription(self, topic: str, subscription: str, *, force: bool = False) -> None:
        """Deletes a subscription.

        :param force: whether to delete the subscription even if consumers are connected
        """
        path = f"{topic_path(topic)}/subscription/{subscription_piece(subscription)}"
        self._http.ask("DELETE", path, {"force": _truth(force)})

    # Read plans, which only Magnetar has

    def make_read_plan(
        self, topic: str, start: tuple[int, int], end: tuple[int, int] | None = None, seconds: int = 600
    ) -> dict[str, Any]:
        """Creates a read plan, which lists the files that hold the entries of a topic from ``start``.

        Entries that are not in a file yet must be read through the broker.

        :param start: (ledger id, entry id) of the first entry
        :param end: (ledger id, entry id) of the first entry not to read; None: read to the last entry
        :param seconds: how long the broker keeps the files
        """
        asked: dict[str, Any] = {"start": _message_id(start), "seconds": seconds}
        if end is not None:
            asked["end"] = _message_id(end)
        path = f"{_READ_PLANS}/{topic_path(topic).removeprefix('/admin/v2/')}"
        return dict(self._http.ask("POST", path, body=json.dumps(asked)))

    def prolong_read_plan(self, plan_id: str, seconds: int = 600) -> None:
        """Keeps the files of a plan for ``seconds`` from now on."""
        self._http.ask(
            "PUT", f"{_READ_PLANS}/{quote(plan_id, safe='')}", body=json.dumps({"seconds": seconds})
        )

    def release_read_plan(self, plan_id: str) -> None:
        """Releases the files of a plan."""
        self._http.ask("DELETE", f"{_READ_PLANS}/{quote(plan_id, safe='')}")

    def take_snapshot(self, seconds: int = 60) -> BrokerSnapshot:
        """Takes a snapshot of a standalone broker, which is kept for ``seconds``; supported only by
        Magnetar.
        """
        found = self._http.ask("POST", _SNAPSHOTS, body=json.dumps({"seconds": seconds}))
        files = [
            SnapshotFile(each["path"], each["source"], each["bytes"], each["sealed"])
            for each in found["files"]
        ]
        return BrokerSnapshot(found["id"], found["dataDirectory"], found["store"], found["takenMs"], files)

    def prolong_snapshot(self, snapshot_id: str, seconds: int = 60) -> None:
        """Keeps the files of a snapshot for ``seconds`` from now on."""
        path = f"{_SNAPSHOTS}/{quote(snapshot_id, safe='')}"
        self._http.ask("PUT", path, body=json.dumps({"seconds": seconds}))

    def release_snapshot(self, snapshot_id: str) -> None:
        """Releases the files of a snapshot."""
        self._http.ask("DELETE", f"{_SNAPSHOTS}/{quote(snapshot_id, safe='')}")

    # Namespaces, tenants, clusters, brokers

    def namespaces(self, tenant: str) -> list[str]:
        return list(self._http.ask("GET", f"/admin/v2/namespaces/{quote(tenant, safe='')}"))

    def create_namespace(self, namespace: str, policies: dict[str, object] | None = None) -> None:
        self._http.ask("PUT", namespace_path(namespace), body=json.dumps(policies or {}))

    def delete_namespace(self, namespace: str) -> None:
        self._http.ask("DELETE", namespace_path(namespace))

    def permissions(self, namespace: str) -> dict[str, list[str]]:
        """Returns the actions that each role is granted on a namespace."""
        return dict(self._http.ask("GET", f"{namespace_path(namespace)}/permissions"))

    def grant_permission(self, namespace: str, role: str, actions: Sequence[str]) -> None:
        """Grants a role permissions on a namespace.

        :param actions: any of ``produce``, ``consume``, ``functions``, ``sources``,
        ``sinks``, ``packages``
        """
        path = f"{namespace_path(namespace)}/permissions/{quote(role, safe='')}"
        self._http.ask("POST", path, body=json.dumps(list(actions)))

    def revoke_permissions(self, namespace: str, role: str) -> None:
        self._http.ask("DELETE", f"{namespace_path(namespace)}/permissions/{quote(role, safe='')}")

    def create_tenant(self, tenant: str, clusters: Sequence[str] | None = None) -> None:
        """Creates a tenant.

        :param clusters: the allowed clusters; None: all clusters
        :raises Conflict: the tenant already exists
        """
        allowed = list(self.clusters() if clusters is None else clusters)
        body = json.dumps({"adminRoles": [], "allowedClusters": allowed})
        self._http.ask("PUT", f"/admin/v2/tenants/{quote(tenant, safe='')}", body=body)

    def tenants(self) -> list[str]:
        return list(self._http.ask("GET", "/admin/v2/tenants"))

    def clusters(self) -> list[str]:
        return list(self._http.ask("GET", "/admin/v2/clusters"))

    def brokers(self, cluster: str) -> list[str]:
        """Returns the addresses of the active brokers of a cluster."""
        return list(self._http.ask("GET", f"/admin/v2/brokers/{quote(cluster, safe='')}"))

    def health_check(self) -> None:
        """Requests a health check: the broker publishes and reads a message."""
        self._http.ask("GET", "/admin/v2/brokers/health")


def _message_id(position: tuple[int, int]) -> dict[str, int]:
    return {"ledgerId": position[0], "entryId": position[1]}


def _truth(value: bool) -> str:
    return "true" if value else "false"
