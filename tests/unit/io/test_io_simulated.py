"""The simulated world: what survives a power cut, virtual time, and SQLite on the simulated disk."""

from __future__ import annotations

import asyncio
import errno

import pytest
from simulated_io import (
    Deadlock,
    PowerLost,
    ProcessStopped,
    SimulatedDisk,
    SimulatedLoop,
    Timeline,
    simulated_io,
)

from magnetar.io.waiting import run_job


def _disk(seed: int = 1) -> SimulatedDisk:
    disk = SimulatedDisk(seed)
    disk.make_directory("d")
    return disk


def test_what_was_synced_survives_and_the_rest_may_not() -> None:
    outcomes = set()
    for seed in range(200):
        disk = _disk(seed)
        file = disk.open("d/f", create=True)
        file.write(b"a" * 2048, 0)
        file.sync()
        disk.sync_directory("d")
        file.write(b"b" * 1024, 512)
        found = disk.power_cut().open("d/f").read(4096, 0)
        assert len(found) == 2048
        assert found[:512] == b"a" * 512
        assert found[1536:] == b"a" * 512
        outcomes.add((found[512:513], found[1024:1025]))
    assert outcomes == {(b"a", b"a"), (b"a", b"b"), (b"b", b"a"), (b"b", b"b")}


def test_names_are_durable_only_with_their_directory() -> None:
    seen = set()
    for seed in range(200):
        disk = _disk(seed)
        disk.open("d/old", create=True).sync()
        disk.sync_directory("d")
        disk.rename("d/old", "d/new")
        disk.open("d/other", create=True)
        seen.add(tuple(disk.power_cut().names("d")))
    assert seen == {("old",), ("new",), ("old", "other"), ("new", "other")}
    disk = _disk()
    disk.open("d/f", create=True)
    disk.sync_directory("d")
    assert disk.power_cut().names("d") == ["f"]


def test_a_cut_at_an_operation_ends_everything() -> None:
    disk = _disk()
    disk.cut_power_at(3)
    file = disk.open("d/f", create=True)
    file.write(b"x", 0)
    with pytest.raises(PowerLost):
        file.sync()
    with pytest.raises(PowerLost):
        file.read(1, 0)
    with pytest.raises(PowerLost):
        disk.names("d")


def test_a_kill_keeps_what_looks_written_without_making_it_durable() -> None:
    lost = 0
    for seed in range(50):
        disk = _disk(seed)
        file = disk.open("d/f", create=True)
        file.lock(exclusive=True)
        disk.sync_directory("d")
        file.write(b"x" * 512, 0)
        disk = disk.killed()
        again = disk.open("d/f")
        assert again.lock(exclusive=True)
        assert again.read(1, 0) == b"x"
        lost += disk.power_cut().open("d/f").read(1, 0) != b"x"
    assert 0 < lost < 50


def test_a_failed_sync_loses_pages_that_still_look_written() -> None:
    lost = 0
    for seed in range(50):
        disk = _disk(seed)
        file = disk.open("d/f", create=True)
        disk.sync_directory("d")
        file.write(b"x" * 512, 0)
        disk.fail("sync", "d/f")
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
        file.sync()
        assert file.read(1, 0) == b"x"
        lost += disk.power_cut().open("d/f").read(1, 0) != b"x"
    assert lost > 0


def test_a_durable_write_is_durable_and_may_clear_the_rest_of_its_last_block() -> None:
    seen = set()
    for seed in range(20):
        disk = _disk(seed)
        file = disk.open("d/f", create=True)
        disk.sync_directory("d")
        file.write(b"a" * 10_000, 0)
        file.sync()
        file.write_durably(b"b" * 100, 5000)
        found = disk.power_cut().open("d/f").read(20_000, 0)
        assert found[:5000] == b"a" * 5000
        assert found[5000:5100] == b"b" * 100
        assert found[8192:] == b"a" * (10_000 - 8192)
        seen.add(found[5100:8192])
    assert seen == {b"a" * 3092, bytes(3092)}


def test_a_full_disk() -> None:
    disk = SimulatedDisk(1, quota=1000)
    disk.make_directory("d")
    file = disk.open("d/f", create=True)
    file.write(b"x" * 900, 0)
    assert disk.free_bytes() == 100
    with pytest.raises(OSError) as raised:
        file.write(b"x" * 200, 900)
    assert raised.value.errno == errno.ENOSPC
    file.write(b"y" * 900, 0)


