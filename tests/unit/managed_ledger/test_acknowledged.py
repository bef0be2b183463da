"""The compact state of a cursor against plain sets."""

from __future__ import annotations

from array import array

from hypothesis import example, given
from hypothesis import strategies as st

from magnetar.managed_ledger import records_pb2
from magnetar.managed_ledger.acknowledged import AcknowledgedState
from magnetar.managed_ledger.hot_ranges import EntryRanges
from magnetar.managed_ledger.records import (
    CursorRecord,
    bits_from_words,
    decode_cursor,
    decode_position,
    encode_cursor,
    encode_position,
    words_from_bits,
)

ids = st.integers(0, 60)
near = st.tuples(ids, st.integers(1, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))
places = st.integers(0, 6000) | st.sampled_from([1023, 1024, 1025, 2047, 2048, 3072, 4096, 5120])
lengths = st.integers(1, 12) | st.sampled_from([1023, 1024, 1025, 2048, 3000])
far = st.tuples(places, lengths).map(lambda pair: (pair[0], pair[0] + pair[1]))
spans = near | far
"""Within one block of ``EntryRanges``, and over several."""


def members(ranges: EntryRanges) -> set[int]:
    found: set[int] = set()
    last = -1
    for start, end in ranges.in_order():
        assert last < start < end, "neighbours must be joined"
        found.update(range(start, end))
        last = end
    assert ranges.range_count() == len(list(ranges.in_order()))
    assert ranges.end() == max(last, 0)
    assert ranges.is_empty() == (last < 0)
    return found


@given(st.lists(spans))
def test_ranges_are_a_set(added: list[tuple[int, int]]) -> None:
    ranges, model = EntryRanges(), set[int]()
    for start, end in added:
        new = set(range(start, end)) - model
        assert ranges.add(start, end) == len(new)
        model |= new
        assert members(ranges) == model
        assert ranges.count() == len(model)


@given(st.lists(spans), ids | places)
def test_ranges_answer_as_a_set(added: list[tuple[int, int]], asked: int) -> None:
    ranges, model = EntryRanges(), set[int]()
    for start, end in added:
        ranges.add(start, end)
        model.update(range(start, end))
    assert ranges.contains(asked) == (asked in model)
    end = ranges.end_of_range_at(asked)
    assert end not in model
    assert set(range(asked, end)) <= model
    following = ranges.start_of_next_range(asked)
    starts = {i for i in model if i - 1 not in model and i >= asked}
    assert following == min(starts, default=None)
    twin = ranges.copy()
    ranges.forget_below(asked)
    assert members(ranges) == {i for i in model if i >= asked}
    assert ranges.add(asked, asked + 3) == 3 - len({asked, asked + 1, asked + 2} & model)
    assert members(ranges) == {i for i in model if i >= asked} | {asked, asked + 1, asked + 2}
    assert members(twin) == model


@st.composite
def states(draw: st.DrawFn) -> AcknowledgedState:
    state = AcknowledgedState((draw(st.integers(0, 3)), draw(st.integers(-1, 30))))
    for ledger_id, (start, end) in draw(st.lists(st.tuples(st.integers(0, 5), spans), max_size=12)):
        state.add_range(ledger_id, start, end)
    for ledger_id, entry_id, bits in draw(
        st.lists(st.tuples(st.integers(0, 5), ids, st.integers(1, 2**130)), max_size=5)
    ):
        if not state.contains(ledger_id, entry_id):
            state.batches[(ledger_id, entry_id)] = bits
    return state


def consumed(state: AcknowledgedState) -> set[tuple[int, int]]:
    return {(ledger, entry) for ledger in range(6) for entry in range(80) if state.contains(ledger, entry)}


@given(states())
def test_a_position_entry_says_it_all(state: AcknowledgedState) -> None:
    encoded = encode_position(state, {"number": -5}, 10_000, 10_000)
    decoded, properties = decode_position(encoded, "here")
    assert properties == {"number": -5}
    assert decoded.mark_delete == state.mark_delete
    assert consumed(decoded) == consumed(state)
    assert decoded.batches == state.batches


@given(states(), st.integers(0, 2**40), st.integers(0, 2**40))
def test_the_size_of_ranges(state: AcknowledgedState, ledger_id: int, entry_id: int) -> None:
    for first in (0, entry_id, entry_id + 127, entry_id + 2**21):
        state.add_range(ledger_id, first, first + 1)
    info = records_pb2.PositionInfo.FromString(encode_position(state, {}, 5, 0))
    assert state.ranges_size(5) == sum(each.ByteSize() for each in info.individualDeletedMessages)


