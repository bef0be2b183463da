"""The bundle in which a topic lies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from magnetar.broker.ownership.contract import Bundle
from magnetar.errors import MetadataFailure
from magnetar.metadata.cache import MetadataCache
from magnetar.metadata.interface import MetadataStore
from magnetar.naming.bundles import Bundles
from magnetar.naming.errors import InvalidName
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName

_POLICIES = "/admin/policies"
_MAX_KNOWN = 10_000

ReadNamespace = Callable[[NamespaceName], Awaitable[Mapping[str, Any]]]
"""A namespace's record. :raises NamespaceNotFound: there is none"""


class NamespaceBundles:
    """How namespaces are divided, remembered until their records change."""

    def __init__(self, metadata: MetadataStore, read: ReadNamespace) -> None:
        self._read_namespace = read
        self._known = MetadataCache(metadata, _POLICIES, self._read, most=_MAX_KNOWN)

    async def of_topic(self, name: TopicName) -> Bundle:
        """System topics lie in bundles of their namespaces as all others do.

        :raises NamespaceNotFound: no such namespace
        :raises MetadataFailure: its record does not say how it is divided
        """
        divided = await self.of_namespace(name.namespace_name)
        return Bundle(name.namespace_name, divided.find(name.bundle_hash))

    async def of_namespace(self, name: NamespaceName) -> Bundles:
        """How a namespace is divided; raises as :meth:`of_topic` does."""
        return await self._known.get(f"{_POLICIES}/{name.path}")

    async def _read(self, path: str) -> Bundles:
        namespace = NamespaceName.parse(path.removeprefix(_POLICIES + "/"))
        division = (await self._read_namespace(namespace)).get("bundles") or {}
        try:
            return Bundles.parse(division.get("boundaries") or Bundles.even(1).texts())
        except InvalidName as error:
            raise MetadataFailure(f"{path}: {error}") from error
