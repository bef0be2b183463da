"""Computes results: percentiles of latencies, and the CPU time and memory that the operating system
reports.
"""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from magnetar.cli.perf.hot_raw import Histogram

_SUB = 128
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999))


def value_of(index: int) -> float:
    """Returns the middle of a histogram's bucket, in nanoseconds.

    :param index: the index of the bucket
    """
    if index < 2 * _SUB:
        return float(index)
    shift = index // _SUB - 1
    return float((index - shift * _SUB << shift) + (1 << shift) / 2)


def percentile(counts: Sequence[int], total: int, fraction: float) -> float:
    """Returns the value in nanoseconds below which ``fraction`` of all values lie; 0 without values.

    :param counts: the counts of a histogram, by bucket
    :param total: the sum of the counts
    """
    wanted = max(1, round(total * fraction))
    seen = 0
    for index, count in enumerate(counts):
        seen += count
        if count and seen >= wanted:
            return value_of(index)
    return 0.0


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """Returns a histogram with the values of all given histograms."""
    result = Histogram()
    sums = result.counts
    for each in histograms:
        if each.total:
            for index, count in enumerate(each.counts):
                if count:
                    sums[index] += count
            result.total += each.total
            result.maximum = max(result.maximum, each.maximum)
    return result


def sparse(histogram: Histogram) -> dict[str, object]:
    """Encodes a histogram as its maximum and its counts above 0, so that it can be passed to another
    process.
    """
    counts = [[index, count] for index, count in enumerate(histogram.counts) if count]
    return {"maximum": histogram.maximum, "counts": counts}


def from_sparse(data: dict[str, Any]) -> Histogram:
    """Decodes a histogram that :func:`sparse` encoded."""
    result = Histogram()
    counts: array[int] = result.counts
    for index, count in data["counts"]:
        counts[index] = count
        result.total += count
    result.maximum = data["maximum"]
    return result


def milliseconds(histogram: Histogram) -> dict[str, float] | None:
    """Returns percentiles and the maximum, by name, in milliseconds; None if the histogram is empty."""
    if not histogram.total:
        return None
    counts = histogram.counts
    found = {
        name: round(min(percentile(counts, histogram.total, fraction), histogram.maximum) / 1e6, 4)
        for name, fraction in _QUANTILES
    }
    found["max"] = round(histogram.maximum / 1e6, 4)
    return found


def cpu_seconds(pids: Sequence[int]) -> float:
    """Returns the CPU time in seconds that the processes have used since their start: of all threads, in user
    and system mode.

    :raises OSError: a process has ended
    """
    ticks = 0
    for pid in pids:
        # After the command's name, which may contain anything; utime and stime are fields 14 and 15.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS


def resident_megabytes(pids: Sequence[int]) -> float:
    """Returns the resident memory of the processes together, in MB."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return round(pages * os.sysconf("SC_PAGESIZE") / 1e6, 1)


@dataclass(frozen=True)
class Counters:
    """A snapshot of the counters of a run."""

    moment: float
    """When the snapshot was taken, in seconds of the monotonic clock."""
    published: int
    received: int
    size: int
    own_cpu: float
    server_cpu: float

    @classmethod
    def take(cls, published: int, received: int, size: int, server_pids: Sequence[int]) -> Counters:
        return cls(time.monotonic(), published, received, size, time.process_time(), cpu_seconds(server_pids))
