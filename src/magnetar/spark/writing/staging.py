"""Stages entries before they are published, on a disk that the driver and the executors share.

A task groups its rows into entries, once, and stages the entries in its own file. When all tasks of a batch
are done, a *manifest* names the files of the tasks. A hard link creates the manifest atomically: the process
that creates it first determines the contents of the batch, and the manifest is never replaced. Publishing
reads only the files of the manifest, so that a repeated batch publishes the same entries, even if its rows
were computed differently.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from magnetar.io.crc32c import crc32c
from magnetar.spark.codec.schemas import NOTHING, Definition
from magnetar.spark.durable import sync
from magnetar.spark.errors import InvalidOption, StagingDamaged
from magnetar.spark.writing.cutting import CutEntry

__all__ = ["Attempt", "Manifest", "StagedFile", "Staging", "staging_folder"]

_HEADER = struct.Struct("<IIII")
_CHUNK = 1 << 20
_Json = dict[str, Any]
"""The JSON content of a file with a record; the file's checksum shows that this program wrote it."""
_VERSION = 1
_TRANSACTIONAL_VERSION = 2
_ATTEMPT, _COMMIT = "attempt-", "commit-"
"""Parts of file names: ``BATCH-attempt-NUMBER`` and ``BATCH-commit-NUMBER``."""
_NO_SCHEMA = (NOTHING.kind, NOTHING.text)


@dataclass(frozen=True)
class StagedFile:
    """The staged rows of one task."""

    name: str
    size: int
    """Size of the file, in bytes."""
    checksum: int
    """CRC-32C of the whole file."""
    rows: int
    largest: int
    """Size of the largest payload, in bytes."""
    topics: tuple[str, ...]
    """The topics of the file; entries refer to a topic by its index."""
    schemas: tuple[tuple[str, str], ...] = ()
    """Type and definition of the declared schema of each topic; empty: no declared schemas."""

    def definitions(self) -> dict[str, Definition]:
        """Returns the declared schema of each topic; topics without a declared schema are omitted."""
        found = zip(self.topics, self.schemas, strict=False)
        return {topic: Definition(*schema) for topic, schema in found if schema != _NO_SCHEMA}


@dataclass(frozen=True)
class Manifest:
    """The staged files that a batch consists of; once written, a manifest is never changed."""

    batch_id: int
    producer: str
    files: tuple[StagedFile, ...]
    """The files, in the order of publishing."""
    behind: dict[str, tuple[int, int]]
    """(ledger id, entry id) of each topic's last entry before this batch was published."""
    transactional: bool = False
    """Whether the batch is published as one transaction; otherwise message by message."""

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.files)


@dataclass(frozen=True)
class Attempt:
    """A transaction that publishes a batch; recorded before its first message is sent."""

    number: int
    """The number of the attempt, from 0."""
    most: int
    """The most significant bits of the transaction's id."""
    least: int
    behind: dict[str, tuple[int, int]]
    """(ledger id, entry id) of each topic's last entry before the transaction."""


def staging_folder(option: str, given: str) -> Path:
    """Returns the path in an option, which must be a folder that all machines share.

    :param option: the name of the option, for errors
    :raises InvalidOption: the value is not a path in a file system
    """
    parts = urlsplit(given)
    if parts.scheme not in ("", "file") or parts.netloc:
        raise InvalidOption(
            f"{option!r}: {given!r} is not a directory of a mounted file system, which staging requires; "
            "set 'stagingDir' to one that driver and executors share, or 'delivery' to at-least-once"
        )
    return Path(unquote(parts.path) if parts.scheme else given)


class FileWriter:
    """Writes a staged file; the file must not be read before :meth:`finish` has returned."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("xb")
        self._size = 0
        self._checksum = 0
        self._rows = 0
        self._largest = 0
        self._topics: dict[str, int] = {}
        self._schemas: list[tuple[str, str]] = []

    def add(self, entry: CutEntry) -> None:
        topic = self._topics.setdefault(entry.topic, len(self._topics))
        if topic == len(self._schemas):
            self._schemas.append((entry.schema.kind, entry.schema.text))
        header = _HEADER.pack(topic, entry.count, len(entry.metadata), len(entry.payload))
        for piece in (header, entry.metadata, entry.payload):
            self._file.write(piece)
            self._checksum = crc32c(piece, self._checksum)
            self._size += len(piece)
        self._rows += entry.count
        self._largest = max(self._largest, len(entry.payload))

    def finish(self) -> StagedFile:
        """Completes the file and makes it durable; returns its description."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        sync(self._path.parent)
        schemas = tuple(self._schemas) if set(self._schemas) - {_NO_SCHEMA} else ()
        topics = tuple(self._topics)
        return StagedFile(
            self._path.name, self._size, self._checksum, self._rows, self._largest, topics, schemas
        )

    def give_up(self) -> None:
        """Removes the file."""
        self._file.close()
        self._path.unlink(missing_ok=True)


