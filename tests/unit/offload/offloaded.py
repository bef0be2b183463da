"""Ledgers for tests of offloading, and what was recorded from Apache Pulsar 4.0.8 and Hadoop 3.4.1.

``vectors`` has objects and files that Pulsar's own offloaders wrote, and MapFiles that Hadoop wrote without
compression, with gzip by record, and with zlib by blocks of 4000 bytes. Data objects are packed with gzip.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from magnetar.ledger.bookkeeper.ledger_record import LedgerRecord
from magnetar.offload.cache import PieceCache
from magnetar.offload.interface import OffloadDriver, OffloadedReader, OffloadKey
from magnetar.offload.ledger_metadata import without_bookies

VECTORS = Path(__file__).parent / "vectors"
KEY = OffloadKey("public/default/persistent/topic", 7, UUID("01234567-89ab-cdef-0123-456789abcdef"))


def objects() -> list[str]:
    """Returns the names of the recorded data objects."""
    return sorted(path.stem for path in VECTORS.glob("*.gz"))


def recorded(name: str) -> tuple[bytes, bytes]:
    """Returns a data object and its index."""
    return gzip.decompress((VECTORS / f"{name}.gz").read_bytes()), (VECTORS / f"{name}-index").read_bytes()


def key_of(name: str) -> OffloadKey:
    uuid, ledger_id = name.split("-ledger-")
    return OffloadKey("public/default/persistent/small", int(ledger_id), UUID(uuid))


def cache(max_bytes: int = 64 << 20) -> PieceCache:
    return PieceCache(max_bytes)


def record_of(entries: Sequence[bytes]) -> LedgerRecord:
    return without_bookies(len(entries) - 1, sum(map(len, entries)), 1_700_000_000_000)


def offload(driver: OffloadDriver, key: OffloadKey, entries: Sequence[bytes]) -> None:
    writer = driver.begin(key, record_of(entries))
    writer.append(0, entries)
    writer.finish()


def read_all(reader: OffloadedReader, max_bytes: int = 1 << 20) -> list[bytes]:
    """Reads everything, at most ``max_bytes`` at once."""
    entries: list[bytes] = []
    while len(entries) <= reader.last_entry_id:
        runs = reader.read(len(entries), reader.last_entry_id, max_bytes)
        for run in runs:
            assert run.first_entry_id == len(entries)
            entries += [run.entry(index) for index in range(run.count)]
        assert sum(run.size() for run in runs) <= max_bytes or sum(run.count for run in runs) == 1
    return entries
