"""Messages with a delivery time, which are delivered at once: delays are not built yet."""

from __future__ import annotations

import logging

from magnetar.io.interfaces import Clock
from magnetar.ledger.entry_run import EntryRun
from magnetar.protocol.hot_codec import deliver_at

log = logging.getLogger("magnetar.broker")


class EarlyDeliveries:
    """Of one topic, to subscriptions that would wait in Pulsar: Shared and Key_Shared ones."""

    def __init__(self, topic: str, clock: Clock) -> None:
        self._topic = topic
        self._clock = clock
        self.count = 0
        """Entries that were sent before their time."""

    def look(self, run: EntryRun, first: int, end: int) -> None:
        """Counts those of entries [first, end), which are sent now, whose time is to come; logs the first."""
        now_ms = self._clock.wall_ms()
        early = sum(
            deliver_at(run.buffer, run.starts[index], run.ends[index]) > now_ms for index in range(first, end)
        )
        if early and not self.count:
            log.warning("messages are delivered before their time", extra={"topic": self._topic})
        self.count += early
