"""Counts and measurements of the broker: rates, distributions, durations, and recent rates of topics."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum

from magnetar.broker.schemas.registry import SchemaOperation
from magnetar.io.interfaces import Clock
from magnetar.managed_ledger.measures import Timings

WINDOWS = 60
"""The number of statistics periods (``statsUpdateFrequencyInSecs``) that are kept."""
MOST_KEPT = 8192
"""The maximum number of topics with a history; each takes less than 1 KiB, all together less than 8 MiB."""
MOST_LATENCIES = 4096
"""The maximum number of topics with latencies; each takes less than 1.5 KiB, all together less than 6 MiB."""
ALL = ""
"""The key for the counts of the whole broker, used instead of the name of a topic."""
MOST_NAMESPACES = 1000
"""The maximum number of namespaces with counts; beyond it, the namespace that was used longest ago is
forgotten, and later starts from zero.
"""


class Rate:
    """A counter of messages and bytes; ``tick`` turns the counts since the last tick into rates."""

    __slots__ = ("_last_bytes", "_last_messages", "bytes", "bytes_per_second", "messages", "per_second")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.per_second = 0.0
        self.bytes_per_second = 0.0
        self._last_messages = 0
        self._last_bytes = 0

    def tick(self, seconds: float) -> None:
        self.per_second = (self.messages - self._last_messages) / seconds
        self.bytes_per_second = (self.bytes - self._last_bytes) / seconds
        self._last_messages = self.messages
        self._last_bytes = self.bytes

    def average_size(self) -> float:
        """Returns the average bytes per message in the last window; 0 if there were no messages."""
        return self.bytes_per_second / self.per_second if self.per_second else 0.0


LATENCY_BOUNDS_MS = (0.5, 1, 5, 10, 20, 50, 100, 200, 1000)
TRANSACTION_BOUNDS_MS = (
    *(10, 20, 50, 100, 500, 1000, 5000, 15_000, 30_000),
    *(60_000, 300_000, 1_500_000, 3_000_000),
)
ENTRY_SIZE_BOUNDS = (128, 512, 1024, 2048, 4096, 16384, 102400, 1048576)


class Distribution:
    """A histogram: a count for each bucket, a count of values above all bounds, and the sum of all values."""

    __slots__ = ("_before", "bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        self._before: array[int] | None = None
        """The counts at the last call of :meth:`tick`; None if all were 0."""

    def add(self, value: float, times: int = 1) -> None:
        index = 0
        for bound in self.bounds:
            if value <= bound:
                break
            index += 1
        self.counts[index] += times
        self.total += value * times

    def tick(self) -> Sequence[int]:
        """Returns the counts since the last call, by bucket; empty if nothing was added."""
        before = self._before
        if sum(self.counts) == (0 if before is None else sum(before)):
            return ()
        self._before = array("Q", self.counts)
        return (
            self.counts[:]
            if before is None
            else [now - then for now, then in zip(self.counts, before, strict=True)]
        )


QUANTILES = (0.5, 0.99)
"""The quantiles of latencies that the dashboard shows."""


def latency_quantiles(counts: Sequence[int]) -> Sequence[float]:
    """Returns :data:`QUANTILES` in milliseconds; empty if all counts are 0.

    Values between two bounds are estimated, as if spread evenly; values above all bounds count as the last
    bound.

    :param counts: the number of messages in each bucket of :data:`LATENCY_BOUNDS_MS`
    """
    total = sum(counts)
    return [_quantile(counts, wanted * total) for wanted in QUANTILES] if total else ()


def _quantile(counts: Sequence[int], rank: float) -> float:
    low, below = 0.0, 0
    for bound, count in zip(LATENCY_BOUNDS_MS, counts, strict=False):
        if count and below + count >= rank:
            return low + (bound - low) * (rank - below) / count
        low, below = bound, below + count
    return low


_FINE_SECONDS = (0.0005, 0.001, 0.0025)
SECONDS_BOUNDS = (*_FINE_SECONDS, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""The bounds that OpenTelemetry recommends for durations of requests, and three smaller bounds."""


class _Ring:
    __slots__ = ("newest", "values")

    def __init__(self, window: int) -> None:
        self.newest = window
        self.values = array("f", bytes(4 * 2 * WINDOWS))

    def go_to(self, window: int) -> None:
        """Moves on to a window. The rates of skipped windows are 0, because the topic was idle."""
        for missed in range(max(self.newest + 1, window - WINDOWS + 1), window + 1):
            at = missed % WINDOWS * 2
            self.values[at] = self.values[at + 1] = 0.0
        self.newest = window


class RateHistory:
    """Recent rates of incoming and outgoing messages: a small ring of numbers for each topic that was busy.

    It has the rates of the last :data:`WINDOWS` windows by topic, without topics that were idle all the time.
    """

    def __init__(self) -> None:
        self._rings: dict[str, _Ring] = {}
        self._window = -1
        """The number of the window; -1 before the first window."""

    def __len__(self) -> int:
        return len(self._rings)

    def new_window(self) -> None:
        """Begins the next window, and removes topics that were idle in all windows."""
        self._window += 1
        if self._window % WINDOWS == 0:
            oldest = self._window - WINDOWS
            self._rings = {name: ring for name, ring in self._rings.items() if ring.newest > oldest}

    def add(self, topic: str, rate_in: float, rate_out: float) -> None:
        """Adds messages per second to the current window; ignores new topics beyond :data:`MOST_KEPT`."""
        ring = self._rings.get(topic)
        if ring is None:
            if len(self._rings) >= MOST_KEPT:
                return
            ring = self._rings[topic] = _Ring(self._window)
        elif ring.newest != self._window:
            ring.go_to(self._window)
        at = self._window % WINDOWS * 2
        ring.values[at] += rate_in
        ring.values[at + 1] += rate_out

    def of(self, topic: str) -> tuple[Sequence[float], Sequence[float]]:
        """Returns messages per second in and out for the windows since the start, at most :data:`WINDOWS`,
        the oldest first; empty if the topic was idle."""
        ring = self._rings.get(topic)
        if ring is None:
            return (), ()
        ring.go_to(self._window)
        # The oldest follows the newest.
        first = (self._window + 1) % WINDOWS * 2
        values = ring.values[first:] + ring.values[:first]
        known = min(WINDOWS, self._window + 1)
        return values[0::2][-known:], values[1::2][-known:]


