"""Administration of the racks of bookies: the table that rack-aware placement uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from magnetar.broker.policies.records import Record, change, create, read
from magnetar.broker.service import BrokerService
from magnetar.errors import MetadataFailure, NotFound, PreconditionFailed
from magnetar.ledger.bookkeeper.racks import TABLE

_INVALID_RACK = "Bookie 'rack' parameter is invalid: it must have the form /rack or /region/rack"


class BookieAdmin:
    def __init__(self, broker: BrokerService) -> None:
        self._metadata = broker.metadata

    async def racks(self) -> Mapping[str, Any]:
        """Returns ``BookiesRackConfiguration``.

        :raises MetadataFailure: the table is damaged
        """
        table = await read(self._metadata, TABLE) or {}
        if not all(isinstance(group, dict) for group in table.values()):
            raise MetadataFailure(f"{TABLE}: a group is not an object")
        return table

    async def rack(self, bookie_id: str) -> Mapping[str, Any]:
        """Returns ``BookieInfo``.

        :raises NotFound: the table does not contain the bookie
        """
        for group in (await self.racks()).values():
            if bookie_id in group:
                found: Mapping[str, Any] = group[bookie_id]
                return found
        raise _unknown(bookie_id)

    async def put(self, bookie_id: str, group: str, info: Mapping[str, Any]) -> None:
        """Puts a bookie into a group. A bookie is in one group only: it leaves its previous one.

        :raises PreconditionFailed: the group is empty, or the rack is not a valid path
        """
        if not group:
            raise PreconditionFailed("Bookie 'group' parameters is missing")
        if (info.get("rack") or "").strip("/").count("/") > 1:
            raise PreconditionFailed(_INVALID_RACK)

        def put(record: Record) -> None:
            _drop(record, bookie_id)
            record.setdefault(group, {})[bookie_id] = dict(info)

        await self.racks()
        if not await create(self._metadata, TABLE, {group: {bookie_id: dict(info)}}):
            await change(self._metadata, TABLE, put, MetadataFailure(f"{TABLE} was deleted in the meantime"))

    async def delete(self, bookie_id: str) -> None:
        """:raises NotFound: the table does not contain the bookie"""
        await self.rack(bookie_id)
        await change(self._metadata, TABLE, lambda record: _drop(record, bookie_id), _unknown(bookie_id))


def _drop(table: Record, bookie_id: str) -> None:
    """Removes a bookie from the table, and groups that have no bookies left."""
    for name, group in list(table.items()):
        group.pop(bookie_id, None)
        if not group:
            del table[name]


def _unknown(bookie_id: str) -> NotFound:
    return NotFound(f"Bookie rack placement configuration not found: {bookie_id}")
