"""The Prometheus text format, version 0.0.4, and OpenMetrics 1.0
(https://prometheus.io/docs/specs/om/open_metrics_spec/), in which families of counters are named without
``_total`` and the text has an end marker.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_LINES_A_PIECE = 64
Number = int | float
OPEN_METRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_TYPE = "# TYPE "


def labels_text(labels: Mapping[str, str]) -> str:
    """Formats labels as ``name="value"`` pairs, separated by commas, without braces."""
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())


def number_text(value: Number | bool) -> str:
    """Formats a number with at most three decimal places; booleans become 0 or 1."""
    if isinstance(value, float):
        return repr(round(value, 3)) if value == value else "NaN"
    return str(int(value))


def family(name: str, kind: str, samples: Iterable[tuple[str, Number]]) -> Iterator[str]:
    """Yields one metric: its TYPE line and its samples, in pieces of a few kilobytes.

    :param samples: the labels (as :func:`labels_text` returns them) and the value of each sample
    """
    lines = [f"# TYPE {name} {kind}\n"]
    for labels, value in samples:
        lines.append(f"{name}{{{labels}}} {number_text(value)}\n")
        if len(lines) >= _LINES_A_PIECE:
            yield "".join(lines)
            lines.clear()
    if lines:
        yield "".join(lines)


def counter(name: str, labels: str, value: int, created_seconds: float) -> Iterator[str]:
    """Yields one counter with its total and its creation time, in Pulsar's form."""
    yield (
        f"# TYPE {name} counter\n{name}_total{{{labels}}} {float(value)!r}\n"
        f"{name}_created{{{labels}}} {created_seconds!r}\n"
    )


def summary(
    name: str, labels: str, quantiles: Mapping[float, float], count: int, total: float
) -> Iterator[str]:
    """Yields one summary: quantiles, count and sum."""
    yield "".join([f"# TYPE {name} summary\n", *summary_samples(name, labels, quantiles, count, total)])


def summary_samples(
    name: str, labels: str, quantiles: Mapping[float, float], count: int, total: float
) -> list[str]:
    """Returns the lines of one summary without its TYPE line, which all summaries of the same name share."""
    lines = [
        f'{name}{{{labels},quantile="{quantile!r}"}} {number_text(float(value))}\n'
        for quantile, value in sorted(quantiles.items())
    ]
    lines.append(f"{name}_count{{{labels}}} {float(count)!r}\n")
    lines.append(f"{name}_sum{{{labels}}} {float(round(total, 3))!r}\n")
    return lines


def histogram(
    name: str,
    labels: str,
    bounds: Sequence[float],
    counts: Sequence[int],
    total: float,
    created_seconds: float,
) -> Iterator[str]:
    """Yields one histogram with its creation time.

    :param counts: the count of each bucket, not cumulative; the last one is for values above all ``bounds``
    """
    lines = histogram_samples(name, labels, bounds, counts, total, created_seconds)
    yield "".join([f"# TYPE {name} histogram\n", *lines])


def histogram_samples(
    name: str,
    labels: str,
    bounds: Sequence[float],
    counts: Sequence[int],
    total: float,
    created_seconds: float,
) -> list[str]:
    """Returns the lines of one histogram without its TYPE line, which all histograms of the same name
    share.
    """
    lines = []
    below = 0
    for bound, count in zip((*map(str, bounds), "+Inf"), counts, strict=True):
        below += count
        lines.append(f'{name}_bucket{{{labels},le="{bound}"}} {float(below)!r}\n')
    lines.append(f"{name}_count{{{labels}}} {float(below)!r}\n")
    lines.append(f"{name}_sum{{{labels}}} {float(round(total, 3))!r}\n")
    lines.append(f"{name}_created{{{labels}}} {created_seconds!r}\n")
    return lines


@cache
def _help() -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Returns the HELP texts of metrics, by name, and by prefix with the longest prefix first."""
    text = (Path(__file__).parent / "help.tsv").read_text("utf-8")
    rows = [line.partition("\t") for line in text.splitlines()]
    named = {name: meaning for name, _, meaning in rows if not name.endswith("*")}
    beginnings = [(name[:-1], meaning) for name, _, meaning in rows if name.endswith("*")]
    return named, sorted(beginnings, key=lambda row: -len(row[0]))


@cache
def meaning_of(name: str) -> str | None:
    """Returns the HELP text of a metric; None: the metric has no HELP text."""
    named, beginnings = _help()
    if name in named:
        return named[name]
    for beginning, meaning in beginnings:
        if name.startswith(beginning):
            return meaning
    return None


def content_type(accept: str) -> str:
    """Returns the content type of the response to a scraper with this ``Accept`` header."""
    return OPEN_METRICS_TYPE if "application/openmetrics-text" in accept else CONTENT_TYPE


def described(pieces: Iterable[str], kind: str) -> Iterator[str]:
    """Yields the metrics with a HELP line for each family, in the format of a content type.

    :param pieces: the metrics in Prometheus' text format
    :param kind: the content type
    """
    if kind != OPEN_METRICS_TYPE:
        for piece in pieces:
            yield _with_help(piece) if _TYPE in piece else piece
        return
    for piece in pieces:
        yield _as_open_metrics(piece) if _TYPE in piece else piece
    yield "# EOF\n"


def _lines(piece: str) -> list[str]:
    """Splits a text into lines with their ends. Only a line feed ends a line, because names can contain other
    line ends.
    """
    return re.findall(r"[^\n]*\n|[^\n]+", piece)


def _with_help(piece: str) -> str:
    lines = []
    for line in _lines(piece):
        if line.startswith(_TYPE):
            name = line.split(" ", 3)[2]
            lines.append(_help_line(name, name))
        lines.append(line)
    return "".join(lines)


def _as_open_metrics(piece: str) -> str:
    lines = []
    for line in _lines(piece):
        if line.startswith(_TYPE):
            _, _, name, kind = line.rstrip("\n").split(" ")
            told = name.removesuffix("_total") if kind == "counter" else name
            lines.append(f"{_help_line(name, told)}# TYPE {told} {kind}\n")
        else:
            lines.append(line)
    return "".join(lines)


def _help_line(name: str, told: str) -> str:
    meaning = meaning_of(name)
    return "" if meaning is None else f"# HELP {told} {meaning}\n"