@given(states(), st.integers(0, 3))
def test_limits_keep_the_lowest_ranges(state: AcknowledgedState, limit: int) -> None:
    decoded, _ = decode_position(encode_position(state, {}, limit, limit), "here")
    assert list(decoded.ranges_in_order(99)) == list(state.ranges_in_order(limit))
    assert decoded.batches_in_order(99) == state.batches_in_order(limit)


@given(states(), st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3))
def test_a_cursor_record_says_it_all(state: AcknowledgedState, properties: dict[str, str]) -> None:
    record = CursorRecord(-1, state, {"n": 2**62}, properties)
    decoded = decode_cursor(encode_cursor(record, 10_000, 10_000), "here")
    assert decoded.cursor_properties == properties
    assert decoded.properties == {"n": 2**62}
    assert consumed(decoded.state) == consumed(state)
    assert decoded.state.batches == state.batches


@given(states(), st.integers(0, 5), st.integers(-1, 60))
def test_moving_the_mark_delete_position_on(state: AcknowledgedState, ledger_id: int, entry_id: int) -> None:
    before = consumed(state)
    target = max(state.mark_delete, (ledger_id, entry_id))
    state.move_mark_delete(target)
    every = {(ledger, entry) for ledger in range(6) for entry in range(80)}
    assert consumed(state) == before | {p for p in every if p <= target}
    assert all(p > target for p in state.batches)


@given(st.integers(0, 2**300))
def test_bits_and_words(bits: int) -> None:
    words = words_from_bits(bits)
    assert all(-(2**63) <= word < 2**63 for word in words)
    assert bits_from_words(words) == bits
    assert bits_from_words([*words, 0, 0]) == bits


@given(states())
def test_a_copy_is_apart(state: AcknowledgedState) -> None:
    copy = state.copy()
    seen = consumed(copy)
    state.add_range(5, 0, 79)
    state.batches.clear()
    assert consumed(copy) == seen


@given(st.lists(spans, max_size=4), st.lists(st.integers(-2, 60) | places, max_size=30), ids, ids | places)
def test_each_of_many_entries_is_added_once(
    before: list[tuple[int, int]], acknowledged: list[int], lowest: int, limit: int
) -> None:
    ranges, model = EntryRanges(), set[int]()
    for start, end in before:
        ranges.add(start, end)
        model.update(range(start, end))
    new = {entry_id for entry_id in acknowledged if lowest <= entry_id < limit} - model
    assert ranges.add_each(array("q", acknowledged), 0, len(acknowledged), lowest, limit) == len(new)
    assert members(ranges) == model | new


@given(st.lists(ids, max_size=30), ids)
@example([48, 50], 47)
def test_what_is_added_together_is_clipped_and_ends_parts_of_batches(
    acknowledged: list[int], mark: int
) -> None:
    state, other = AcknowledgedState((7, mark)), AcknowledgedState((7, mark))
    for each in (state, other):
        each.batches = {(7, mark + 3): 1, (8, mark + 3): 1}
    added = state.add_each(7, array("q", acknowledged), 0, len(acknowledged), 50)
    assert added == sum(other.add_range(7, entry_id, min(entry_id + 1, 50)) for entry_id in acknowledged)
    assert state.describe_ranges() == other.describe_ranges()
    assert state.batches == other.batches
    assert state.add_each(6, array("q", acknowledged), 0, len(acknowledged), 50) == 0


@given(st.lists(spans, max_size=6), st.integers(0, 4000))
def test_what_lies_behind_an_end_is_forgotten(added: list[tuple[int, int]], end: int) -> None:
    state = AcknowledgedState((3, -1))
    for ledger_id in (4, 5, 6):
        for start, stop in added:
            state.add_range(ledger_id, start, stop)
    state.forget_behind((5, end))
    consumed = {entry for start, stop in added for entry in range(start, stop)}
    assert state.individually_deleted_up_to((4, 10**6)) == len(consumed)
    assert {entry for start, stop in added for entry in range(start, stop) if state.contains(5, entry)} == {
        entry for entry in consumed if entry <= end
    }
    assert state.individually_deleted() == len(consumed) + len([entry for entry in consumed if entry <= end])
    state.check()


def test_batches_behind_an_end_are_forgotten() -> None:
    state = AcknowledgedState((3, -1))
    state.batches = {(4, 9000): 1, (5, 7): 1, (5, 8): 1, (6, 0): 1}
    state.forget_behind((5, 7))
    assert list(state.batches) == [(4, 9000), (5, 7)]
