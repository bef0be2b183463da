"""Watches how full the device is, so that publishing can stop before a write fails.

The guard checks the device periodically. A device may fill faster than that, so the store also determines
whether there is room when it prepares the next segment, and reports a shortage to the guard.

The limits have the names of BookKeeper's (https://bookkeeper.apache.org/docs/reference/config): above
``diskUsageWarnThreshold`` space is reclaimed at once; above ``diskUsageThreshold`` publishing must stop,
until usage falls below ``diskUsageLwmThreshold``.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from magnetar.io.interfaces import Cancellable, Disk, Io, Worker
from magnetar.lazy_dataclass import dataclass

_log = logging.getLogger(__name__)

_SAMPLE_SECONDS = 60.0
_SAMPLES = 24 * 60
_RESUME_RESERVES = 1.25
"""A device that was full because of the reserve counts as full until this multiple of the reserve is free."""
_FORECAST_SECONDS = 3600.0
"""The minimum time span of the samples for a forecast, in seconds."""


class DiskState(Enum):
    """How full the device of the ledger store is."""

    ROOM = "room"
    WARNING = "warning"
    FULL = "full"


class DiskUse(NamedTuple):
    """The size and use of the store's device, in bytes."""

    total: int
    free: int

    @property
    def share(self) -> float:
        """Returns the used share of the device, 0 to 1."""
        return 1 - self.free / self.total if self.total else 1.0


@dataclass(frozen=True)
class DiskGuardSettings:
    """Limits; fields whose names end with ``_share`` are shares of the device's size, 0 to 1."""

    warn_share: float = 0.9
    full_share: float = 0.95
    resume_share: float = 0.93
    """The used share at or below which a device that was full no longer counts as full."""
    reserve_bytes: int = 256 << 20
    """The free bytes below which the device counts as full, regardless of the used share."""
    interval_seconds: float = 10.0

    def __post_init__(self) -> None:
        if not 0 < self.warn_share <= self.full_share <= 1:
            raise ValueError(
                f"diskUsageWarnThreshold ({self.warn_share}) must be above 0 and at most "
                f"diskUsageThreshold ({self.full_share})"
            )
        if not 0 < self.resume_share <= self.full_share:
            raise ValueError(
                f"diskUsageLwmThreshold ({self.resume_share}) must be above 0 and at most "
                f"diskUsageThreshold ({self.full_share})"
            )


class DiskGuard:
    """Checks the device periodically, on a worker."""

    def __init__(self, io: Io, worker: Worker, settings: DiskGuardSettings) -> None:
        self.looked: Callable[[], object] = lambda: None
        """Called after each check, and after each reported shortage."""
        self.state = DiskState.ROOM
        self.use = DiskUse(io.disk.total_bytes(), io.disk.free_bytes())
        self._io = io
        self._disk: Disk = io.disk
        self._worker = worker
        self._settings = settings
        self._timer: Cancellable | None = None
        self._stopped = False
        self._shortage = ""
        self._samples: deque[tuple[float, int]] = deque(maxlen=_SAMPLES)
        """Pairs of seconds on the loop's clock and free bytes: one sample a minute, for a day."""

    def start(self) -> None:
        self._judge()
        self._arm()

    def tell_shortage(self, reason: str) -> None:
        """Reports, between two checks, that there is no room for the next segment, so that the device counts
        as full.

        :param reason: the reason; if it is empty, there is room again, and the periodic checks alone decide
        """
        self._shortage = reason
        if not self._stopped and self._timer is not None:
            self._judge()

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._worker.close()

    @property
    def reason(self) -> str:
        """The reason why publishing must stop; only meaningful while :attr:`state` is FULL."""
        settings, use = self._settings, self.use
        if use.free < settings.reserve_bytes:
            return (
                f"only {use.free >> 20} MiB are free on the disk of the ledgers, "
                f"less than the reserve of {settings.reserve_bytes >> 20} MiB"
            )
        if self._shortage and use.share <= settings.full_share:
            return self._shortage
        return (
            f"the disk of the ledgers is {use.share:.1%} full: above {settings.full_share:.1%} "
            f"(diskUsageThreshold), publishing is refused until it is below {settings.resume_share:.1%}"
        )

    def seconds_until_full(self) -> float | None:
        """Returns the seconds until the device is full at the rate of the last day; None if the device does
        not fill up, or if there are too few samples.
        """
        if not self._samples:
            return None
        then, free_then = self._samples[0]
        elapsed = self._io.loop.time() - then
        used_up = free_then - self.use.free
        if elapsed < _FORECAST_SECONDS or used_up <= 0:
            return None
        settings = self._settings
        left = self.use.free - max((1 - settings.full_share) * self.use.total, settings.reserve_bytes)
        return max(0.0, left * elapsed / used_up)

    def _arm(self) -> None:
        self._timer = self._io.loop.call_later(self._settings.interval_seconds, self._look)

    def _look(self) -> None:
        self._worker.submit(lambda: DiskUse(self._disk.total_bytes(), self._disk.free_bytes()), self._seen)

    def _seen(self, use: DiskUse | None, error: BaseException | None) -> None:
        if self._stopped:
            return
        if use is None:
            _log.error("cannot determine how full the disk of the ledgers is: %s", error)
        else:
            self.use = use
            self._judge()
        self._arm()

    def _judge(self) -> None:
        now = self._io.loop.time()
        if not self._samples or now - self._samples[-1][0] >= _SAMPLE_SECONDS:
            self._samples.append((now, self.use.free))
        settings, use, before = self._settings, self.use, self.state
        full = before is DiskState.FULL
        bound = settings.resume_share if full else settings.full_share
        reserve = int(settings.reserve_bytes * (_RESUME_RESERVES if full else 1))
        if self._shortage or use.share > bound or use.free < reserve:
            self.state = DiskState.FULL
        elif use.share > settings.warn_share:
            self.state = DiskState.WARNING
        else:
            self.state = DiskState.ROOM
        if self.state is not before:
            self._tell(before)
        self.looked()

    def _tell(self, before: DiskState) -> None:
        if self.state is DiskState.FULL:
            _log.error("publishing is refused: %s", self.reason)
        elif before is DiskState.FULL:
            _log.warning(
                "publishing is possible again: the disk of the ledgers is %.1f %% full", 100 * self.use.share
            )
        elif self.state is DiskState.WARNING:
            _log.warning(
                "the disk of the ledgers is %.1f %% full; "
                "publishing is refused above %.1f %% (diskUsageThreshold)",
                100 * self.use.share,
                100 * self._settings.full_share,
            )
