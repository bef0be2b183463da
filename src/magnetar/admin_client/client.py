"""Operations of the admin interface as methods."""

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

    :raises InvalidName: the text is not the name of a topic
    """
    name = TopicName.parse(text)
    return f"{_path(name.namespace_name, name.domain.value)}/{quote(name.local, safe='')}"


def _in_transactions(kind: str, topic: str) -> str:
    """Returns the path of what the transactions of a topic tell."""
    return f"{_TRANSACTIONS}/{kind}/{topic_path(topic).removeprefix('/admin/v2/persistent/')}"


def namespace_path(text: str) -> str:
    """Returns the path of a namespace in the admin interface.

    :raises InvalidName: the text is not the name of a namespace
    """
    return _path(NamespaceName.parse(text), "namespaces")


def topics_path(namespace: str, domain: str = "persistent") -> str:
    """Returns the path of the topics of a namespace.

    :raises InvalidName: the text is not the name of a namespace
    """
    return _path(NamespaceName.parse(namespace), domain)


def _path(namespace: NamespaceName, kind: str) -> str:
    return f"{'/admin' if namespace.legacy else '/admin/v2'}/{kind}/{namespace}"


class SnapshotFile(NamedTuple):
    """A file of a snapshot; its paths are relative to the data directory."""

    path: str
    """The path at which a broker expects the file."""
    source: str
    """The path of the file now."""
    bytes: int
    """The number of bytes from the start of the file that belong to the snapshot; -1: all."""
    sealed: bool
    """Whether the file never changes while the snapshot is kept."""


class BrokerSnapshot(NamedTuple):
    """The state of a standalone broker at one moment."""

    snapshot_id: str
    data_directory: str
    """On the broker's machine."""
    store: str
    """The id of the ledger store."""
    taken_ms: int
    """The moment, in milliseconds since 1970."""
    files: Sequence[SnapshotFile]


