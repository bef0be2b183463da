"""Python's collector of cycles, kept from stopping the process: what lives long is not looked at again."""

from __future__ import annotations

import gc
from typing import Any

from magnetar.broker.service import BrokerService
from magnetar.io.interfaces import Io
from magnetar.io.slices import Slice
from magnetar.io.wheel import TimerWheel

_LOOK_SECONDS = 1.0
_GROWN = 500
"""Topics and connections that came since what lives was last set aside."""
_GONE = 10_000
"""Connections that were closed: the 25 objects each leaves in cycles are worth one long look."""
_TOPICS_LIKE_A_CONNECTION = 10
"""Reference counting frees a topic that is closed or deleted. So many count as one connection all the same,
for what a rare path may have left in a cycle: at the latest 100,000 of them lead to a look."""
_THRESHOLDS = (2_000, 5, 400)
"""Of the three generations. A scrape of ten thousand topics makes no collection of all, and one of the
second generation looks at ten thousand objects: some milliseconds."""


class Collector:
    """With ten thousand topics one collection of everything takes a tenth of a second, and finds nothing.

    Objects of topics and connections are set aside (``gc.freeze``) as they come. What goes is freed by
    reference counting, except for the little that a connection leaves in cycles: after 10,000 connections
    that were closed, or 100,000 topics, all objects are looked at once, which is noted among the slices.
    """

    def __init__(self, io: Io, wheel: TimerWheel, broker: BrokerService) -> None:
        self._io = io
        self._wheel = wheel
        self._broker = broker
        self._came = 0
        self._went = 0
        self._timer: Any = None

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
        """Sets aside what came, and looks for what was left behind when much has gone."""
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
