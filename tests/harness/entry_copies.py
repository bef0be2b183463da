"""Which bookies have an entry, asked of each of them and of nobody else."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from bookkeeper_servers import BookKeeperServers
from ledger_load import Process

from magnetar.ledger.bookkeeper.bookies import Use
from magnetar.ledger.bookkeeper.digests import Digest
from magnetar.ledger.bookkeeper.frames import Status
from magnetar.ledger.bookkeeper.ledger_record import LedgerRecord
from magnetar.ledger.bookkeeper.question import KNOWN
from magnetar.ledger.interface import Quorums

_AT_ONCE = 200


def copies(
    servers: BookKeeperServers, folder: Path, entries: Iterable[tuple[int, int]]
) -> dict[Quorums, Counter[int]]:
    """How many entries, ledger id and entry id, have how many good copies in their write set."""
    found = asyncio.run(asyncio.wait_for(_copies(servers, folder, set(entries)), 300))
    return {quorums: Counter(counts) for quorums, counts in found.items()}


async def _copies(
    servers: BookKeeperServers, folder: Path, entries: set[tuple[int, int]]
) -> dict[Quorums, list[int]]:
    process = await Process.start(servers, folder)
    counts: dict[Quorums, list[int]] = defaultdict(list)
    try:
        for ledger_id in sorted({ledger_id for ledger_id, _ in entries}):
            record = (await process.store.records.read(ledger_id)).record
            wanted = sorted(entry_id for ledger, entry_id in entries if ledger == ledger_id)
            for first in range(0, len(wanted), _AT_ONCE):
                some = wanted[first : first + _AT_ONCE]
                counts[record.quorums] += await asyncio.gather(
                    *(_copies_of(process, ledger_id, record, entry_id) for entry_id in some)
                )
    finally:
        await process.close()
    return counts


async def _copies_of(process: Process, ledger_id: int, record: LedgerRecord, entry_id: int) -> int:
    digest = Digest(record.digest, record.password)
    ensemble = record.ensemble_of(entry_id)

    async def asked(bookie_id: str) -> tuple[int, list[bytes]]:
        answered: asyncio.Future[tuple[int, list[bytes]]] = asyncio.get_running_loop().create_future()
        bookie = process.store.bookies.bookie(bookie_id, Use.READING)
        bookie.read(ledger_id, entry_id, lambda status, bodies: answered.set_result((status, bodies)))
        return await answered

    async def has(bookie_id: str) -> bool:
        status, bodies = await asked(bookie_id)
        while status not in KNOWN:
            # Whoever is slow, or was restarted, will answer; the whole of it is bounded.
            await asyncio.sleep(0.5)
            status, bodies = await asked(bookie_id)
        if status != Status.OK:
            return False
        # Damage is raised.
        return digest.check(ledger_id, entry_id, bodies[0]).entry_id == entry_id

    return sum(await asyncio.gather(*(has(ensemble[index]) for index in record.write_set(entry_id))))
