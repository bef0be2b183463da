"""The bytes that replicators have in flight: counted for each, and wrong counts end one topic alone."""

from __future__ import annotations

from typing import Any

import pytest
from sending import Source

from magnetar.broker.replication.clusters import InFlightBytes
from magnetar.invariants import BrokenInvariant

STORED = (9, 0)


def counts(source: Source) -> InFlightBytes:
    return source.replicator._bytes


def test_each_replicator_returns_what_it_has_taken() -> None:
    source = Source(5)
    found = counts(source)
    assert found.used == source.replicator._in_flight.size > 0
    found.check()
    source.confirm(STORED, STORED)
    assert found.used == source.replicator._in_flight.size > 0
    found.check()
    source.cut()
    source.wait_for_links(2)
    found.check()
    source.confirm(STORED, STORED, STORED)
    assert not found.used
    found.check()


@pytest.mark.plants
def test_a_replicator_that_returns_more_ends_its_topic_and_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Source(5)
    found, failed = counts(source), list[BaseException]()
    monkeypatch.setattr(source.topic, "fail", failed.append)
    other: Any = object()
    found.take(other, 1000)
    found._of[source.replicator] = 1
    with pytest.raises(BrokenInvariant, match="bytes are in flight"):
        found.check()
    with pytest.raises(BrokenInvariant, match=r"bytes in flight of .* to .*: expected at least 0, found -"):
        source.confirm(STORED, STORED)
    assert len(failed) == 1
    assert found.used == 1000
    found.check()
