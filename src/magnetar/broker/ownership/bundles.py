"""The bundle that a topic belongs to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from magnetar.broker.ownership.contract import Bundle
from magnetar.broker.ownership.nodes import broker_of
from magnetar.errors import MetadataFailure
from magnetar.metadata.cache import MetadataCache
from magnetar.metadata.interface import MetadataStore
from magnetar.naming.bundles import Bundles
from magnetar.naming.errors import InvalidName
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName

_POLICIES = "/admin/policies"
_MAX_KNOWN = 10_000

_LOCAL = "/admin/local-policies"

ReadNamespace = Callable[[NamespaceName], Awaitable[Mapping[str, Any]]]
"""Returns a namespace's record. :raises NamespaceNotFound: the namespace does not exist"""


class NamespaceBundles:
    """The bundles of namespaces, cached until their records change.

    The cluster's own record (``LocalPolicies``) takes precedence over the division that the namespace was
    created with.
    """

    def __init__(self, metadata: MetadataStore, read: ReadNamespace, read_local: ReadNamespace) -> None:
        """:param read_local: returns an empty record for a namespace that has none"""
        self._read_namespace = read
        self._read_local_policies = read_local
        self._known = MetadataCache(metadata, _POLICIES, self._read, most=_MAX_KNOWN)
        self._local = MetadataCache(metadata, _LOCAL, self._read_local, most=_MAX_KNOWN)

    async def of_topic(self, name: TopicName) -> Bundle:
        """Returns the bundle of a topic. System topics belong to bundles of their namespaces like all others.

        :raises NamespaceNotFound: the namespace does not exist
        :raises MetadataFailure: the record of the namespace has no valid division
        """
        divided = await self.of_namespace(name.namespace_name)
        return Bundle(name.namespace_name, divided.find(name.bundle_hash))

    async def of_namespace(self, name: NamespaceName) -> Bundles:
        """Returns how a namespace is divided; raises the same errors as :meth:`of_topic`."""
        if broker_of(name) is not None:
            return Bundles.even(1)
        first = await self._known.get(f"{_POLICIES}/{name.path}")
        (local,) = await self._local.get(f"{_LOCAL}/{name.path}")
        return local or first

    def forget(self, name: NamespaceName) -> None:
        """Drops the cached division of a namespace; for callers that have just changed it."""
        self._local.forget(f"{_LOCAL}/{name.path}")

    async def _read(self, path: str) -> Bundles:
        namespace = NamespaceName.parse(path.removeprefix(_POLICIES + "/"))
        return _divided(path, await self._read_namespace(namespace)) or Bundles.even(1)

    async def _read_local(self, path: str) -> tuple[Bundles | None]:
        namespace = NamespaceName.parse(path.removeprefix(_LOCAL + "/"))
        return (_divided(path, await self._read_local_policies(namespace)),)


def _divided(path: str, record: Mapping[str, Any]) -> Bundles | None:
    """Returns None if the record has no division.

    :raises MetadataFailure: the division in the record is invalid
    """
    boundaries = (record.get("bundles") or {}).get("boundaries")
    try:
        return Bundles.parse(boundaries) if boundaries else None
    except InvalidName as error:
        raise MetadataFailure(f"{path}: {error}") from error
