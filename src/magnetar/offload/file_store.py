"""Offloaded ledgers as files: driver ``filesystem``, on a local or mounted file system.
``BASE/MANAGED-LEDGER/LEDGER-UUID/`` is a MapFile, which consists of the files ``data`` and ``index``. Key -1
is the metadata of the ledger; the other keys are entry ids. The base is the path of ``fileSystemURI``, or of
``fs.defaultFS`` in Hadoop's configuration (``fileSystemProfilePath``).
"""

from __future__ import annotations

import os
import shutil
import xml.etree.ElementTree as xml  # nosec B405
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import md5
from pathlib import Path

from magnetar.io.crc32c import crc32c
from magnetar.ledger.bookkeeper.ledger_record import LedgerRecord
from magnetar.ledger.interface import EntryRun
from magnetar.offload import ledger_metadata
from magnetar.offload.blocks import is_sound, verify
from magnetar.offload.cache import Piece, PieceCache
from magnetar.offload.interface import (
    OffloadDriver,
    OffloadedLedger,
    OffloadedLedgerDamaged,
    OffloadedLedgerMissing,
    OffloadKey,
    OffloadMisconfigured,
    OffloadRefused,
    OffloadUnavailable,
    OffloadWriter,
)
from magnetar.offload.ledger_metadata import check_complete
from magnetar.offload.map_file import BYTES, HEADER_BYTES, MapWriter, SequenceReader, plain_values, read_index
from magnetar.offload.reading import PieceReader, PieceStart
from magnetar.offload.settings import DEFAULT_READ_BYTES, FILE_SYSTEM, FileSettings, local_path, missing_place

_BASE = "storageBasePath"
"""The name under which the driver's recorded metadata contains the base."""
_METADATA_KEY = -1
_DATA, _INDEX = "data", "index"


def file_driver_of(settings: FileSettings, metadata: Mapping[str, str], cache: PieceCache) -> FileDriver:
    """Returns a driver for the base in a ledger's recorded metadata, or else for the configured base.

    :raises OffloadMisconfigured: the base is missing, or is not a local path
    """
    return FileDriver(metadata.get(_BASE) or configured_base(settings), cache)


def configured_base(settings: FileSettings) -> str:
    """Returns the base of offloaded ledgers; reads Hadoop's configuration if necessary.

    :raises OffloadMisconfigured: no setting contains the base, or Hadoop's configuration cannot be read
    """
    if settings.uri:
        return settings.uri
    found = ""
    for profile in filter(None, map(str.strip, settings.profile.split(","))):
        try:
            # The operator's own file.
            root = xml.parse(local_path("fileSystemProfilePath", profile)).getroot()  # nosec B314
        except (OSError, xml.ParseError) as error:
            reason = f"fileSystemProfilePath: {profile} cannot be read: {error}"
            raise OffloadMisconfigured(reason) from error
        for each in root.iter("property"):
            if each.findtext("name", "").strip() == "fs.defaultFS":
                found = each.findtext("value", "").strip()
    if not found:
        raise missing_place()
    return found


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Converts an error of the operating system to an offload error."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise OffloadedLedgerMissing(f"{path} does not exist") from error
    except PermissionError as error:
        raise OffloadRefused(f"{path}: {error.strerror}; give the broker's user access to it") from error
    except OSError as error:
        raise OffloadUnavailable(f"{path}: {error.strerror or error}") from error


class FileDriver(OffloadDriver):
    """The driver ``filesystem``."""

    def __init__(self, base: str, cache: PieceCache) -> None:
        """:param base: a ``file:`` URI or an absolute path
        :raises OffloadMisconfigured: ``base`` is neither a ``file:`` URI nor an absolute path
        """
        self._base = base
        self._path = local_path("fileSystemURI", base)
        self._cache = cache

    @property
    def name(self) -> str:
        return FILE_SYSTEM

    @property
    def metadata(self) -> Mapping[str, str]:
        return {_BASE: self._base}

    def begin(self, key: OffloadKey, record: LedgerRecord) -> MapFileWriter:
        ledger_metadata.check_offloadable(key.ledger_id, record)
        return MapFileWriter(self._path, self._folder(key), record, str(key.uuid))

    def open(self, key: OffloadKey) -> MapFileReader:
        folder = self._folder(key)
        with _translated(folder):
            return MapFileReader(folder, key.ledger_id, self._cache)

    def delete(self, key: OffloadKey) -> None:
        _remove(self._folder(key))

    def discard(self, key: OffloadKey, upload_id: str = "") -> None:
        self.delete(key)

    def close(self) -> None:
        """Does nothing, because the driver keeps no files open."""

    def _folder(self, key: OffloadKey) -> Path:
        parts = key.managed_ledger.split("/")
        if not {"", ".", ".."}.isdisjoint(parts):
            raise OffloadMisconfigured(
                f"managed ledger {key.managed_ledger!r} cannot be the name of a folder: "
                "use another driver for it"
            )
        return self._path.joinpath(*parts, f"{key.ledger_id}-{key.uuid}")


