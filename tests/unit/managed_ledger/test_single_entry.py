"""One entry at a time: who waits for which, and what becomes of them when the ledger fails."""

from __future__ import annotations

import asyncio
from array import array
from typing import Any

import pytest

from magnetar.ledger.interface import LedgerError, LedgerListener
from magnetar.managed_ledger.single_entry import SingleEntries


class Writer:
    """Takes whatever comes; the test says when it is durable."""

    ledger_id = 7

    def __init__(self) -> None:
        self.entries: list[bytes] = []

    def set_listener(self, listener: LedgerListener) -> None:
        self.listener = listener

    def append(self, buffer: bytes, starts: array[int], ends: array[int], first: int, count: int) -> int:
        self.entries += [buffer[starts[i] : ends[i]] for i in range(first, first + count)]
        return len(self.entries) - 1


def test_each_is_told_of_its_own_entry_in_order() -> None:
    async def life() -> None:
        writer: Any = Writer()
        entries = SingleEntries(asyncio.get_running_loop(), writer)
        first = asyncio.ensure_future(entries.append_durably(b"a"))
        await asyncio.sleep(0)
        assert entries.append(b"b") == 1
        third, fourth = (asyncio.ensure_future(entries.append_durably(each)) for each in (b"c", b"d"))
        await asyncio.sleep(0)
        assert entries.count == 4
        assert writer.entries == [b"a", b"b", b"c", b"d"]
        writer.listener.on_durable(7, 1)
        assert await first == 0
        third.cancel()
        await asyncio.sleep(0)
        assert not fourth.done()
        writer.listener.on_durable(7, 3)
        assert await fourth == 3
        assert third.cancelled()

    asyncio.run(life())


def test_all_who_wait_hear_that_the_ledger_failed() -> None:
    async def life() -> None:
        writer: Any = Writer()
        failures: list[int] = []
        entries = SingleEntries(asyncio.get_running_loop(), writer, lambda: failures.append(entries.count))
        waiting = [asyncio.ensure_future(entries.append_durably(b"x")) for _ in range(3)]
        await asyncio.sleep(0)
        writer.listener.on_durable(7, 0)
        writer.listener.on_failed(7, 1, LedgerError("gone"))
        assert await waiting[0] == 0
        for one in waiting[1:]:
            with pytest.raises(LedgerError, match="gone"):
                await one
        assert failures == [3]

    asyncio.run(life())
