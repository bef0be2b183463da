"""Where bookies stand: Pulsar's table of racks and groups, which ``pulsar-admin bookies`` writes."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from magnetar.io.interfaces import Io
from magnetar.metadata.interface import Change, MetadataError, MetadataStore, SessionEvent

log = logging.getLogger(__name__)

TABLE = "/bookies"
DEFAULT_RACK = "/default-rack"
"""Of bookies that the table does not know."""
_READ_AGAIN_SECONDS = 1.0


class Stand(NamedTuple):
    groups: frozenset[str]
    rack: str
    """``/rack``, or ``/region/rack``."""

    @property
    def region(self) -> str:
        """All but the rack itself; that of bookies without one is the default rack."""
        region, _, _rack = self.rack.rpartition("/")
        return region or self.rack


_NOWHERE = Stand(frozenset(), DEFAULT_RACK)


class RackTable:
    """The table as it is now; :meth:`start` it. One that cannot be read leaves what was known."""

    def __init__(self, io: Io, metadata: MetadataStore, path: str = TABLE) -> None:
        self._io = io
        self._metadata = metadata
        self._path = path
        self._stands: Mapping[str, Stand] = {}
        self._reading: Any = None
        self._read_again = False
        self._later: Any = None
        self._closed = False

    async def start(self) -> None:
        """:raises MetadataError: the table cannot be read"""
        self._metadata.listen(self._path, self._changed)
        self._metadata.listen_session(self._session_changed)
        await self._read()

    def close(self) -> None:
        self._closed = True
        for waiting in (self._reading, self._later):
            if waiting is not None:
                waiting.cancel()

    def of(self, bookie_id: str) -> Stand:
        return self._stands.get(bookie_id, _NOWHERE)

    def _changed(self, _change: Change) -> None:
        self._read_soon()

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.RECONNECTED:
            self._read_soon()

    def _read_soon(self) -> None:
        self._read_again = True
        if self._reading is None and not self._closed:
            self._reading = self._io.loop.create_task(self._read_on())

    async def _read_on(self) -> None:
        try:
            while self._read_again:
                self._read_again = False
                await self._read()
        except MetadataError as error:
            log.warning("the racks of bookies cannot be read", extra={"reason": str(error)})
            if not self._closed:
                self._later = self._io.loop.call_later(_READ_AGAIN_SECONDS, self._read_soon)
        finally:
            self._reading = None

    async def _read(self) -> None:
        node = await self._metadata.get(self._path)
        try:
            self._stands = _stands(node.value if node is not None else b"")
        except ValueError as error:
            log.error(
                "the table of racks is damaged, the former one counts on",
                extra={"path": self._path, "reason": str(error)},
            )


def _stands(table: bytes) -> dict[str, Stand]:
    """:raises ValueError: it is no table of racks"""
    found: dict[str, Stand] = {}
    groups = json.loads(table) if table.strip() else {}
    if not isinstance(groups, dict):
        raise ValueError("no object of groups")
    for group, bookies in groups.items():
        if not isinstance(bookies, dict):
            raise ValueError(f"group {group!r} is no object of bookies")
        for bookie_id, info in bookies.items():
            rack = (info.get("rack") or "") if isinstance(info, dict) else None
            if not isinstance(rack, str):
                raise ValueError(f"bookie {bookie_id!r} of group {group!r} stands nowhere")
            path = "/" + rack.strip("/") if rack.strip("/") else DEFAULT_RACK
            known = found.get(bookie_id)
            found[bookie_id] = Stand(known.groups | {group} if known else frozenset((group,)), path)
    return found
