"""Reading a ledger of the embedded store in the background: all of it, once, and not more at a time."""

from __future__ import annotations

from random import Random

import pytest
from ledger_stores import Listener, append
from simulated_io import SimulatedFile, simulated_io

from magnetar.ledger.embedded.settings import EmbeddedSettings
from magnetar.ledger.embedded.store import EmbeddedLedgerStore
from magnetar.ledger.interface import Quorums

RUN = 4096
SETTINGS = EmbeddedSettings(
    segment_bytes=64 << 10,
    first_segment_bytes=64 << 10,
    group_bytes=16 << 10,
    run_bytes=RUN,
    coalesce_gap_bytes=8 << 10,
    reserve_bytes=0,
)


@pytest.mark.parametrize("max_bytes", [1, 1000, 10_000, 1 << 20])
def test_each_entry_is_read_once(max_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = simulated_io(7)
    random = Random(max_bytes)
    entries = [random.randbytes(random.choice((10, 300, 2000, 6000))) for _ in range(150)]
    read_bytes: list[int] = []
    at_once = SimulatedFile.read

    def counted(self: SimulatedFile, length: int, offset: int) -> bytes:
        read_bytes.append(length)
        return at_once(self, length, offset)

    def not_at_hand(self: SimulatedFile, length: int, offset: int) -> bytes | None:
        raise AssertionError("the loop reads")

    async def scenario() -> None:
        store = await EmbeddedLedgerStore.open_store(simulation.io, "ledgers", SETTINGS)
        writer, other = [await store.create(Quorums(), {}) for _ in range(2)]
        listener = Listener()
        writer.set_listener(listener)
        other.set_listener(Listener())
        for number, entry in enumerate(entries):
            append(writer, entry)
            append(other, entry)
            if random.random() < 0.3:
                await listener.reached(number)
        await writer.close()
        reader = await store.open(writer.ledger_id, recover=False)
        reader.in_background()
        monkeypatch.setattr(SimulatedFile, "read", counted)
        monkeypatch.setattr(SimulatedFile, "read_cached", not_at_hand)
        found: list[bytes] = []
        while len(found) < len(entries):
            before = len(found)
            (run,) = await reader.read(before, len(entries) - 1, max_bytes)
            assert run.first_entry_id == before
            found += [run.entry(index) for index in range(run.count)]
            assert len(found) > before
        assert found == entries
        monkeypatch.undo()
        await store.close()

    simulation.loop.run_until(scenario())
    stored = sum(len(entry) + 4 for entry in entries)
    # Of the other ledger only what lies between is read, too, and indexes beside it.
    assert max(read_bytes) <= max_bytes + 2 * RUN + max(map(len, entries)) + (8 << 10)
    assert sum(read_bytes) < 3 * stored


def test_an_entry_behind_the_last_one_wanted_is_not_read() -> None:
    simulation = simulated_io(7)

    async def scenario() -> None:
        store = await EmbeddedLedgerStore.open_store(simulation.io, "ledgers", SETTINGS)
        writer = await store.create(Quorums(), {})
        listener = Listener()
        writer.set_listener(listener)
        for number in range(9):
            append(writer, b"%d" % number)
        await listener.reached(8)
        reader = await store.open(writer.ledger_id, recover=False)
        reader.in_background()
        (run,) = await reader.read(2, 5, 1)
        assert [run.entry(index) for index in range(run.count)] == [b"2", b"3", b"4", b"5"]
        await store.close()

    simulation.loop.run_until(scenario())
