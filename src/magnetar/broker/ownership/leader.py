"""Which broker leads the cluster: the one that made the ephemeral node ``/loadbalance/leader``."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

from magnetar.broker.ownership.brokers import BrokerRecord, LiveBrokers
from magnetar.io.interfaces import Io, Task
from magnetar.io.waiting import sleep
from magnetar.metadata.interface import (
    MUST_NOT_EXIST,
    BadVersion,
    Change,
    MetadataError,
    MetadataStore,
    Node,
    NodeMissing,
    SessionEvent,
)

log = logging.getLogger(__name__)

LEADER = "/loadbalance/leader"
_RETRY_SECONDS = 1.0


class Leadership:
    """Stands for election from :meth:`start` to :meth:`stop`, whenever there is no leader.

    Safety does not depend on the election: what a leader does is guarded by versions and sessions.
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
        """None if there is no leader, or the leader is not known."""
        return self._leader_id

    def leader(self) -> BrokerRecord | None:
        """Returns None also while the leader is not registered."""
        return None if self._leader_id is None else self._brokers.get(self._leader_id)

    def listen(self, changed: Callable[[], None]) -> None:
        """Calls ``changed`` in the loop after the leader changed, also when there is no leader any more."""
        self._listeners.append(changed)

    async def start(self) -> None:
        """Returns when the cluster has a leader.

        :raises MetadataError: the metadata store refuses
        """
        self._running = True
        await self._elect()

    async def stop(self) -> None:
        """Stops standing for election; a leader resigns.

        :raises MetadataError: the metadata store refuses; the node goes with the session
        """
        self._running = False
        if self._task is not None:
            self._task.cancel()
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
            self._task = self._io.loop.create_task(self._follow())

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

    async def _elect(self) -> None:
        """Finds out who leads, and becomes the leader if there is none."""
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
    """Returns None if the value is not in the form that brokers write."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    broker_id = found.get("brokerId") if isinstance(found, dict) else None
    return broker_id if isinstance(broker_id, str) else None
