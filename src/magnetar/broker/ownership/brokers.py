"""The live brokers of a cluster, as far as this broker knows, and their leader."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping

from magnetar.broker.ownership.contract import Addresses
from magnetar.io.interfaces import Io, Task
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import sleep
from magnetar.lazy_dataclass import dataclass
from magnetar.metadata.interface import (
    MUST_NOT_EXIST,
    BadVersion,
    Change,
    MetadataError,
    MetadataStore,
    MetadataUnavailable,
    Node,
    NodeMissing,
    SessionEvent,
)

log = logging.getLogger(__name__)
BROKERS = "/loadbalance/brokers"
VERSION_PREFIX = "magnetar-"
"""The prefix of the version that a Magnetar broker registers."""
_RETRY_SECONDS = 1.0
LEADER = "/loadbalance/leader"


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """A broker's registration (``LocalBrokerData``)."""

    broker_id: str
    """The broker's id: ``host:port`` of its HTTP interface."""
    addresses: Addresses
    listeners: Mapping[str, Addresses]
    persistent_topics: bool
    non_persistent_topics: bool
    load_manager: str
    """The class of its load manager; empty if the record does not name one."""
    version: str
    started_ms: int
    raw: Mapping[str, object]
    """The whole record, including fields that Magnetar does not use."""

    @property
    def is_magnetar(self) -> bool:
        """Whether the broker is a Magnetar broker, not one of Apache Pulsar."""
        return self.version.startswith(VERSION_PREFIX)


def parse_record(broker_id: str, value: bytes) -> BrokerRecord:
    """Returns the record of a registered broker.

    :raises ValueError: the record is not in the form that brokers write
    :raises RecursionError: the JSON is nested too deeply
    """
    raw = json.loads(value)
    if not isinstance(raw, dict):
        raise ValueError("the record is not an object")
    addresses = Addresses(
        _text(raw, "pulsarServiceUrl"),
        _text(raw, "pulsarServiceUrlTls"),
        _text(raw, "webServiceUrl"),
        _text(raw, "webServiceUrlTls"),
    )
    return BrokerRecord(
        broker_id,
        addresses,
        listeners_of(raw.get("advertisedListeners")),
        raw.get("persistentTopicsEnabled") is not False,
        raw.get("nonPersistentTopicsEnabled") is not False,
        _text(raw, "loadManagerClassName") or "",
        _text(raw, "brokerVersionString") or "",
        _whole(raw, "startTimestamp"),
        raw,
    )


def listeners_of(value: object) -> Mapping[str, Addresses]:
    """Returns addresses by listener name, from the form in which brokers write them.

    :raises ValueError: ``value`` has another form
    """
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(each, dict) for each in value.values()):
        raise ValueError(f"advertisedListeners must be a JSON object whose values are objects, not {value!r}")
    return {
        str(name): Addresses(
            _text(told, "brokerServiceUrl"),
            _text(told, "brokerServiceUrlTls"),
            _text(told, "brokerHttpUrl"),
            _text(told, "brokerHttpsUrl"),
        )
        for name, told in value.items()
    }


def listeners_json(listeners: Mapping[str, Addresses]) -> dict[str, dict[str, str]]:
    """Returns addresses by listener name in the form in which brokers write them (:func:`listeners_of`)."""
    names = ("brokerServiceUrl", "brokerServiceUrlTls", "brokerHttpUrl", "brokerHttpsUrl")
    found = {}
    for listener, at in listeners.items():
        values = (at.binary, at.binary_tls, at.http, at.http_tls)
        found[listener] = {name: url for name, url in zip(names, values, strict=True) if url}
    return found


def _text(raw: Mapping[str, object], name: str) -> str | None:
    value = raw.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} must be a string, not {value!r}")
    return value or None


def _whole(raw: Mapping[str, object], name: str) -> int:
    value = raw.get(name, 0)
    if not isinstance(value, int):
        raise ValueError(f"{name} is not a whole number")
    return value


