"""Resource groups in the metadata store; all groups are reported when one has changed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from magnetar.broker.policies.records import Record, change, create, read
from magnetar.broker.policies.values import GroupRates
from magnetar.errors import MetadataFailure, NotFound
from magnetar.io.interfaces import Io
from magnetar.metadata.following import Follower
from magnetar.metadata.interface import MetadataStore, NodeMissing

log = logging.getLogger(__name__)

_GROUPS = "/admin/resourcegroups"


def _missing() -> NotFound:
    return NotFound("ResourceGroup does not exist")


class ResourceGroupRecords:
    """:param define: called with the records of all groups, by name, whenever one has changed"""

    def __init__(
        self, io: Io, metadata: MetadataStore, define: Callable[[Mapping[str, GroupRates]], None]
    ) -> None:
        self._metadata = metadata
        self._define = define
        self._follower = Follower(io, metadata, _GROUPS, "resource groups", self.take)

    async def names(self) -> Sequence[str]:
        """Returns the names of the groups, sorted."""
        return await self._metadata.children(_GROUPS)

    async def get(self, name: str) -> Record:
        """:raises NotFound: the group does not exist"""
        found = await read(self._metadata, f"{_GROUPS}/{name}")
        if found is None:
            raise _missing()
        return found

    async def put(self, name: str, given: Mapping[str, Any]) -> None:
        """Creates a group, or changes the given fields of one; it applies when this returns."""

        def merge(record: Record) -> None:
            record.update(given)

        if not await create(self._metadata, f"{_GROUPS}/{name}", given):
            await change(self._metadata, f"{_GROUPS}/{name}", merge, _missing())
        await self.take()

    async def delete(self, name: str) -> None:
        """:raises NotFound: the group does not exist"""
        try:
            await self._metadata.delete(f"{_GROUPS}/{name}")
        except NodeMissing as error:
            raise _missing() from error
        await self.take()

    # Groups in effect

    async def take(self) -> None:
        """Reads all groups and reports them."""
        found: dict[str, GroupRates] = {}
        for name in await self.names():
            try:
                record = await read(self._metadata, f"{_GROUPS}/{name}")
                if record is not None:
                    found[name] = GroupRates.read(record)
            except MetadataFailure as error:
                log.error(
                    "cannot read the resource group; ignoring it", extra={"group": name, "error": str(error)}
                )
        self._define(found)

    def stop(self) -> None:
        self._follower.stop()