class Staging:
    """The staging folder of one query, or of one batch write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def writer(self, batch_id: int, partition_id: int) -> FileWriter:
        """Returns a new file for one attempt of a task."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return FileWriter(self.folder / f"{batch_id}-{partition_id}-{os.urandom(8).hex()}.rows")

    def producer(self, *, may_begin: bool) -> str:
        """Returns the name for all producers, which is generated once and stored in the folder.

        :param may_begin: whether a new name may be generated, because no message can have been published
            under an earlier name
        :raises StagingDamaged: the name is missing, although the query has run before
        """
        path = self.folder / "producer"
        if not path.exists():
            if not may_begin:
                raise StagingDamaged(
                    f"{self.folder} is empty although this query has run before: what was staged, and "
                    "perhaps published in part, is lost. Restore it, or set 'newStaging' to true if the "
                    "last batch may be published twice"
                )
            self.folder.mkdir(parents=True, exist_ok=True)
            self._appear(path, f"magnetar-spark-{os.urandom(12).hex()}".encode())
        return path.read_text()

    def claim(self, query: str) -> None:
        """Assigns the folder permanently to one query.

        Another query would number its batches from 0 as well, so its first batches would be mistaken for
        batches that are already published.

        :param query: the id of the query in its checkpoint
        :raises InvalidOption: the folder belongs to another query
        """
        path = self.folder / "query"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            self._appear(path, query.encode())
        known = path.read_text()
        if known != query:
            raise InvalidOption(
                f"{self.folder} has the staged rows of query {known}; this is query {query}, another query "
                "or one whose checkpoint was removed: use another 'stagingDir'"
            )

    def manifest(self, batch_id: int) -> Manifest | None:
        """Returns the manifest of a batch; None: the files of the batch are not fixed yet.

        :raises StagingDamaged: the manifest is malformed
        """
        found = _recorded(self._manifest_path(batch_id))
        return _parsed_manifest(self._manifest_path(batch_id), found) if found is not None else None

    def decide(self, manifest: Manifest) -> tuple[Manifest, bool]:
        """Fixes the files of a batch by storing its manifest, unless the batch has a manifest already;
        returns the batch's manifest, and whether this call has stored the manifest.
        """
        path = self._manifest_path(manifest.batch_id)
        # Releases without transactions must refuse the batch instead of publishing it message by message.
        version = _TRANSACTIONAL_VERSION if manifest.transactional else _VERSION
        first = self._record(path, {"version": version, **asdict(manifest)})
        if first:
            return manifest, True
        found = self.manifest(manifest.batch_id)
        if found is None:
            raise StagingDamaged(f"{path} exists but cannot be read")
        return found, False

    def last_attempt(self, batch_id: int) -> Attempt | None:
        """Returns the last attempt to publish the batch; None: there was no attempt.

        :raises StagingDamaged: the record is malformed
        """
        prefix = f"{batch_id}-{_ATTEMPT}"
        numbers = [int(path.name[len(prefix) :]) for path in self.folder.glob(f"{prefix}*")]
        if not numbers:
            return None
        path = self._attempt_path(batch_id, max(numbers))
        found = _recorded(path)
        if found is None:
            raise StagingDamaged(f"{path} is missing: it was removed while the query was running")
        return Attempt(found["number"], found["most"], found["least"], _positions(found["behind"]))

    def begin_attempt(self, batch_id: int, attempt: Attempt) -> bool:
        """Records an attempt; returns False if another process has recorded an attempt with this number."""
        return self._record(self._attempt_path(batch_id, attempt.number), asdict(attempt))

    def commits(self, batch_id: int, attempt: Attempt) -> dict[str, tuple[int, int]] | None:
        """Returns what :meth:`decide_commit` recorded for an attempt: the last entry of each topic at that
        time. None: no commit is recorded.

        :raises StagingDamaged: the record is malformed
        """
        found = _recorded(self._commit_path(batch_id, attempt))
        return _positions(found["ends"]) if found is not None else None

    def decide_commit(self, batch_id: int, attempt: Attempt, ends: dict[str, tuple[int, int]]) -> None:
        """Records that an attempt has published all messages, so that its transaction must be committed.

        :param ends: (ledger id, entry id) of the last entry of each topic
        """
        self._record(self._commit_path(batch_id, attempt), {"ends": ends})

    def check(self, manifest: Manifest) -> None:
        """Reads and checks every staged file.

        :raises StagingDamaged: a file is missing or damaged; the error text contains its name
        """
        for staged in manifest.files:
            path = self.folder / staged.name
            size = checksum = 0
            try:
                with path.open("rb") as file:
                    while chunk := file.read(_CHUNK):
                        size += len(chunk)
                        checksum = crc32c(chunk, checksum)
            except FileNotFoundError as error:
                raise StagingDamaged(f"{path} of batch {manifest.batch_id} is missing") from error
            if (size, checksum) != (staged.size, staged.checksum):
                raise StagingDamaged(
                    f"{path} of batch {manifest.batch_id} is damaged: it has {size} bytes with "
                    f"checksum {checksum:08x}, but {staged.size} bytes with checksum {staged.checksum:08x} "
                    "were staged. "
                    "Nothing is published from it"
                )

    def entries(self, manifest: Manifest) -> Iterator[CutEntry]:
        """Yields the entries to publish, in order; :meth:`check` must have found the staged files intact."""
        for staged in manifest.files:
            with (self.folder / staged.name).open("rb") as file:
                while header := file.read(_HEADER.size):
                    topic, count, metadata_size, payload_size = _HEADER.unpack(header)
                    metadata = file.read(metadata_size)
                    yield CutEntry(staged.topics[topic], count, metadata, file.read(payload_size))

    def published(self, batch_id: int) -> bool:
        """Whether the batch is recorded as published."""
        return self._published_path(batch_id).exists()

    def publish_is_done(self, manifest: Manifest) -> None:
        """Records that the batch is published, and removes staged files of this and of earlier batches."""
        self._appear(self._published_path(manifest.batch_id), b"")
        for path in sorted(self.folder.iterdir()):
            batch, separator, rest = path.name.partition("-")
            if batch == "draft":
                # Left by a process that was killed while it wrote a manifest.
                path.unlink(missing_ok=True)
            elif separator and batch.isdigit() and _is_past(int(batch), rest, manifest.batch_id):
                path.unlink(missing_ok=True)

    def forget(self, batch_id: int, files: Iterable[StagedFile]) -> None:
        """Removes the staged files of a failed attempt, unless the manifest of the batch names them."""
        decided = self.manifest(batch_id)
        kept = {each.name for each in decided.files} if decided is not None else set()
        for each in files:
            if each.name not in kept:
                (self.folder / each.name).unlink(missing_ok=True)

    def _manifest_path(self, batch_id: int) -> Path:
        return self.folder / f"{batch_id}-manifest"

    def _published_path(self, batch_id: int) -> Path:
        return self.folder / f"{batch_id}-published"

    def _attempt_path(self, batch_id: int, number: int) -> Path:
        return self.folder / f"{batch_id}-{_ATTEMPT}{number}"

    def _commit_path(self, batch_id: int, attempt: Attempt) -> Path:
        return self.folder / f"{batch_id}-{_COMMIT}{attempt.number}"

    def _record(self, path: Path, content: dict[str, object]) -> bool:
        """Creates a JSON file with a checksum; returns False if the file already exists."""
        body = json.dumps(content).encode()
        return self._appear(path, b"%08x\n%s\n" % (crc32c(body), body))

    def _appear(self, path: Path, content: bytes) -> bool:
        """Creates a file atomically and durably; returns False if the file already exists."""
        draft = path.with_name(f"draft-{os.urandom(8).hex()}")
        with draft.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
        finally:
            draft.unlink(missing_ok=True)
            sync(self.folder)
        return True


