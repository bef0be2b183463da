"""The store that goes wrong on demand does so as asked."""

from __future__ import annotations

import asyncio

import pytest
from faulty_ledgers import FaultyLedgerStore, InjectedFault
from ledger_stores import Listener, all_entries, append
from ledger_stores import _miniature as open_miniature
from simulated_io import simulated_io

from magnetar.ledger.interface import LedgerClosed, Quorums


def test_faults() -> None:
    simulation = simulated_io(1)

    async def scenario() -> None:
        store = FaultyLedgerStore(await open_miniature(simulation), simulation.loop)
        for call, operation in (
            ("create", lambda: store.create(Quorums(), {})),
            ("open", lambda: store.open(1, recover=True)),
            ("delete", lambda: store.delete(1)),
        ):
            store.fail_next(call)
            with pytest.raises(InjectedFault, match=call):
                await operation()
        writer = await store.create(Quorums(), {})
        listener = Listener()
        writer.set_listener(listener)
        store.fail_append(3, writer.ledger_id)
        append(writer, b"0", b"1")
        append(writer, b"2", b"3", b"4")
        await asyncio.sleep(1)
        assert listener.last == 2
        assert listener.failed is not None
        assert listener.failed[0] == 3
        assert isinstance(listener.failed[1], InjectedFault)
        with pytest.raises(LedgerClosed):
            append(writer, b"5")
        with pytest.raises(InjectedFault):
            await writer.close()
        reader = await store.open(writer.ledger_id, recover=True)
        assert (await all_entries(reader))[:3] == [b"0", b"1", b"2"]

    simulation.loop.run_until(scenario())


def test_delays_keep_the_order() -> None:
    simulation = simulated_io(1)

    async def scenario() -> None:
        store = FaultyLedgerStore(await open_miniature(simulation), simulation.loop)
        writer = await store.create(Quorums(), {})
        listener = Listener()
        writer.set_listener(listener)
        for number in range(50):
            store.durability_delay = 0.0 if number % 3 else 0.02
            append(writer, b"%d" % number)
            await asyncio.sleep(0.002)
        assert (await writer.close())[0] == 49
        assert listener.last == 49
        assert listener.told == sorted(listener.told)

    simulation.loop.run_until(scenario())
