"""Commands for clusters, tenants and namespaces, and the parser of ``--cluster-config-file``."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from pathlib import Path

from magnetar.admin_client.client import topic_path
from magnetar.cli.admin.arguments import UsageError
from magnetar.cli.admin.call import Action, Call, piece, properties_of
from magnetar.cli.admin.rendering import objects, rows
from magnetar.cli.command_lines import advice

_CLUSTER_FIELDS = {
    "url": "serviceUrl",
    "url-secure": "serviceUrlTls",
    "broker-url": "brokerServiceUrl",
    "broker-url-secure": "brokerServiceUrlTls",
    "proxy-url": "proxyServiceUrl",
    "auth-plugin": "authenticationPlugin",
    "auth-parameters": "authenticationParameters",
    "proxy-protocol": "proxyProtocol",
    "tls-enable": "brokerClientTlsEnabled",
    "tls-allow-insecure": "tlsAllowInsecureConnection",
    "tls-enable-keystore": "brokerClientTlsEnabledWithKeyStore",
    "tls-trust-store-type": "brokerClientTlsTrustStoreType",
    "tls-trust-store": "brokerClientTlsTrustStore",
    "tls-trust-store-pwd": "brokerClientTlsTrustStorePassword",
    "tls-key-store-type": "brokerClientTlsKeyStoreType",
    "tls-key-store": "brokerClientTlsKeyStore",
    "tls-key-store-pwd": "brokerClientTlsKeyStorePassword",
    "tls-trust-certs-filepath": "brokerClientTrustCertsFilePath",
    "tls-key-filepath": "brokerClientKeyFilePath",
    "tls-certs-filepath": "brokerClientCertificateFilePath",
    "tls-factory-plugin": "brokerClientSslFactoryPlugin",
    "tls-factory-plugin-params": "brokerClientSslFactoryPluginParams",
    "listener-name": "listenerName",
}
_CLUSTER_DEFAULTS = {
    "brokerClientTlsTrustStoreType": "JKS",
    "brokerClientTlsKeyStoreType": "JKS",
    "brokerClientSslFactoryPlugin": "org.apache.pulsar.common.util.DefaultPulsarSslFactory",
}
_LINE = re.compile(r"(\w+):(?:\s+(.*))?")
_COMMENT = re.compile(r"\s+#.*$")
_TRUTHS = {"true": True, "false": False}


def _cluster(call: Call) -> str:
    return f"/admin/v2/clusters/{piece(call.get('clusterName') or call['cluster'])}"


def _cluster_data(call: Call) -> dict[str, object]:
    file = call.get("cluster-config-file")
    known = (*_CLUSTER_FIELDS.values(), "peerClusterNames")
    written = read_cluster_file(file, known) if file else {}
    given = {field: call[option] for option, field in _CLUSTER_FIELDS.items() if call[option] is not None}
    # A flag that is not given is false, and does not override the file.
    flags = {field: value for field, value in given.items() if value is False}
    return {**_CLUSTER_DEFAULTS, **flags, **written, **{k: v for k, v in given.items() if v is not False}}


def _list_clusters(call: Call) -> object:
    names = call.ask("GET", "/admin/v2/clusters")
    if not call["current"]:
        return names
    current = call.ask("GET", "/admin/v2/brokers/configuration/runtime").get("clusterName")
    return [f"{name}(*)" if name == current else name for name in names]


def _delete_cluster(call: Call) -> object:
    if call["all"]:
        _delete_everything(call)
    return call.send("DELETE", _cluster(call))


def _delete_everything(call: Call) -> None:
    """Deletes every tenant with all its namespaces and topics, as Pulsar's tool does."""
    for tenant in call.ask("GET", "/admin/v2/tenants"):
        for namespace in call.ask("GET", f"/admin/v2/namespaces/{piece(tenant)}"):
            version = "/admin" if namespace.count("/") > 1 else "/admin/v2"
            for domain in ("persistent", "non-persistent"):
                for rest in ("/partitioned", ""):
                    for topic in call.ask("GET", f"{version}/{domain}/{namespace}{rest}"):
                        ending = "/partitions" if rest else ""
                        call.send("DELETE", topic_path(topic) + ending, {"force": True})
            call.send("DELETE", f"{version}/namespaces/{namespace}")
        call.send("DELETE", f"/admin/v2/tenants/{piece(tenant)}")


_MIGRATION_FIELDS = {
    "service-url": "serviceUrl",
    "service-url-secure": "serviceUrlTls",
    "broker-url": "brokerServiceUrl",
    "broker-url-secure": "brokerServiceUrlTls",
}


def _update_migration(call: Call) -> object:
    url = {field: call[option] for option, field in _MIGRATION_FIELDS.items() if call[option] is not None}
    return call.send("POST", f"{_cluster(call)}/migrate", {"migrated": call["migrated"]}, url)


