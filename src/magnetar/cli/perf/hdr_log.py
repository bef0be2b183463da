"""Writes histograms as HdrHistogram logs, version 1.3.

The buckets of :class:`magnetar.cli.perf.hot_raw.Histogram` are those of an HdrHistogram with two significant
digits from 1 ns, so the counts are written unchanged.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime

from magnetar.cli.perf.hot_raw import Histogram

_COOKIE = 0x1C849303 | 0x10
_COMPRESSED_COOKIE = 0x1C849304 | 0x10
_DIGITS = 2
_HIGHEST = (1 << 48) - 1
_MS = 1_000_000


def _zigzag(out: bytearray, value: int) -> None:
    """Appends a signed number as a ZigZag LEB128 of at most nine bytes."""
    rest = (value << 1) ^ (value >> 63)
    for _ in range(8):
        if rest < 128:
            out.append(rest)
            return
        out.append((rest & 127) | 128)
        rest >>= 7
    out.append(rest & 255)


def encode(histogram: Histogram) -> str:
    """Returns one histogram: Base64 of the compressed form, V2."""
    counts = list(histogram.counts)
    while counts and counts[-1] == 0:
        counts.pop()
    body = bytearray()
    zeros = 0
    for count in counts:
        if count == 0:
            zeros += 1
            continue
        if zeros:
            _zigzag(body, -zeros)
            zeros = 0
        _zigzag(body, count)
    head = struct.pack(">iiiiqqd", _COOKIE, len(body), 0, _DIGITS, 1, _HIGHEST, 1.0)
    packed = zlib.compress(head + bytes(body))
    return base64.b64encode(struct.pack(">ii", _COMPRESSED_COOKIE, len(packed)) + packed).decode()


def log_text(histograms: Mapping[str, Histogram], began: float, seconds: float) -> str:
    """Returns a log with one interval; each histogram has its name as a tag.

    :param began: s since 1970
    :param seconds: length of the interval
    """
    when = datetime.fromtimestamp(began, UTC).isoformat()
    lines = [
        "#[Histogram log format version 1.3]",
        f"#[StartTime: {began:.3f} (seconds since epoch), {when}]",
        '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"',
    ]
    for name, histogram in histograms.items():
        if histogram.total:
            maximum = histogram.maximum / _MS
            lines.append(f"Tag={name},0.000,{seconds:.3f},{maximum:.3f},{encode(histogram)}")
    return "\n".join(lines) + "\n"
