"""The known bookies, their addresses, quarantines and connections."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from enum import Enum
from functools import partial
from typing import NamedTuple

from google.protobuf.message import DecodeError

from magnetar.io.interfaces import ConnectingNetwork, Io
from magnetar.ledger.bookkeeper import records_pb2 as pb
from magnetar.ledger.bookkeeper.bookie import Bookie, BookieSettings
from magnetar.ledger.bookkeeper.wire import VERSION_3, Wire
from magnetar.metadata.following import Follower
from magnetar.metadata.interface import Change, MetadataStore, SessionEvent

log = logging.getLogger(__name__)

_READ_ONLY = "readonly"
_RPC = "bookie-rpc"
_BETWEEN_READS_SECONDS = 0.1
"""The pause in seconds between two reads of the registrations, if they keep changing."""
_BETWEEN_LOGS_SECONDS = 10.0
_GONE_SECONDS = 3.0
"""The seconds for which a bookie without a registration still counts as writable. A bookie whose session has
ended registers again at once, and some releases then create and delete the node repeatedly."""


class Use(Enum):
    """The use of a connection to a bookie. Each use has its own connection, for two reasons:

    Answers do not say which request they answer. A recovery in this process adds entries that the ledger's
    writer may have added too, and on a shared connection the writer would mistake the answers to the recovery
    for answers to its own requests. Bookies also close connections after unknown requests, which only readers
    send.
    """

    WRITING = "writing"
    READING = "reading"
    RECOVERING = "recovering"
    ASKING = "asking"
    """Requests that only version 3 of the protocol has."""


class BookiesSettings(NamedTuple):
    bookie: BookieSettings = BookieSettings()
    quarantine: bool = True
    """Whether bookies are quarantined after errors (bookkeeperClientHealthCheckEnabled)."""
    errors: int = 5
    """The number of errors within ``within_seconds`` after which a bookie is quarantined
    (bookkeeperClientHealthCheckErrorThresholdPerInterval)."""
    within_seconds: float = 60.0
    """The period in which errors are counted, in seconds (bookkeeperClientHealthCheckIntervalSeconds)."""
    quarantine_seconds: float = 1800.0
    """How long a bookie is quarantined, in seconds (bookkeeperClientHealthCheckQuarantineTimeInSeconds)."""
    quarantine_ratio: float = 1.0
    """The probability that a bookie with too many errors is quarantined (bookkeeperClientQuarantineRatio)."""


class Bookies:
    """The bookies that are registered below ``root``; call :meth:`start` first.

    A bookie is identified by its id, as in the metadata of ledgers. Requests can also be sent to bookies that
    are no longer registered: their last addresses are kept, because these bookies may come back.
    """

    def __init__(
        self,
        io: Io,
        metadata: MetadataStore,
        root: str = "/ledgers",
        settings: BookiesSettings | None = None,
        network: ConnectingNetwork | None = None,
    ) -> None:
        """:param network: the network for connections to bookies; None: the network of ``io``"""
        self._io = io
        self._network = network or io.network
        self._metadata = metadata
        self._root = root
        self._available = f"{root}/available"
        self._settings = settings or BookiesSettings()
        self._writable: tuple[str, ...] = ()
        self._read_only: tuple[str, ...] = ()
        self._gone: dict[str, float] = {}
        """The times when writable bookies lost their registration, by the monotonic clock."""
        self._logged_at = -_BETWEEN_LOGS_SECONDS
        self._addresses: dict[str, tuple[str, int]] = {}
        self._stale: set[str] = set()
        """Bookies whose registration has changed since their address was read."""
        self._connections: dict[tuple[str, Use], Bookie] = {}
        self._errors: dict[str, deque[float]] = {}
        self._quarantined: dict[str, float] = {}
        """The ends of quarantines, by the monotonic clock."""
        self._follower: Follower | None = None
        self._closed = False

    async def start(self) -> None:
        """Starts to follow the registered bookies.

        :raises MetadataUnavailable: the registered bookies cannot be read
        """
        self._metadata.listen(self._available, self._changed)
        self._metadata.listen_session(self._session_changed)
        # The listeners above record what is stale by then.
        self._follower = Follower(
            self._io, self._metadata, self._available, "bookies", self._read, _BETWEEN_READS_SECONDS
        )
        await self._read()

    def close(self) -> None:
        """Closes all connections; unanswered requests fail as LOST."""
        self._closed = True
        if self._follower is not None:
            self._follower.stop()
        for bookie in self._connections.values():
            bookie.close()

    @property
    def writable(self) -> Sequence[str]:
        """The ids of bookies that accept new entries, sorted; including those whose registration disappeared
        within the last few seconds."""
        if not self._gone:
            return self._writable
        after = self._io.clock.monotonic() - _GONE_SECONDS
        self._gone = {each: since for each, since in self._gone.items() if since > after}
        return sorted([*self._writable, *(each for each in self._gone if not self._unreachable(each))])

    @property
    def read_only(self) -> Sequence[str]:
        """The ids of bookies that answer but accept no new entries, sorted."""
        return self._read_only

    @property
    def wire(self) -> Wire:
        """The wire format of adds and reads."""
        return self._settings.bookie.wire

    @property
    def max_frame_bytes(self) -> int:
        """The maximum size of a request to add an entry."""
        return self._settings.bookie.max_frame_bytes

    @property
    def pending_bytes(self) -> int:
        """The bytes of entries that were sent to bookies and not answered yet."""
        return sum(bookie.pending_bytes for bookie in self._connections.values())

    async def known(self) -> Sequence[str]:
        """Returns the ids of all bookies of the cluster, registered or not, sorted.

        :raises MetadataError: the metadata store does not answer
        """
        cookies = await self._metadata.children(f"{self._root}/cookies")
        return sorted({*cookies, *self._writable, *self._read_only})

    def doubtful(self, bookie_id: str) -> bool:
        """Whether a bookie should get new entries only if too few other bookies are available."""
        until = self._quarantined.get(bookie_id)
        if until is not None:
            if self._io.clock.monotonic() < until:
                return True
            del self._quarantined[bookie_id]
        return bookie_id in self._gone or self._unreachable(bookie_id)

    def _unreachable(self, bookie_id: str) -> bool:
        return bool(self.trouble(bookie_id))

    def trouble(self, bookie_id: str) -> str:
        """Returns the reason why a recent connection attempt failed; empty: no recent attempt failed."""
        connections = (self._connections.get((bookie_id, use)) for use in Use)
        return next((each.trouble for each in connections if each is not None and each.trouble), "")

    def quarantined(self) -> Sequence[str]:
        """Returns the ids of quarantined bookies, sorted."""
        now = self._io.clock.monotonic()
        return sorted(each for each, until in self._quarantined.items() if now < until)

    def bookie(self, bookie_id: str, use: Use = Use.WRITING) -> Bookie:
        """Returns the connection to a bookie. If the bookie is unknown, all requests fail as LOST."""
        key = (bookie_id, use)
        found = self._connections.get(key)
        if found is None:
            io, settings = self._io, self._settings.bookie
            if use is Use.ASKING:
                settings = settings._replace(wire=VERSION_3)
            where = partial(self._where, bookie_id)
            found = Bookie(io.loop, io.clock, self._network, bookie_id, where, settings)
            if self._closed:
                found.close()
            self._connections[key] = found
        return found

    def failed(self, bookie_id: str) -> None:
        """Counts an error or a missing answer of a bookie; after too many errors, quarantines the bookie."""
        settings = self._settings
        if not settings.quarantine or bookie_id in self.quarantined():
            return
        now = self._io.clock.monotonic()
        errors = self._errors.setdefault(bookie_id, deque(maxlen=settings.errors))
        errors.append(now)
        if len(errors) < settings.errors or errors[0] < now - settings.within_seconds:
            return
        errors.clear()
        if self._io.randomness.fraction() < settings.quarantine_ratio:
            self._quarantined[bookie_id] = now + settings.quarantine_seconds
            log.warning(
                "bookie quarantined because of its errors",
                extra={"bookie": bookie_id, "seconds": settings.quarantine_seconds},
            )

    def _where(self, bookie_id: str) -> tuple[str, int] | None:
        return self._addresses.get(bookie_id) or _host_and_port(bookie_id)

    def _changed(self, change: Change) -> None:
        self._stale.add(change.path.rpartition("/")[2])

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.RECONNECTED:
            self._stale.update(self._addresses)

    async def _read(self) -> None:
        writable = [each for each in await self._metadata.children(self._available) if each != _READ_ONLY]
        read_only = await self._metadata.children(f"{self._available}/{_READ_ONLY}")
        # A bookie with two registrations has just changed from one to the other.
        writable = [each for each in writable if each not in read_only]
        for folder, ids in ((self._available, writable), (f"{self._available}/{_READ_ONLY}", read_only)):
            for bookie_id in ids:
                if bookie_id not in self._addresses or bookie_id in self._stale:
                    await self._read_address(bookie_id, f"{folder}/{bookie_id}")
        self._are(tuple(writable), tuple(read_only))

    def _are(self, writable: tuple[str, ...], read_only: tuple[str, ...]) -> None:
        """Updates the sets of writable and read-only bookies."""
        now = self._io.clock.monotonic()
        registered = {*writable, *read_only}
        gone = {each: now for each in self._writable if each not in registered}
        self._gone = {each: at for each, at in (self._gone | gone).items() if each not in registered}
        changed = (writable, read_only) != (self._writable, self._read_only)
        self._writable, self._read_only = writable, read_only
        if changed and now - self._logged_at >= _BETWEEN_LOGS_SECONDS:
            self._logged_at = now
            log.info("bookies", extra={"writable": len(writable), "read_only": len(read_only)})

    async def _read_address(self, bookie_id: str, path: str) -> None:
        self._stale.discard(bookie_id)
        try:
            node = await self._metadata.get(path)
        except BaseException:
            self._stale.add(bookie_id)
            raise
        address = _address(node.value, bookie_id) if node is not None else None
        if address is not None:
            self._addresses[bookie_id] = address


def _address(value: bytes, bookie_id: str) -> tuple[str, int] | None:
    """Returns the address in a bookie's registration; None if the registration cannot be read."""
    try:
        info = pb.BookieServiceInfoFormat.FromString(value)
    except DecodeError:
        log.warning("cannot read the registration of a bookie", extra={"bookie": bookie_id})
        return _host_and_port(bookie_id)
    endpoints = [each for each in info.endpoints if each.protocol == _RPC] or list(info.endpoints)
    if endpoints:
        return endpoints[0].host, endpoints[0].port
    return _host_and_port(bookie_id)


def _host_and_port(bookie_id: str) -> tuple[str, int] | None:
    """Returns the address in a bookie id of the default form ``host:port``; None for any other id."""
    host, _, port = bookie_id.rpartition(":")
    return (host, int(port)) if host and port.isascii() and port.isdigit() and len(port) < 6 else None
