"""Mutex: one at a time, and none lost with whoever waits for it."""

from __future__ import annotations

import asyncio

from magnetar.io.locks import Mutex


def test_a_turn_handed_to_somebody_cancelled_goes_to_the_next() -> None:
    async def life() -> None:
        loop = asyncio.get_running_loop()
        mutex = Mutex(loop)
        had: list[str] = []

        async def take(name: str) -> None:
            async with mutex:
                had.append(name)

        async with mutex:
            waiting = [loop.create_task(take(name)) for name in ("first", "second")]
            await asyncio.sleep(0)
        # The turn is the first one's already, and it has not run yet.
        waiting[0].cancel()
        await asyncio.wait(waiting, timeout=1)
        await asyncio.wait_for(take("third"), 1)
        assert had == ["second", "third"]

    asyncio.run(life())
