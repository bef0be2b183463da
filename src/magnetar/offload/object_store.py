"""Offloaded ledgers as objects: a data object of blocks, and an index that is stored after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from magnetar.ledger.bookkeeper.ledger_record import LedgerRecord
from magnetar.offload import index as index_format
from magnetar.offload.blocks import (
    ENTRY_HEADER_BYTES,
    HEADER_BYTES,
    BlockBuilder,
    object_name,
    read_entries,
    read_header,
)
from magnetar.offload.cache import Piece, PieceCache
from magnetar.offload.index import Block, Index
from magnetar.offload.interface import (
    FoundObject,
    OffloadDriver,
    OffloadedLedger,
    OffloadedLedgerDamaged,
    OffloadedLedgerMissing,
    OffloadKey,
    OffloadRefused,
    OffloadWriter,
)
from magnetar.offload.ledger_metadata import check_complete, check_offloadable
from magnetar.offload.reading import PieceReader, PieceStart
from magnetar.offload.s3 import MOST_PARTS, S3Store, digest, tag_of_parts
from magnetar.offload.settings import AWS_S3, CLUSTER, DRIVER, MAX_BLOCK_BYTES, S3Settings

_MOST_NAME = 1024
"""The maximum number of characters of a name in the metadata of an object: S3 accepts 2048 bytes."""
_PROVIDER = "AWS_S3"
"""The name under which Pulsar's code records this driver in the metadata of a ledger."""


class S3Driver(OffloadDriver):
    """The driver ``aws-s3``."""

    def __init__(self, settings: S3Settings, cache: PieceCache) -> None:
        """Opens the bucket.

        :raises OffloadMisconfigured: the library is not installed, or the endpoint is invalid
        """
        self._settings = settings
        self._cache = cache
        self._store = S3Store(settings)

    @property
    def name(self) -> str:
        return AWS_S3

    @property
    def metadata(self) -> Mapping[str, str]:
        return {
            DRIVER: _PROVIDER,
            "bucket": self._settings.bucket,
            "region": self._settings.region,
            "serviceEndpoint": self._settings.endpoint,
        }

    def begin(self, key: OffloadKey, record: LedgerRecord) -> ObjectWriter:
        check_offloadable(key.ledger_id, record)
        name = object_name(key.uuid, key.ledger_id)
        described = _described(key.managed_ledger, self._settings.cluster)
        return ObjectWriter(self._store, name, described, record, _block_bytes(self._settings, record))

    def open(self, key: OffloadKey) -> ObjectReader:
        name = object_name(key.uuid, key.ledger_id)
        try:
            found = index_format.decoded(_index(name), self._store.get(_index(name)))
        except OffloadedLedgerMissing:
            # It may be in an object of several ledgers, which has no ledger id in its name.
            name = str(key.uuid)
            try:
                data = self._store.get(_index(name))
            except OffloadedLedgerMissing:
                data = b""
            if not data:
                raise
            found = index_format.decoded_of_several(_index(name), data, key.ledger_id)
        return ObjectReader(self._store, name, key.ledger_id, found, self._cache, self._settings.read_bytes)

    def delete(self, key: OffloadKey) -> None:
        name = object_name(key.uuid, key.ledger_id)
        self._store.delete(_index(name))
        self._store.delete(name)

    def discard(self, key: OffloadKey, upload_id: str = "") -> None:
        name = object_name(key.uuid, key.ledger_id)
        try:
            for unfinished in (upload_id,) if upload_id else self._store.unfinished_uploads(name):
                self._store.abort_upload(name, unfinished)
        except OffloadRefused:
            # The credentials may permit to delete objects, but not to list uploads.
            self.delete(key)
            raise
        self.delete(key)

    def listed(self, after: str) -> tuple[Sequence[FoundObject], str]:
        return self._store.listed(after)

    def close(self) -> None:
        self._store.close()


def _index(name: str) -> str:
    return f"{name}-index"


def _described(managed_ledger: str, cluster: str) -> Mapping[str, str]:
    """Returns metadata for an object, which helps people who examine the bucket; Pulsar writes the same
    metadata."""
    named = {"managedledgername": managed_ledger, CLUSTER.lower(): cluster}
    return {name: value for name, value in named.items() if 0 < len(value) <= _MOST_NAME}


def _block_bytes(settings: S3Settings, record: LedgerRecord) -> int:
    """Returns the length of blocks in bytes: the configured length, or a larger one if the ledger would need
    too many blocks."""
    everything = record.length + (record.last_entry_id + 1) * ENTRY_HEADER_BYTES
    # Half of the parts, as padding may take up to half of each block.
    least = everything // (MOST_PARTS // 2)
    return min(max(settings.block_bytes, least), MAX_BLOCK_BYTES)