class LatencyHistory:
    """Recent quantiles of publish latencies by topic, in the windows of :class:`RateHistory`."""

    def __init__(self) -> None:
        self._rings: dict[str, tuple[array[int], array[float]]] = {}
        """For each topic, a ring with the numbers of windows, and a ring with the quantiles of these
        windows."""
        self._all: list[int] = []
        """The counts of all topics in the current window."""
        self._window = -1

    def __len__(self) -> int:
        return len(self._rings)

    def new_window(self) -> None:
        """Begins the next window, and removes topics that have no latency in any window."""
        self._window += 1
        self._all = []
        if self._window % WINDOWS == 0:
            oldest = self._window - WINDOWS
            self._rings = {name: ring for name, ring in self._rings.items() if max(ring[0]) > oldest}

    def add(self, topic: str, counts: Sequence[int]) -> None:
        """Adds the latencies of a topic in the current window, also to the counts of all topics.

        :param counts: the number of messages in each bucket of :data:`LATENCY_BOUNDS_MS`; empty: no messages
        """
        if not counts:
            return
        self._all = (
            [one + other for one, other in zip(self._all, counts, strict=True)] if self._all else list(counts)
        )
        self._set(topic, counts)
        self._set(ALL, self._all)

    def _set(self, topic: str, counts: Sequence[int]) -> None:
        ring = self._rings.get(topic)
        if ring is None:
            if len(self._rings) >= MOST_LATENCIES and topic != ALL:
                return
            ring = array("q", [-1]) * WINDOWS, array("f", [0.0]) * (len(QUANTILES) * WINDOWS)
            self._rings[topic] = ring
        at = self._window % WINDOWS
        ring[0][at] = self._window
        for index, value in enumerate(latency_quantiles(counts)):
            ring[1][at * len(QUANTILES) + index] = value

    def of(self, topic: str) -> Sequence[Sequence[float | None]]:
        """Returns the values of each of :data:`QUANTILES`, the oldest first, for the known windows.

        A value is None if no message was published in its window. The result is empty if no message was
        published in any window.
        """
        ring = self._rings.get(topic)
        if ring is None:
            return ()
        windows = range(max(0, self._window + 1 - WINDOWS), self._window + 1)
        return [
            [
                ring[1][each % WINDOWS * len(QUANTILES) + index] if ring[0][each % WINDOWS] == each else None
                for each in windows
            ]
            for index in range(len(QUANTILES))
        ]


class LookupEnd(Enum):
    """The outcome of a lookup; the value is the name in telemetry, as in Pulsar."""

    BROKER = "broker"
    """The client got the broker that serves the topic."""
    REDIRECT = "redirect"
    """The client was redirected to another broker."""
    FAILURE = "failure"


class LookupTimes:
    """Outcomes and durations of lookups since the start."""

    def __init__(self) -> None:
        self.answered = Timings()
        """The durations of successful lookups."""
        self.by_end = {end: Distribution(SECONDS_BOUNDS) for end in LookupEnd}

    def add(self, end: LookupEnd, seconds: float) -> None:
        self.by_end[end].add(seconds)
        if end is not LookupEnd.FAILURE:
            self.answered.add(seconds * 1000)

    def count(self, end: LookupEnd) -> int:
        return sum(self.by_end[end].counts)


class OfNamespace:
    """The operations of the schema registry for one namespace since the start."""

    __slots__ = ("compatible", "incompatible", "times")

    def __init__(self) -> None:
        self.times: dict[tuple[SchemaOperation, bool], Distribution] = {}
        """The durations of operations, by the operation and by whether it succeeded."""
        self.compatible = 0
        """The number of schemas that were compatible with the earlier versions."""
        self.incompatible = 0


class SchemaOperations:
    """Operations of one schema registry by namespace: durations and outcomes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.known: OrderedDict[str, OfNamespace] = OrderedDict()

    @contextmanager
    def measured(self, operation: SchemaOperation, schema_id: str) -> Iterator[None]:
        """Measures one operation; it counts as failed if an exception leaves the block."""
        started = self._clock.monotonic()
        succeeded = False
        try:
            yield
            succeeded = True
        finally:
            times = self._of(schema_id).times
            found = times.get((operation, succeeded))
            if found is None:
                found = times[operation, succeeded] = Distribution(SECONDS_BOUNDS)
            found.add(self._clock.monotonic() - started)

    def compared(self, schema_id: str, *, compatible: bool) -> None:
        """Counts a comparison of a schema with the earlier versions."""
        found = self._of(schema_id)
        if compatible:
            found.compatible += 1
        else:
            found.incompatible += 1

    def _of(self, schema_id: str) -> OfNamespace:
        namespace = schema_id.rpartition("/")[0]
        found = self.known.get(namespace)
        if found is None:
            found = self.known[namespace] = OfNamespace()
            if len(self.known) > MOST_NAMESPACES:
                self.known.popitem(last=False)
        self.known.move_to_end(namespace)
        return found
