"""What others write into records survives that they are written again here."""

from __future__ import annotations

from world import NAME, SMALL, World

from magnetar.managed_ledger import records_pb2 as pb
from magnetar.managed_ledger.position import EARLIEST
from magnetar.managed_ledger.records import ROOT

PATH = f"{ROOT}/{NAME}"
NEWER = b"\x7a\x03abc\xf8\x01\x07"
"""Fields 15 (bytes) and 31 (a number), which no record has today."""


def offloaded() -> pb.OffloadContext:
    context = pb.OffloadContext(uidMsb=-5, uidLsb=7, complete=True, bookkeeperDeleted=False, timestamp=3)
    context.driverMetadata.name = "aws-s3"
    context.driverMetadata.properties.add(key="bucket", value="b")
    context.offloadSegment.add(uidMsb=1, endEntryId=9)
    context.MergeFromString(NEWER)
    return context


def read(world: World) -> pb.ManagedLedgerInfo:
    node = world.run(world.metadata.get(PATH))
    assert node is not None
    return pb.ManagedLedgerInfo.FromString(node.value)


def test_a_managed_ledger_keeps_what_it_does_not_know() -> None:
    world = World(settings=SMALL)
    ledger, listener = world.open()
    world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    world.publish(ledger, listener, 7)
    world.run(world.managed.close(ledger))
    info = read(world)
    info.MergeFromString(NEWER)
    first = info.ledgerInfo[0]
    first.offloadContext.CopyFrom(offloaded())
    first.MergeFromString(NEWER)
    info.ledgerInfo[1].MergeFromString(NEWER)
    world.run(world.metadata.put(PATH, info.SerializeToString()))
    before = [summary.ledgerId for summary in info.ledgerInfo]

    ledger, listener = world.open()
    world.publish(ledger, listener, 7)
    world.run(ledger.set_properties({"a": "b"}))
    written = read(world)
    assert [summary.ledgerId for summary in written.ledgerInfo][:2] == before
    assert len(written.ledgerInfo) > len(before)
    assert written.ledgerInfo[0] == first
    assert written.ledgerInfo[0].offloadContext == offloaded()
    assert written.ledgerInfo[1].SerializeToString().endswith(NEWER)
    assert written.ledgerInfo[1].entries == 2
    for summary in written.ledgerInfo[2:]:
        assert NEWER not in summary.SerializeToString()
    written.ClearField("ledgerInfo")
    written.ClearField("properties")
    assert written.SerializeToString() == NEWER


def test_a_cursor_keeps_what_it_does_not_know() -> None:
    world = World(settings=SMALL)
    ledger, listener = world.open()
    world.run(world.managed.open_cursor(ledger, "s", EARLIEST, {}))
    world.publish(ledger, listener, 3)
    world.run(world.managed.close(ledger))
    path = f"{PATH}/s"
    node = world.run(world.metadata.get(path))
    assert node is not None
    info = pb.ManagedCursorInfo.FromString(node.value)
    info.lastActive = 12345
    info.MergeFromString(NEWER)
    world.run(world.metadata.put(path, info.SerializeToString()))

    ledger, _listener = world.open()
    cursor = ledger.cursors["s"]
    cursor.delete(*listener.stored[0])
    world.wait(2)
    node = world.run(world.metadata.get(path))
    assert node is not None
    with_ledger = pb.ManagedCursorInfo.FromString(node.value)
    assert with_ledger.cursorsLedgerId >= 0
    assert with_ledger.lastActive == 12345
    assert with_ledger.SerializeToString().endswith(NEWER)
    world.run(world.managed.close(ledger))
    node = world.run(world.metadata.get(path))
    assert node is not None
    closed = pb.ManagedCursorInfo.FromString(node.value)
    assert (closed.cursorsLedgerId, closed.lastActive) == (-1, 12345)
    assert closed.SerializeToString().endswith(NEWER)
    ledger, _ = world.open()
    assert world.drain(ledger.cursors["s"]) == listener.stored[1:]


def test_the_position_of_the_end_keeps_what_it_does_not_know() -> None:
    world = World(settings=SMALL)
    ledger, listener = world.open()
    world.publish(ledger, listener, 3)
    end = world.run(ledger.terminate())
    world.run(world.managed.close(ledger))
    info = read(world)
    info.terminatedPosition.MergeFromString(NEWER)
    world.run(world.metadata.put(PATH, info.SerializeToString()))
    ledger, _ = world.open()
    assert ledger.terminated == end
    world.run(ledger.set_properties({"a": "b"}))
    written = read(world).terminatedPosition
    assert (written.ledgerId, written.entryId) == end
    assert written.SerializeToString().endswith(NEWER)
