"""Keeps Python's garbage collector from pausing the process: long-lived objects are not scanned again."""

from __future__ import annotations

import gc

from magnetar.broker.service import BrokerService
from magnetar.io.interfaces import Cancellable, Io
from magnetar.io.slices import Slice
from magnetar.io.wheel import TimerWheel

_LOOK_SECONDS = 1.0
_GROWN = 500
"""Number of new topics and connections after which live objects are frozen again."""
_GONE = 10_000
"""Number of closed connections after which a full collection pays: each leaves 25 objects in cycles."""
_TOPICS_LIKE_A_CONNECTION = 10
"""Reference counting frees a topic that is closed or deleted. Ten still count as one connection, in case a
rare path leaves objects in cycles: after at most 100,000 of them there is a full collection."""
_THRESHOLDS = (2_000, 5, 400)
"""Thresholds of the three generations. A scrape of ten thousand topics causes no full collection, and one of
the second generation scans ten thousand objects, which takes some milliseconds."""


class Collector:
    """Avoids full collections: with ten thousand topics one takes a tenth of a second and finds nothing.

    Objects of new topics and connections are frozen (``gc.freeze``). Reference counting frees closed ones,
    except for the few objects that a connection leaves in cycles: after 10,000 closed connections, or 100,000
    topics, there is one full collection, which is recorded among the slices.
    """

    def __init__(self, io: Io, wheel: TimerWheel, broker: BrokerService) -> None:
        self._io = io
        self._wheel = wheel
        self._broker = broker
        self._came = 0
        self._went = 0
        self._timer: Cancellable | None = None

    def start(self) -> None:
        gc.set_threshold(*_THRESHOLDS)
        gc.freeze()
        self._schedule()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        self._timer = self._wheel.schedule(_LOOK_SECONDS, self.look)

    def look(self) -> None:
        """Freezes new objects, and runs a full collection when many connections have closed."""
        self._schedule()
        broker = self._broker
        came = broker.topic_loads.count + broker.connections.created
        topics = broker.topic_loads.count - len(broker.topics)
        went = broker.connections.closed_count + topics // _TOPICS_LIKE_A_CONNECTION
        if went - self._went >= _GONE:
            self._went = went
            running = Slice(self._io, "collector")
            gc.unfreeze()
            gc.collect()
            running.end()
        elif came - self._came < _GROWN:
            return
        self._came = came
        gc.freeze()
