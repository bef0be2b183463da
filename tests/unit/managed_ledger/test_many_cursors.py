"""A managed ledger with thousands of cursors opens and closes about as fast as one with a few."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from faulty_metadata import Fault
from world import World

from magnetar.io.waiting import sleep
from magnetar.managed_ledger.cursors import AT_ONCE
from magnetar.managed_ledger.errors import ManagedLedgerNotFound
from magnetar.managed_ledger.position import EARLIEST
from magnetar.managed_ledger.settings import ManagedLedgerSettings
from magnetar.metadata.interface import MetadataError

T = TypeVar("T")

KEEP = ManagedLedgerSettings(max_entries_per_ledger=1000)
CURSORS = 1000
SECONDS = 0.05
"""That the metadata store takes for each operation."""


def slow_metadata(world: World, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """From now on each operation takes a while; how many were under way at the same time, with each."""
    loop = world.simulation.io.loop
    under_way = 0
    found: list[int] = []

    def slowed(inner: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
        async def call(*given: object, **named: object) -> T:
            nonlocal under_way
            under_way += 1
            found.append(under_way)
            try:
                await sleep(loop, SECONDS)
                return await inner(*given, **named)
            finally:
                under_way -= 1

        return call

    for name in ("get", "put", "delete", "children"):
        monkeypatch.setattr(world.metadata, name, slowed(getattr(world.metadata, name)))
    return found


def test_cursors_are_opened_and_closed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(settings=KEEP)
    ledger, listener = world.open()
    names = [f"s{number:04}" for number in range(CURSORS)]
    for name in names:
        world.run(world.managed.open_cursor(ledger, name, EARLIEST, {}))
    world.publish(ledger, listener, 10)
    for number, name in enumerate(names):
        ledger.cursors[name].mark_delete_to(listener.stored[number % 10])
    world.wait(5)
    loop = world.simulation.io.loop
    with monkeypatch.context() as patch:
        at_once = slow_metadata(world, patch)
        began = loop.time()
        world.run(world.managed.close(ledger))
        closing = loop.time() - began
    assert max(at_once) <= AT_ONCE
    assert closing < CURSORS * SECONDS / 10

    again = World(world.stop(), settings=KEEP)
    loop = again.simulation.io.loop
    with monkeypatch.context() as patch:
        at_once = slow_metadata(again, patch)
        began = loop.time()
        ledger, _ = again.open()
        opening = loop.time() - began
    assert max(at_once) <= AT_ONCE
    assert opening < CURSORS * SECONDS / 10
    assert list(ledger.cursors) == names, "in their order, whichever was there first"
    for number, name in enumerate(names):
        assert ledger.cursors[name].mark_delete == listener.stored[number % 10]


def test_a_cursor_that_cannot_be_read_opens_nothing() -> None:
    world = World(settings=KEEP)
    ledger, listener = world.open()
    for number in range(200):
        world.run(world.managed.open_cursor(ledger, f"s{number}", EARLIEST, {}))
    world.publish(ledger, listener, 1)
    again = World(world.stop(), settings=KEEP)
    reads = 0

    def draw(call: str) -> Fault | None:
        nonlocal reads
        reads += call == "get"
        return Fault.BEFORE if reads > 100 else None

    again.faulty_metadata.draw = draw
    with pytest.raises(MetadataError):
        again.open()
    assert reads < 100 + 2 * AT_ONCE + 10, "no other one is begun"
    again.faulty_metadata.draw = lambda _call: None
    again.wait(5)
    ledger, _ = again.open()
    assert len(ledger.cursors) == 200
    with pytest.raises(ManagedLedgerNotFound):
        again.open("t/n/persistent/other", create=False)
