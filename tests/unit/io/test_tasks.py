"""Background tasks end with their owner, and none of them fails unnoticed."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from simulated_io import SimulatedLoop

from magnetar.io.tasks import KeyedTasks, TaskScope, owner_goes_on
from magnetar.io.waiting import outcome, sleep

Life = Callable[[Any], Awaitable[None]]
Run = Callable[[Life], list[str]]


class ReportingLoop(SimulatedLoop):
    """A simulated loop that goes on after an error was reported to it."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.told.append(context["message"])


def on_real_loop(life: Life) -> list[str]:
    told: list[str] = []

    async def on_loop() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: told.append(context["message"]))
        await life(loop)
        gc.collect()

    asyncio.run(on_loop())
    return told


def on_simulated_loop(life: Life) -> list[str]:
    loop = ReportingLoop()

    async def on_loop() -> None:
        await life(loop)
        # The loop releases tasks that have ended.
        loop.pending_tasks()
        gc.collect()

    loop.run_until(on_loop())
    return loop.told


@pytest.fixture(params=[on_real_loop, on_simulated_loop], ids=["real", "simulated"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs it on a loop; returns the messages of what was reported to the loop."""
    found: Run = request.param
    return found


async def fails(text: str = "broken") -> None:
    raise ValueError(text)


async def nothing() -> None:
    return


async def turns(loop: Any, count: int = 3) -> None:
    """Lets the callbacks of ended tasks run."""
    for _ in range(count):
        await sleep(loop, 0)


def test_a_result_is_returned_and_the_task_forgotten(run: Run) -> None:
    async def life(loop: Any) -> None:
        scope = TaskScope(loop, "the owner", owner_goes_on)

        async def work() -> int:
            return 7

        started, asked = scope.start(work(), "count"), scope.answer(work())
        assert len(scope) == 2
        assert await outcome(loop, started) == await outcome(loop, asked) == 7
        assert len(scope) == 0

    assert run(life) == []


def test_a_failure_is_reported_and_ends_the_owner(run: Run) -> None:
    ended: list[tuple[str, str]] = []

    async def life(loop: Any) -> None:
        scope = TaskScope(loop, "the owner", lambda name, error: ended.append((name, str(error))))
        scope.start(fails(), "the first task")
        await turns(loop)
        # The owner decides what follows: the scope stays open.
        assert not scope.closed
        scope.start(fails("again"), "the second task")
        await turns(loop)

    assert run(life) == ["the owner: the first task failed", "the owner: the second task failed"]
    assert ended == [("the first task", "broken"), ("the second task", "again")]


def test_a_failure_without_a_handler_is_reported(run: Run) -> None:
    async def life(loop: Any) -> None:
        TaskScope(loop, "the owner", owner_goes_on).start(fails(), "the task")
        await turns(loop)

    assert run(life) == ["the owner: the task failed"]


def test_a_simulation_ends_with_the_error_of_a_task() -> None:
    loop = SimulatedLoop()

    async def life() -> None:
        TaskScope(loop, "the owner", owner_goes_on).start(fails(), "the task")
        await turns(loop)
        raise AssertionError("the run goes on")

    with pytest.raises(ValueError, match="broken"):
        loop.run_until(life())


def test_a_task_that_may_fail_does_not_fail_its_owner(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    ended: list[str] = []

    async def life(loop: Any) -> None:
        scope = TaskScope(loop, "the owner", lambda name, _error: ended.append(name))
        with caplog.at_level(logging.WARNING, "magnetar.io.tasks"):
            scope.start(fails(), "the task", may_fail=True)
            await turns(loop)

    assert run(life) == []
    assert ended == []
    (record,) = caplog.records
    assert vars(record)["owner"] == "the owner"
    assert vars(record)["work"] == "the task"
    assert vars(record)["error"] == "broken"
    assert record.exc_info is not None


def test_a_handler_that_raises_is_reported_too(run: Run) -> None:
    def handler(_name: str, _error: BaseException) -> None:
        raise RuntimeError("the handler is broken")

    async def life(loop: Any) -> None:
        scope = TaskScope(loop, "the owner", handler)
        scope.start(fails(), "the task")
        await turns(loop)
        await scope.close()

    assert run(life) == [
        "the owner: the task failed",
        "the owner: its handler of the failure of the task failed",
    ]


def test_the_error_of_an_answer_is_its_callers(run: Run) -> None:
    ended: list[str] = []

    async def life(loop: Any) -> None:
        scope = TaskScope(loop, "the owner", lambda name, _error: ended.append(name))
        asked = scope.answer(fails())
        for _ in range(2):
            with pytest.raises(ValueError, match="broken"):
                await outcome(loop, asked)

    assert run(life) == []
    assert ended == []


def test_an_answer_that_nobody_awaits_is_not_lost(run: Run) -> None:
    async def life(loop: Any) -> None:
        TaskScope(loop, "the owner", owner_goes_on).answer(fails())
        await turns(loop)

    assert run(life) == ["Task exception was never retrieved"]


def test_closing_cancels_and_awaits_all_in_the_order_of_their_start(run: Run) -> None:
    ends: list[int] = []

    async def life(loop: Any) -> None:
        scope = TaskScope(loop, "the owner", owner_goes_on)

        async def work(number: int) -> None:
            try:
                await sleep(loop, 3600)
            finally:
                # The end of a task may take longer than a turn of the loop.
                await turns(loop, number)
                ends.append(number)

        tasks = [scope.start(work(number), f"task {number}") for number in (3, 1, 2)]
        tasks.append(scope.answer(work(4)))
        await turns(loop)
        await scope.close()
        assert len(scope) == 0
        assert all(task.cancelled() for task in tasks)
        assert sorted(ends) == [1, 2, 3, 4]
        await scope.close()

    assert run(life) == []


def test_two_that_close_wait_for_the_same_tasks(run: Run) -> None:
    async def life(loop: Any) -> None:
        scope = TaskScope(loop, "the owner", owner_goes_on)
        ended = []

        async def work() -> None:
            try:
                await sleep(loop, 3600)
            finally:
                await turns(loop)
                ended.append(True)

        async def close() -> None:
            await scope.close()
            assert ended

        scope.start(work(), "the task")
        await turns(loop)
        others = TaskScope(loop, "those that close", owner_goes_on)
        first, second = others.start(close(), "the first"), others.start(close(), "the second")
        await outcome(loop, first)
        await outcome(loop, second)

    assert run(life) == []


def test_a_task_that_does_not_give_up_is_awaited(run: Run) -> None:
    async def life(loop: Any) -> None:
        scope = TaskScope(loop, "the owner", owner_goes_on)

        async def work() -> str:
            try:
                await sleep(loop, 3600)
            except asyncio.CancelledError:
                await turns(loop)
            return "finished nevertheless"

        task = scope.start(work(), "the task")
        await turns(loop)
        await scope.close()
        assert task.result() == "finished nevertheless"

    assert run(life) == []


def test_a_failure_during_the_close_is_reported_but_the_handler_is_not_called(run: Run) -> None:
    ended: list[str] = []

    async def life(loop: Any) -> None:
        scope = TaskScope(loop, "the owner", lambda name, _error: ended.append(name))

        async def work() -> None:
            try:
                await sleep(loop, 3600)
            finally:
                raise ValueError("the end is broken")

        scope.start(work(), "the task")
        await turns(loop)
        await scope.close()

    assert run(life) == ["the owner: the task failed"]
    assert ended == []


def test_the_close_itself_can_be_cancelled(run: Run) -> None:
    async def life(loop: Any) -> None:
        scope, others = (
            TaskScope(loop, "the owner", owner_goes_on),
            TaskScope(loop, "the one that closes", owner_goes_on),
        )
        go_on = loop.create_future()

        async def work() -> None:
            try:
                await sleep(loop, 3600)
            except asyncio.CancelledError:
                await go_on

        task = scope.start(work(), "the task")
        await turns(loop)
        closing = others.start(scope.close(), "the close")
        await turns(loop)
        closing.cancel()
        await turns(loop)
        assert closing.cancelled()
        assert not task.done()
        go_on.set_result(None)
        await scope.close()
        assert task.done()

    assert run(life) == []


def test_nothing_begins_after_the_close(run: Run) -> None:
    begun: list[str] = []

    async def life(loop: Any) -> None:
        scope = TaskScope(loop, "the owner", owner_goes_on)
        await scope.close()

        async def work() -> None:
            begun.append("begun")

        tasks = [scope.start(work(), "the task"), scope.answer(work())]
        await scope.close()
        assert all(task.cancelled() for task in tasks)

    assert run(life) == []
    assert begun == []


def test_a_cancelled_scope_stays_open(run: Run) -> None:
    async def life(loop: Any) -> None:
        scope = TaskScope(loop, "the owner", lambda name, _error: pytest.fail(name))
        before = scope.start(sleep(loop, 3600), "the first task")
        await turns(loop)
        scope.cancel()
        after = scope.start(nothing(), "the second task")
        await turns(loop)
        assert before.cancelled()
        assert after.done()
        assert not after.cancelled()

    assert run(life) == []


def test_a_task_that_starts_another_when_it_is_cancelled_leaves_nothing_behind(run: Run) -> None:
    async def life(loop: Any) -> None:
        scope = TaskScope(loop, "the owner", owner_goes_on)

        async def work() -> None:
            try:
                await sleep(loop, 3600)
            finally:
                scope.start(sleep(loop, 3600), "the other task")

        scope.start(work(), "the task")
        await turns(loop)
        await scope.close()
        assert len(scope) == 0

    assert run(life) == []


def test_a_key_has_one_task_at_a_time(run: Run) -> None:
    async def life(loop: Any) -> None:
        scope = TaskScope(loop, "the owner", owner_goes_on)
        tasks: KeyedTasks[str, str] = KeyedTasks(scope)
        runs: list[str] = []

        async def work(key: str) -> str:
            runs.append(key)
            await turns(loop)
            return key.upper()

        first = tasks.answer("a", lambda: work("a"))
        assert tasks.answer("a", lambda: work("a")) is first
        assert tasks.start("a", lambda: work("a"), "the same") is first
        other = tasks.start("b", lambda: work("b"), "the other")
        assert tasks.items() == [("a", first), ("b", other)]
        assert (len(tasks), "a" in tasks, "c" in tasks) == (2, True, False)
        assert tasks.get("b") is other
        assert tasks.get("c") is None
        assert await outcome(loop, first) == "A"
        await turns(loop, 5)
        assert len(tasks) == len(scope) == 0
        assert await outcome(loop, tasks.answer("a", lambda: work("a"))) == "A"
        assert runs == ["a", "b", "a"]

    assert run(life) == []


def test_keyed_tasks_end_with_their_scope(run: Run) -> None:
    async def life(loop: Any) -> None:
        scope = TaskScope(loop, "the owner", owner_goes_on)
        tasks: KeyedTasks[int, None] = KeyedTasks(scope)
        task = tasks.start(1, lambda: sleep(loop, 3600), "the task")
        failing = tasks.start(2, fails, "the failing task", may_fail=True)
        await turns(loop)
        await scope.close()
        assert task.cancelled()
        assert failing.done()
        assert len(tasks) == 0

    assert run(life) == []


def test_a_task_whose_failure_nothing_handles_is_not_started(run: Run) -> None:
    async def life(loop: Any) -> None:
        scope = TaskScope(loop, "the owner")
        with pytest.raises(ValueError, match="the owner: nothing handles a failure of the task"):
            scope.start(fails(), "the task")
        assert await outcome(loop, scope.answer(answers())) == 1
        await scope.start(answers(), "the task", may_fail=True)

    async def answers() -> int:
        return 1

    assert run(life) == []


def test_an_owner_that_goes_on_hears_of_a_failure_through_the_loop_only(run: Run) -> None:
    async def life(loop: Any) -> None:
        scope = TaskScope(loop, "the owner", owner_goes_on)
        scope.start(fails(), "the task")
        await sleep(loop, 0)
        assert not scope.closed

    assert run(life) == ["the owner: the task failed"]