def test_without_syncing_acknowledged_bytes_get_lost() -> None:
    lost = 0
    for seed in range(30):
        disk = _disk(seed)
        disk.ignore_sync = ""
        file = disk.open("d/f", create=True)
        disk.sync_directory("d")
        file.write(b"x", 0)
        file.sync()
        lost += disk.power_cut().open("d/f").read(1, 0) != b"x"
    assert lost > 0


def test_virtual_time_and_tasks() -> None:
    simulation = simulated_io(1)
    loop = simulation.loop
    order: list[str] = []

    async def sleeper(name: str, seconds: float) -> float:
        await asyncio.sleep(seconds)
        order.append(name)
        return loop.time()

    async def both() -> list[float]:
        return list(await asyncio.gather(sleeper("late", 1000), sleeper("early", 10)))

    assert loop.run_until(both()) == [1000, 10]
    assert order == ["early", "late"]
    loop.run_for(5)
    assert loop.time() == 1005
    with pytest.raises(Deadlock):
        loop.run_until(loop.create_future())


def test_errors_nobody_handles_end_the_run() -> None:
    simulation = simulated_io(1)
    simulation.loop.call_soon(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        simulation.loop.run_for(1)


def test_workers_answer_in_order_and_repeat_with_the_seed() -> None:
    def run() -> tuple[list[str], float]:
        simulation = simulated_io(7)
        order: list[str] = []
        one, two = simulation.io.start_worker("one"), simulation.io.start_worker("two")

        async def work() -> None:
            jobs = [(one, "1a"), (two, "2a"), (one, "1b"), (two, "2b")]
            await asyncio.gather(
                *(
                    run_job(simulation.loop, worker, lambda name=name: order.append(name))
                    for worker, name in jobs
                )
            )

        simulation.loop.run_until(work())
        return order, simulation.loop.time()

    order, at = run()
    assert order.index("1a") < order.index("1b")
    assert order.index("2a") < order.index("2b")
    assert run() == (order, at)


def test_stopping_the_process_ends_the_run() -> None:
    simulation = simulated_io(1)

    async def stop() -> None:
        simulation.io.stop_process("disk full")

    with pytest.raises(ProcessStopped, match="disk full"):
        simulation.loop.run_until(stop())
    assert simulation.stop_messages == ["disk full"]


def test_sqlite_keeps_what_it_committed_through_power_cuts() -> None:
    for seed in range(60):
        disk = SimulatedDisk(seed)
        committed = -1
        for _ in range(3):
            simulation = simulated_io(seed, disk)
            disk.cut_power_at(disk.random.randrange(5, 80))
            try:
                connection = simulation.io.open_sqlite("m/db")
                connection.start()
                connection.execute("CREATE TABLE IF NOT EXISTS t (n INTEGER)")
                found = connection.execute("SELECT max(n) FROM t")[0][0]
                assert (found if found is not None else -1) >= committed
                for number in range(committed + 1, committed + 20):
                    connection.execute("INSERT INTO t VALUES (?)", (number,))
                    committed = number
                connection.close()
            except PowerLost:
                pass
            disk = disk.power_cut()
        connection = simulated_io(seed, disk).io.open_sqlite("m/db")
        connection.start()
        assert connection.execute("PRAGMA integrity_check") == [("ok",)]
        if committed >= 0:
            assert connection.execute("SELECT max(n) FROM t")[0][0] >= committed


def test_a_process_that_is_stopped_goes_on_later() -> None:
    timeline = Timeline()
    world, process = SimulatedLoop(timeline), SimulatedLoop(timeline)  # type: ignore[abstract]
    happened: list[tuple[str, float]] = []
    for seconds in (1, 3, 5):
        process.call_later(seconds, lambda: happened.append(("process", process.time())))
        world.call_later(seconds, lambda: happened.append(("world", world.time())))
    world.call_later(2, process.pause)
    world.call_later(4, process.resume)
    world.run_for(10)
    here = [at for name, at in happened if name == "process"]
    assert here == [1, 4, 5]
    assert [at for name, at in happened if name == "world"] == [1, 3, 5]
