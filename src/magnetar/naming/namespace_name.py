"""Names of namespaces: ``tenant/namespace``, or the legacy form ``tenant/cluster/namespace``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from magnetar.naming.name_rules import InvalidName, check_length, check_path_piece

POLICIES = "/admin/policies"
"""The parent of tenants and namespaces in the metadata: a node for each tenant, and below it a node for
each of its namespaces."""
LOCAL_POLICIES = "/admin/local-policies"
"""The node below which each cluster stores its own data about namespaces: bundles and placement."""
_PART = re.compile(r"[-=:.\w]+", re.ASCII)
_TENANT = "pulsar"
_BROKER = re.compile(r"[^/]+:[0-9]+")


def check_part(kind: str, part: str) -> None:
    """Checks one part of a name.

    :param kind: the kind of object that the part names, for the message
    :raises InvalidName: the part is empty, too long, ``.`` or ``..``, or has characters other than letters,
        digits and ``-=:._``
    """
    check_length(kind, part)
    if not _PART.fullmatch(part):
        raise InvalidName(f"invalid {kind} name {part!r}: only letters, digits and -=:._ are allowed")
    check_path_piece(kind, part)


@dataclass(frozen=True, slots=True, order=True)
class NamespaceName:
    tenant: str
    cluster: str | None
    """The cluster in a legacy name; None in other names."""
    local: str

    def __post_init__(self) -> None:
        check_part("tenant", self.tenant)
        if self.cluster is not None:
            check_part("cluster", self.cluster)
        check_part("namespace", self.local)
        check_length("namespace", str(self))

    @classmethod
    def parse(cls, text: str) -> NamespaceName:
        """Parses the name of a namespace.

        :raises InvalidName: the string is neither ``tenant/namespace`` nor ``tenant/cluster/namespace``
        """
        check_length("namespace", text)
        parts = text.split("/")
        if len(parts) == 2:
            return cls(parts[0], None, parts[1])
        if len(parts) == 3:
            return cls(parts[0], parts[1], parts[2])
        raise InvalidName(f"invalid namespace name {text!r}: must be tenant/namespace")

    @property
    def legacy(self) -> bool:
        return self.cluster is not None

    @property
    def is_global(self) -> bool:
        """Whether the namespace may be replicated; false for legacy names with a cluster other
        than ``global``."""
        return self.cluster is None or self.cluster == "global"

    @property
    def path(self) -> str:
        """Returns the name as a piece of a metadata path, without a leading slash."""
        return str(self)

    def __str__(self) -> str:
        if self.cluster is None:
            return f"{self.tenant}/{self.local}"
        return f"{self.tenant}/{self.cluster}/{self.local}"


def heartbeat_namespaces(cluster: str, broker_id: str) -> tuple[NamespaceName, NamespaceName]:
    """Returns the namespaces of a broker's health check, in the older and the newer form of names.

    :param broker_id: ``host:port`` of the broker's HTTP interface
    """
    return NamespaceName(_TENANT, cluster, broker_id), NamespaceName(_TENANT, None, broker_id)


def heartbeat_of(namespace: NamespaceName) -> str | None:
    """Returns the id of the broker whose health check uses a namespace; None for any other namespace."""
    found = namespace.tenant == _TENANT and _BROKER.fullmatch(namespace.local) is not None
    return namespace.local if found else None
