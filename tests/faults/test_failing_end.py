"""A disk that fails while the ledger store closes."""

from __future__ import annotations

import pytest
from ledger_life import Life, append

from magnetar.io.simulated import ProcessStopped


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
