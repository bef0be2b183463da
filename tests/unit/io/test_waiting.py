"""Waiting for what others wait for too."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from magnetar.io.interfaces import Cancellable, Loop
from magnetar.io.waiting import fail, finished, outcome, settle, sleep


def run(life: Callable[[Any], Awaitable[None]]) -> list[dict[str, Any]]:
    """Runs it on a loop; returns what the loop's last handler of errors was told."""
    told: list[dict[str, Any]] = []

    async def on_loop() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: told.append(context))
        await life(loop)
        gc.collect()

    asyncio.run(on_loop())
    return told


@pytest.mark.parametrize("wait", [finished, outcome])
def test_whoever_is_cancelled_leaves_the_work_and_the_others_alone(
    wait: Callable[[Loop, Any], Awaitable[Any]],
) -> None:
    async def life(loop: Any) -> None:
        go = loop.create_future()

        async def work() -> str:
            await go
            return "done"

        shared = loop.create_task(work())
        first, second = (asyncio.ensure_future(wait(loop, shared)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        assert first.cancelled()
        assert not shared.done()
        go.set_result(None)
        assert await second == ("done" if wait is outcome else True)
        assert shared.result() == "done"

    run(life)


def test_all_who_wait_are_told_the_error() -> None:
    async def life(loop: Any) -> None:
        shared = loop.create_future()
        waiting = [asyncio.ensure_future(outcome(loop, shared)) for _ in range(3)]
        await asyncio.sleep(0)
        shared.set_exception(ValueError("broken"))
        for one in waiting:
            with pytest.raises(ValueError, match="broken"):
                await one
        with pytest.raises(ValueError, match="broken"):
            await outcome(loop, shared)
        assert await finished(loop, shared)

    run(life)


def test_a_failure_behind_the_last_one_cancelled_is_no_loose_end() -> None:
    async def life(loop: Any) -> None:
        shared = loop.create_future()
        waiting = asyncio.ensure_future(outcome(loop, shared))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        shared.set_exception(ValueError("broken"))
        await asyncio.sleep(0)

    assert run(life) == []


def test_work_that_is_cancelled_has_ended() -> None:
    async def life(loop: Any) -> None:
        shared = loop.create_task(asyncio.sleep(1000))
        waiting = asyncio.ensure_future(finished(loop, shared))
        await asyncio.sleep(0)
        shared.cancel()
        assert await waiting
        with pytest.raises(asyncio.CancelledError):
            await outcome(loop, shared)

    run(life)


def test_a_limit_ends_the_waiting_and_not_the_work() -> None:
    async def life(loop: Any) -> None:
        shared = loop.create_future()
        limits: list[Cancellable] = []

        def limit(seconds: float, give_up: Callable[[], object]) -> Cancellable:
            limits.append(loop.call_later(seconds, give_up))
            return limits[-1]

        assert not await finished(loop, shared, partial(limit, 0.0))
        assert not shared.done()
        loop.call_soon(shared.set_result, 5)
        assert await finished(loop, shared, partial(limit, 1000.0))
        assert [one.cancelled() for one in limits] == [True, True]  # type: ignore[attr-defined]
        assert await finished(loop, shared, partial(limit, 0.0))
        assert len(limits) == 2

    run(life)


def test_what_has_ended_is_not_ended_twice() -> None:
    async def life(loop: Any) -> None:
        done, broken, given_up = (loop.create_future() for _ in range(3))
        settle(done, 1)
        fail(broken, ValueError("first"))
        given_up.cancel()
        for one in (done, broken, given_up):
            settle(one, 2)
            fail(one, ValueError("second"))
        assert done.result() == 1
        with pytest.raises(ValueError, match="first"):
            broken.result()
        assert given_up.cancelled()

    run(life)


def test_sleep_leaves_no_timer_behind_when_it_is_cancelled() -> None:
    async def life(loop: Any) -> None:
        await sleep(loop, 0.0)
        sleeping = asyncio.ensure_future(sleep(loop, 1000.0))
        await asyncio.sleep(0)
        (timer,) = [one for one in loop._scheduled if not one.cancelled()]
        sleeping.cancel()
        await asyncio.wait([sleeping])
        assert timer.cancelled()

    run(life)


@pytest.mark.parametrize("wait", [finished, outcome])
def test_those_who_heard_before_have_gone_first(wait: Callable[[Loop, Any], Awaitable[Any]]) -> None:
    """Who waits in a circle until something is forgotten would else never let it be forgotten."""

    async def life(loop: Any) -> None:
        known = {"work": loop.create_future()}
        known["work"].add_done_callback(lambda _done: known.clear())
        known["work"].set_result(None)
        turns = 0
        while "work" in known:
            await wait(loop, known["work"])
            turns += 1
            assert turns < 10
        assert turns == 1

    assert run(life) == []
