"""A contradiction planted into each part of an embedded store is found."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from ledger_stores import MINIATURE, Listener, append
from simulated_io import simulated_io

from magnetar.invariants import BrokenInvariant
from magnetar.io.interfaces import Io
from magnetar.ledger.embedded.segment_table import SegmentState
from magnetar.ledger.embedded.store import EmbeddedLedgerStore
from magnetar.ledger.interface import Quorums

pytestmark = pytest.mark.plants

Plant = Callable[[Any], None]


def row(store: Any) -> Any:
    """Of a ledger that is still written, with entries in several segments."""
    return store._table.rows[2]


def _segment_counted_twice(store: Any) -> None:
    live = store._table.live_bytes
    live[next(iter(live))] += 1


def _segment_not_counted(store: Any) -> None:
    del store._table.live_bytes[row(store).parts[0]]


def _part_gone(store: Any) -> None:
    del row(store).parts[4:8]


def _first_part_gone(store: Any) -> None:
    del row(store).parts[:4]


def _last_part_short(store: Any) -> None:
    row(store).parts[-2] -= 1


def _half_a_part(store: Any) -> None:
    row(store).parts.append(1)


def _back(store: Any) -> None:
    row(store).last_entry_id -= 1


def _closed_and_longer(store: Any) -> None:
    closed = store._table.rows[1]
    closed.last_entry_id += 1
    closed.parts[-2] += 1


def _open_again(store: Any) -> None:
    store._table.rows[1].closed = False


def _deleted_is_back(store: Any) -> None:
    was = store._table.rows[2]
    store._table.delete(2)
    store._writers.clear()
    store.check()
    again = store._table.create(2, was.created)
    again.forgotten = 1


def _id_to_come(store: Any) -> None:
    store._table.next_ledger_id = 2


def _another_id(store: Any) -> None:
    row(store).ledger_id = 1


def _writer_of_nothing(store: Any) -> None:
    store._writers[99] = store._writers[2]


def _log_elsewhere(store: Any) -> None:
    growing = next(iter(store._segments.of(SegmentState.GROWING)))
    store._segments.fill(growing, 1)


def _wanted_and_gone(store: Any) -> None:
    segments = store._segments
    segment_id = next(iter(segments.of(SegmentState.SEALED)))
    del segments._rows[segment_id], segments._by_state[SegmentState.SEALED][segment_id]


def _wanted_and_leaving(store: Any) -> None:
    store._segments.leave(next(iter(store._segments.of(SegmentState.SEALED))))


def _nothing_wanted_stays(store: Any) -> None:
    for ledger_id in list(store._table.rows):
        store._table.delete(ledger_id)
    store._writers.clear()
    store._table.emptied.clear()


def _written_and_not_kept(store: Any) -> None:
    store._reads._pins.clear()
    store.read_plans._plans.clear()


def _growing_knows_more(store: Any) -> None:
    index = store._log.segment.index
    index.add(2, index.part(2).last_entry_id + 1, 1, 0, 5, 0)


def _another_place(store: Any) -> None:
    row(store).parts[-4] = row(store).parts[0]
    live: dict[int, int] = {}
    for found in store._table.rows.values():
        for segment_id, _, _, stored in found.each_part():
            live[segment_id] = live.get(segment_id, 0) + stored
    store._table.live_bytes = live


def _longer_than_its_file(store: Any) -> None:
    store._log.segment.end = store._log.segment.size + 1


def _durable_before_written(store: Any) -> None:
    store._log._durable_sequence = store._log.sequence


def _stored_again(store: Any) -> None:
    writer = store._writers[2]
    append(writer, b"x")
    writer._queue.first -= 1


def _waits_unknowingly(store: Any) -> None:
    writer = store._writers[2]
    append(writer, b"x")
    writer._queue.waiting = False


def _held_by_nobody(store: Any) -> None:
    store._reads._pins[1] = 0


def _less_than_nothing_read(store: Any) -> None:
    store._reads._in_flight = -1


def _waits_for_nobody(store: Any) -> None:
    store._reads._queue.append((1, None))


def _plan_not_kept(store: Any) -> None:
    held = next(iter(store.read_plans._plans.values()))
    del store._reads._pins[next(iter(held.segments))]


_PLANTS: tuple[Plant, ...] = (
    _segment_counted_twice,
    _segment_not_counted,
    _part_gone,
    _first_part_gone,
    _last_part_short,
    _half_a_part,
    _back,
    _closed_and_longer,
    _open_again,
    _deleted_is_back,
    _id_to_come,
    _another_id,
    _writer_of_nothing,
    _log_elsewhere,
    _wanted_and_gone,
    _wanted_and_leaving,
    _nothing_wanted_stays,
    _written_and_not_kept,
    _growing_knows_more,
    _another_place,
    _longer_than_its_file,
    _durable_before_written,
    _stored_again,
    _waits_unknowingly,
    _held_by_nobody,
    _less_than_nothing_read,
    _waits_for_nobody,
    _plan_not_kept,
)


async def lived(io: Io) -> EmbeddedLedgerStore:
    """A store with a ledger that is closed, one that is written, a plan, and sealed segments of both."""
    store = await EmbeddedLedgerStore.open_store(io, "ledgers", MINIATURE)
    writers = [await store.create(Quorums(), {}) for _ in range(3)]
    listeners = [Listener() for _ in writers]
    for writer, listener in zip(writers, listeners, strict=True):
        writer.set_listener(listener)
    for number in range(300):
        for writer in writers:
            append(writer, b"%d" % number * 200)
        for listener in listeners:
            await listener.reached(number)
        store.check()
    await writers[0].close()
    await store.delete(writers[2].ledger_id)
    await asyncio.sleep(10.0)
    append(writers[1], b"last")
    await listeners[1].reached(300)
    store.read_plans.make([(1, 0, 299)], 60.0)
    store.check()
    return store


@pytest.mark.parametrize("plant", _PLANTS)
def test_a_contradiction_is_found(plant: Plant) -> None:
    simulation = simulated_io(1)

    async def scenario() -> None:
        store = await lived(simulation.io)
        plant(store)
        with pytest.raises(BrokenInvariant):
            store.check()

    simulation.loop.run_until(scenario())
