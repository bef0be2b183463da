"""Limits the administration requests of one role: requests per second, and concurrent requests.

Requests beyond the rate wait, so that a script that sends one after another is only slowed. A request that
would have to wait for longer than :data:`MOST_SECONDS` is refused with status 429.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from magnetar.broker.flow.rate_limits import TokenBucket
from magnetar.errors import TooManyRequests
from magnetar.io.interfaces import Io
from magnetar.io.locks import FairSemaphore
from magnetar.io.waiting import sleep
from magnetar.lazy_dataclass import dataclass

MOST_SECONDS = 5.0
"""Maximum time in seconds that a request waits because of the rate."""
_BURST_SECONDS = 5.0
"""A role can send at once as many requests as its rate permits in this time, in seconds."""
_MOST_KNOWN = 10_000
"""Maximum number of roles and addresses whose rates are remembered; if there are more, the rates of idle
roles and addresses are forgotten first.
"""


@dataclass(frozen=True, slots=True)
class AdminLimits:
    """Limits of administration requests; 0 disables a limit."""

    requests_per_second: int = 0
    """Maximum requests per second of each role or, if clients do not authenticate, of each client address."""
    at_once: int = 0
    """Maximum number of concurrent requests of one role."""


class TooFast(TooManyRequests):
    """A role has sent so many requests that the next one would have to wait for too long."""

    def __init__(self, who: str, limit: int, seconds: int) -> None:
        """:param who: the role or the client address, for the error text
        :param limit: the maximum rate, in requests per second
        :param seconds: seconds after which the client can try again
        """
        super().__init__(
            f"{who} exceeds {limit} admin requests per second (magnetarMaxAdminRequestsPerSecondPerRole): "
            f"try again in {seconds} s"
        )
        self.seconds = seconds


class AdminPace:
    def __init__(self, io: Io, limits: AdminLimits) -> None:
        self._io = io
        self._limits = limits
        self._buckets: dict[str, TokenBucket] = {}
        self._rows: dict[str, FairSemaphore] = {}
        self.refused = 0
        """Number of requests, since the start, that were refused."""
        self.slowed = 0
        """Number of requests, since the start, that had to wait because of the rate."""

    @property
    def limits_anything(self) -> bool:
        return bool(self._limits.requests_per_second or self._limits.at_once)

    def metrics(self) -> dict[str, int]:
        """Returns the metrics by name."""
        return {
            "magnetar_refused_admin_requests": self.refused,
            "magnetar_slowed_admin_requests": self.slowed,
        }

    async def admit(self, who: str) -> None:
        """Waits until the rate of a role or client address permits one more request.

        :raises TooFast: the request would have to wait for longer than :data:`MOST_SECONDS`
        """
        rate = self._limits.requests_per_second
        if not rate:
            return
        now = self._io.clock.monotonic()
        bucket = self._buckets.get(who)
        if bucket is None:
            if len(self._buckets) >= _MOST_KNOWN:
                self._forget(now)
            bucket = self._buckets[who] = TokenBucket(rate, rate * _BURST_SECONDS, now)
        bucket.available(now)
        seconds = bucket.seconds_until(1, now)
        if seconds > MOST_SECONDS:
            self.refused += 1
            raise TooFast(who, rate, int(seconds - MOST_SECONDS) + 1)
        bucket.take(1)
        if seconds > 0:
            self.slowed += 1
            await sleep(self._io.loop, seconds)

    def _forget(self, now: float) -> None:
        most = self._limits.requests_per_second * _BURST_SECONDS
        self._buckets = {who: bucket for who, bucket in self._buckets.items() if bucket.available(now) < most}
        if len(self._buckets) >= _MOST_KNOWN:
            del self._buckets[next(iter(self._buckets))]

    @asynccontextmanager
    async def turn(self, role: str) -> AsyncIterator[None]:
        """A context manager for one request of a role: first waits, in the order of arrival, while too many
        requests of the role are in progress.
        """
        if not self._limits.at_once:
            yield
            return
        row = self._rows.setdefault(role, FairSemaphore(self._io.loop, self._limits.at_once))
        try:
            async with row:
                yield
        finally:
            if not row.taken:
                self._rows.pop(role, None)
