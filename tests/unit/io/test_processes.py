"""Processes of their own, real and simulated: answers, and every way in which one can end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import process_services
import pytest
from simulated_io import simulated_io

from magnetar.io.interfaces import Io, ProcessFailed, Service
from magnetar.io.real import real_io
from magnetar.io.real.loop_thread import new_loop

HERE = Path(__file__).parent
PATIENCE = 60.0

Scenario = Callable[[Io], Awaitable[None]]


@pytest.fixture(autouse=True)
def _services_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))


@pytest.fixture(params=["asyncio", "uvloop", "simulated"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Scenario], None]:
    """Runs a scenario in each kind of world."""

    def in_real(scenario: Scenario) -> None:
        factory = new_loop if request.param == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(_with(scenario, tmp_path))

    def in_simulated(scenario: Scenario) -> None:
        simulation = simulated_io(1)
        simulation.loop.run_until(simulation.loop.create_task(_awaited(scenario(simulation.io))))

    return in_simulated if request.param == "simulated" else in_real


async def _with(scenario: Scenario, root: Path) -> None:
    await scenario(real_io(asyncio.get_running_loop(), root))


async def _awaited(work: Awaitable[None]) -> None:
    await work


def _alive(pid: int) -> bool:
    """Whether it does anything any more: one that ended and nobody asked about yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _gone(pid: int) -> bool:
    """Waits for the end of a process; False when it does not come."""
    deadline = time.monotonic() + PATIENCE
    while _alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not _alive(pid)


def test_it_answers_one_question_after_another(run: Callable[[Scenario], None]) -> None:
    async def scenario(io: Io) -> None:
        process = io.start_process("test", process_services.echo)
        large = os.urandom(3 << 20)
        asked = [process.ask((b"%d" % number, memoryview(large)[number:])) for number in range(5)]
        for number, each in enumerate(asked):
            assert await each == b"%d" % number + large[number:]
        assert await process.ask((b"",)) == b""
        process.close()

    run(scenario)


def test_it_has_the_same_disk(run: Callable[[Scenario], None]) -> None:
    async def scenario(io: Io) -> None:
        io.disk.make_directory("files")
        process = io.start_process("test", process_services.files)
        assert await process.ask((b"one",)) == b"one"
        assert await process.ask((b"two",)) == b"one,two"
        assert io.disk.exists("files/two")
        process.close()

    run(scenario)


def test_what_goes_wrong_there_is_told_and_it_goes_on(run: Callable[[Scenario], None]) -> None:
    async def scenario(io: Io) -> None:
        process = io.start_process("test", process_services.picky)
        refused, answered = process.ask((b"no",)), process.ask((b"yes",))
        with pytest.raises(
            ProcessFailed, match=r"^the test process failed: OSError: \[Errno 28\] No space left on device$"
        ):
            await refused
        assert await answered == b"yes"
        process.close()

    run(scenario)


def test_whoever_closed_it_is_not_answered(run: Callable[[Scenario], None]) -> None:
    async def scenario(io: Io) -> None:
        process = io.start_process("test", process_services.echo)
        before = process.ask((b"before",))
        process.close()
        process.close()
        for asked in (before, process.ask((b"after",))):
            with pytest.raises(ProcessFailed, match=r"^the test process was ended$"):
                await asked

    run(scenario)


def test_an_answer_that_nobody_waits_for_is_no_answer_to_the_next(run: Callable[[Scenario], None]) -> None:
    async def scenario(io: Io) -> None:
        process = io.start_process("test", process_services.echo)
        process.ask((b"one",)).cancel()
        assert await process.ask((b"two",)) == b"two"
        process.close()

    run(scenario)


def _in_real(service: Service, scenario: Callable[[Any], Awaitable[None]], root: Path) -> None:
    async def whole() -> None:
        process = real_io(asyncio.get_running_loop(), root).start_process("test", service)
        try:
            await scenario(process)
        finally:
            process.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(whole())


def test_it_gives_way_to_others_and_minds_no_terminal(tmp_path: Path) -> None:
    async def scenario(process: Any) -> None:
        nice, pid, ignores = (await process.ask((b"",))).split()
        assert int(nice) == min(19, os.nice(0) + 10)
        assert int(pid) == process.pid != os.getpid()
        assert ignores == b"True"

    _in_real(process_services.about_itself, scenario, tmp_path)


def test_who_killed_it_is_told(tmp_path: Path) -> None:
    async def scenario(process: Any) -> None:
        await process.ask((b"",))
        os.kill(process.pid, signal.SIGSTOP)
        asked = [process.ask((bytes(1 << 20),)) for _ in range(3)]
        os.kill(process.pid, signal.SIGKILL)
        for each in (*asked, process.ask((b"later",))):
            with pytest.raises(ProcessFailed, match=r"^the test process was ended by SIGKILL$"):
                await each
        assert not _alive(process.pid)

    _in_real(process_services.echo, scenario, tmp_path)


def test_its_exit_code_is_told(tmp_path: Path) -> None:
    async def scenario(process: Any) -> None:
        with pytest.raises(ProcessFailed, match=r"^the test process ended by itself with exit code 3$"):
            await process.ask((b"\3",))

    _in_real(process_services.leaves, scenario, tmp_path)


def test_a_service_that_does_not_begin_is_an_exit_code(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async def scenario(process: Any) -> None:
        with pytest.raises(ProcessFailed, match=r"ended by itself with exit code 1$"):
            await process.ask((b"",))

    _in_real(process_services.missing, scenario, tmp_path)
    assert "there is none" in capfd.readouterr().err


@pytest.mark.parametrize(("how", "answered"), [(b"much", 0), (b"twice", 1)])
def test_one_that_raves_is_ended(tmp_path: Path, how: bytes, answered: int) -> None:
    async def scenario(process: Any) -> None:
        for _ in range(answered):
            assert await process.ask((how,)) == b""
        with pytest.raises(ProcessFailed, match=r"^the test process sent an answer without a question$"):
            await process.ask((how,))
        assert _gone(process.pid)

    _in_real(process_services.raves, scenario, tmp_path)


_PARENT = """
import asyncio, signal, sys
import process_services
from magnetar.io.real import real_io
# Whatever was started in the background ignores it, and what that starts, too.
signal.signal(signal.SIGINT, signal.default_int_handler)
async def main():
    process = real_io(asyncio.get_running_loop(), sys.argv[1]).start_process("test", process_services.echo)
    await process.ask((b"",))
    print(process.pid, flush=True)
    while True:
        await process.ask((bytes(1 << 20),))
asyncio.run(main())
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_it_ends_with_whoever_started_it(tmp_path: Path, how: signal.Signals) -> None:
    command = [sys.executable, "-c", _PARENT, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert _alive(pid)
        parent.send_signal(how)
        parent.wait(PATIENCE)
    assert _gone(pid)


def test_one_that_cannot_be_reached_answers_nothing(tmp_path: Path) -> None:
    told: list[str] = []

    async def no_connection(*_arguments: object, **_options: object) -> None:
        raise OSError("no more sockets")

    async def scenario(io: Io) -> None:
        loop: Any = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: told.append(context["message"]))
        loop.create_unix_connection = no_connection
        process = io.start_process("test", process_services.echo)
        with pytest.raises(ProcessFailed, match="cannot be reached: no more sockets"):
            await process.ask([b"question"])
        with pytest.raises(ProcessFailed, match="cannot be reached"):
            await process.ask([b"another question"])

    asyncio.run(_with(scenario, tmp_path))
    assert told == ["the test process: connecting failed"]
