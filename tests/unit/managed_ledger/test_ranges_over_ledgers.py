"""Cursors as Apache Pulsar writes them with managedLedgerUnackedRangesOpenCacheSetEnabled=false: a range of
acknowledged entries may begin in one ledger and end in another."""

from __future__ import annotations

import pytest
from world import World

from magnetar.ledger.interface import Quorums
from magnetar.managed_ledger import records_pb2 as pb
from magnetar.managed_ledger.position import EARLIEST
from magnetar.managed_ledger.settings import ManagedLedgerSettings, RetentionSettings
from magnetar.managed_ledger.single_entry import SingleEntries

Position = tuple[int, int]

KEEP = ManagedLedgerSettings(
    max_entries_per_ledger=5, min_rollover_ms=0, retention=RetentionSettings(-1, -1), read_max_entries=3
)


def fill(
    target: pb.PositionInfo | pb.ManagedCursorInfo, *ranges: tuple[Position, Position]
) -> pb.PositionInfo | pb.ManagedCursorInfo:
    """:param ranges: behind the first position, up to and with the second"""
    for lower, upper in ranges:
        entry = target.individualDeletedMessages.add()
        entry.lowerEndpoint.ledgerId, entry.lowerEndpoint.entryId = lower
        entry.upperEndpoint.ledgerId, entry.upperEndpoint.entryId = upper
    return target


@pytest.mark.parametrize("in_ledger", [False, True])
@pytest.mark.parametrize(
    ("first", "last", "gone"),
    [
        # Behind entry ``first``, up to entry ``last``, of 20 in four ledgers; ``gone``: the first of them is.
        (1, 3, False),
        (1, 6, False),
        (2, 17, False),
        (4, 14, False),
        (4, 15, False),
        (1, 11, True),
    ],
)
def test_all_of_a_range_is_acknowledged(first: int, last: int, gone: bool, in_ledger: bool) -> None:
    world = World(settings=KEEP)
    ledger, listener = world.open()
    world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    world.publish(ledger, listener, 20, together=False)
    stored = listener.stored
    assert len({ledger_id for ledger_id, _entry_id in stored}) == 4
    path = f"{ledger.path}/s"
    again = World(world.stop(), settings=KEEP)
    mark = (stored[0][0], -1)
    ranges = [(stored[first], stored[last]), (stored[18], stored[19])]
    if gone:
        # Its ledger was trimmed: nobody knows how many entries it had.
        ranges[0] = ((stored[0][0] - 1, 2), stored[last])
    cursor_ledger = -1
    if in_ledger:
        writer = again.run(again.store.create(Quorums(), {}))
        state = fill(pb.PositionInfo(ledgerId=mark[0], entryId=mark[1]), *ranges)
        again.run(SingleEntries(again.simulation.io.loop, writer).append_durably(state.SerializeToString()))
        cursor_ledger = writer.ledger_id
    info = pb.ManagedCursorInfo(
        cursorsLedgerId=cursor_ledger, markDeleteLedgerId=mark[0], markDeleteEntryId=mark[1]
    )
    if not in_ledger:
        fill(info, *ranges)
    again.run(again.metadata.put(path, info.SerializeToString()))
    ledger, _ = again.open()
    cursor = ledger.cursors["s"]
    cursor.check()
    acknowledged = {*stored[(-1 if gone else first) + 1 : last + 1], stored[19]}
    assert again.drain(cursor) == [position for position in stored if position not in acknowledged]
    assert cursor.backlog() == 20 - len(acknowledged)
