"""The real disk, worker, network and SQLite."""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from magnetar.io.interfaces import ConnectingNetwork
from magnetar.io.real import real_io
from magnetar.io.real.disk import RealDisk
from magnetar.io.real.loop_thread import new_loop
from magnetar.io.real.network import TcpNetwork
from magnetar.io.real.tls_network import CheckedNetwork, TlsClientNetwork
from magnetar.io.real.worker import ThreadWorker
from magnetar.io.waiting import run_job


def test_files(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path / "data")
    disk.make_directory("a/b")
    with pytest.raises(FileNotFoundError):
        disk.open("a/b/file")
    file = disk.open("a/b/file", create=True)
    with pytest.raises(FileExistsError):
        disk.open("a/b/file", create=True, exclusive=True)
    file.write(b"0123456789", 4)
    file.sync()
    assert file.size() == 14
    assert file.read(100, 0) == b"\0\0\0\0" + b"0123456789"
    assert file.read_cached(4, 4) in (b"0123", None)
    file.truncate(6)
    assert file.read(100, 4) == b"01"
    disk.rename("a/b/file", "a/b/other")
    disk.sync_directory("a/b")
    assert disk.names("a/b") == ["other"]
    assert disk.exists("a/b/other")
    disk.unlink("a/b/other")
    assert not disk.exists("a/b/other")
    assert disk.free_bytes() > 0
    file.close()


def test_locks_exclude_each_other(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    one, two = disk.open("lock", create=True), disk.open("lock")
    assert one.lock(exclusive=True)
    assert not two.lock(exclusive=False)
    one.unlock()
    assert two.lock(exclusive=False)
    assert one.lock(exclusive=False)
    assert not one.lock(exclusive=True)


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x"])
def test_paths_stay_below_the_root(tmp_path: Path, path: str) -> None:
    with pytest.raises(ValueError, match="leaves the disk's root"):
        RealDisk(tmp_path).locate(path)


@pytest.mark.parametrize("host", ["a..b", ".", "a" * 64 + ".example", "a\udcff"])
@pytest.mark.parametrize("make_loop", [new_loop, asyncio.new_event_loop])
def test_names_that_no_host_can_have_are_hosts_that_do_not_answer(
    host: str, make_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    loop = make_loop()
    networks: list[ConnectingNetwork] = [
        TcpNetwork(loop),
        TlsClientNetwork(loop, ssl.create_default_context),
        CheckedNetwork(loop, lambda _address: True),
    ]
    try:
        for network in networks:
            with pytest.raises(OSError, match="is not a host name"):
                loop.run_until_complete(network.connect(host, 1, asyncio.Protocol))
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def test_a_worker_starts_where_no_file_can_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(os, "eventfd", refuse, raising=False)
        worker = ThreadWorker(loop, "test")
        assert await run_job(loop, worker, lambda: "answer") == "answer"
        worker.close()

    asyncio.run(scenario())


def test_a_worker_answers_in_order_and_hands_on_errors() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        worker = ThreadWorker(loop, "test")
        answers: list[object] = []
        for number in range(100):
            worker.submit(lambda number=number: number, lambda result, error: answers.append(result))
        assert await run_job(loop, worker, threading.get_ident) != threading.get_ident()
        assert answers == list(range(100))
        with pytest.raises(ZeroDivisionError):
            await run_job(loop, worker, lambda: 1 // 0)
        worker.submit(lambda: "last", lambda result, error: answers.append(result))
        worker.close()
        assert answers[-1] == "last"
        with pytest.raises(RuntimeError):
            worker.submit(lambda: None)

    asyncio.run(scenario())


def test_what_is_not_read_ahead_comes_whole(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    content = bytes(range(251)) * 1000
    disk.open("file", create=True).write(content, 0)
    file = disk.open("file", write=False, ahead=False)
    for length, offset in (
        (200_000, 0),
        (200_000, 100_001),
        (1 << 20, 7),
        (10, 250_990),
        (10, 1 << 20),
        (0, 0),
    ):
        assert file.read(length, offset) == content[offset : offset + length]
    file.close()


def test_a_failed_job_without_a_listener_reaches_the_loops_exception_handler() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        seen: list[BaseException] = []
        loop.set_exception_handler(lambda _, context: seen.append(context["exception"]))
        worker = ThreadWorker(loop, "test")
        worker.submit(lambda: 1 // 0)
        worker.close()
        assert isinstance(seen[0], ZeroDivisionError)

    asyncio.run(scenario())


def test_who_raises_when_told_of_a_job_keeps_nobody_from_hearing_of_others() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        seen: list[BaseException] = []
        loop.set_exception_handler(lambda _, context: seen.append(context["exception"]))
        worker = ThreadWorker(loop, "test")
        answers: list[int] = []
        for number in range(3):
            # Answers come later than both are there.
            worker.submit(lambda number=number: number, lambda result, _: answers.append(1 // result))
        worker.close()
        assert answers == [1, 0]
        assert [type(error) for error in seen] == [ZeroDivisionError]

    asyncio.run(scenario())


def test_sqlite_is_durable_and_exclusive(tmp_path: Path) -> None:
    async def scenario() -> None:
        io = real_io(asyncio.get_running_loop(), tmp_path)
        connection = io.open_sqlite("metadata.db")
        connection.start()
        connection.execute("CREATE TABLE t (a)")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO t VALUES (?)", (b"x",))
        connection.execute("COMMIT")
        assert connection.execute("SELECT a FROM t") == [(b"x",)]
        assert connection.execute("PRAGMA journal_mode") == [("wal",)]
        assert connection.execute("PRAGMA synchronous") == [(2,)]
        connection.close()

    asyncio.run(scenario())


def test_a_listener_takes_a_free_port() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        io = real_io(loop, ".")
        got = loop.create_future()

        class Echo(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                got.set_result(data)

        listener = await io.network.listen("127.0.0.1", 0, Echo)
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"hello")
        assert await got == b"hello"
        writer.close()
        listener.close()

    asyncio.run(scenario())
