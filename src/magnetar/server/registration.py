"""A broker's entry among the brokers of its cluster, as Apache Pulsar's brokers make theirs.

For now one broker serves a cluster: who finds another one registered waits for the end of that one's session,
and does not start when it does not end.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

from magnetar import __version__
from magnetar.broker.settings import BrokerSettings
from magnetar.io.interfaces import Clock, Loop
from magnetar.io.waiting import sleep
from magnetar.managed_ledger.exports import EXPORTER
from magnetar.metadata.interface import (
    MUST_NOT_EXIST,
    BadVersion,
    Change,
    ChangeKind,
    MetadataError,
    MetadataStore,
    NodeMissing,
)

log = logging.getLogger(__name__)

BROKERS = "/loadbalance/brokers"
_LOOK_SECONDS = 0.25


class ServedByAnother(MetadataError):
    """Another broker is registered; the text names it."""


class Registration:
    """Of one broker; ephemeral, so that it ends with the session."""

    def __init__(self, loop: Loop, clock: Clock, metadata: MetadataStore) -> None:
        self._loop = loop
        self._clock = clock
        self._metadata = metadata
        self._started_ms = clock.wall_ms()
        self._own = ""

    async def announce(self, broker: BrokerSettings, patience_seconds: float) -> None:
        """Registers the broker, or writes down where it is now.

        :param patience_seconds: how long another one's session may take to end
        :raises ServedByAnother: it did not end
        :raises MetadataError: the store refused
        """
        value = json.dumps(self._record(broker), separators=(",", ":")).encode()
        path = f"{BROKERS}/{broker.broker_id}"
        if self._own == path:
            await self._metadata.put(path, value, ephemeral=True)
            return
        deadline = self._clock.monotonic() + patience_seconds
        told: Sequence[str] = ()
        while True:
            others = await self._others(path, value)
            if not others:
                break
            if self._clock.monotonic() >= deadline:
                raise ServedByAnother(
                    f"the cluster is served by {', '.join(others)}, registered in {BROKERS}; "
                    "one broker serves a cluster"
                )
            if others != told:
                log.warning(
                    "waiting for the session of another broker to end", extra={"brokers": ", ".join(others)}
                )
                told = others
            await sleep(self._loop, _LOOK_SECONDS)
        self._own = path
        self._metadata.listen(BROKERS, self._changed)

    async def _others(self, path: str, value: bytes) -> Sequence[str]:
        """Who else is registered; none: this one is, alone.

        Each writes itself down before it looks, so that of two that come at once none overlooks the other.
        """
        own = path.rpartition("/")[2]
        try:
            await self._metadata.put(path, value, MUST_NOT_EXIST, ephemeral=True)
        except BadVersion:
            node = await self._metadata.get(path)
            if node is None or not node.own:
                return [f"{own} (this address, an earlier session)"]
        others = [name for name in await self._metadata.children(BROKERS) if name != own]
        if await self._metadata.exists(EXPORTER):
            others.append("magnetar export-ledgers")
        if others:
            await self.withdraw(path)
        return others

    async def withdraw(self, path: str = "") -> None:
        """Takes the entry back, so that the next broker need not wait for the session's end."""
        path = path or self._own
        self._own = ""
        if not path:
            return
        try:
            await self._metadata.delete(path)
        except NodeMissing:
            return

    def _changed(self, change: Change) -> None:
        strange = change.path not in (BROKERS, self._own)
        if strange and self._own and change.kind is ChangeKind.CREATED:
            log.error(
                "another broker has come to this cluster, which is served by one: topics may be taken away",
                extra={"broker": change.path.rpartition("/")[2]},
            )

    def _record(self, broker: BrokerSettings) -> dict[str, Any]:
        """``LocalBrokerData``; what it carries is not told yet."""
        nothing = {"usage": 0.0, "limit": 100.0}
        urls = {
            "webServiceUrl": broker.http_url,
            "webServiceUrlTls": broker.http_url_tls,
            "pulsarServiceUrl": broker.service_url,
            "pulsarServiceUrlTls": broker.service_url_tls,
        }
        loads = dict.fromkeys(("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut"), nothing)
        rates = dict.fromkeys(("msgThroughputIn", "msgThroughputOut", "msgRateIn", "msgRateOut"), 0.0)
        counts = dict.fromkeys(("numTopics", "numBundles", "numConsumers", "numProducers"), 0)
        return {
            **{key: url for key, url in urls.items() if url},
            "persistentTopicsEnabled": broker.persistent_topics,
            "nonPersistentTopicsEnabled": broker.non_persistent_topics,
            **loads,
            **rates,
            "lastUpdate": self._clock.wall_ms(),
            "lastStats": {},
            **counts,
            "bundles": [],
            "lastBundleGains": [],
            "lastBundleLosses": [],
            "brokerVersionString": f"magnetar-{__version__}",
            "protocols": {},
            "advertisedListeners": {},
            "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
            "startTimestamp": self._started_ms,
            "maxResourceUsage": 0.0,
            "loadReportType": "LocalBrokerData",
        }