class ObjectWriter(OffloadWriter):
    def __init__(
        self,
        store: S3Store,
        name: str,
        described: Mapping[str, str],
        record: LedgerRecord,
        block_bytes: int,
    ) -> None:
        """:param described: the metadata to store with the data object and with the index"""
        self._store = store
        self._name = name
        self._described = described
        self._record = record
        self._block_bytes = block_bytes
        self._blocks: list[Block] = []
        self._etags: list[str] = []
        self._digests: list[bytes] = []
        self._position = 0
        self._confirmed = 0
        self._block = BlockBuilder(block_bytes, 0)
        self._upload_id = store.create_upload(name, {**described, "role": "data"})

    @property
    def upload_id(self) -> str:
        return self._upload_id

    def append(self, first_entry_id: int, entries: Sequence[bytes | memoryview]) -> int:
        expected = self._block.first_entry_id + self._block.entries
        if first_entry_id != expected:
            raise ValueError(f"{self._name}: the next entry must be {expected}, not {first_entry_id}")
        for entry in entries:
            if not self._block.add(entry):
                self._upload(last=False)
                self._block.add(entry)
        return self._confirmed

    def _upload(self, *, last: bool) -> None:
        block = self._block
        data = block.built(last=last)
        self._etags.append(self._store.upload_part(self._name, self._upload_id, len(self._etags) + 1, data))
        self._digests.append(digest(data))
        self._blocks.append(Block(block.first_entry_id, len(self._etags), self._position))
        self._position += len(data)
        self._confirmed += block.entry_bytes
        self._block = BlockBuilder(self._block_bytes, block.first_entry_id + block.entries)

    def finish(self) -> OffloadedLedger:
        entries = self._block.first_entry_id + self._block.entries
        length = self._confirmed + self._block.entry_bytes
        record = self._record
        check_complete(self._name, record, entries, length)
        self._upload(last=True)
        try:
            self._store.complete_upload(self._name, self._upload_id, self._etags)
        except OffloadedLedgerMissing:
            # The answer to an earlier attempt may have been lost. The object decides, or is missing, too.
            self._store.head(self._name)
        self._compare()
        index = index_format.encoded(Index(record, self._position, self._blocks))
        self._store.put(_index(self._name), index, {**self._described, "role": "index"})
        if self._store.get(_index(self._name)) != index:
            raise OffloadedLedgerDamaged(
                _index(self._name), 0, "the index that was written", "different bytes"
            )
        return OffloadedLedger(entries, length, self._position + len(index), len(self._blocks))

    def _compare(self) -> None:
        """Compares the data object with the uploaded data: by its entity tag if the store computes the tag
        from the parts, otherwise by reading the object.

        :raises OffloadedLedgerDamaged: the data differs
        """
        stored = self._store.head(self._name)
        if stored.length != self._position:
            raise OffloadedLedgerDamaged(
                self._name,
                min(stored.length, self._position),
                f"{self._position} bytes",
                f"{stored.length} bytes",
            )
        if stored.etag == tag_of_parts(self._digests):
            return
        ends = [*(block.position for block in self._blocks[1:]), self._position]
        for block, end, expected in zip(self._blocks, ends, self._digests, strict=True):
            found = digest(self._store.get_range(self._name, block.position, end))
            if found != expected:
                raise OffloadedLedgerDamaged(
                    self._name, block.position, f"a block with MD5 {expected.hex()}", found.hex()
                )

    def abort(self) -> None:
        self._store.abort_upload(self._name, self._upload_id)
        self._store.delete(_index(self._name))
        self._store.delete(self._name)


class ObjectReader(PieceReader):
    def __init__(
        self, store: S3Store, name: str, ledger_id: int, index: Index, cache: PieceCache, read_bytes: int
    ) -> None:
        """:param read_bytes: the minimum number of bytes that one request reads"""
        super().__init__(name, index.record, index.blocks[0].first_entry_id, read_bytes)
        self._store = store
        self._ledger_id = ledger_id
        self._index = index
        self._cache = cache

    def close(self) -> None:
        self._starts.clear()

    def _start_before(self, entry_id: int) -> PieceStart:
        number = self._index.block_of(entry_id)
        block = self._index.blocks[number]
        known = self._known_before(entry_id)
        if known is not None and known.first_entry_id >= block.first_entry_id:
            return known
        end = self._index.end_of(number)
        data = self._range(block.position, min(block.position + HEADER_BYTES, end))
        ledger_id = self._ledger_id if self._index.ends else None
        header = read_header(self._name, block.position, data, block.first_entry_id, ledger_id)
        if block.position + header.block_length != end:
            raise OffloadedLedgerDamaged(
                self._name,
                block.position + 12,
                f"a block of {end - block.position} bytes",
                f"a block of {header.block_length} bytes",
            )
        start = PieceStart(block.first_entry_id, block.position + header.header_length, end)
        self._learn(start)
        return start

    def _range(self, start: int, end: int) -> bytes:
        self._requests += 1
        return self._store.get_range(self._name, start, end)

    def _piece_at(self, start: PieceStart) -> Piece:
        return self._cache.get((self._name, start.position)) or self._fetched(start)

    def _fetched(self, start: PieceStart) -> Piece:
        """Reads one or more pieces from ``start`` on and caches them; returns the first piece."""
        wanted = max(self._fetch_bytes, ENTRY_HEADER_BYTES + start.length)
        while True:
            end = min(start.position + wanted, start.end)
            if end - start.position < ENTRY_HEADER_BYTES:
                raise self._ended(start)
            data = self._range(start.position, end)
            pieces = read_entries(
                self._name,
                self._ledger_id,
                start.position,
                data,
                start.end,
                start.first_entry_id,
                self._read_bytes,
            )
            piece = pieces[0][1]
            if piece.run.count:
                break
            if not piece.next_length:
                raise self._ended(start)
            wanted = ENTRY_HEADER_BYTES + piece.next_length
        for position, each in reversed(pieces):
            # The first one last, so that it stays if the cache has room for one.
            self._cache.put((self._name, position), each)
        return piece

    def _ended(self, start: PieceStart) -> OffloadedLedgerDamaged:
        return OffloadedLedgerDamaged(
            self._name, start.position, f"entry {start.first_entry_id}", "the end of the entries of the block"
        )
