"""What may go wrong while the ledger store closes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ledger_life import Life, append
from ledger_workload import MINIATURE
from simulated_io import ProcessStopped

from magnetar.ledger.interface import StoreClosed


@pytest.mark.parametrize("kind", ["sync", "write", "create", "rename"])
def test_a_failure_while_the_last_segment_is_sealed_stops_the_process(kind: str) -> None:
    """It used to come out of ``close`` as an OSError, and the metadata store was never closed."""
    life = Life()
    writer = life.create()
    append(writer, b"one", b"two")
    life.loop.run_for(1)
    life.disk.fail(kind, "ledgers")
    with pytest.raises(ProcessStopped):
        life.run(life.store.close())
    assert "Input/output error" in life.simulation.stop_messages[0]
    again = Life(life.killed())
    assert again.entries(writer.ledger_id) == [b"one", b"two"]


def test_a_read_that_waits_for_its_turn_while_the_store_closes_starts_no_worker() -> None:
    """It used to start a reader's worker that nobody closed."""
    life = Life(settings=replace(MINIATURE, reads_in_flight_bytes=1))
    writer = life.create()
    for number in range(40):
        append(writer, bytes([number]) * 1000)
        life.loop.run_for(0.01)
    life.disk.cached_fraction = 0.0

    async def read_all_and_close() -> list[Any]:
        reader = await life.store.open(writer.ledger_id, recover=False)
        reads = [life.loop.create_task(reader.read(n, n, 5000)) for n in range(40)]
        await life.store.close()
        outcomes = []
        for read in reads:
            try:
                outcomes.append(await read)
            except StoreClosed as error:
                outcomes.append(error)
        return outcomes

    outcomes = life.run(read_all_and_close())
    assert any(isinstance(outcome, StoreClosed) for outcome in outcomes)
    assert all(worker.closed for worker in life.simulation.workers)
