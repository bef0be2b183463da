"""What a topic decides about a run of entries: verdicts in their order, and nothing else."""

from __future__ import annotations

from array import array
from typing import Any

from magnetar.broker.publishing.admission import Admission, JudgedPart, Verdict
from magnetar.broker.publishing.deduplication import Deduplication, DeduplicationSettings, SourcePositions
from magnetar.errors import EncryptionRequired, InternalError, NotAllowed
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata


class Cursor:
    """That of a topic without a snapshot."""

    def describe_properties(self) -> dict[str, int]:
        return {}


def known(**durable: int) -> Deduplication:
    ledger: Any = None
    cursor: Any = Cursor()
    found = Deduplication(ledger, cursor, DeduplicationSettings(), {}, SourcePositions("pulsar.repl", "here"))
    for name, mark in durable.items():
        found.stored(name, mark, -1, 1)
    return found


def entry(*, size: int = 1, encrypted: bool = False, chunk: tuple[int, int] | None = None) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    if encrypted:
        metadata.encryption_keys.add(key="k", value=b"v")
    if chunk is not None:
        metadata.chunk_id, metadata.num_chunks_from_msg = chunk
    return build_entry(metadata, bytes(size))


def judge(
    admission: Admission, ids: list[int], entries: list[bytes] | None = None, *, chunked: bool = False
) -> list[JudgedPart] | None:
    entries = entries or [b"not looked at"] * len(ids)
    ends = array("q")
    for one in entries:
        ends.append((ends[-1] if ends else 0) + len(one))
    starts = array("q", [0, *ends[:-1]])
    highest = array("q", [-1] * len(ids))
    return admission.judge("p", array("q", ids), highest, b"".join(entries), starts, ends, chunked=chunked)


def test_a_run_of_new_entries_is_stored_as_it_is() -> None:
    admission = Admission(known(p=3), encrypted=False, max_size=0)
    assert judge(admission, [4, 5, 6]) is None
    assert judge(admission, [7]) is None


def test_what_is_stored_already_what_is_on_its_way_and_what_is_new_are_told_apart() -> None:
    admission = Admission(known(p=3), encrypted=False, max_size=0)
    assert judge(admission, [4, 5]) is None
    parts = judge(admission, [2, 3, 4, 6, 7])
    assert parts is not None
    assert parts[0] == JudgedPart(0, 2, Verdict.DUPLICATE)
    assert (parts[1].first, parts[1].end, type(parts[1].verdict)) == (2, 3, InternalError)
    assert parts[2:] == [JudgedPart(3, 5, Verdict.STORE)]


def test_too_large_and_not_encrypted_entries_are_refused_and_their_sequence_ids_stay_free() -> None:
    encrypted = entry(encrypted=True)
    admission = Admission(known(), encrypted=True, max_size=len(encrypted))
    entries = [encrypted, entry(size=1000, encrypted=True), entry(), encrypted]
    parts = judge(admission, [0, 1, 2, 3], entries)
    assert parts is not None
    assert [(part.first, part.end) for part in parts] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert [type(part.verdict) for part in parts] == [Verdict, NotAllowed, EncryptionRequired, Verdict]
    assert parts[0].verdict is parts[3].verdict is Verdict.STORE


def test_only_the_last_chunk_of_a_message_counts() -> None:
    mark = known()
    admission = Admission(mark, encrypted=False, max_size=0)
    entries = [entry(chunk=(0, 3)), entry(chunk=(1, 3)), entry(chunk=(2, 3))]
    parts = judge(admission, [5, 5, 5], entries, chunked=True)
    assert parts == [JudgedPart(0, 2, Verdict.STORE_CHUNK), JudgedPart(2, 3, Verdict.STORE)]
    assert mark.admit("p", 5, -1) != 0


def test_an_entry_without_readable_metadata_is_refused_where_it_is_looked_at() -> None:
    admission = Admission(None, encrypted=True, max_size=0)
    parts = judge(admission, [0], [b"\x00\x00\x00\x05xxxxx"])
    assert parts is not None
    assert isinstance(parts[0].verdict, InternalError)
