"""Prints the results of a run as JSON or lines, with a verdict, and writes HdrHistogram logs (version 1.3).

The buckets of :class:`magnetar.cli.perf.hot_raw.Histogram` equal the buckets of an HdrHistogram with two
significant digits from 1 ns, so the counts are written unchanged.
"""

from __future__ import annotations

import base64
import json
import struct
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from magnetar.cli.perf.hot_raw import Histogram
from magnetar.cli.perf.load import Load
from magnetar.cli.perf.measure import from_sparse, merged, milliseconds, resident_megabytes, sparse
from magnetar.exit_codes import SUCCEEDED, VOID

_SUMS = ("published", "delivered", "published_in_window", "delivered_in_window", "bytes_in_window")
_COOKIE = 0x1C849303 | 0x10
_COMPRESSED_COOKIE = 0x1C849304 | 0x10
_DIGITS = 2
_HIGHEST = (1 << 48) - 1
_MS = 1_000_000


def findings(load: Load, *, size: int, disorder_counts: bool) -> dict[str, object]:
    """Returns the raw results of one process; :func:`added_up` combines the results of several processes.

    :param size: size of a published payload, in bytes
    :param disorder_counts: whether messages that arrive out of order make the run fail
    """
    first, last = load.first, load.last
    assert last is not None
    assert first is not None
    orders = {id(receiver.order): receiver.order for receiver in load.receivers if receiver.order is not None}
    duplicates = sum(order.duplicates for order in orders.values())
    missing = sum(len(order.missing) for order in orders.values())
    disorder = sum(order.disorder for order in orders.values())
    failures = list(load.shared.failures)
    if duplicates:
        failures.append(f"{duplicates} messages came twice")
    if load.plan.lossy:
        missing = load.lost
    elif missing:
        failures.append(f"{missing} messages were lost")
    if disorder and disorder_counts:
        failures.append(f"{disorder} messages came out of order")
    received = last.received - first.received
    published = last.published - first.published
    return {
        "void": "; ".join(failures) or None,
        "began": time.time() - (time.monotonic() - first.moment),
        "seconds": last.moment - first.moment,
        "published": load.published,
        "delivered": load.received,
        "published_in_window": published,
        "delivered_in_window": received,
        "bytes_in_window": last.size - first.size if load.receivers else published * size,
        "duplicates": duplicates,
        "lost": missing,
        "out_of_order": disorder,
        "own_cpu_seconds": last.own_cpu - first.own_cpu,
        "server_cpu_seconds": last.server_cpu - first.server_cpu,
        "publish": sparse(merged(sender.latencies for sender in load.senders)),
        "end_to_end": sparse(merged(receiver.latencies for receiver in load.receivers)),
    }


