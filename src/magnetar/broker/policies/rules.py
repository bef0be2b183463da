"""Checks of policies: contradictions within a policy and between policies, and values that this release
cannot honour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.offload import OFFLOAD_FIELDS, check_offload
from magnetar.broker.policies.values import BacklogQuota, Persistence, Retention, texts
from magnetar.errors import AuthorizationFailure, InvalidRequest, PreconditionFailed

_MIB = 1 << 20
_MAX_QUORUM = 5

_RETENTION = "retention_policies"
_QUOTAS = "backlog_quota_map"
_PERSISTENCE = "persistence"


def check_namespace(policies: EffectivePolicies, field: str | None = None, *, one_copy: bool = True) -> None:
    """Checks the policies in effect for a namespace.

    :param field: the field that is being set; None: all fields
    :param one_copy: whether the ledger store keeps a single copy of an entry
    :raises InvalidRequest: a policy contradicts itself
    :raises PreconditionFailed: a policy contradicts another policy, or cannot be honoured
    """
    if field in (None, _RETENTION):
        check_retention(policies.retention)
        if not _fits(policies.retention, policies.storage_quota):
            raise PreconditionFailed(
                "Retention Quota must exceed configured backlog quota for namespace. "
                "Please increase retention quota and retry"
            )
    # As in Pulsar: quotas of age are compared with the retention for single topics only.
    if field in (None, _QUOTAS) and not _fits(policies.retention, policies.storage_quota):
        raise PreconditionFailed(
            "Backlog Quota exceeds configured retention quota for namespace. "
            "Please increase retention quota and retry"
        )
    if field in (None, _PERSISTENCE):
        check_persistence(policies.persistence, one_copy=one_copy)
    if field in (None, *OFFLOAD_FIELDS):
        check_offload(policies.offload)


def check_topic(
    policies: EffectivePolicies, field: str, broker_max_message_size: int, *, one_copy: bool = True
) -> None:
    """Checks one field of the policies in effect for a topic, like :func:`check_namespace`."""
    if field == "retentionPolicies":
        check_retention(policies.retention)
        if not _fits_all(policies):
            raise PreconditionFailed(
                "Retention Quota must exceed configured backlog quota for topic. "
                "Please increase retention quota and retry"
            )
    elif field == "backLogQuotaMap" and not _fits_all(policies):
        raise PreconditionFailed(
            "Backlog Quota exceeds configured retention quota for topic. "
            "Please increase retention quota and retry"
        )
    elif field == "offloadPolicies":
        check_offload(policies.offload)
    elif field == "persistence":
        check_persistence(policies.persistence, one_copy=one_copy)
    elif field == "maxMessageSize" and not 0 <= policies.max_message_size <= broker_max_message_size:
        raise PreconditionFailed(
            "topic-level maxMessageSize must be greater than or equal to 0 "
            "and must be smaller than that in the broker-level"
        )


def check_retention(retention: Retention) -> None:
    """Checks a retention policy.

    :raises InvalidRequest: a limit is below -1, or only one of the two limits is 0
    """
    if retention.minutes < -1:
        raise InvalidRequest("Invalid retention policy: time limit must be >= -1")
    if retention.megabytes < -1:
        raise InvalidRequest("Invalid retention policy: size limit must be >= -1")
    if (retention.minutes == 0) != (retention.megabytes == 0):
        raise InvalidRequest(
            "Invalid retention policy: Setting a single time or size limit to 0 is invalid when one of the "
            "limits has a non-zero value. Use the value of -1 instead of 0 to ignore a specific limit. "
            "To disable retention both limits must be set to 0."
        )


def check_persistence(persistence: Persistence, *, one_copy: bool) -> None:
    """Checks a persistence policy.

    :param one_copy: whether the ledger store keeps a single copy of an entry

    :raises InvalidRequest: the quorums do not fit together
    :raises PreconditionFailed: the quorums need more copies than the ledger store keeps
    """
    ensemble, write, ack = persistence.ensemble, persistence.write_quorum, persistence.ack_quorum
    for name, value in (("Ensemble", ensemble), ("WriteQuorum", write), ("AckQuorum", ack)):
        if not 0 < value <= _MAX_QUORUM:
            raise InvalidRequest(f"Bookkeeper-{name} must be <= {_MAX_QUORUM} and > 0.")
    if not ensemble >= write >= ack:
        raise InvalidRequest(
            f"Bookkeeper Ensemble ({ensemble}) >= WriteQuorum ({write}) >= AckQuorum ({ack})"
        )
    if one_copy and write > 1:
        raise PreconditionFailed(
            f"The embedded ledger store keeps one copy, so a write quorum of {write} is not possible: use 1"
        )


def check_allowed(tenant: str, clusters: Sequence[str], record: Mapping[str, object]) -> None:
    """Checks that a tenant is allowed to use all of the given clusters.

    :param record: ``TenantInfo``
    :raises AuthorizationFailure: the tenant is not allowed to use one of the clusters
    """
    allowed = texts(record.get("allowedClusters") or [])
    for cluster in clusters:
        if cluster not in allowed:
            raise AuthorizationFailure(
                f"Cluster [{cluster}] is not in the list of allowed clusters list for tenant [{tenant}]"
            )


def check_within_namespace(namespace: str, clusters: Sequence[str], allowed: Sequence[str]) -> None:
    """Checks that topics of a namespace may be replicated to all of the given clusters.

    :param allowed: ``allowed_clusters`` of the namespace; empty: all clusters are allowed
    :raises InvalidRequest: one of the clusters is not in ``allowed``
    """
    for cluster in clusters:
        if allowed and cluster not in allowed:
            raise InvalidRequest(
                f"Cluster [{cluster}] is not in the list of allowed clusters list for namespace [{namespace}]"
            )


def check_allows_replication(allowed: Sequence[str], clusters: Sequence[str]) -> None:
    """Checks that a list of allowed clusters contains the namespace's replication clusters.

    :param allowed: ``allowed_clusters``; empty: all clusters are allowed
    :raises InvalidRequest: a replication cluster is not in the list
    """
    lacking = [cluster for cluster in clusters if cluster not in allowed]
    if allowed and lacking:
        names = ", ".join(lacking)
        raise InvalidRequest(f"Allowed clusters do not contain the replication cluster [{names}]")


def _fits_all(policies: EffectivePolicies) -> bool:
    retention = policies.retention
    return _fits(retention, policies.storage_quota) and _fits(retention, policies.age_quota)


def _fits(retention: Retention, quota: BacklogQuota) -> bool:
    """Whether the limits of the backlog quota are below the limits of the retention policy."""
    return _size_fits(retention, quota) and _age_fits(retention, quota)


def _size_fits(retention: Retention, quota: BacklogQuota) -> bool:
    if retention.megabytes <= 0 or quota.limit_bytes < 0:
        return True
    return quota.limit_bytes < retention.megabytes * _MIB


def _age_fits(retention: Retention, quota: BacklogQuota) -> bool:
    if retention.minutes <= 0 or quota.limit_seconds < 0:
        return True
    return quota.limit_seconds < retention.minutes * 60
