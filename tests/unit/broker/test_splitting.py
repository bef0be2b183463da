"""Where bundles are divided."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.ownership.splitting import ALGORITHMS, ToDivide, positions_within
from magnetar.naming.bundles import BundleRange

RANGE = BundleRange(0x1000, 0x2000)


@pytest.mark.parametrize(
    ("algorithm", "topics", "positions", "found"),
    [
        ("range_equally_divide", {}, [], [0x1800]),
        ("topic_count_equally_divide", {0x1001: 0.0, 0x1003: 0.0, 0x1F00: 0.0, 0x1F02: 0.0}, [], [0x1781]),
        ("topic_count_equally_divide", {0x1001: 0.0, 0x1101: 0.0, 0x1201: 0.0}, [], [0x1081]),
        ("topic_count_equally_divide", {0x1001: 0.0}, [], []),
        ("specified_positions_divide", {}, [0x1900, 0x1100, 0x1900], [0x1100, 0x1900]),
        ("specified_positions_divide", {}, [0x1000, 0x2000, 0, 0x3000], []),
        ("flow_or_qps_equally_divide", {0x1100: 90.0, 0x1200: 5.0, 0x1300: 5.0}, [], [0x1180]),
        ("flow_or_qps_equally_divide", {0x1100: 1.0, 0x1200: 1.0, 0x1300: 2.0}, [], [0x1280]),
        ("flow_or_qps_equally_divide", {0x1100: 0.0, 0x1200: 0.0}, [], []),
    ],
)
def test_where(algorithm: str, topics: dict[int, float], positions: list[int], found: list[int]) -> None:
    assert positions_within(ToDivide(RANGE, topics, positions), algorithm) == found


@given(
    st.dictionaries(st.integers(RANGE.lower, RANGE.upper), st.floats(0, 1e6), max_size=20),
    st.lists(st.integers(0, 0xFFFFFFFF), max_size=5),
    st.sampled_from(sorted(ALGORITHMS)),
)
def test_always_within(topics: dict[int, float], positions: list[int], algorithm: str) -> None:
    found = positions_within(ToDivide(RANGE, topics, positions), algorithm)
    assert list(found) == sorted(set(found))
    assert all(RANGE.lower < at < RANGE.upper for at in found)
