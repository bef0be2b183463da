"""Bundles cover every hash once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.naming import BundleRange, Bundles, InvalidName


def test_even_bundles() -> None:
    assert Bundles.even(4).texts() == ["0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"]
    assert Bundles.even(3).texts() == ["0x00000000", "0x55555555", "0xaaaaaaaa", "0xffffffff"]
    assert Bundles.even(100).texts()[-2:] == ["0xfd70a378", "0xffffffff"]
    assert len(Bundles.even(100)) == 100


@given(st.integers(1, 300), st.integers(0, 0xFFFFFFFF))
def test_each_hash_lies_in_one_bundle(count: int, value: int) -> None:
    bundles = Bundles.even(count)
    assert [each for each in bundles if value in each] == [bundles.find(value)]
    assert Bundles.parse(bundles.texts()) == bundles


@pytest.mark.parametrize("value", [0x3FFFFFFF, 0x40000000, 0xFFFFFFFE, 0xFFFFFFFF, 0])
def test_bounds_belong_to_the_range_they_open(value: int) -> None:
    bundle = Bundles.even(4).find(value)
    assert bundle.lower <= value
    assert value < bundle.upper or bundle.upper == 0xFFFFFFFF


def test_a_topic_lies_in_its_bundle() -> None:
    assert str(Bundles.even(4).of_topic("persistent://public/default/t")) == "0x80000000_0xc0000000"


def test_ranges_read_back() -> None:
    assert str(BundleRange.parse("0x40000000_0x80000000")) == "0x40000000_0x80000000"
    for wrong in ("", "0x0_0x1", "0x80000000_0x40000000", "0x40000000-0x80000000", "0x40000000_0x40000000"):
        with pytest.raises(InvalidName):
            BundleRange.parse(wrong)


@pytest.mark.parametrize(
    "boundaries",
    [[], ["0x00000000"], ["0x00000001", "0xffffffff"], ["0x00000000", "0x80000000"], ["0", "0xffffffff"]],
)
def test_boundaries_must_cover_everything(boundaries: list[str]) -> None:
    with pytest.raises(InvalidName):
        Bundles.parse(boundaries)


@pytest.mark.parametrize("count", [0, -1, 1 << 17])
def test_number_of_bundles(count: int) -> None:
    with pytest.raises(InvalidName):
        Bundles.even(count)