class LiveBrokers:
    """The registered brokers, kept in memory and updated by a watch, so that reading the list costs nothing.

    The list may lag behind the metadata store by the delay of a watch, so it proves nothing about ownership.
    """

    def __init__(self, io: Io, metadata: MetadataStore) -> None:
        self._io = io
        self._metadata = metadata
        self._known: dict[str, BrokerRecord] = {}
        self._unreadable: set[str] = set()
        """The names of brokers whose unreadable records were logged."""
        self._listeners: list[Callable[[], None]] = []
        self._stale: set[str] = set()
        self._all_stale = True
        self._tasks = TaskScope(io.loop, "the list of brokers", self._internal_error)
        self._task: Task[None] | None = None
        self._started = False
        self._stopped = False
        metadata.listen(BROKERS, self._changed)
        metadata.listen_session(self._session_changed)

    async def start(self) -> None:
        """Reads all records, and follows later changes.

        :raises MetadataError: the metadata store refuses the request
        """
        await self._read()
        # Set only now: of two concurrent reads, the one that ends last may have read first.
        self._started = True
        self._read_anew()

    def stop(self) -> None:
        self._stopped = True
        self._tasks.cancel()

    @property
    def all(self) -> Mapping[str, BrokerRecord]:
        """Returns the records of all live brokers, sorted by broker id, without records that cannot be
        read."""
        return self._known

    def get(self, broker_id: str) -> BrokerRecord | None:
        return self._known.get(broker_id)

    def at_http(self, url: str | None) -> BrokerRecord | None:
        """Returns the live broker with this HTTP or HTTPS URL; None if no live broker has this URL."""
        for record in self._known.values():
            if url and url in (record.addresses.http, record.addresses.http_tls):
                return record
        return None

    def listen(self, changed: Callable[[], None]) -> None:
        """Registers ``changed``, called on the loop after a broker came, left, or wrote another record."""
        self._listeners.append(changed)

    def _changed(self, change: Change) -> None:
        name = change.path.removeprefix(f"{BROKERS}/")
        if change.path == BROKERS or "/" in name:
            return
        self._stale.add(name)
        self._read_anew()

    def _session_changed(self, event: SessionEvent) -> None:
        if event in (SessionEvent.RECONNECTED, SessionEvent.LOST):
            self._all_stale = True
            self._read_anew()

    def _read_anew(self) -> None:
        stale = self._stale or self._all_stale
        if stale and self._task is None and self._started and not self._stopped:
            self._task = self._tasks.start(self._follow(), "reading the brokers")

    async def _follow(self) -> None:
        try:
            while self._stale or self._all_stale:
                try:
                    await self._read()
                except MetadataUnavailable as error:
                    log.warning(
                        "cannot read the list of brokers; trying again later", extra={"error": str(error)}
                    )
                    await sleep(self._io.loop, _RETRY_SECONDS)
                except MetadataError as error:
                    log.error("cannot read the list of brokers", extra={"error": str(error)})
                    return
        finally:
            self._task = None

    def _internal_error(self, _work: str, _error: BaseException) -> None:
        self._all_stale = True
        self._io.loop.call_later(_RETRY_SECONDS, self._read_anew)

    async def _read(self) -> None:
        names, everything = self._stale, self._all_stale
        self._stale, self._all_stale = set(), False
        try:
            if everything:
                names = {*names, *self._known, *await self._metadata.children(BROKERS)}
            # Sorted, so that the order of the reads does not depend on the hash seed of the process.
            found = {name: await self._record(name) for name in sorted(names)}
        except MetadataError:
            self._stale |= names
            self._all_stale |= everything
            raise
        before = dict(self._known)
        for name, record in found.items():
            if record is None:
                self._known.pop(name, None)
            else:
                self._known[name] = record
        self._known = dict(sorted(self._known.items()))
        if before != self._known:
            self._tell()

    async def _record(self, name: str) -> BrokerRecord | None:
        node = await self._metadata.get(f"{BROKERS}/{name}")
        if node is None:
            self._unreadable.discard(name)
            return None
        try:
            record = parse_record(name, node.value)
        except (ValueError, RecursionError) as error:
            if name not in self._unreadable:
                log.error("cannot read the record of a broker", extra={"broker": name, "error": str(error)})
            self._unreadable.add(name)
            return None
        self._unreadable.discard(name)
        return record

    def _tell(self) -> None:
        for changed in self._listeners:
            try:
                changed()
            except Exception:
                log.exception("listener for changes of the list of brokers failed")


