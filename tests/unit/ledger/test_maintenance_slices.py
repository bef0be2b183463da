"""With many ledgers and many segments the work behind the log leaves the loop to others in between."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from ledger_stores import MINIATURE, Listener, append
from simulated_io import SimulatedLoop, simulated_io

from magnetar.ledger.embedded.compaction import Compaction
from magnetar.ledger.embedded.index import IndexCache
from magnetar.ledger.embedded.ledger_table import LedgerTable
from magnetar.ledger.embedded.store import EmbeddedLedgerStore
from magnetar.ledger.interface import Quorums

STEP_SECONDS = 0.0004
LONGEST = 3
"""Steps of so many seconds until a millisecond is over."""
LEDGERS = 200


@contextmanager
def counted(loop: SimulatedLoop, owner: Any, name: str) -> Iterator[list[int]]:
    """Lets each call take time; yields the most of them in one turn of the loop, and how many there were."""
    found, this_turn = [0, 0], [0]
    method = owner.__dict__[name]

    def slow(*arguments: Any) -> Any:
        loop.timeline.now += STEP_SECONDS
        this_turn[0] += 1
        found[1] += 1
        return method(*arguments)

    def turned() -> None:
        found[0] = max(found[0], this_turn[0])
        this_turn[0] = 0

    loop.timeline.after_step = turned
    setattr(owner, name, slow)
    try:
        yield found
    finally:
        setattr(owner, name, method)
        loop.timeline.after_step = None


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (LedgerTable, "replace_parts"),
        (IndexCache, "put"),
        (Compaction, "_is_sparse"),
    ],
)
def test_no_turn_is_spent_on_all_of_them(owner: Any, name: str) -> None:
    simulation = simulated_io(7)
    # Segments are small as those of a miniature, and none is too small for what this looks at.
    settings = replace(MINIATURE, minor_compaction_threshold=0.3, small_segments=1000, sort_behind=0)

    async def scenario() -> tuple[int, int]:
        store = await EmbeddedLedgerStore.open_store(simulation.io, "ledgers", settings)
        writers = []
        for number in range(LEDGERS):
            writer = await store.create(Quorums(), {})
            writer.set_listener(listener := Listener())
            writers.append((writer, listener))
            if number % 20 == 0:
                store.check()
        with counted(simulation.loop, owner, name) as found:
            for entry in range(20):
                for writer, _ in writers:
                    append(writer, b"%d" % entry * 600)
                for _, listener in writers:
                    await listener.reached(entry)
            for writer, _ in writers[::2]:
                await store.delete(writer.ledger_id)
            await asyncio.sleep(60.0)
            store.check()
        await store.close()
        return found[0], found[1]

    most, calls = simulation.loop.run_until(scenario())
    assert calls > 10 * LONGEST
    assert most <= LONGEST
