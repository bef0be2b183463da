"""A reminder is never lost, and counts once however often it was given."""

from __future__ import annotations

import asyncio

from simulated_io import simulated_io

from magnetar.io.waiting import Reminder


def test_what_is_said_meanwhile_counts_once() -> None:
    simulation = simulated_io(1)
    reminder = Reminder(simulation.loop)
    rounds: list[float] = []

    async def work() -> None:
        while True:
            await reminder.wait()
            rounds.append(simulation.loop.time())
            await asyncio.sleep(1.0)

    async def scenario() -> None:
        began = simulation.loop.time()
        reminder.remind()
        reminder.remind()
        task = asyncio.get_running_loop().create_task(work())
        await asyncio.sleep(0.5)
        reminder.remind()
        reminder.remind()
        await asyncio.sleep(9.5)
        reminder.remind()
        await asyncio.sleep(5.0)
        assert [round(when - began, 6) for when in rounds] == [0.0, 1.0, 10.0]
        task.cancel()

    simulation.loop.run_until(scenario())
