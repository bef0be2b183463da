"""Durable writes past the page cache hold what ordinary ones would."""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.io.interfaces import File
from magnetar.io.real import real_io
from magnetar.io.real.direct import (
    BLOCK_BYTES,
    MOST_BYTES,
    STAGING_BYTES,
    DirectWriter,
    Done,
    KernelWrites,
    StagingBuffers,
)
from magnetar.io.real.disk import RealDisk
from magnetar.io.real.memory import keep_freed_buffers

SIZE = 4 * STAGING_BYTES


def direct_is_possible(folder: Path) -> bool:
    path = folder / "probe"
    try:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_DIRECT))
    except OSError:
        return False
    return True


@st.composite
def logs(draw: st.DrawFn) -> list[int]:
    """Lengths of pieces that follow each other."""
    edges = (1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, STAGING_BYTES, STAGING_BYTES + 1)
    length = st.one_of(st.integers(1, 3 * BLOCK_BYTES), st.sampled_from(edges))
    return draw(st.lists(length, min_size=1, max_size=12))


@settings(max_examples=60, deadline=None)
@given(start=st.integers(0, 2 * BLOCK_BYTES), lengths=logs(), reopen=st.integers(0, 12))
def test_a_log_of_durable_writes_reads_as_it_was_written(start: int, lengths: list[int], reopen: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        disk = RealDisk(folder)
        file = disk.open("log", create=True)
        file.write(b"\xaa" * SIZE, 0)
        file.sync()
        model = bytearray(b"\xaa" * SIZE)
        offset = start
        for number, length in enumerate(lengths):
            if number == reopen:
                file.close()
                file = disk.open("log")
            data = bytes([number + 1]) * length
            if offset + length > SIZE:
                break
            file.write_durably(data, offset)
            model[offset : offset + length] = data
            offset += length
            assert file.read(offset, 0) == model[:offset]
        found = file.read(SIZE, 0)
        file.close()
    assert len(found) == SIZE
    block_end = -(-offset // BLOCK_BYTES) * BLOCK_BYTES
    assert found[:offset] == model[:offset]
    assert set(found[offset:block_end]) <= {0, 0xAA}
    assert found[block_end:] == model[block_end:]


def test_what_a_reader_has_in_the_page_cache_does_not_hide_what_is_written(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    file, reader = disk.open("log", create=True), None
    file.write(bytes(SIZE), 0)
    file.sync()
    reader = disk.open("log", write=False)
    for number in range(1, 50):
        assert reader.read(SIZE, 0)[number * 100 :] == bytes(SIZE - number * 100)
        file.write_durably(bytes([number]) * 100, number * 100)
        assert reader.read(100, number * 100) == bytes([number]) * 100
    reader.close()
    file.close()


def test_a_file_system_without_direct_writes_is_written_through_its_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_open, real_write = os.open, os.pwritev

    def refusing_open(path: object, flags: int, *more: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no direct writes here")
        return real_open(path, flags, *more)  # type: ignore[call-overload, no-any-return]

    def refusing_write(*_: object) -> int:
        raise OSError(errno.EINVAL, "not like this")

    for name, replacement in (("open", refusing_open), ("pwritev", refusing_write)):
        disk = RealDisk(tmp_path)
        file = disk.open(name, create=True)
        monkeypatch.setattr(os, name, replacement)
        file.write_durably(b"kept", 10)
        file.write_durably(b"too", 14)
        monkeypatch.setattr(os, "open", real_open)
        monkeypatch.setattr(os, "pwritev", real_write)
        assert file.read(7, 10) == b"kepttoo"
        file.close()


def test_a_failed_direct_write_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not direct_is_possible(tmp_path):
        pytest.skip("this file system has no direct writes")
    file = RealDisk(tmp_path).open("log", create=True)

    def failing(*_: object) -> int:
        raise OSError(errno.EIO, "the device is gone")

    monkeypatch.setattr(os, "pwritev", failing)
    with pytest.raises(OSError, match="the device is gone"):
        file.write_durably(b"lost", 0)
    monkeypatch.setattr(os, "pwritev", lambda *_: 100)
    with pytest.raises(OSError, match="wrote 100"):
        file.write_durably(b"lost", 0)
    file.close()


def test_one_write_asks_once_and_a_long_one_ends_with_a_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not direct_is_possible(tmp_path):
        pytest.skip("this file system has no direct writes")
    descriptor = os.open(tmp_path / "log", os.O_CREAT | os.O_RDWR)
    writer = DirectWriter(descriptor, StagingBuffers())
    asked: list[object] = []
    write, sync = os.pwritev, os.fdatasync
    monkeypatch.setattr(os, "pwritev", lambda d, b, o, f: asked.append(f) or write(d, b, o, f))
    monkeypatch.setattr(os, "fdatasync", lambda d: asked.append("sync") or sync(d))
    assert writer.write(b"x" * 100, 0)
    assert writer.write(b"x" * STAGING_BYTES, 100)
    assert asked == [os.RWF_DSYNC, 0, 0, "sync"]
    writer.close()
    os.close(descriptor)


def test_the_allocator_can_be_asked() -> None:
    assert keep_freed_buffers() in (True, False)


# Without a thread


def in_loop(work: Coroutine[Any, Any, None], kind: str) -> None:
    """Runs it on one of the loops that there are."""
    if kind == "uvloop":
        uvloop = pytest.importorskip("uvloop")
        uvloop.run(work)
    else:
        asyncio.run(work)


async def begun(file: File, data: bytes, offset: int) -> bool:
    """Whether it was done without a thread; it is durable."""
    ended: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
    if not file.begin_durably(data, offset, lambda _none, error: ended.set_result(error)):
        file.write_durably(data, offset)
        return False
    assert not ended.done()
    if (error := await ended) is not None:
        raise error
    return True


def kernel_writes_are_possible(folder: Path) -> bool:
    async def made() -> None:
        KernelWrites(asyncio.get_running_loop())

    try:
        asyncio.run(made())
    except OSError:
        return False
    return direct_is_possible(folder)


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
@settings(max_examples=30, deadline=None)
@given(start=st.integers(0, 2 * BLOCK_BYTES), lengths=logs(), blocking=st.sets(st.integers(0, 12)))
def test_a_log_of_writes_that_are_begun_reads_as_it_was_written(
    kind: str, start: int, lengths: list[int], blocking: set[int]
) -> None:
    async def written(folder: str) -> None:
        file = real_io(asyncio.get_running_loop(), folder).disk.open("log", create=True)
        file.write(b"\xaa" * SIZE, 0)
        file.sync()
        model = bytearray(b"\xaa" * SIZE)
        offset = start
        for number, length in enumerate(lengths):
            data = bytes([number + 1]) * length
            if offset + length > SIZE:
                break
            if number in blocking:
                file.write_durably(data, offset)
            else:
                await begun(file, data, offset)
            model[offset : offset + length] = data
            offset += length
            assert file.read(offset, 0) == model[:offset]
        file.close()

    with tempfile.TemporaryDirectory() as folder:
        in_loop(written(folder), kind)


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_small_writes_need_no_thread_once_one_went_well(tmp_path: Path, kind: str) -> None:
    if not kernel_writes_are_possible(tmp_path):
        pytest.skip("this system has no writes without a thread, or the file system none past its cache")

    async def written() -> None:
        io = real_io(asyncio.get_running_loop(), tmp_path)
        file, other = io.disk.open("log", create=True), io.disk.open("other", create=True)
        for each in (file, other):
            each.write(bytes(SIZE), 0)
            assert not await begun(each, b"first", 0)
        for number in range(50):
            both = (begun(file, b"%5d" % number, 5 * number), begun(other, b"%7d" % number, 7 * number))
            assert await asyncio.gather(*both) == [True, True]
        assert not await begun(file, bytes(MOST_BYTES + 1), 250)
        assert file.read(250, 0) == b"".join(b"%5d" % number for number in range(50))
        assert other.read(350, 0) == b"".join(b"%7d" % number for number in range(50))
        file.close()
        other.close()

    in_loop(written(), kind)


def test_workers_write_where_it_is_to_be_known_what_is_under_way(tmp_path: Path) -> None:
    async def written() -> None:
        file = real_io(asyncio.get_running_loop(), tmp_path, in_threads=True).disk.open("log", create=True)
        file.write_durably(b"first", 0)
        assert not file.begin_durably(b"second", 5, lambda *_: None)
        file.close()

    asyncio.run(written())


def test_what_the_kernel_says_of_a_write_is_told(tmp_path: Path) -> None:
    if not kernel_writes_are_possible(tmp_path):
        pytest.skip("this system has no writes without a thread, or the file system none past its cache")
    answers: list[int] = []

    class Answering(KernelWrites):
        def begin(self, descriptor: int, buffer: Any, length: int, offset: int, done: Done) -> bool:
            return super().begin(descriptor, buffer, length, offset, lambda _written: done(answers.pop()))

    async def written() -> None:
        made = Answering(asyncio.get_running_loop())
        file = RealDisk(tmp_path, lambda: made).open("log", create=True)
        file.write_durably(b"first", 0)
        answers.append(-errno.EIO)
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            await begun(file, b"lost", 5)
        answers.append(100)
        with pytest.raises(OSError, match="wrote 100"):
            await begun(file, b"lost", 5)
        file.close()
        assert not file.begin_durably(b"late", 5, lambda *_: None)

    asyncio.run(written())


def test_who_raises_when_told_of_a_write_keeps_nobody_from_hearing_of_others(tmp_path: Path) -> None:
    if not kernel_writes_are_possible(tmp_path):
        pytest.skip("this system has no writes without a thread, or the file system none past its cache")
    reported: list[object] = []

    async def written() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
        io = real_io(loop, tmp_path)
        files = [io.disk.open(name, create=True) for name in ("one", "other")]
        told = loop.create_future()

        def fails(*_: object) -> None:
            raise RuntimeError("of one")

        for file in files:
            file.write_durably(b"first", 0)
        assert files[0].begin_durably(b"second", 5, fails)
        assert files[1].begin_durably(b"second", 5, lambda _, error: told.set_result(error))
        time.sleep(0.3)  # noqa: ASYNC251 - both are to have ended when the loop looks at them
        assert await asyncio.wait_for(told, 10) is None
        assert [str(error) for error in reported] == ["of one"]
        for file in files:
            file.close()

    asyncio.run(written())


def test_nothing_is_begun_on_what_is_no_file_for_direct_writes(tmp_path: Path) -> None:
    if not kernel_writes_are_possible(tmp_path):
        pytest.skip("this system has no writes without a thread, or the file system none past its cache")

    async def refused() -> None:
        writes = KernelWrites(asyncio.get_running_loop())
        buffer = StagingBuffers().take()
        for _ in range(100):
            # What is refused leaves its place to the next.
            assert not writes.begin(-1, buffer, BLOCK_BYTES, 0, lambda _written: None)
        buffer.close()

    asyncio.run(refused())
