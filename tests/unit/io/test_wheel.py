"""The timer wheel: order, precision, cancelling, and silence when empty."""

from __future__ import annotations

import asyncio

from magnetar.io.wheel import TimerWheel


def test_timers_fire_in_order_and_not_early() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        wheel = TimerWheel(loop, tick=0.005)
        fired: list[tuple[str, float]] = []
        begin = loop.time()
        for name, delay in (("late", 0.05), ("early", 0.01), ("also early", 0.01), ("now", 0.0)):
            wheel.schedule(delay, lambda name=name: fired.append((name, loop.time() - begin)))
        await asyncio.sleep(0.1)
        assert [name for name, _ in fired] == ["now", "early", "also early", "late"]
        assert all(at >= delay for (_, at), delay in zip(fired, (0.0, 0.01, 0.01, 0.05), strict=True))
        assert len(wheel) == 0
        assert wheel._armed is None

    asyncio.run(scenario())


def test_a_cancelled_timer_does_not_fire_even_by_a_neighbour_of_its_slot() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        wheel = TimerWheel(loop, tick=0.05)
        fired: list[str] = []
        victim = None

        def cancel_victim() -> None:
            assert victim is not None
            victim.cancel()
            victim.cancel()

        wheel.schedule(0.01, cancel_victim)
        victim = wheel.schedule(0.01, fired.append, "victim")
        wheel.schedule(0.01, fired.append, "other")
        await asyncio.sleep(0.15)
        assert fired == ["other"]

    asyncio.run(scenario())


def test_an_emptied_wheel_has_no_timer_in_the_loop() -> None:
    async def scenario() -> None:
        wheel = TimerWheel(asyncio.get_running_loop())
        timer = wheel.schedule(60, print)
        assert wheel._armed is not None
        timer.cancel()
        assert wheel._armed is None
        assert len(wheel) == 0

    asyncio.run(scenario())


def test_a_timer_may_schedule_another() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        wheel = TimerWheel(loop, tick=0.005)
        done = loop.create_future()
        wheel.schedule(0.005, lambda: wheel.schedule(0.005, done.set_result, "second"))
        assert await asyncio.wait_for(done, 1) == "second"

    asyncio.run(scenario())
