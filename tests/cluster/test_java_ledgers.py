"""Ledgers that BookKeeper's own client and ours write, read, recover, list and delete for each other.

``MAGNETAR_RACES`` says how often both race to fence the same ledger.
"""

from __future__ import annotations

import asyncio
import os
from array import array
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path

import pytest
from bookkeeper_servers import BookKeeperServers
from java_ledger_client import JavaClientFailed, JavaLedgerClient
from ledger_load import Load, Process, payload, until

from magnetar.ledger.interface import LedgerError, LedgerFenced, LedgerWriter, NoSuchLedger, Quorums

RACES = int(os.environ.get("MAGNETAR_RACES", "25"))
QUORUMS = (Quorums(3, 3, 2), Quorums(3, 2, 2), Quorums(2, 2, 2), Quorums(3, 3, 3))
Life = Callable[[Process, JavaLedgerClient], Awaitable[None]]


def both(servers: BookKeeperServers, folder: Path, life: Life, version: int = 2) -> None:
    async def scenario() -> None:
        ours = await Process.start(servers, folder)
        theirs = await JavaLedgerClient.start(folder, servers.metadata_store, version)
        try:
            await life(ours, theirs)
        finally:
            await theirs.close()
            await ours.close()

    asyncio.run(asyncio.wait_for(scenario(), 120 + 10 * RACES))


def digest_of(entries: list[bytes]) -> str:
    return sha256(b"".join(entries)).hexdigest()


def all_of(last: int) -> list[bytes]:
    return [payload(entry_id) for entry_id in range(last + 1)]


class _Told:
    """A ``LedgerListener``."""

    def __init__(self) -> None:
        self.last = -1
        self.failed: LedgerError | None = None

    def on_durable(self, _ledger_id: int, last_entry_id: int) -> None:
        self.last = last_entry_id

    def on_failed(self, _ledger_id: int, _first_entry_id: int, reason: LedgerError) -> None:
        self.failed = reason


async def written(process: Process, quorums: Quorums, count: int) -> tuple[LedgerWriter, _Told]:
    """An open ledger of ours with entries that are durable."""
    writer = await process.store.create(quorums, {"component": b"test"})
    told = _Told()
    writer.set_listener(told)
    buffer, starts, ends = bytearray(), array("q"), array("q")
    for entry_id in range(count):
        starts.append(len(buffer))
        buffer += payload(entry_id)
        ends.append(len(buffer))
    writer.append(bytes(buffer), starts, ends, 0, count)
    await until(lambda: told.last == count - 1)
    return writer, told


@pytest.mark.parametrize("version", [2, 3])
def test_their_client_reads_and_recovers_what_ours_has_written(
    cluster: BookKeeperServers, tmp_path: Path, version: int
) -> None:
    async def life(ours: Process, theirs: JavaLedgerClient) -> None:
        expected = [str(len(b"".join(all_of(299)))), digest_of(all_of(299))]
        for quorums in QUORUMS[:2]:
            writer, _ = await written(ours, quorums, 300)
            await writer.close()
            assert await theirs.do("look", writer.ledger_id) == ["299", *expected]
            assert await theirs.do("recover", writer.ledger_id) == ["299", *expected]
            writer, told = await written(ours, quorums, 300)
            assert await theirs.do("recover", writer.ledger_id) == ["299", *expected]
            await until(lambda told=told: told.failed is not None)  # type: ignore[misc]
            assert isinstance(told.failed, LedgerFenced)
            with pytest.raises(LedgerFenced):
                await writer.close()
            assert str(writer.ledger_id) in await theirs.do("list")
            reader = await ours.store.open(writer.ledger_id, recover=False)
            await theirs.do("delete", writer.ledger_id)
            assert writer.ledger_id not in await ours.store.ledger_ids()
            with pytest.raises(NoSuchLedger):
                await ours.store.open(writer.ledger_id, recover=True)
            reader.close()

    both(cluster, tmp_path, life, version)


@pytest.mark.parametrize("version", [2, 3])
def test_our_client_reads_and_recovers_what_theirs_has_written(
    cluster: BookKeeperServers, tmp_path: Path, version: int
) -> None:
    async def life(ours: Process, theirs: JavaLedgerClient) -> None:
        for quorums, digest in (
            (QUORUMS[0], "CRC32C"),
            (QUORUMS[1], "CRC32"),
            (QUORUMS[2], "MAC"),
            (QUORUMS[0], "DUMMY"),
        ):
            figures = (quorums.ensemble, quorums.write, quorums.ack, digest)
            [closed] = await theirs.do("create", *figures)
            await theirs.do("add", closed, 100)
            await theirs.do("close", closed)
            assert await ours.entries(int(closed)) == all_of(99)
            [left] = await theirs.do("create", *figures)
            await theirs.do("add", left, 50)
            looking = await ours.store.open(int(left), recover=False)
            assert await looking.last_add_confirmed() == 48
            assert await ours.entries(int(left)) == all_of(49)
            with pytest.raises(JavaClientFailed, match="fenced"):
                await theirs.do("add", left, 1)
            assert int(left) in await ours.store.ledger_ids()
            await ours.store.delete(int(left))
            with pytest.raises(JavaClientFailed):
                await theirs.do("look", left)

    both(cluster, tmp_path, life, version)


def test_both_race_to_fence_a_ledger_under_load(cluster: BookKeeperServers, tmp_path: Path) -> None:
    async def life(ours: Process, theirs: JavaLedgerClient) -> None:
        rival = await Process.start(cluster, tmp_path)
        recoveries = 0
        try:
            for number in range(RACES):
                quorums = QUORUMS[number % len(QUORUMS)]
                if number % 2:
                    [made] = await theirs.do("create", quorums.ensemble, quorums.write, quorums.ack, "CRC32C")
                    ledger_id = int(made)
                    await theirs.do("load", ledger_id)
                    await asyncio.sleep(0.05)
                else:
                    load = Load(await ours.store.create(quorums, {}))
                    ledger_id = load.writer.ledger_id
                    await load.more(200)
                entries, found = await asyncio.gather(
                    rival.entries(ledger_id), theirs.do("recover", ledger_id)
                )
                if number % 2:
                    acknowledged = int((await theirs.do("acknowledged", ledger_id))[0])
                else:
                    await load.is_fenced()
                    await load.stop()
                    acknowledged = load.told
                assert found == [str(len(entries) - 1), str(len(b"".join(entries))), digest_of(entries)]
                assert entries == all_of(len(entries) - 1)
                assert acknowledged < len(entries), (number, quorums, acknowledged, len(entries))
                recoveries += acknowledged > 0
                await rival.store.delete(ledger_id)
        finally:
            await rival.close()
        assert recoveries > RACES // 2, "there was no load"

    both(cluster, tmp_path, life)