class AdminClient:
    """Raises the errors of ``magnetar.admin_client.errors`` by HTTP status; InvalidName for invalid names."""

    def __init__(
        self,
        admin_url: str,
        *,
        token: str | None = None,
        authentication: Authentication | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        """:param admin_url: like ``http://localhost:8080``, or ``https://…``

        :param token: short for ``authentication=AuthenticationToken(token)``
        :param authentication: the credentials of each request
        :param tls: settings for ``https``; None: issuers that the system trusts, with a check of host names
        :raises AdminError: ``admin_url`` is not an HTTP address
        :raises NoCredentials: the token is not valid
        """
        if token is not None:
            authentication = AuthenticationToken(token)
        self._http = AdminHttp(admin_url, authentication=authentication, tls=tls)

    # Topics

    def topics(self, namespace: str) -> list[str]:
        """Returns the persistent topics of a namespace, with one item per partition."""
        return list(self._http.ask("GET", topics_path(namespace)))

    def partitioned_topics(self, namespace: str) -> list[str]:
        return list(self._http.ask("GET", topics_path(namespace) + "/partitioned"))

    def create_topic(self, topic: str) -> None:
        """Creates a topic without partitions."""
        self._http.ask("PUT", topic_path(topic))

    def delete_topic(self, topic: str, *, force: bool = False) -> None:
        """Deletes a topic that is not partitioned.

        :param force: disconnect its clients
        """
        self._http.ask("DELETE", topic_path(topic), {"force": _truth(force)})

    def create_partitioned_topic(self, topic: str, partitions: int) -> None:
        self._http.ask("PUT", topic_path(topic) + "/partitions", body=str(partitions))

    def update_partitioned_topic(self, topic: str, partitions: int) -> None:
        """Adds partitions to a topic.

        :param partitions: the new number, above the present one
        """
        self._http.ask("POST", topic_path(topic) + "/partitions", body=str(partitions))

    def delete_partitioned_topic(self, topic: str, *, force: bool = False) -> None:
        """Deletes a partitioned topic with its partitions.

        :param force: disconnect its clients
        """
        self._http.ask("DELETE", topic_path(topic) + "/partitions", {"force": _truth(force)})

    def partitions(self, topic: str) -> int:
        """Returns the number of partitions; 0: the topic is not partitioned."""
        return int(self._http.ask("GET", topic_path(topic) + "/partitions")["partitions"])

    def topic_stats(self, topic: str, *, precise_backlog: bool = False) -> dict[str, Any]:
        """Returns the statistics of a topic.

        :param precise_backlog: count the backlog instead of estimating it
        """
        query = {"getPreciseBacklog": _truth(precise_backlog)}
        return dict(self._http.ask("GET", topic_path(topic) + "/stats", query))

    def explain(self, topic: str, subscription: str | None = None) -> dict[str, Any]:
        """Returns why a topic's messages wait, or cannot be published; only Magnetar has this.

        :param subscription: limits the answer to it
        """
        query = {} if subscription is None else {"subscription": subscription}
        return dict(self._http.ask("GET", topic_path(topic) + "/explain", query))

    def explain_placement(self, bundle: str) -> dict[str, Any]:
        """Returns why a bundle is at its broker, and what would move it; only Magnetar has this.

        :param bundle: ``tenant/namespace/0xSTART_0xEND``
        """
        return dict(self._http.ask("GET", f"/admin/v2/magnetar/explain-placement/{quote(bundle)}"))

    def storage(self, namespace: str | None = None) -> dict[str, Any]:
        """Returns the space of disk, ledger store and topics; only Magnetar has this.

        :param namespace: limits the topics to it
        """
        query = {} if namespace is None else {"namespace": namespace}
        return dict(self._http.ask("GET", "/admin/v2/magnetar/storage", query))

    def topic_internal_stats(self, topic: str) -> dict[str, Any]:
        return dict(self._http.ask("GET", topic_path(topic) + "/internalStats"))

    def offloaded_ledgers(self, topic: str) -> dict[int, str]:
        """Returns the uuid of each ledger of a topic that is in tiered storage, by its id."""
        found = self._http.ask("GET", topic_path(topic) + "/internal-info")
        return {
            int(each["ledgerId"]): str(each["offloadedContextUuid"])
            for each in found["ledgers"]
            if each.get("isOffloaded") and each.get("offloadedContextUuid")
        }

    def aborted_transactions(self, topic: str) -> set[tuple[int, int]] | None:
        """Returns the aborted transactions of a topic; None: there are some, and this broker does not name
        them, as only Magnetar's do. A broker without transactions knows none."""
        found = self._transaction_buffer(topic, {"abortedTransactions": "true"})
        if found is None:
            return set()
        if "abortedTransactions" not in found:
            return None if found["totalAbortedTransactions"] else set()
        return {(most, least) for most, least in found["abortedTransactions"]}

    def visible_end(self, topic: str) -> tuple[int, int] | None:
        """Returns (ledger id, entry id) of a topic's last entry that no open transaction hides; None: the
        broker has no transactions."""
        found = self._transaction_buffer(topic)
        if found is None:
            return None
        ledger, _, entry = str(found["maxReadPosition"]).partition(":")
        return int(ledger), int(entry)

    def is_open_or_aborted(self, topic: str, transaction: tuple[int, int]) -> bool:
        """Returns whether a topic knows a transaction as open or aborted."""
        most, least = transaction
        found = self._http.ask("GET", f"{_in_transactions('transactionInBufferStats', topic)}/{most}/{least}")
        return bool(found.get("aborted") or found.get("startPosition"))

    def _transaction_buffer(self, topic: str, query: dict[str, str] | None = None) -> dict[str, Any] | None:
        """Returns ``TransactionBufferStats`` of a topic; None: the broker has no transactions."""
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
        """Sets a policy of the topic, which overrides that of its namespace."""
        self._http.ask("POST", topic_path(topic) + "/deduplicationEnabled", body=json.dumps(enabled))

    def message_id_at(self, topic: str, time_ms: int) -> tuple[int, int]:
        """Returns (ledger id, entry id) of the first message published at or after ``time_ms`` since 1970."""
        found = self._http.ask("GET", f"{topic_path(topic)}/messageid/{time_ms}")
        return int(found["ledgerId"]), int(found["entryId"])

    def entry_from_the_end(self, topic: str, number: int) -> tuple[int, int] | None:
        """Returns (ledger id, entry id) of the ``number``-th last entry, 1: the last; None: there are fewer.

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
        """Moves a subscription: (ledger, entry) is the next message it delivers."""
        path = f"{topic_path(topic)}/subscription/{subscription_piece(subscription)}/resetcursor"
        body = {"ledgerId": ledger, "entryId": entry, "partitionIndex": -1}
        self._http.ask("POST", path, body=json.dumps(body))

    def create_subscription(self, topic: str, subscription: str, ledger: int, entry: int) -> None:
        """Creates a durable subscription: (ledger, entry) is the next message it delivers."""
        path = f"{topic_path(topic)}/subscription/{subscription_piece(subscription)}"
        body = {"ledgerId": ledger, "entryId": entry, "partitionIndex": -1}
        self._http.ask("PUT", path, body=json.dumps(body))

    def schema(self, topic: str, version: int | None = None) -> dict[str, Any]:
        """Returns a schema of a topic: ``type``, ``data``, ``properties``, ``version``.

        :param version: None: the newest
        :raises NotFound: the topic has no schema
        """
        name = TopicName.parse(topic)
        path = f"/admin/v2/schemas/{name.namespace_name}/{quote(name.local, safe='')}/schema"
        return dict(self._http.ask("GET", path if version is None else f"{path}/{version}"))

    def unload_topic(self, topic: str) -> None:
        """Closes the topic; its clients reconnect."""
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

        :param force: disconnect its consumers
        """
        path = f"{topic_path(topic)}/subscription/{subscription_piece(subscription)}"
        self._http.ask("DELETE", path, {"force": _truth(force)})

    # Read plans, which only Magnetar has

    def make_read_plan(
        self, topic: str, start: tuple[int, int], end: tuple[int, int] | None = None, seconds: int = 600
    ) -> dict[str, Any]:
        """Makes a plan with the files of the entries from ``start`` to before ``end`` (None: to the last).

        The files are kept for ``seconds``; entries that are in no file yet are read through the broker.
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
        """Returns the whole state of a standalone broker, kept for ``seconds``; only Magnetar has this."""
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
        """Returns the granted actions of roles in a namespace."""
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

        :param clusters: the allowed clusters; None: all

        :raises Conflict: the tenant exists
        """
        allowed = list(self.clusters() if clusters is None else clusters)
        body = json.dumps({"adminRoles": [], "allowedClusters": allowed})
        self._http.ask("PUT", f"/admin/v2/tenants/{quote(tenant, safe='')}", body=body)

    def tenants(self) -> list[str]:
        return list(self._http.ask("GET", "/admin/v2/tenants"))

    def clusters(self) -> list[str]:
        return list(self._http.ask("GET", "/admin/v2/clusters"))

    def brokers(self, cluster: str) -> list[str]:
        """Returns the addresses of the active brokers."""
        return list(self._http.ask("GET", f"/admin/v2/brokers/{quote(cluster, safe='')}"))

    def health_check(self) -> None:
        """Waits until the broker has published and read a message."""
        self._http.ask("GET", "/admin/v2/brokers/health")


def _message_id(position: tuple[int, int]) -> dict[str, int]:
    return {"ledgerId": position[0], "entryId": position[1]}


def _truth(value: bool) -> str:
    return "true" if value else "false"
