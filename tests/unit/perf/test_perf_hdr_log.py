"""HdrHistogram logs, read back by a decoder written from the format."""

from __future__ import annotations

import base64
import struct
import zlib

from hypothesis import given
from hypothesis import strategies as st

from magnetar.cli.perf.hot_raw import Histogram
from magnetar.cli.perf.report import encode, log_text


def value_at(index: int) -> int:
    """The lowest value of a slot: 256 sub-buckets, of which each octave but the first uses the upper half."""
    bucket, sub = (index >> 7) - 1, (index & 127) + 128
    if bucket < 0:
        bucket, sub = 0, sub - 128
    return sub << bucket


def decode(text: str) -> dict[int, int]:
    raw = base64.b64decode(text)
    cookie, size = struct.unpack_from(">ii", raw)
    assert cookie == 0x1C849314
    assert size == len(raw) - 8
    data = zlib.decompress(raw[8:])
    cookie, size, offset, digits, lowest, highest, ratio = struct.unpack_from(">iiiiqqd", data)
    assert (cookie, offset, digits, lowest, ratio) == (0x1C849313, 0, 2, 1, 1.0)
    assert highest >= 2**47
    body = data[40:]
    assert size == len(body)
    counts: dict[int, int] = {}
    position = index = 0
    while position < len(body):
        value = shift = 0
        while True:
            byte = body[position]
            position += 1
            if shift == 56:
                value |= byte << shift
                break
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        number = (value >> 1) ^ -(value & 1)
        if number < 0:
            index -= number
        else:
            counts[value_at(index)] = number
            index += 1
    return counts


@given(st.lists(st.tuples(st.integers(0, 2**46), st.integers(1, 2**55)), max_size=30))
def test_counts_survive(values: list[tuple[int, int]]) -> None:
    histogram = Histogram()
    expected: dict[int, int] = {}
    for value, times in values:
        histogram.record(value, times)
        lowest = value if value < 256 else value >> (value.bit_length() - 8) << (value.bit_length() - 8)
        expected[lowest] = expected.get(lowest, 0) + times
    assert decode(encode(histogram)) == expected


def test_log() -> None:
    histogram = Histogram()
    histogram.record(3_000_000)
    text = log_text({"publish": histogram, "end_to_end": Histogram()}, 1_700_000_000.5, 2)
    lines = text.splitlines()
    assert lines[0] == "#[Histogram log format version 1.3]"
    assert lines[1].startswith("#[StartTime: 1700000000.500 ")
    assert lines[3].startswith("Tag=publish,0.000,2.000,3.000,HIST")
    assert len(lines) == 4