def _tenant(call: Call) -> str:
    return f"/admin/v2/tenants/{piece(call['tenant'])}"


def _create_tenant(call: Call) -> object:
    clusters = call["allowed-clusters"] or call.ask("GET", "/admin/v2/clusters")
    return call.send(
        "PUT", _tenant(call), None, {"adminRoles": call["admin-roles"] or [], "allowedClusters": clusters}
    )


def _update_tenant(call: Call) -> object:
    known = call.ask("GET", _tenant(call))
    roles = call["admin-roles"] if call["admin-roles"] is not None else known.get("adminRoles", [])
    clusters = (
        call["allowed-clusters"] if call["allowed-clusters"] is not None else known.get("allowedClusters", [])
    )
    return call.send("POST", _tenant(call), None, {"adminRoles": roles, "allowedClusters": clusters})


def _create_namespace(call: Call) -> object:
    policies: dict[str, object] = {}
    if call["clusters"]:
        policies["replication_clusters"] = call["clusters"]
    if call["bundles"]:
        policies["bundles"] = {"numBundles": call["bundles"]}
    return call.send("PUT", call.namespace, None, policies)


def _group(call: Call) -> str:
    return f"/admin/v2/resourcegroups/{piece(call['resourceGroupName'])}"


_GROUP_FIELDS = {
    "msg-publish-rate": "publishRateInMsgs",
    "byte-publish-rate": "publishRateInBytes",
    "msg-dispatch-rate": "dispatchRateInMsgs",
    "byte-dispatch-rate": "dispatchRateInBytes",
}


def _put_group(call: Call) -> object:
    given = {field: call[option] for option, field in _GROUP_FIELDS.items() if call[option] is not None}
    return call.send("PUT", _group(call), None, given)


def _of_bundle(call: Call) -> str:
    bundle = call.get("bundle")
    return f"{call.namespace}/{bundle}" if bundle else call.namespace


def _unload(call: Call) -> object:
    if call["destinationBroker"] and not call["bundle"]:
        raise UsageError("--destinationBroker requires --bundle")
    query = {"destinationBroker": call["destinationBroker"]} if call["destinationBroker"] else None
    return call.send("PUT", f"{_of_bundle(call)}/unload", query)


def _split(call: Call) -> object:
    bundle, kind = call["bundle"], call["bundle-type"]
    if bool(bundle) == bool(kind):
        raise UsageError("no bundle is given; use --bundle or --bundle-type")
    query = {"unload": call["unload"]}
    if call["split-algorithm-name"]:
        query["splitAlgorithmName"] = call["split-algorithm-name"]
    boundaries = call["split-boundaries"] or None
    return call.send("PUT", f"{call.namespace}/{bundle or kind}/split", query, boundaries)


def _positions(call: Call) -> object:
    topics = ",".join(call["topic-list"] or ())
    query = {"topics": topics} if topics else None
    return call.ask("GET", f"{call.namespace}/{call['bundle']}/topicHashPositions", query)


def _get_property(call: Call) -> object:
    return call.ask("GET", f"{call.namespace}/property/{piece(call['key'])}")


