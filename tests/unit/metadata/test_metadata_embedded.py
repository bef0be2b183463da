"""What is particular to the metadata in SQLite."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest
from simulated_io import simulated_io

from magnetar.io.real import real_io
from magnetar.metadata.embedded import EmbeddedMetadataStore, UnknownMetadataFormat


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "metadata.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()

    async def scenario() -> None:
        io = real_io(asyncio.get_running_loop(), tmp_path)
        with pytest.raises(UnknownMetadataFormat, match="format 99"):
            await EmbeddedMetadataStore.open_store(io, "metadata.db")

    asyncio.run(scenario())


def test_ephemeral_nodes_of_a_killed_process_are_gone_at_open(tmp_path: Path) -> None:
    async def scenario() -> None:
        io = real_io(asyncio.get_running_loop(), tmp_path)
        store = await EmbeddedMetadataStore.open_store(io, "metadata.db")
        await store.put("/e", b"", ephemeral=True)
        await store.put("/e/child", b"")
        await store.put("/stays", b"")
        store._connection.close()
        again = await EmbeddedMetadataStore.open_store(io, "metadata.db")
        assert await again.children("/") == ["stays"]
        await again.close()

    asyncio.run(scenario())


def test_many_waiting_operations_are_one_transaction(tmp_path: Path) -> None:
    async def scenario() -> None:
        io = real_io(asyncio.get_running_loop(), tmp_path)
        store = await EmbeddedMetadataStore.open_store(io, "metadata.db")
        statements: list[str] = []
        execute = store._connection.execute

        class Counting:
            def execute(
                self, statement: str, parameters: tuple[object, ...] = ()
            ) -> list[tuple[object, ...]]:
                statements.append(statement)
                return execute(statement, parameters)

            def close(self) -> None:
                raise AssertionError("not closed here")

        real, store._connection = store._connection, Counting()
        await asyncio.gather(*(store.put(f"/n{number}", b"") for number in range(100)))
        assert statements.count("COMMIT") <= 2
        store._connection = real
        await store.close()

    asyncio.run(scenario())


def test_the_reserve_grows_with_the_database() -> None:
    simulation = simulated_io(1)
    simulation.io.disk.make_directory("metadata")

    async def scenario() -> list[int]:
        path, sizes = "metadata/m.sqlite", []
        store = await EmbeddedMetadataStore.open_store(simulation.io, path, reserve_bytes=3 << 20)
        for number in range(600):
            await store.put(f"/node-{number}", bytes(8000))
            sizes.append(simulation.disk.size_of("metadata/reserve"))
        await store.close()
        return sizes

    sizes = simulation.loop.run_until(scenario())
    assert sizes == sorted(sizes)
    assert sizes[0] == 1 << 20
    assert 1 << 20 < sizes[300] < 3 << 20
    assert sizes[-1] == 3 << 20
