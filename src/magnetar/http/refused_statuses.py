"""The status of a request without permission, 401 or 403: in Pulsar it depends on the operation."""

from __future__ import annotations

from magnetar.security.operations import (
    BrokerOperation,
    ClusterOperation,
    NamespaceOperation,
    Operation,
    PolicyName,
    PolicyOperation,
    Resource,
    TenantOperation,
    TopicOperation,
)

_FORBIDDEN: frozenset[Operation] = frozenset(
    {TopicOperation.CREATE_TOPIC, TopicOperation.DELETE_TOPIC, TopicOperation.GET_BUNDLE_RANGE}
)
"""Operations on topics with status 403; the others have 401."""

_UNAUTHORIZED: frozenset[Operation] = frozenset(
    {
        NamespaceOperation.CREATE_NAMESPACE,
        NamespaceOperation.DELETE_NAMESPACE,
        NamespaceOperation.GET_METADATA,
        NamespaceOperation.UPDATE_METADATA,
        NamespaceOperation.DELETE_METADATA,
        NamespaceOperation.UNLOAD,
        NamespaceOperation.UPDATE_MIGRATION,
        NamespaceOperation.PACKAGES,
        NamespaceOperation.GET_BUNDLE_QUOTA,
        NamespaceOperation.UPDATE_BUNDLE_QUOTA,
        NamespaceOperation.GET_RESOURCE_AVAILABILITY,
        *(
            PolicyOperation(name, write)
            for name in (PolicyName.BOOKIE_AFFINITY, PolicyName.MAX_MESSAGE_SIZE)
            for write in (False, True)
        ),
    }
)
"""Operations on namespaces and policies with status 401; the others have 403."""

_SETS_DELAYS = PolicyOperation(PolicyName.DELAYED_DELIVERY, write=True)


def is_refused_as_unauthorized(operation: Operation, resource: Resource) -> bool:
    """Whether a request without permission is answered with 401, and not 403."""
    if isinstance(operation, (ClusterOperation, BrokerOperation, TenantOperation)):
        return True
    if isinstance(operation, TopicOperation):
        return operation not in _FORBIDDEN
    if operation == _SETS_DELAYS:
        return resource is Resource.NAMESPACE
    return operation in _UNAUTHORIZED
