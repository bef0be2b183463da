"""Takes names (of clusters, tenants, namespaces, topics and others) from the variables of a path, and checks
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from magnetar import errors
from magnetar.http.engine.message import Request
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.namespace_name import NamespaceName, check_part
from magnetar.naming.topic_name import Domain, TopicName
from magnetar.security.authorization import BROKER_ITSELF, Resource, Target


def tenant_of(variables: Mapping[str, str]) -> str:
    """Returns the tenant in the path.

    :raises errors.InvalidName: the name violates the rules
    """
    return _part_of(variables, "tenant")


def cluster_of(variables: Mapping[str, str]) -> str:
    """Returns the cluster in the path.

    :raises errors.InvalidName: the name violates the rules
    """
    return _part_of(variables, "cluster")


def resource_group_of(variables: Mapping[str, str]) -> str:
    """Returns the resource group in the path.

    :raises errors.InvalidName: the name violates the rules
    """
    return _part_of(variables, "resourcegroup")


def new_tenant_of(variables: Mapping[str, str]) -> str:
    """Like :func:`tenant_of`, with Pulsar's error text for new tenants."""
    return _new(variables, "tenant", "Tenant name is not valid")


def new_cluster_of(variables: Mapping[str, str]) -> str:
    """Like :func:`cluster_of`, with Pulsar's error text for new clusters."""
    return _new(variables, "cluster", "Cluster name is not valid")


def new_namespace_of(variables: Mapping[str, str]) -> str:
    """Like :func:`namespace_of`, with Pulsar's error text for new namespaces."""
    try:
        return namespace_of(variables)
    except errors.InvalidName as error:
        raise errors.InvalidName(f"Namespace name is not valid: {error}") from error


def _new(variables: Mapping[str, str], kind: str, refusal: str) -> str:
    try:
        return _part_of(variables, kind)
    except errors.InvalidName as error:
        raise errors.InvalidName(f"{refusal}: {error}") from error


def _part_of(variables: Mapping[str, str], kind: str) -> str:
    try:
        check_part(kind, variables[kind])
    except InvalidName as error:
        raise errors.InvalidName(str(error)) from error
    return variables[kind]


def namespace_of(variables: Mapping[str, str]) -> str:
    """Returns ``tenant/namespace``, or ``tenant/cluster/namespace`` if the path contains a cluster.

    :raises errors.InvalidName: the name violates the rules
    """
    return str(_namespace(variables))


def topic_of(variables: Mapping[str, str]) -> str:
    """Returns the full name of a topic; the domain is persistent if the path contains no domain.

    :raises errors.InvalidTopicName: the name violates the rules
    """
    try:
        domain = Domain(variables.get("domain", Domain.PERSISTENT.value))
    except ValueError:
        raise errors.InvalidTopicName(
            f"{variables['domain']!r} is not a topic domain; use persistent or non-persistent"
        ) from None
    try:
        return str(TopicName(domain, _namespace(variables), variables["topic"]))
    except InvalidName as error:
        raise errors.InvalidTopicName(str(error)) from error


def target_of(resource: Resource, variables: Mapping[str, str]) -> Target:
    """Returns the resource on which an endpoint's operation requires permission.

    :raises errors.InvalidName: a name violates the rules
    :raises errors.InvalidTopicName: the name of the topic violates the rules
    """
    if resource in (Resource.TOPIC, Resource.SUBSCRIPTION):
        return Target.of_topic(TopicName.parse(topic_of(variables)), variables.get("subscription", ""))
    if resource is Resource.NAMESPACE:
        return Target.of_namespace(_namespace(variables))
    if resource is Resource.TENANT:
        return Target.of_tenant(variables["tenant"])
    return BROKER_ITSELF


def partition_of(topic: str) -> int:
    """Returns the index of a partition; -1 if the topic is not a partition."""
    return TopicName.parse(topic).partition_index


def partitioned_topic_of(variables: Mapping[str, str]) -> str:
    """Like :func:`topic_of`, for a partitioned topic.

    :raises errors.InvalidTopicName: the name violates the rules, or is the name of a partition
    """
    name = topic_of(variables)
    if "-partition-" in variables["topic"]:
        raise errors.InvalidTopicName("Partitioned Topic Name should not contain '-partition-'")
    return name


def _namespace(variables: Mapping[str, str]) -> NamespaceName:
    try:
        return NamespaceName(variables["tenant"], variables.get("cluster"), variables["namespace"])
    except InvalidName as error:
        raise errors.InvalidName(str(error)) from error


def _in_path(find: Callable[[Mapping[str, str]], str]) -> Callable[[Request], str]:
    return lambda request: find(request.variables)


CLUSTER = _in_path(cluster_of)
NEW_CLUSTER = _in_path(new_cluster_of)
TENANT = _in_path(tenant_of)
NEW_TENANT = _in_path(new_tenant_of)
NAMESPACE = _in_path(namespace_of)
TOPIC = _in_path(topic_of)
RESOURCE_GROUP = _in_path(resource_group_of)


def variable(name: str) -> Callable[[Request], str]:
    """Returns a shape: a function that takes a variable of the path from a request."""
    return lambda request: request.variables[name]


def optional_variable(name: str) -> Callable[[Request], str | None]:
    """Returns a shape that takes a path variable from a request; None: the path does not contain it."""
    return lambda request: request.variables.get(name)


def number_in_path(name: str) -> Callable[[Request], int]:
    """Returns a shape that takes a number from the path; for any other text, the path is unknown (404)."""

    def shape(request: Request) -> int:
        try:
            return int(request.variables[name])
        except ValueError:
            raise errors.NotFound(f"{request.variables[name]!r} is not a number") from None

    return shape
