"""How long operations of a metadata store take, as metrics tell."""

from __future__ import annotations

from typing import Any

import pytest
from faulty_metadata import FaultyMetadataStore
from simulated_io import simulated_io

from magnetar.io.interfaces import Loop
from magnetar.io.waiting import sleep
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.interface import (
    MUST_NOT_EXIST,
    BadVersion,
    Check,
    Delete,
    MetadataUnavailable,
    Put,
)
from magnetar.metadata.passing_on import BOUNDS_MS, MeasuredStore, PassingOnStore


class SlowStore(PassingOnStore):
    """Each operation takes ``seconds`` longer."""

    seconds = 0.0

    def __init__(self, inner: Any, loop: Loop) -> None:
        super().__init__(inner)
        self._loop = loop

    async def _do(self, call: str, work: Any) -> Any:
        await sleep(self._loop, self.seconds)
        return await work()


def test_operations_are_counted_by_kind_outcome_and_time() -> None:
    simulation = simulated_io(1)
    loop, io = simulation.loop, simulation.io
    faulty = FaultyMetadataStore(loop.run_until(EmbeddedMetadataStore.open_store(io, "db")), loop)
    slow = SlowStore(faulty, loop)
    store = MeasuredStore(slow, io.clock, "metadata-store")
    slow.seconds = 0.040
    loop.run_until(store.put("/a", b"12345"))
    slow.seconds = 7.0
    loop.run_until(store.put("/a", b"123"))
    with pytest.raises(BadVersion):
        loop.run_until(store.put("/a", b"1234567", MUST_NOT_EXIST))
    slow.seconds = 0.0
    loop.run_until(store.get("/a"))
    loop.run_until(store.exists("/a"))
    loop.run_until(store.children("/"))
    loop.run_until(store.delete("/a"))
    loop.run_until(store.change_together([Put("/b", b"12", MUST_NOT_EXIST), Put("/c", b"", MUST_NOT_EXIST)]))
    loop.run_until(store.change_together([Check("/b", 0), Delete("/c", 0)]))
    with pytest.raises(BadVersion):
        loop.run_until(store.change_together([Put("/b", b"1234", 0), Check("/c", 0), Delete("/d")]))
    faulty.disconnect()
    with pytest.raises(MetadataUnavailable):
        loop.run_until(store.get("/a"))
    counts = {key: sum(times.counts) for key, times in store.times.items()}
    assert counts == {
        ("get", True): 1,
        ("get", False): 1,
        ("put", True): 4,
        ("put", False): 2,
        ("del", True): 2,
        ("del", False): 1,
    }
    put = store.times["put", True]
    assert put.counts[BOUNDS_MS.index(50)] == put.counts[-1] == 1
    assert put.counts[0] == 2
    assert 7040 <= put.total_ms < 7100
    assert store.put_bytes == 10
