"""Blocking calls into a loop on a thread of its own."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
from collections.abc import Iterator

import pytest

from magnetar.io.real.loop_thread import LoopThread


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    thread = LoopThread("test")
    yield thread
    thread.close()


def test_a_time_out_of_the_work_is_its_own(thread: LoopThread) -> None:
    async def fails() -> None:
        raise TimeoutError("of the work")

    with pytest.raises(TimeoutError, match="of the work"):
        thread.run(fails())


def test_what_takes_longer_than_a_look_is_waited_for(thread: LoopThread) -> None:
    assert thread.run(asyncio.sleep(1.3, "slow")) == "slow"


def test_ctrl_c_is_noticed_though_it_does_not_wake_who_waits(thread: LoopThread) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def for_ever() -> None:
        begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    def interrupt() -> None:
        begun.wait()
        # As one that comes right before the wait: another thread has it, and who waits goes on waiting.
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        thread.run(for_ever())
    interrupting.join()
    assert ended.wait(10)


def _wait_for_one_that_is_closed() -> None:
    thread = LoopThread("test")
    begun = threading.Event()

    async def for_ever() -> None:
        begun.set()
        await asyncio.get_running_loop().create_future()

    def close() -> None:
        begun.wait()
        thread.close()

    closing = threading.Thread(target=close)
    closing.start()
    with pytest.raises(RuntimeError, match="the loop was closed"):
        thread.run(for_ever())
    closing.join()


def test_who_waits_for_a_loop_that_another_thread_closes_is_told() -> None:
    _wait_for_one_that_is_closed()
    # Its task was never ended. Where it is destroyed in the middle of a compilation, CPython 3.11 fails that.
    gc.collect()


def test_calls_after_the_end_fail_each_time() -> None:
    thread = LoopThread("ended")
    called: list[int] = []
    thread.post(called.append, 1)
    thread.close()
    for _ in range(3):
        with pytest.raises(RuntimeError):
            thread.post(called.append, 2)
    assert called == [1]
