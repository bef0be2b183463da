"""Failed authentication by address: further failures are answered with increasing delays."""

from __future__ import annotations

from collections import OrderedDict

from magnetar.io.interfaces import Io
from magnetar.lazy_dataclass import dataclass

_FREE = 5
"""Number of failures without a delay."""
_FIRST_SECONDS = 0.1
_MOST_SECONDS = 5.0
_FORGOTTEN_SECONDS = 60.0
_ADDRESSES = 10_000


@dataclass(slots=True)
class _Failures:
    count: int
    last: float


class FailedAttempts:
    """The failures of the most recent addresses; memory is bounded."""

    def __init__(self, io: Io) -> None:
        self._io = io
        self._of: OrderedDict[str, _Failures] = OrderedDict()

    def __len__(self) -> int:
        """Number of remembered addresses."""
        return len(self._of)

    def failed(self, host: str) -> float:
        """Counts a failure; returns the seconds to wait before answering."""
        now = self._io.clock.monotonic()
        found = self._of.pop(host, None)
        if found is None or now - found.last > _FORGOTTEN_SECONDS:
            found = _Failures(0, now)
        found.count += 1
        found.last = now
        self._of[host] = found
        if len(self._of) > _ADDRESSES:
            self._of.popitem(last=False)
        beyond = found.count - _FREE
        return min(_FIRST_SECONDS * 2 ** min(beyond - 1, 10), _MOST_SECONDS) if beyond > 0 else 0.0
