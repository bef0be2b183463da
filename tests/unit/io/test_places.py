"""Places that several share."""

from __future__ import annotations

import asyncio

from magnetar.io.locks import FairSemaphore


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_places_are_given_in_order_and_those_who_give_up_keep_none() -> None:
    async def life() -> None:
        loop = asyncio.get_running_loop()
        places = FairSemaphore(loop, 2)
        ends = [loop.create_future() for _ in range(5)]
        began: list[int] = []

        async def one(number: int) -> None:
            async with places:
                began.append(number)
                await ends[number]

        tasks = [loop.create_task(one(number)) for number in range(5)]
        await turns()
        assert began == [0, 1]
        tasks[2].cancel()
        ends[1].set_result(None)
        await turns()
        assert began == [0, 1, 3]
        ends[0].set_result(None)
        await turns()
        assert began == [0, 1, 3, 4]
        ends[3].set_result(None)
        ends[4].set_result(None)
        await turns()
        assert places.taken == 0

    asyncio.run(life())


def test_who_gives_up_with_a_place_already_handed_over_passes_it_on() -> None:
    async def life() -> None:
        loop = asyncio.get_running_loop()
        places = FairSemaphore(loop, 1)
        end = loop.create_future()

        async def one() -> None:
            async with places:
                await end

        tasks = [loop.create_task(one()) for _ in range(3)]
        await turns()
        end.set_result(None)
        await asyncio.sleep(0)
        tasks[1].cancel()
        await turns()
        assert tasks[2].done()
        assert places.taken == 0

    asyncio.run(life())