def added_up(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Combines the raw results of several processes, which measured the same server at the same time."""
    whole = dict(parts[0])
    whole["void"] = "; ".join(part["void"] for part in parts if part["void"]) or None
    whole["began"] = min(part["began"] for part in parts)
    whole["seconds"] = max(part["seconds"] for part in parts)
    for name in (*_SUMS, "duplicates", "lost", "out_of_order", "own_cpu_seconds"):
        whole[name] = sum(part[name] for part in parts)
    whole["server_cpu_seconds"] = max(part["server_cpu_seconds"] for part in parts)
    for name in ("publish", "end_to_end"):
        whole[name] = sparse(merged(from_sparse(part[name]) for part in parts))
    return whole


def figures(found: dict[str, Any], about: dict[str, Any], server_pids: Sequence[int]) -> dict[str, object]:
    """Computes the final results of a run from the raw results.

    :param about: description of the run, which the results include unchanged
    :param server_pids: process ids of the server; if there are any, the results include the server's CPU time
        and memory
    """
    seconds = found["seconds"] or 1e-9
    published = found["published_in_window"]
    delivered = found["delivered_in_window"]
    # A message that is both published and delivered counts once.
    messages = max(published or delivered, 1)
    result: dict[str, object] = {"void": found["void"], **about, "seconds": round(seconds, 3)}
    for name in ("published", "delivered", "duplicates", "lost", "out_of_order"):
        result[name] = found[name]
    result["publish_rate"] = round(published / seconds, 1)
    result["deliver_rate"] = round(delivered / seconds, 1)
    result["mbytes_per_second"] = round(found["bytes_in_window"] / seconds / 1e6, 3)
    result["publish_latency_ms"] = milliseconds(from_sparse(found["publish"]))
    result["end_to_end_latency_ms"] = milliseconds(from_sparse(found["end_to_end"]))
    result["own_cpu_us_per_message"] = round(found["own_cpu_seconds"] / messages * 1e6, 3)
    result["own_cores"] = round(found["own_cpu_seconds"] / seconds, 3)
    if server_pids:
        result["server_cpu_us_per_message"] = round(found["server_cpu_seconds"] / messages * 1e6, 3)
        result["server_cores"] = round(found["server_cpu_seconds"] / seconds, 3)
        result["server_rss_mb"] = resident_megabytes(server_pids)
    return result


def tell(result: dict[str, object], json_file: str | None) -> int:
    """Prints the results and writes the JSON file; returns the exit code.

    :param json_file: path of the JSON file; ``-``: JSON is printed on standard output instead of lines; None:
        no JSON
    """
    return tell_lines(result, json_file, _lines)


def tell_lines(
    result: dict[str, object], json_file: str | None, lines: Callable[[dict[str, object]], list[str]]
) -> int:
    """Like :func:`tell`, for results that another function formats as lines.

    :param lines: formats the results as lines
    """
    if json_file == "-":
        sys.stdout.write(json.dumps(result) + "\n")
    else:
        if json_file:
            Path(json_file).write_text(json.dumps(result, indent=2) + "\n")
        sys.stdout.writelines(f"{line}\n" for line in lines(result))
    if result["void"]:
        sys.stderr.write(f"pulsar-perf: the run is void: {result['void']}\n")
        return VOID
    return SUCCEEDED


def _lines(result: dict[str, Any]) -> list[str]:
    lines = [
        f"measured {result['seconds']:.1f} s: published {result['publish_rate']:,.0f} msg/s,"
        f" delivered {result['deliver_rate']:,.0f} msg/s, {result['mbytes_per_second']:.2f} MB/s"
    ]
    for name, title in (("publish_latency_ms", "publish"), ("end_to_end_latency_ms", "end to end")):
        latency = result[name]
        if latency:
            text = "  ".join(f"{key} {value:.3f}" for key, value in latency.items())
            lines.append(f"{title} latency, ms: {text}")
    lines.append(
        f"own CPU {result['own_cpu_us_per_message']:.2f} us a message, {result['own_cores']:.2f} cores"
    )
    if "server_cores" in result:
        lines.append(
            f"server CPU {result['server_cpu_us_per_message']:.2f} us a message,"
            f" {result['server_cores']:.2f} cores, {result['server_rss_mb']:.0f} MB resident"
        )
    return lines


class Live:
    """Prints a line with the current rates; called at regular intervals."""

    def __init__(self) -> None:
        self._published = 0
        self._received = 0

    def __call__(self, load: Load, seconds: float) -> None:
        published, received = load.published, load.received
        sys.stderr.write(
            f"published {(published - self._published) / seconds:>11,.0f} msg/s"
            f"  delivered {(received - self._received) / seconds:>11,.0f} msg/s"
            f"  outstanding {load.sent - published:,}\n"
        )
        self._published, self._received = published, received


def write_histograms(found: dict[str, Any], file: str) -> None:
    """Writes the latencies to a file, as an HdrHistogram log with values in nanoseconds."""
    histograms = {name: from_sparse(found[name]) for name in ("publish", "end_to_end")}
    Path(file).write_text(log_text(histograms, found["began"], found["seconds"]))


def _zigzag(out: bytearray, value: int) -> None:
    """Appends a signed number as ZigZag LEB128, at most nine bytes."""
    rest = (value << 1) ^ (value >> 63)
    for _ in range(8):
        if rest < 128:
            out.append(rest)
            return
        out.append((rest & 127) | 128)
        rest >>= 7
    out.append(rest & 255)


def encode(histogram: Histogram) -> str:
    """Encodes a histogram in HdrHistogram's compressed V2 encoding, in Base64."""
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
    """Returns an HdrHistogram log with one interval; the name of each histogram becomes its tag.

    :param began: start time, in seconds since 1970
    :param seconds: length of the interval, in seconds
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