class MapFileWriter(OffloadWriter):
    def __init__(self, base: Path, folder: Path, record: LedgerRecord, uuid: str) -> None:
        self._base = base
        self._folder = folder
        self._record = record
        self._entries = 0
        self._entry_bytes = 0
        self._sum = 0
        """The CRC32-C of all entries together."""
        with _translated(folder):
            folder.mkdir(parents=True)
            self._data = (folder / _DATA).open("xb")
            self._index = (folder / _INDEX).open("xb")
            sync = md5(uuid.encode(), usedforsecurity=False).digest()
            self._map = MapWriter(self._data, self._index, sync)
            self._map.append(_METADATA_KEY, ledger_metadata.encoded(record))

    @property
    def upload_id(self) -> str:
        return ""

    def append(self, first_entry_id: int, entries: Sequence[bytes | memoryview]) -> int:
        if first_entry_id != self._entries:
            raise ValueError(f"{self._folder}: the next entry must be {self._entries}, not {first_entry_id}")
        with _translated(self._folder):
            for entry in entries:
                self._map.append(self._entries, entry)
                self._entries += 1
                self._entry_bytes += len(entry)
                self._sum = crc32c(entry, self._sum)
        return self._entry_bytes

    def finish(self) -> OffloadedLedger:
        record = self._record
        check_complete(str(self._folder), record, self._entries, self._entry_bytes)
        with _translated(self._folder):
            for file in (self._data, self._index):
                file.flush()
                os.fsync(file.fileno())
                file.close()
            for folder in (self._folder, *self._folder.parents):
                _sync_folder(folder)
                if folder == self._base:
                    break
            self._compare()
        return OffloadedLedger(self._entries, self._entry_bytes, self._map.size, 1)

    def _compare(self) -> None:
        """Compares the files with the entries that were written.

        :raises OffloadedLedgerDamaged: the files differ
        """
        entries = found = 0
        with (self._folder / _INDEX).open("rb") as file:
            read_index(str(self._folder / _INDEX), file)
        name = str(self._folder / _DATA)
        with (self._folder / _DATA).open("rb") as file:
            reader = SequenceReader(name, file, BYTES)
            for group in reader.groups(reader.start):
                for key, value in group.records:
                    if key != _METADATA_KEY:
                        entries += 1
                        found = crc32c(value, found)
        if (entries, found) != (self._entries, self._sum):
            raise OffloadedLedgerDamaged(
                name,
                0,
                f"{self._entries} entries with checksum {self._sum:#010x}",
                f"{entries} with {found:#010x}",
            )

    def abort(self) -> None:
        for file in (self._data, self._index):
            # A full disk does not take what is still buffered, and nobody wants it any more.
            with suppress(OSError):
                file.close()
        _remove(self._folder)


