"""Driver ``filesystem``, against files that Apache Pulsar and Hadoop wrote."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from offloaded import KEY, VECTORS, cache, offload, read_all, record_of

from magnetar.ledger.interface import NoSuchEntry
from magnetar.offload import driver_for, driver_of
from magnetar.offload.interface import (
    OffloadDriver,
    OffloadedLedgerDamaged,
    OffloadedLedgerMissing,
    OffloadKey,
    OffloadMisconfigured,
    OffloadUnavailable,
)
from magnetar.offload.map_file import SequenceReader

ENTRIES = [b"entry %d " % number + b"." * (number % 37) for number in range(400)]
PULSAR = OffloadKey("public/files/persistent/small", 11, UUID("d8d3bfde-2523-4a94-a6ea-f8a7c9e71737"))


def files(base: Path) -> OffloadDriver:
    return driver_for("filesystem", {"fileSystemURI": base.as_uri()}, cache())


def folder(base: Path) -> Path:
    return base / KEY.managed_ledger / f"{KEY.ledger_id}-{KEY.uuid}"


def test_files_of_pulsar_are_read() -> None:
    reader = files(VECTORS / "files").open(PULSAR)
    entries = read_all(reader)
    reader.close()
    assert (len(entries), sum(map(len, entries)), reader.length) == (10, 835, 835)
    assert reader.record.custom["pulsar/managed-ledger"] == b"public/files/persistent/small"
    assert entries[0].startswith(b"\x0e\x01")


@pytest.mark.parametrize("number", [1, 2, 3], ids=["plain", "gzip by record", "zlib by block"])
@pytest.mark.parametrize("max_bytes", [1, 500, 1 << 20])
def test_files_of_hadoop_are_read(number: int, max_bytes: int) -> None:
    key = OffloadKey("hadoop", 21, UUID(int=number))
    reader = files(VECTORS / "files").open(key)
    assert read_all(reader, max_bytes) == ENTRIES
    for entry_id in (399, 127, 128, 126, 0, 300):
        again = files(VECTORS / "files").open(key)
        (run,) = again.read(entry_id, entry_id, 1)
        assert run.entry(0) == ENTRIES[entry_id]
        again.close()
    reader.close()


def test_a_ledger_is_written_read_and_deleted(tmp_path: Path) -> None:
    driver = files(tmp_path)
    entries = [*ENTRIES, bytes(300_000), bytes(2_000_000)]
    writer = driver.begin(KEY, record_of(entries))
    assert writer.append(0, entries[:3]) == sum(map(len, entries[:3]))
    writer.append(3, entries[3:])
    stored = writer.finish()
    assert stored.entries == len(entries)
    assert stored.stored_bytes == sum(path.stat().st_size for path in folder(tmp_path).iterdir())
    assert driver.metadata == {"storageBasePath": tmp_path.as_uri()}
    reader = driver_of(driver.name, driver.metadata, {}, cache()).open(KEY)
    assert read_all(reader, 1000) == entries
    with pytest.raises(NoSuchEntry):
        reader.read(len(entries), len(entries), 1)
    reader.close()
    driver.delete(KEY)
    driver.delete(KEY)
    assert not folder(tmp_path).exists()
    with pytest.raises(OffloadedLedgerMissing):
        driver.open(KEY)


@given(sizes=st.lists(st.integers(0, 5000), min_size=1, max_size=300))
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_ledgers_of_all_sizes_come_back(tmp_path: Path, sizes: list[int]) -> None:
    entries = [b"m" + bytes(size) for size in sizes]
    driver = files(tmp_path)
    driver.discard(KEY)
    offload(driver, KEY, entries)
    reader = driver.open(KEY)
    assert read_all(reader, 4000) == entries
    reader.close()


def test_an_attempt_is_discarded(tmp_path: Path) -> None:
    driver = files(tmp_path)
    driver.begin(KEY, record_of(ENTRIES)).append(0, ENTRIES[:10])
    driver.discard(KEY)
    assert not folder(tmp_path).exists()
    offload(driver, KEY, ENTRIES)
    writer = driver.begin(KEY._replace(ledger_id=8), record_of(ENTRIES))
    writer.abort()
    writer.abort()
    assert [path.name for path in folder(tmp_path).parent.iterdir()] == [folder(tmp_path).name]


def test_a_full_disk_is_told_and_nothing_is_left_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Path.open

    def full(self: Path, mode: str) -> object:
        return (
            original(Path("/dev/full"), "wb") if (self.name, mode) == ("data", "xb") else original(self, mode)
        )

    monkeypatch.setattr(Path, "open", full)
    writer = files(tmp_path).begin(KEY, record_of(ENTRIES))
    with pytest.raises(OffloadUnavailable, match=r"7-01234567-.*: No space left on device"):
        writer.append(0, ENTRIES)
    writer.abort()
    assert not folder(tmp_path).exists()
    monkeypatch.undo()
    offload(files(tmp_path), KEY, ENTRIES)


def test_missing_entries_are_noticed(tmp_path: Path) -> None:
    writer = files(tmp_path).begin(KEY, record_of(ENTRIES))
    writer.append(0, ENTRIES[:10])
    with pytest.raises(ValueError, match="the next entry must be 10, not 11"):
        writer.append(11, ENTRIES[11:])
    with pytest.raises(ValueError, match=r"10 entries with .* bytes were appended, but the ledger has 400"):
        writer.finish()
    writer.abort()


def test_files_that_change_while_they_are_written_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = files(tmp_path)
    writer = driver.begin(KEY, record_of(ENTRIES))
    writer.append(0, ENTRIES)
    read = SequenceReader.groups

    def damaged(reader: SequenceReader, position: int):  # type: ignore[no-untyped-def]
        data = bytearray((folder(tmp_path) / "data").read_bytes())
        data[-1] = 0
        (folder(tmp_path) / "data").write_bytes(data)
        return read(reader, position)

    monkeypatch.setattr(SequenceReader, "groups", damaged)
    with pytest.raises(OffloadedLedgerDamaged, match="400 entries with checksum"):
        writer.finish()
    writer.abort()


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    driver = files(tmp_path)
    offload(driver, KEY, ENTRIES)
    for name in ("data", "index"):
        path = folder(tmp_path) / name
        sound = path.read_bytes()
        for damaged in (sound[:-1], b"SEQ\x05" + sound[4:], sound[:30], b"", sound + b"\x00\x00"):
            path.write_bytes(damaged)
            with pytest.raises(
                OffloadedLedgerDamaged, match="is damaged, or belongs to another ledger: at byte"
            ):
                read_all(files(tmp_path).open(KEY))
        path.write_bytes(sound)
    path = folder(tmp_path) / "data"
    data = path.read_bytes()
    path.write_bytes(data.replace((300).to_bytes(8, "big"), (301).to_bytes(8, "big")))
    with pytest.raises(OffloadedLedgerDamaged, match="expected entry 300, found entry 301"):
        read_all(driver.open(KEY))


def test_other_compression_is_refused_by_name(tmp_path: Path) -> None:
    key = OffloadKey("hadoop", 21, UUID(int=3))
    source = VECTORS / "files" / "hadoop" / f"21-{key.uuid}"
    target = tmp_path / "hadoop" / source.name
    target.mkdir(parents=True)
    (target / "index").write_bytes((source / "index").read_bytes())
    (target / "data").write_bytes((source / "data").read_bytes().replace(b"DefaultCodec", b"SnappyXCodec"))
    with pytest.raises(OffloadMisconfigured, match=r"compressed with org.apache.hadoop.io.compress.Snappy"):
        files(tmp_path).open(key)


def test_the_base_comes_from_hadoops_configuration(tmp_path: Path) -> None:
    profile = tmp_path / "core-site.xml"
    profile.write_text(
        "<configuration><property><name>hadoop.tmp.dir</name><value>/elsewhere</value></property>"
        f"<property><name>fs.defaultFS</name><value>{tmp_path.as_uri()}</value></property></configuration>"
    )
    driver = driver_for("filesystem", {"fileSystemProfilePath": str(profile)}, cache())
    offload(driver, KEY, ENTRIES)
    assert (folder(tmp_path) / "data").exists()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, "set fileSystemURI"),
        ({"fileSystemURI": "hdfs://name:8020/x"}, r"hdfs://name is not supported"),
        ({"fileSystemURI": "file://host/x"}, "file://host is not supported"),
        ({"fileSystemURI": "relative"}, "must be an absolute path"),
        ({"fileSystemURI": "file:///${user.name}"}, "must be an absolute path"),
        ({"fileSystemProfilePath": "/nonexistent/core-site.xml"}, "cannot be read"),
    ],
)
def test_unsupported_places_are_refused(values: dict[str, str], expected: str) -> None:
    with pytest.raises(OffloadMisconfigured, match=expected):
        driver_for("filesystem", values, cache())


def test_a_name_that_leaves_the_base_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OffloadMisconfigured, match="cannot be the name of a folder"):
        files(tmp_path).delete(KEY._replace(managed_ledger="public/default/persistent/.."))


def test_reading_in_order_reads_each_byte_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [bytes([number % 251]) * 1000 for number in range(5000)]
    driver = files(tmp_path)
    offload(driver, KEY, entries)
    asked: list[int] = []
    read = SequenceReader.bytes_at

    def counted(reader: SequenceReader, position: int, length: int) -> bytes:
        asked.append(length)
        return read(reader, position, length)

    monkeypatch.setattr(SequenceReader, "bytes_at", counted)
    for max_bytes in (1 << 20, 300_000, 5000):
        asked.clear()
        reader = files(tmp_path).open(KEY)
        assert read_all(reader, max_bytes) == entries
        assert sum(asked) < 1.3 * (folder(tmp_path) / "data").stat().st_size
        reader.close()


def test_an_entry_longer_than_a_piece_is_read(tmp_path: Path) -> None:
    entries = [b"a", bytes(3 << 20), b"b", bytes(2 << 20), b"c" * 100]
    offload(files(tmp_path), KEY, entries)
    reader = files(tmp_path).open(KEY)
    assert read_all(reader) == entries
    assert reader.read(3, 3, 1)[0].entry(0) == entries[3]
    reader.close()