def _is_past(batch_id: int, rest: str, published: int) -> bool:
    """Whether a file can be removed once the batch ``published`` is published. The manifest of the batch
    ``published`` is kept, because Spark can repeat a batch until Spark itself has recorded the batch as done.

    :param batch_id: the batch of the file
    :param rest: the file's name after the batch id
    """
    return batch_id < published or (
        batch_id == published and (rest.endswith(".rows") or rest.startswith((_ATTEMPT, _COMMIT)))
    )


def _recorded(path: Path) -> _Json | None:
    """Returns the content of a file with a checksum; None: there is no such file.

    :raises StagingDamaged: the file is malformed
    """
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    head, _, body = text.partition(b"\n")
    body = body.rstrip(b"\n")
    if head != b"%08x" % crc32c(body):
        raise StagingDamaged(f"{path} is damaged: its checksum is wrong")
    found: _Json = json.loads(body)
    return found


def _parsed_manifest(path: Path, found: _Json) -> Manifest:
    transactional = bool(found.get("transactional"))
    if found["version"] != (_TRANSACTIONAL_VERSION if transactional else _VERSION):
        raise StagingDamaged(f"{path} was written by another version of Magnetar")
    files = tuple(_parsed_file(each) for each in found["files"])
    return Manifest(found["batch_id"], found["producer"], files, _positions(found["behind"]), transactional)


def _positions(found: _Json) -> dict[str, tuple[int, int]]:
    return {topic: (place[0], place[1]) for topic, place in found.items()}


def _parsed_file(found: _Json) -> StagedFile:
    schemas = tuple((kind, text) for kind, text in found.get("schemas", ()))
    return replace(StagedFile(**found), topics=tuple(found["topics"]), schemas=schemas)