def _remove(folder: Path) -> None:
    with _translated(folder):
        if folder.exists():
            shutil.rmtree(folder)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class MapFileReader(PieceReader):
    def __init__(self, folder: Path, ledger_id: int, cache: PieceCache) -> None:
        """Opens the files of an offloaded ledger.

        :raises OSError: a file cannot be read
        :raises OffloadedLedgerDamaged: the files do not contain an offloaded ledger
        """
        self._ledger_id = ledger_id
        self._cache = cache
        self._path = folder / _DATA
        with (folder / _INDEX).open("rb") as index:
            self._index = read_index(str(folder / _INDEX), index)
        self._file = self._path.open("rb")
        try:
            self._records = SequenceReader(str(self._path), self._file, BYTES)
            super().__init__(str(self._path), self._metadata(), 0, DEFAULT_READ_BYTES)
        except BaseException:
            self._file.close()
            raise

    def _metadata(self) -> LedgerRecord:
        start = self._records.start
        key, value = next((each.records[0] for each in self._records.groups(start)), (0, b""))
        try:
            if key != _METADATA_KEY:
                raise ValueError(f"the first key is {key}")
            return ledger_metadata.decoded(value)
        except ValueError as error:
            expected = f"the metadata of ledger {self._ledger_id} with key {_METADATA_KEY}"
            raise OffloadedLedgerDamaged(str(self._path), start, expected, str(error)) from error

    def close(self) -> None:
        self._file.close()
        self._starts.clear()

    def _start_before(self, entry_id: int) -> PieceStart:
        key, position = self._index[bisect_right(self._index, entry_id, key=_key) - 1]
        indexed = PieceStart(max(key, 0), position, 0)
        known = self._known_before(entry_id)
        if known is None or known >= indexed:
            return known or indexed
        # A piece may span several positions of the index: a cached piece with the entry is preferred.
        piece = self._cache.get((self._name, known.position))
        return known if piece is not None and entry_id <= piece.run.last_entry_id else indexed

    def _piece_at(self, start: PieceStart) -> Piece:
        key = (self._name, start.position)
        piece = self._cache.get(key)
        if piece is None:
            self._requests += 1
            with _translated(self._path):
                piece = self._read_piece(start)
            self._cache.put(key, piece)
            # The next read begins within this piece, or where it ends.
            self._learn(PieceStart(piece.run.first_entry_id, start.position, 0))
            self._learn(PieceStart(piece.run.last_entry_id + 1, piece.next_position, 0))
        return piece

    def _read_piece(self, start: PieceStart) -> Piece:
        if not self._records.compressed:
            piece = self._plain_piece(start)
            if piece is not None:
                return piece
        return self._any_piece(start)

    def _plain_piece(self, start: PieceStart) -> Piece | None:
        """Reads entries as one piece of the file.

        :return: the piece; None if the entries are not stored as expected, so that :meth:`_any_piece` must
            read them or report the error
        """
        length = self._read_bytes + HEADER_BYTES
        while True:
            data = self._records.bytes_at(start.position, length)
            found = plain_values(data, self._records.sync)
            if found.starts or found.wanted <= length:
                break
            # The first entry is longer than a piece.
            length = found.wanted
        first = found.first
        if len(data) < length and len(found.data) < len(data):
            # The end of the file is not that of a record.
            return None
        if not found.starts or not first <= start.first_entry_id < first + len(found.starts):
            return None
        view = memoryview(found.data)
        for number, (begin, end) in enumerate(zip(found.starts, found.ends, strict=True)):
            if not is_sound(view, begin, end):
                verify(self._name, start.position + begin, first + number, view[begin:end])
        run = EntryRun(self._ledger_id, first, len(found.starts), found.data, found.starts, found.ends)
        return Piece(run, start.position + len(found.data), 0)

    def _any_piece(self, start: PieceStart) -> Piece:
        buffer = bytearray()
        starts, ends = array("q"), array("q")
        first, position = -1, start.position
        for group in self._records.groups(start.position):
            position = group.next_position
            for key, value in group.records:
                if key == _METADATA_KEY:
                    continue
                if not starts:
                    first = key
                if key != first + len(starts) or first > start.first_entry_id:
                    expected = first + len(starts) if starts else start.first_entry_id
                    raise OffloadedLedgerDamaged(
                        self._name, group.position, f"entry {expected}", f"entry {key}"
                    )
                verify(self._name, group.position, key, memoryview(value))
                starts.append(len(buffer))
                buffer += value
                ends.append(len(buffer))
            if starts and len(buffer) >= self._read_bytes:
                break
        if not starts:
            raise OffloadedLedgerDamaged(
                self._name, position, f"entry {start.first_entry_id}", "the end of the file"
            )
        return Piece(EntryRun(self._ledger_id, first, len(starts), bytes(buffer), starts, ends), position, 0)


def _key(place: tuple[int, int]) -> int:
    return place[0]
