"""The checkpoint's file: what goes in comes out, in one piece or in many."""

import pytest

from magnetar.ledger.embedded.checkpoint import (
    Checkpoint,
    CheckpointRows,
    SealedSegment,
    decode_checkpoint,
    encode_checkpoint,
)
from magnetar.ledger.embedded.ledger_table import LedgerRow
from magnetar.ledger.interface import DataDamaged

SEALED = frozenset((1, 2, 3))
GROWING = 9


def row_with(ledger_id: int, segments: tuple[int, ...], *, created: bytes = b"made") -> LedgerRow:
    row = LedgerRow(ledger_id, created)
    for number, segment_id in enumerate(segments):
        row.add_run(segment_id, number * 10, 10, 500, 460)
    row.closed = ledger_id % 2 == 0
    row.forgotten = ledger_id % 5
    return row


def encode(rows: list[LedgerRow]) -> list[bytes]:
    encoded = CheckpointRows(SEALED)
    for row in rows:
        encoded.add(row)
    segments = [SealedSegment(segment_id, 1, 9000, 8000, 4, 700, 300, True) for segment_id in sorted(SEALED)]
    return encode_checkpoint(Checkpoint(5000, 12, 10, 77, segments), encoded)


def facts(row: LedgerRow) -> tuple[object, ...]:
    return (row.ledger_id, row.created, row.closed, row.last_entry_id, row.length, row.forgotten)


@pytest.mark.parametrize(
    ("segments", "kept"),
    [
        ((), []),
        ((1,), [1]),
        ((1, 2), [1, 2]),
        ((1, 2, 3), [1, 2, 3]),
        ((GROWING,), []),
        ((1, GROWING), [1]),
        ((GROWING, 1), [1]),
        ((1, GROWING, 3), [1, 3]),
    ],
)
def test_parts_in_sealed_segments_are_kept_and_no_others(segments: tuple[int, ...], kept: list[int]) -> None:
    row = row_with(4, segments)
    (found,) = decode_checkpoint(b"".join(encode([row])), "checkpoint").ledgers
    assert [part[0] for part in found.each_part()] == kept
    assert list(found.each_part()) == [part for part in row.each_part() if part[0] in SEALED]
    assert facts(found) == facts(row)


def test_a_large_checkpoint_is_in_pieces_and_a_small_one_in_one() -> None:
    rows = [row_with(number, (1, 2), created=b"c" * 200) for number in range(4000)]
    assert len(encode(rows[:10])) == 1
    pieces = encode(rows)
    assert len(pieces) > 3
    assert max(map(len, pieces)) < 300_000
    found = decode_checkpoint(b"".join(pieces), "checkpoint")
    assert [facts(row) for row in found.ledgers] == [facts(row) for row in rows]
    assert [row.parts for row in found.ledgers] == [row.parts for row in rows]
    assert (found.next_ledger_id, found.next_segment_id, found.log_segment_id) == (5000, 12, 10)
    assert [segment.segment_id for segment in found.segments] == sorted(SEALED)


def test_a_piece_that_is_missing_or_changed_is_damage() -> None:
    rows = [row_with(number, (1,), created=b"c" * 200) for number in range(4000)]
    pieces = encode(rows)
    with pytest.raises(DataDamaged):
        decode_checkpoint(b"".join(pieces[:-1]), "checkpoint")
    changed = bytearray(b"".join(pieces))
    changed[len(changed) // 2] ^= 1
    with pytest.raises(DataDamaged):
        decode_checkpoint(bytes(changed), "checkpoint")
