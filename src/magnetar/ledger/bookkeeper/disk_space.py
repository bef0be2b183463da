"""The free disk space of bookies: those with more get more of the new ledgers
(``bookkeeperDiskWeightBasedPlacementEnabled``)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import median
from typing import NamedTuple

from magnetar.io.interfaces import Cancellable, Clock, Loop
from magnetar.ledger.bookkeeper.bookies import Bookies, Use
from magnetar.ledger.bookkeeper.frames import Status
from magnetar.ledger.bookkeeper.version3 import Operation, disk_space, disk_space_request

_MOST = 3.0
"""The largest weight, as a multiple of the median: Apache's default."""
_LEAST = 0.01
"""The smallest weight: a full bookie that is registered as writable may still have to accept something."""


class DiskSpaceSettings(NamedTuple):
    interval_seconds: float = 86_400.0
    """The maximum age of an answer (bookkeeperClientGetBookieInfoIntervalSeconds)."""
    retry_seconds: float = 60.0
    """The delay before bookies that gave none are queried again
    (bookkeeperClientGetBookieInfoRetryIntervalSeconds)."""


class DiskSpaces:
    """Queries bookies until it is stopped."""

    def __init__(self, loop: Loop, clock: Clock, bookies: Bookies, settings: DiskSpaceSettings) -> None:
        self._loop = loop
        self._clock = clock
        self._bookies = bookies
        self._settings = settings
        self._free: dict[str, int] = {}
        self._ask_at: dict[str, float] = {}
        """The time of each bookie's next query, by the monotonic clock."""
        self._timer: Cancellable | None = None

    def start(self) -> None:
        self._look()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def weights(self, bookie_ids: Sequence[str]) -> list[float]:
        """Returns the relative share of each bookie, 1.0 on average; a bookie that has not answered yet gets
        1.0."""
        if any(each not in self._ask_at for each in bookie_ids):
            self._ask()
        known = [self._free[each] for each in bookie_ids if each in self._free]
        usual = median(known) if known else 0
        if not usual:
            return [1.0] * len(bookie_ids)
        return [min(_MOST, max(_LEAST, self._free.get(each, usual) / usual)) for each in bookie_ids]

    def _look(self) -> None:
        self._ask()
        seconds = min(self._settings.retry_seconds, self._settings.interval_seconds)
        self._timer = self._loop.call_later(seconds, self._look)

    def _ask(self) -> None:
        now = self._clock.monotonic()
        for bookie_id in self._bookies.writable:
            if self._ask_at.get(bookie_id, now) <= now:
                self._ask_at[bookie_id] = now + self._settings.retry_seconds
                told = partial(self._told, bookie_id)
                bookie = self._bookies.bookie(bookie_id, Use.ASKING)
                bookie.ask(Operation.GET_BOOKIE_INFO, disk_space_request, told)

    def _told(self, bookie_id: str, status: int, bodies: list[bytes]) -> None:
        if status == Status.OK:
            self._free[bookie_id] = disk_space(bodies).free
            self._ask_at[bookie_id] = self._clock.monotonic() + self._settings.interval_seconds
