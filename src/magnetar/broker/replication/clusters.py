"""How other clusters are reached: a client for each, made from the cluster's record and replaced when that
changes."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from magnetar.broker.policies.records import CLUSTERS, Clusters
from magnetar.errors import BrokerError
from magnetar.io.interfaces import Loop
from magnetar.io.waiting import nobody_waits, outcome
from magnetar.metadata.interface import Change, MetadataError, MetadataStore
from magnetar.protocol.hot_replication import ReplicationRun

if TYPE_CHECKING:
    from magnetar.client.client import Client

log = logging.getLogger(__name__)

Record = Mapping[str, Any]
Ask = Callable[[str, str, Mapping[str, str], bytes], Awaitable[object]]
"""Sends an administrative request to a cluster: method, path, query and a JSON body.

Raises BrokerError if the cluster refuses the request or does not answer.
"""


class Way(NamedTuple):
    """How a cluster is reached."""

    client: Client
    ask: Ask


Reach = Callable[[str, Record], Way]
"""Makes the way to a cluster from its name and its record.

Raises BrokerError if the record does not say how to reach the cluster.
"""


class RemoteCluster:
    """One cluster, as its record was when this object was made."""

    def __init__(self, name: str, record: Record, way: Way, run: ReplicationRun) -> None:
        """:param run: encodes for its replicators, one after another; each has its own schema versions"""
        self.name = name
        self.record = record
        self.client = way.client
        self.ask = way.ask
        self.run = run
        self.ended = False
        """The record has been replaced or deleted."""


class RemoteClusters:
    def __init__(
        self,
        loop: Loop,
        metadata: MetadataStore,
        clusters: Clusters,
        local: str,
        reach: Reach,
        own: Callable[[], Record],
    ) -> None:
        """:param local: the name of the broker's own cluster

        :param own: returns the record for the own cluster, which leads to this broker whatever the stored
            record says
        """
        self._own = own
        self._loop = loop
        self._clusters = clusters
        self._local = local
        self._reach = reach
        self._known: dict[str, RemoteCluster] = {}
        self._runs: dict[str, ReplicationRun] = {}
        self._opening: dict[str, Any] = {}
        self._closing: set[Any] = set()
        self.changed: Callable[[str], None] = lambda _name: None
        """Called with the name of a cluster whose record has changed, or which is gone."""
        metadata.listen(CLUSTERS, self._metadata_changed)

    async def get(self, name: str) -> RemoteCluster:
        """Returns the cluster of that name.

        :raises BrokerError: the cluster does not exist, or its record does not say how to reach it
        :raises MetadataError: the record cannot be read now
        """
        known = self._known.get(name)
        if known is not None:
            return known
        opening = self._opening.get(name)
        if opening is None:
            opening = self._opening[name] = self._loop.create_task(self._open(name))
            opening.add_done_callback(nobody_waits)
            opening.add_done_callback(lambda _done: self._opening.pop(name, None))
        found: RemoteCluster = await outcome(self._loop, opening)
        return found

    def run(self, name: str) -> ReplicationRun:
        """Returns the encoder for the replicators to a cluster, whether the cluster can be reached or not."""
        found = self._runs.get(name)
        if found is None:
            found = self._runs[name] = ReplicationRun(self._local.encode(), name.encode())
        return found

    async def _open(self, name: str) -> RemoteCluster:
        record = await self._record(name)
        made = RemoteCluster(name, record, self._reach(name, record), self.run(name))
        self._known[name] = made
        return made

    async def _record(self, name: str) -> Record:
        return self._own() if name == self._local else await self._clusters.get(name)

    def _metadata_changed(self, change: Change) -> None:
        name = change.path.removeprefix(f"{CLUSTERS}/").partition("/")[0]
        if name in self._known:
            self._start(self._look_again(name))
        elif name not in self._opening:
            # Replicators that could not reach the cluster try again at once.
            self.changed(name)

    async def _look_again(self, name: str) -> None:
        known = self._known.get(name)
        try:
            record: Record | None = await self._record(name)
        except BrokerError:
            record = None
        except MetadataError as error:
            log.warning("cannot read the record of a cluster", extra={"cluster": name, "error": str(error)})
            return
        if known is None or known is not self._known.get(name) or record == known.record:
            return
        del self._known[name]
        known.ended = True
        log.info("cluster record changed", extra={"cluster": name, "deleted": record is None})
        self.changed(name)
        await known.client.close()

    def _start(self, work: Coroutine[object, None, None]) -> None:
        task = self._loop.create_task(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Closes the clients."""
        known, self._known = list(self._known.values()), {}
        for each in known:
            each.ended = True
            await each.client.close()
