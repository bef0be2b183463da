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
from ledger_load import Load, Process, payload
from polling import until_true

from magnetar.ledger.bookkeeper.bookies import Use
from magnetar.ledger.bookkeeper.digests import Digest, master_key
from magnetar.ledger.bookkeeper.frames import Status
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


def bytes_of(entries: list[bytes]) -> int:
    return sum(map(len, entries))


def all_of(last: int) -> list[bytes]:
    return [payload(entry_id) for entry_id in range(last + 1)]


async def is_gone_for(theirs: JavaLedgerClient, ledger_id: str) -> None:
    """Their metadata store answers from memory until it was notified of what others have changed."""
    for _ in range(100):
        try:
            await theirs.do("look", ledger_id)
        except JavaClientFailed:
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"they still see ledger {ledger_id}, which was deleted")


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
    await until_true(lambda: told.last == count - 1)
    return writer, told


@pytest.mark.parametrize("version", [2, 3])
def test_their_client_reads_and_recovers_what_ours_has_written(
    cluster: BookKeeperServers, tmp_path: Path, version: int
) -> None:
    async def life(ours: Process, theirs: JavaLedgerClient) -> None:
        expected = [str(bytes_of(all_of(299))), digest_of(all_of(299))]
        for quorums in QUORUMS[:2]:
            writer, _ = await written(ours, quorums, 300)
            await writer.close()
            assert await theirs.do("look", writer.ledger_id) == ["299", *expected]
            assert await theirs.do("recover", writer.ledger_id) == ["299", *expected]
            writer, told = await written(ours, quorums, 300)
            assert await theirs.do("recover", writer.ledger_id) == ["299", *expected]
            await until_true(lambda told=told: told.failed is not None)  # type: ignore[misc]
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
            await is_gone_for(theirs, left)

    both(cluster, tmp_path, life, version)


async def overhang(ours: Process) -> int:
    """A ledger of 41 entries whose writer is gone, and 40 more on one bookie of three, as a writer leaves it
    whose connections did not get equally far."""
    writer, told = await written(ours, QUORUMS[0], 40)
    last = payload(40)
    writer.append(last, array("q", [0]), array("q", [len(last)]), 0, 1)
    await until_true(lambda: told.last == 40)
    record = (await ours.store.records.read(writer.ledger_id)).record
    # Two others are asked for entry 41 before this one, and have said by then that it was never written.
    alone = record.segments[-1].ensemble[record.write_set(41)[-1]]
    bookie = ours.store.bookies.bookie(alone, Use.WRITING)
    digest, key = Digest(record.digest, record.password), master_key(record.password)
    answers: list[int] = []
    for entry_id in range(41, 81):
        body = payload(entry_id)
        head = digest.head(writer.ledger_id, entry_id, 40, bytes_of(all_of(entry_id)), body)
        bookie.add(writer.ledger_id, entry_id, key, (head, body), lambda status, _: answers.append(status))
    await until_true(lambda: len(answers) == 40)
    assert set(answers) == {Status.OK}
    return writer.ledger_id


def test_lengths_when_a_bookie_has_more_than_is_kept(cluster: BookKeeperServers, tmp_path: Path) -> None:
    """Java's client (4.17.2) takes the length from the header that told it what is confirmed. That may be
    of an entry that it does not keep: it closes the ledger with too large a length, and the right entries."""

    async def life(ours: Process, theirs: JavaLedgerClient) -> None:
        for _ in range(40):
            ledger_id = await overhang(ours)
            last, length, digest = await theirs.do("recover", ledger_id)
            assert (last, digest) == ("40", digest_of(all_of(40)))
            if int(length) == bytes_of(all_of(80)):
                break
            assert int(length) == bytes_of(all_of(40))
        else:
            pytest.fail("Java's client counts what it keeps: the race below can be strict about its lengths")
        assert await ours.entries(ledger_id) == all_of(40)
        # Ours asks first who may have an entry, and counts what it keeps. It keeps nothing where the two that
        # have none answer before, as nobody was told of it.
        for _ in range(10):
            ledger_id = await overhang(ours)
            found = await ours.entries(ledger_id)
            metadata = (await ours.store.open(ledger_id, recover=False)).metadata
            assert (metadata.last_entry_id, metadata.length) == (len(found) - 1, bytes_of(found))
            if found == all_of(80):
                break
            assert found == all_of(40)
        else:
            pytest.fail("ours never found an entry that one bookie has")

    both(cluster, tmp_path, life)


def test_both_race_to_fence_a_ledger_under_load(
    cluster: BookKeeperServers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="magnetar.ledger.bookkeeper.recovery")

    def closed_by_ours() -> set[int]:
        return {record.ledger for record in caplog.records if record.message == "ledger recovered"}

    async def life(ours: Process, theirs: JavaLedgerClient) -> None:
        rival = await Process.start(cluster, tmp_path)
        recoveries = closed_here = 0
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
                last, length, digest = found
                assert (last, digest) == (str(len(entries) - 1), digest_of(entries))
                # Theirs may have closed it with too large a length: see the test above.
                excess = int(length) - bytes_of(entries)
                assert excess == 0 or (excess > 0 and ledger_id not in closed_by_ours())
                assert entries == all_of(len(entries) - 1)
                assert acknowledged < len(entries), (number, quorums, acknowledged, len(entries))
                recoveries += acknowledged > 0
                closed_here += ledger_id in closed_by_ours()
                caplog.clear()
                await rival.store.delete(ledger_id)
        finally:
            await rival.close()
        assert recoveries > RACES // 2, "there was no load"
        assert 0 < closed_here < RACES, "one of them won every race"

    both(cluster, tmp_path, life)
