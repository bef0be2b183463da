"""The racks of bookies: Pulsar's table of racks and groups, which ``pulsar-admin bookies`` writes."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import NamedTuple

from magnetar.io.interfaces import Io
from magnetar.metadata.following import Follower
from magnetar.metadata.interface import MetadataStore

log = logging.getLogger(__name__)

TABLE = "/bookies"
"""The path of the table (``BookiesRackConfiguration``): by group, the ``BookieInfo`` of each bookie."""
DEFAULT_RACK = "/default-rack"
"""The rack of bookies that are not in the table."""


class Stand(NamedTuple):
    groups: frozenset[str]
    rack: str
    """``/rack``, or ``/region/rack``."""

    @property
    def region(self) -> str:
        """``/region``; for a rack without a region, the path of the rack."""
        region, _, _rack = self.rack.rpartition("/")
        return region or self.rack


_NOWHERE = Stand(frozenset(), DEFAULT_RACK)


class RackTable:
    """The current table; call :meth:`start` first. If the table becomes unreadable, its last
    readable version is used."""

    def __init__(self, io: Io, metadata: MetadataStore, path: str = TABLE) -> None:
        self._io = io
        self._metadata = metadata
        self._path = path
        self._stands: Mapping[str, Stand] = {}
        self._follower: Follower | None = None

    async def start(self) -> None:
        """Reads the table, and begins to follow its changes.

        :raises MetadataError: the table cannot be read
        """
        self._follower = Follower(self._io, self._metadata, self._path, "racks of bookies", self._read)
        await self._read()

    def close(self) -> None:
        if self._follower is not None:
            self._follower.stop()

    def of(self, bookie_id: str) -> Stand:
        return self._stands.get(bookie_id, _NOWHERE)

    async def _read(self) -> None:
        node = await self._metadata.get(self._path)
        try:
            self._stands = _stands(node.value if node is not None else b"")
        except ValueError as error:
            log.error(
                "cannot read the racks of bookies; keeping the former ones",
                extra={"path": self._path, "reason": str(error)},
            )


def _stands(table: bytes) -> dict[str, Stand]:
    """Returns the rack and group of each bookie.

    :raises ValueError: the value is not a table of racks
    """
    found: dict[str, Stand] = {}
    groups = json.loads(table) if table.strip() else {}
    if not isinstance(groups, dict):
        raise ValueError("the table is not an object that maps groups to bookies")
    for group, bookies in groups.items():
        if not isinstance(bookies, dict):
            raise ValueError(f"group {group!r} is not an object that maps bookie ids to racks")
        for bookie_id, info in bookies.items():
            rack = (info.get("rack") or "") if isinstance(info, dict) else None
            if not isinstance(rack, str):
                raise ValueError(f"bookie {bookie_id!r} of group {group!r} has no rack")
            path = "/" + rack.strip("/") if rack.strip("/") else DEFAULT_RACK
            known = found.get(bookie_id)
            found[bookie_id] = Stand(known.groups | {group} if known else frozenset((group,)), path)
    return found
