"""Bytes of entries, worked out from the frames that carry them."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.consumers.consumer import entry_bytes
from magnetar.ledger.interface import EntryRun
from magnetar.protocol.hot_codec import encode_messages


@given(
    st.integers(0, 2**40),
    st.lists(st.integers(0, 300), min_size=1, max_size=300),
    st.integers(0, 20),
    st.integers(-1, 2**63 - 1),
)
def test_frames_say_how_many_bytes_they_carry(
    first_entry_id: int, sizes: list[int], skipped: int, epoch: int
) -> None:
    starts, ends = array("q"), array("q")
    for size in sizes:
        starts.append((ends[-1] if ends else 0) + 3)
        ends.append(starts[-1] + size)
    run = EntryRun(7, first_entry_id, len(sizes), bytes(ends[-1]), starts, ends)
    first = min(skipped, len(sizes) - 1)
    count = len(sizes) - first
    frames = encode_messages(1, 7, first_entry_id + first, run.buffer, starts, ends, first, count, -1, epoch)
    wanted = sum(sizes[first:])
    assert entry_bytes(run, first, len(sizes)) == wanted
    assert entry_bytes(run, first, len(sizes), frames) == wanted
