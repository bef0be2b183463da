"""A violation that a topic or a connection meets ends the seed, although the broker would go on."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.broker.connections.publishing import Publishing
from magnetar.broker.consumers.consumer import Consumer
from magnetar.invariants import BrokenInvariant
from simulation.scenario import Scenario

pytestmark = pytest.mark.plants


def test_a_violation_in_a_topic_ends_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Consumer._sent

    def too_much(self: Any, entries: int, messages: int, size: int) -> None:
        if self.entries_out > 20:
            self.permits = -(1 << 40)
        sent(self, entries, messages, size)

    monkeypatch.setattr(Consumer, "_sent", too_much)
    with pytest.raises(BrokenInvariant, match="permits of consumer"):
        Scenario(0).run()


def test_a_violation_in_a_connection_ends_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    settled = Publishing._settled
    count = 0

    def twice(self: Any, producer: Any, entries: int, size: int) -> None:
        nonlocal count
        count += 1
        if count == 30:
            self.pending = -1
        settled(self, producer, entries, size)

    monkeypatch.setattr(Publishing, "_settled", twice)
    with pytest.raises(BrokenInvariant, match="entries in flight of producer"):
        Scenario(0).run()