class Leadership:
    """The election of the leader, the broker that created the ephemeral node ``/loadbalance/leader``.

    Between :meth:`start` and :meth:`stop`, the broker is a candidate whenever there is no leader. Safety
    does not depend on the election, because versions and sessions guard the changes that a leader makes.
    """

    def __init__(
        self, io: Io, metadata: MetadataStore, brokers: LiveBrokers, broker_id: str, service_url: str
    ) -> None:
        """:param service_url: the URL of this broker's HTTP interface"""
        self._io = io
        self._metadata = metadata
        self._brokers = brokers
        self._own_id = broker_id
        value = {"brokerId": broker_id, "serviceUrl": service_url}
        self._value = json.dumps(value, separators=(",", ":")).encode()
        self._leader_id: str | None = None
        self._is_leader = False
        self._listeners: list[Callable[[], None]] = []
        self._tasks = TaskScope(io.loop, "the election of the leader", self._internal_error)
        self._task: Task[None] | None = None
        self._again = False
        self._running = False
        metadata.listen(LEADER, self._changed)
        metadata.listen_session(self._session_changed)

    @property
    def own_id(self) -> str:
        """This broker's id."""
        return self._own_id

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads, as far as it knows."""
        return self._is_leader

    @property
    def leader_id(self) -> str | None:
        """Returns the id of the leader; None if the cluster has no leader or the leader's id is not known."""
        return self._leader_id

    def leader(self) -> BrokerRecord | None:
        """Returns the leader's record; None if there is no known leader, or the leader is not registered."""
        return None if self._leader_id is None else self._brokers.get(self._leader_id)

    def listen(self, changed: Callable[[], None]) -> None:
        """Registers ``changed``, called on the loop after a change of the leader, also when the cluster has
        lost its leader."""
        self._listeners.append(changed)

    async def start(self) -> None:
        """Makes this broker a candidate, and waits until the cluster has a leader.

        :raises MetadataError: the metadata store refuses the request
        """
        self._running = True
        await self._elect()

    async def stop(self) -> None:
        """Stops being a candidate; a leader resigns.

        :raises MetadataError: the metadata store refuses the request; the node disappears when the session
            ends
        """
        self._running = False
        self._tasks.cancel()
        led, self._is_leader = self._is_leader, False
        if led:
            node = await self._metadata.get(LEADER)
            if node is not None and node.own:
                await self._remove(node)

    def _changed(self, change: Change) -> None:
        if change.path == LEADER:
            self._elect_anew()

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.LOST:
            self._now(None, leads=False)
        if event in (SessionEvent.RECONNECTED, SessionEvent.LOST):
            self._elect_anew()

    def _elect_anew(self) -> None:
        self._again = True
        if self._task is None and self._running:
            self._task = self._tasks.start(self._follow(), "an election")

    async def _follow(self) -> None:
        try:
            while self._again and self._running:
                self._again = False
                try:
                    await self._elect()
                except MetadataError as error:
                    log.warning("leader election failed; trying again later", extra={"error": str(error)})
                    self._again = True
                    await sleep(self._io.loop, _RETRY_SECONDS)
        finally:
            self._task = None

    def _internal_error(self, _work: str, _error: BaseException) -> None:
        self._io.loop.call_later(_RETRY_SECONDS, self._elect_anew)

    async def _elect(self) -> None:
        """Determines the leader; if the cluster has no leader, becomes the leader."""
        while self._running:
            node = await self._metadata.get(LEADER)
            if node is None:
                try:
                    await self._metadata.put(LEADER, self._value, MUST_NOT_EXIST, ephemeral=True)
                except BadVersion:
                    continue
                self._now(self._own_id, leads=True)
                return
            known = _id_of(node.value)
            if known == self._own_id and not node.own:
                # The node is from an earlier session of this broker: there would be no leader until that
                # session ends.
                await self._remove(node)
                continue
            self._now(known, leads=node.own)
            return

    async def _remove(self, node: Node) -> None:
        try:
            await self._metadata.delete(LEADER, node.version)
        except (NodeMissing, BadVersion):
            # The node is gone or belongs to another broker by now; the next look finds out.
            return

    def _now(self, leader_id: str | None, *, leads: bool) -> None:
        if (leader_id, leads) == (self._leader_id, self._is_leader):
            return
        self._leader_id, self._is_leader = leader_id, leads
        log.info("leader of the cluster changed", extra={"leader": leader_id or "none", "is_leader": leads})
        for changed in self._listeners:
            try:
                changed()
            except Exception:
                log.exception("listener for changes of the leader failed")


def _id_of(value: bytes) -> str | None:
    """Returns the broker id in the leader's node; None if the value is not in the form that brokers write."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    broker_id = found.get("brokerId") if isinstance(found, dict) else None
    return broker_id if isinstance(broker_id, str) else None
