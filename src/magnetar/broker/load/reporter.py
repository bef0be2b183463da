"""A broker's load report in the metadata store, written when its content has changed enough."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import Any

from magnetar.broker.load.host import Meter
from magnetar.broker.load.reports import BrokerReport, BundleStats, Identity, new_report
from magnetar.broker.load.settings import LoadSettings
from magnetar.io.interfaces import Cancellable, Io, Task
from magnetar.io.wheel import TimerWheel
from magnetar.metadata.interface import MetadataError

log = logging.getLogger(__name__)

Record = Mapping[str, Any]


class Reporter:
    """Measures at an interval; writes if the values differ enough, or after a longer interval in any case."""

    def __init__(
        self,
        io: Io,
        wheel: TimerWheel,
        meter: Meter,
        settings: Callable[[], LoadSettings],
        identity: Callable[[], Identity],
        stats: Callable[[], Awaitable[Mapping[str, BundleStats]]],
        write: Callable[[Record], Awaitable[None]],
    ) -> None:
        """:param write: stores the record for other brokers; raises MetadataError"""
        self._io = io
        self._wheel = wheel
        self._meter = meter
        self._settings = settings
        self._identity = identity
        self._stats = stats
        self._write = write
        self._written: BrokerReport | None = None
        self._latest: BrokerReport | None = None
        self._timer: Cancellable | None = None
        self._task: Task[None] | None = None

    def first_record(self) -> Record:
        """Returns the record before anything is served."""
        self._latest = self._written = self._report({})
        return self._written.to_json()

    @property
    def latest(self) -> BrokerReport:
        """Returns the last measurement, written or not."""
        return self._latest or self._report({})

    def start(self) -> None:
        self._schedule()

    def stop(self) -> None:
        for pending in (self._timer, self._task):
            if pending is not None:
                pending.cancel()

    def _schedule(self) -> None:
        self._timer = self._wheel.schedule(self._settings().report.min_seconds, self._begin)

    def _begin(self) -> None:
        self._task = self._io.loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            await self.look()
        except MetadataError as error:
            log.warning("cannot write the load report; trying again later", extra={"error": str(error)})
        finally:
            self._schedule()

    async def look(self, *, write: bool = False) -> bool:
        """Measures, and writes if there is a reason; returns whether it did.

        :param write: write in any case
        :raises MetadataError: the record cannot be written; the next look tries again
        """
        report = self._latest = self._report(await self._stats())
        if not write and not self._differs(report):
            return False
        await self._write(report.to_json())
        self._written = report
        return True

    def _report(self, stats: Mapping[str, BundleStats]) -> BrokerReport:
        resources = self._meter.take(self._settings().report.host_seconds)
        return new_report(self._identity(), resources, stats, self._written, self._io.clock.wall_ms())

    def _differs(self, now: BrokerReport) -> bool:
        before, settings = self._written, self._settings()
        if before is None or now.identity != before.identity:
            return True
        if now.updated_ms - before.updated_ms > 1000 * settings.report.max_seconds:
            return True
        usage = abs(now.resources.weighed(settings.weights) - before.resources.weighed(settings.weights))
        changes = (
            _change(before.total.rate, now.total.rate),
            _change(before.total.throughput, now.total.throughput),
            _change(len(before.bundles), len(now.bundles)),
            usage,
        )
        return max(changes) > settings.report.change


def _change(before: float, now: float) -> float:
    """Returns the change as a fraction of the former value."""
    if before:
        return abs((before - now) / before)
    return inf if now else 0.0
