"""Where bundles are divided."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.ownership.bundles import DIVISIONS, Carried, ToDivide, positions_within
from magnetar.naming.bundles import BundleRange

RANGE = BundleRange(0x1000, 0x2000)


IDLE = Carried()


@pytest.mark.parametrize(
    ("algorithm", "topics", "positions", "found"),
    [
        ("range_equally_divide", [], [], [0x1800]),
        ("topic_count_equally_divide", [0x1001, 0x1003, 0x1F00, 0x1F02], [], [0x1781]),
        ("topic_count_equally_divide", [0x1001, 0x1101, 0x1201], [], [0x1081]),
        ("topic_count_equally_divide", [0x1001], [], []),
        ("specified_positions_divide", [], [0x1900, 0x1100, 0x1900], [0x1100, 0x1900]),
        ("specified_positions_divide", [], [0x1000, 0x2000, 0, 0x3000], []),
    ],
)
def test_where(algorithm: str, topics: list[int], positions: list[int], found: list[int]) -> None:
    known = dict.fromkeys(topics, IDLE)
    assert positions_within(ToDivide(RANGE, known, positions), algorithm) == found


@pytest.mark.parametrize(
    ("rates", "found"),
    [
        # The whole carries less than a tenth more than a bundle may.
        ([50.0, 59.9], []),
        ([50.0, 60.5], [0x1180]),
        ([110.0], []),
        ([110.0, 0.0, 0.0], []),
        # Parts carry up to 100; one topic carries what it must.
        ([60.0, 40.0, 60.0, 40.0, 1.0], [0x1280, 0x1480]),
        ([250.0, 250.0, 250.0], [0x1180, 0x1280]),
        ([30.0, 0.0, 81.0], [0x1200]),
    ],
)
@pytest.mark.parametrize("bytes_count", [False, True], ids=["messages", "bytes"])
def test_by_what_goes_through(rates: list[float], found: list[int], bytes_count: bool) -> None:
    carried = [Carried(1.0 if rate else 0.0, rate * 10) if bytes_count else Carried(rate) for rate in rates]
    topics = {0x1100 + 0x100 * number: each for number, each in enumerate(carried)}
    bundle = ToDivide(RANGE, topics, most=Carried(100, 1000), tolerance=0.1)
    assert positions_within(bundle, "flow_or_qps_equally_divide") == found


FLOW = st.builds(Carried, st.floats(0, 1e6), st.floats(0, 1e9))


@given(
    st.dictionaries(st.integers(RANGE.lower, RANGE.upper), FLOW, max_size=20),
    st.lists(st.integers(0, 0xFFFFFFFF), max_size=5),
    st.sampled_from(sorted(DIVISIONS)),
)
def test_always_within(topics: dict[int, Carried], positions: list[int], algorithm: str) -> None:
    found = positions_within(ToDivide(RANGE, topics, positions), algorithm)
    assert list(found) == sorted(set(found))
    assert all(RANGE.lower < at < RANGE.upper for at in found)