_TENANTS: dict[str, Action] = {
    "list": lambda call: call.ask("GET", "/admin/v2/tenants"),
    "get": lambda call: call.ask("GET", _tenant(call)),
    "create": _create_tenant,
    "update": _update_tenant,
    "delete": lambda call: call.send("DELETE", _tenant(call), {"force": call["force"]}),
}
ACTIONS: dict[str, Action] = {
    # Tenants were formerly called properties.
    **{f"{group} {name}": action for group in ("tenants", "properties") for name, action in _TENANTS.items()},
    "clusters list": _list_clusters,
    "clusters get": lambda call: call.ask("GET", _cluster(call)),
    "clusters create": lambda call: call.send("PUT", _cluster(call), None, _cluster_data(call)),
    "clusters update": lambda call: call.send("POST", _cluster(call), None, _cluster_data(call)),
    "clusters delete": _delete_cluster,
    "clusters get-peer-clusters": lambda call: objects(call.ask("GET", f"{_cluster(call)}/peers")),
    "clusters update-peer-clusters": lambda call: call.send(
        "POST", f"{_cluster(call)}/peers", None, [n for n in call["peer-clusters"].split(",") if n]
    ),
    "clusters get-cluster-migration": lambda call: call.ask("GET", f"{_cluster(call)}/migrate"),
    "clusters update-cluster-migration": _update_migration,
    "resourcegroups list": lambda call: call.ask("GET", "/admin/v2/resourcegroups"),
    "resourcegroups get": lambda call: call.ask("GET", _group(call)),
    "resourcegroups create": _put_group,
    "resourcegroups update": _put_group,
    "resourcegroups delete": lambda call: call.send("DELETE", _group(call)),
    "namespaces list": lambda call: call.ask("GET", f"/admin/v2/namespaces/{piece(call['tenant'])}"),
    "namespaces list-cluster": lambda call: call.ask("GET", f"/admin/namespaces/{call['params']}"),
    "namespaces topics": lambda call: call.ask(
        "GET",
        f"{call.namespace}/topics",
        {"mode": call["mode"], "includeSystemTopic": call["include-system-topic"]},
    ),
    "namespaces destinations": lambda call: call.ask("GET", f"{call.namespace}/topics"),
    "namespaces bundles": lambda call: call.ask("GET", f"{call.namespace}/bundles"),
    "namespaces policies": lambda call: call.ask("GET", call.namespace),
    "namespaces create": _create_namespace,
    "namespaces delete": lambda call: call.send("DELETE", call.namespace, {"force": call["force"]}),
    "namespaces update-migration-state": lambda call: call.send(
        "POST", f"{call.namespace}/migration", None, call["migrated"]
    ),
    "namespaces permissions": lambda call: rows(call.ask("GET", f"{call.namespace}/permissions")),
    "namespaces grant-permission": lambda call: call.send(
        "POST", f"{call.namespace}/permissions/{piece(call['role'])}", None, call["actions"]
    ),
    "namespaces revoke-permission": lambda call: call.send(
        "DELETE", f"{call.namespace}/permissions/{piece(call['role'])}"
    ),
    "namespaces subscription-permission": lambda call: rows(
        call.ask("GET", f"{call.namespace}/permissions/subscription")
    ),
    "namespaces grant-subscription-permission": lambda call: call.send(
        "POST",
        f"{call.namespace}/permissions/subscription/{piece(call['subscription'])}",
        None,
        call["roles"],
    ),
    "namespaces revoke-subscription-permission": lambda call: call.send(
        "DELETE", f"{call.namespace}/permissions/{piece(call['subscription'])}/{piece(call['role'])}"
    ),
    "namespaces unload": _unload,
    "namespaces split-bundle": _split,
    "namespaces get-topic-positions": _positions,
    "namespaces unsubscribe": lambda call: call.send(
        "POST", f"{_of_bundle(call)}/unsubscribe/{piece(call['sub'])}"
    ),
    "namespaces get-offload-policies": lambda call: call.ask("GET", f"{call.namespace}/offloadPolicies"),
    "namespaces remove-offload-policies": lambda call: call.send(
        "DELETE", f"{call.namespace}/removeOffloadPolicies"
    ),
    "namespaces set-property": lambda call: call.send(
        "PUT", f"{call.namespace}/property/{piece(call['key'])}/{piece(call['value'])}"
    ),
    "namespaces get-property": _get_property,
    "namespaces remove-property": lambda call: call.ask(
        "DELETE", f"{call.namespace}/property/{piece(call['key'])}"
    ),
    "namespaces set-properties": lambda call: call.send(
        "PUT", f"{call.namespace}/properties", None, properties_of(call["properties"])
    ),
    "namespaces get-properties": lambda call: call.ask("GET", f"{call.namespace}/properties"),
    "namespaces clear-properties": lambda call: call.send("DELETE", f"{call.namespace}/properties"),
}


def read_cluster_file(file: str, known: Collection[str]) -> dict[str, object]:
    """Returns the fields of a cluster from a JSON or YAML file.

    :param known: names of known fields
    :raises UsageError: the file cannot be read, is malformed, or has an unknown field
    """
    try:
        text = Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from error
    fields = _object(file, text) if text.lstrip().startswith("{") else _lines(file, text)
    for name in fields:
        if name not in known:
            raise UsageError(f"{file}: a cluster has no field {name!r}{advice(name, known)}")
    return {name: value for name, value in fields.items() if value is not None}


def _object(file: str, text: str) -> dict[str, object]:
    try:
        value: dict[str, object] = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{file} is not JSON: {error}") from error
    return value


def _lines(file: str, text: str) -> dict[str, object]:
    """Parses the subset of YAML that the fields of a cluster need: one ``name: value`` per line, without
    nesting.
    """
    found: dict[str, object] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#") or line.strip() == "---":
            continue
        match = _LINE.fullmatch(line.rstrip())
        if match is None:
            raise UsageError(f"{file}, line {number} must be 'name: value'")
        found[match[1]] = _value(match[2] or "")
    return found


def _value(text: str) -> object:
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    if quoted:
        return text[1:-1]
    text = _COMMENT.sub("", f" {text}").strip()
    if text.startswith("[") and text.endswith("]"):
        return [_value(each.strip()) for each in text[1:-1].split(",") if each.strip()]
    return _TRUTHS.get(text, text) if text not in ("", "~", "null") else None
