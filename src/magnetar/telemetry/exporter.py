"""Sends the metrics of a process at intervals; a thread encodes and sends them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from magnetar.broker.stats.figures import MetricsSnapshot
from magnetar.io.interfaces import Cancellable, Io, Task
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.io.waiting import finished, run_job, sleep
from magnetar.telemetry.delivery import Delivery, NotDelivered
from magnetar.telemetry.encoding import RequestEncoder
from magnetar.telemetry.settings import TelemetrySettings

log = logging.getLogger(__name__)

_STOP_SECONDS = 1.0
Figures = Callable[[], Awaitable[MetricsSnapshot]]


class Exporter:
    """Exports metrics at intervals. A failed delivery is not repeated, because the next delivery contains the
    same counters.
    """

    def __init__(
        self, io: Io, settings: TelemetrySettings, encoder: RequestEncoder, figures: Figures
    ) -> None:
        """:param figures: collects the metrics of the process"""
        self._io = io
        self._interval = settings.interval_seconds
        self._encoder = encoder
        self._delivery = Delivery(settings)
        self._figures = figures
        self._worker = io.start_worker("telemetry")
        self._timeout = settings.timeout_seconds
        self._tasks = TaskScope(io.loop, "telemetry", owner_goes_on)
        self._running: Task[None] | None = None
        self._last: Task[None] | None = None
        """The task of the last delivery."""
        self._last_ends = 0.0
        self._delivered = 0
        self._failed = 0
        self._told = ""
        """The last logged error; empty: the last delivery succeeded."""

    def start(self) -> None:
        self._running = self._tasks.start(self._run(), "deliveries")

    async def begin_last(self) -> None:
        """Collects the metrics a last time, while all of them are still available, and starts sending
        them.
        """
        running, self._running = self._running, None
        if running is None:
            return
        running.cancel()
        await finished(self._io.loop, running)
        self._last_ends = self._io.loop.time() + self._timeout
        try:
            snapshot = await self.figures()
        except Exception:
            log.exception("cannot collect the last metrics")
            return
        self._last = self._tasks.start(self._counted(self._sent(snapshot)), "the last delivery")

    async def stop(self) -> None:
        """Stops after the delivery that :meth:`begin_last` started, or after the time limit of a request."""
        if self._last is not None:
            left = max(0.0, self._last_ends - self._io.loop.time())
            await finished(self._io.loop, self._last, self._in(left))
        self._delivery.stop()
        idle = self._tasks.answer(run_job(self._io.loop, self._worker, self._delivery.close))
        if await finished(self._io.loop, idle, self._in(_STOP_SECONDS)):
            self._worker.close()
        # Otherwise it waits for a host that does not answer, without a way to interrupt it: the process ends.

    async def figures(self) -> MetricsSnapshot:
        """Returns the metrics of the process, including the metrics of the delivery itself."""
        taken = await self._figures()
        own = {
            "magnetar_telemetry_delivered": self._delivered,
            "magnetar_telemetry_failed": self._failed,
        }
        return replace(taken, extra={**taken.extra, **own})

    def _in(self, seconds: float) -> Callable[[Callable[[], object]], Cancellable]:
        return partial(self._io.loop.call_later, seconds)

    async def _run(self) -> None:
        io = self._io
        due = io.loop.time()
        while True:
            # A round that takes longer than the interval delays the next, so that rounds do not overlap.
            due = max(due + self._interval, io.loop.time())
            await sleep(io.loop, due - io.loop.time())
            await self._counted(self._round())

    async def _counted(self, sending: Awaitable[str]) -> None:
        try:
            self._tell(await sending)
            self._delivered += 1
        except NotDelivered as error:
            self._failed += 1
            self._tell(str(error))
        except Exception:
            self._failed += 1
            log.exception("sending telemetry failed with an internal error")

    async def _round(self) -> str:
        return await self._sent(await self.figures())

    async def _sent(self, snapshot: MetricsSnapshot) -> str:
        """Sends the metrics in a thread; returns the collector's message about rejected points.

        :raises NotDelivered: the collector did not accept all requests
        """
        return await run_job(
            self._io.loop, self._worker, partial(self._send, snapshot, self._io.clock.wall_ms())
        )

    def _send(self, snapshot: MetricsSnapshot, now_ms: int) -> str:
        """Sends all requests, in the thread; returns the collector's message about rejected points.

        :raises NotDelivered: a request was not accepted; the requests after it were not sent
        """
        rejected = [self._delivery.send(each) for each in self._encoder.requests(snapshot, now_ms)]
        return "; ".join(filter(None, rejected))

    def _tell(self, trouble: str) -> None:
        if trouble and not self._told:
            log.warning("cannot deliver telemetry to the collector", extra={"reason": trouble})
        elif self._told and not trouble:
            log.info("telemetry is delivered again")
        self._told = trouble
