"""Navigation over ledgers against a plain list of positions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.managed_ledger.errors import MetadataDamaged
from magnetar.managed_ledger.ledger_list import LedgerList
from magnetar.managed_ledger.records import (
    LedgerSummary,
    ManagedLedgerRecord,
    decode_managed_ledger,
    encode_managed_ledger,
)
from magnetar.managed_ledger.settings import RetentionSettings
from magnetar.managed_ledger.trimming import ledgers_to_trim


@st.composite
def lists(draw: st.DrawFn) -> LedgerList:
    ids = sorted(draw(st.sets(st.integers(0, 15), min_size=1, max_size=6)))
    return LedgerList(LedgerSummary(i, draw(st.integers(0, 5)), 10 * i, 1) for i in ids)


def stored(ledgers: LedgerList) -> list[tuple[int, int]]:
    return [(s.ledger_id, e) for s in ledgers for e in range(s.entries)]


positions = st.tuples(st.integers(0, 16), st.integers(-1, 7))


@given(lists(), positions)
def test_first_at_or_after(ledgers: LedgerList, position: tuple[int, int]) -> None:
    last = ledgers.last()
    assert last is not None
    end = (last.ledger_id, last.entries)
    expected = next((p for p in stored(ledgers) if p >= position), end)
    assert ledgers.first_at_or_after(position) == expected
    assert ledgers.after((position[0], position[1] - 1)) == expected


@given(lists(), positions)
def test_before(ledgers: LedgerList, position: tuple[int, int]) -> None:
    earlier = [p for p in stored(ledgers) if p < position]
    assert ledgers.before(position) == (earlier[-1] if earlier else (ledgers.first_id(), -1))


@given(lists(), positions)
def test_counting(ledgers: LedgerList, position: tuple[int, int]) -> None:
    later = [p for p in stored(ledgers) if p > position]
    assert ledgers.entries_after(position) == len(later)
    assert ledgers.exists(position) == (position in stored(ledgers))
    for count in range(1, len(later) + 3):
        expected = later[min(count, len(later)) - 1] if later else position
        assert ledgers.nth_after(position, count) == expected
    assert 0 <= ledgers.size_after(position) <= ledgers.total_size()


@given(lists(), positions)
def test_consumed_ledgers(ledgers: LedgerList, position: tuple[int, int]) -> None:
    """Only whole ledgers up to the position, never the last."""
    found = ledgers.consumed_through(position)
    last = ledgers.last()
    assert last not in found
    gone = {s.ledger_id for s in found}
    assert all(p <= position for p in stored(ledgers) if p[0] in gone)
    assert [s.ledger_id for s in found] == [s.ledger_id for s in ledgers][: len(found)]


@given(lists(), st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=3), st.none() | positions)
def test_the_record_says_it_all(
    ledgers: LedgerList, properties: dict[str, str], terminated: tuple[int, int] | None
) -> None:
    record = ManagedLedgerRecord(list(ledgers), terminated, properties)
    assert decode_managed_ledger(encode_managed_ledger(record), "here") == record


@pytest.mark.parametrize(
    "value",
    [
        b"\xff",
        b"\x0a\x05\x08",
        b"\x47\x78\x00\x00",
        b"\x47\x78\x00\x00\x00\x09\x08",
        b"\x0a\x02\x08\x05\x0a\x02\x08\x05",
    ],
)
def test_a_damaged_record_is_named(value: bytes) -> None:
    with pytest.raises(MetadataDamaged, match="/managed-ledgers/t/n/persistent/x"):
        decode_managed_ledger(value, "/managed-ledgers/t/n/persistent/x")


HOUR = 3_600_000


@pytest.mark.parametrize(
    ("time_ms", "size", "gone"),
    [
        (0, 0, 3),
        (0, 100, 3),
        (HOUR, 0, 3),
        (-1, -1, 0),
        (-1, 250, 1),
        (-1, 100, 3),
        (-1, 10_000, 0),
        (2 * HOUR + 1, -1, 1),
        (HOUR // 2, -1, 3),
        (10 * HOUR, -1, 0),
        (10 * HOUR, 250, 1),
        (2 * HOUR + 1, 10_000, 1),
    ],
)
def test_retention(time_ms: int, size: int, gone: int) -> None:
    """The rows of the cookbook's table: whichever bound comes first; -1 switches one off, 0 both."""
    now = 10 * HOUR
    consumed = [LedgerSummary(i, 5, 100, now - (3 - i) * HOUR) for i in range(3)]
    retention = RetentionSettings(time_ms, size)
    assert len(ledgers_to_trim(consumed, 400, retention, now)) == gone
