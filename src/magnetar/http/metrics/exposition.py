"""The Prometheus text format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_LINES_A_PIECE = 64

Number = int | float


def labels_text(labels: Mapping[str, str]) -> str:
    """Returns ``name="value"`` pairs, separated by commas, without braces."""
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())


def number_text(value: Number | bool) -> str:
    """Returns a number with at most three decimals; truth values become 0 or 1."""
    if isinstance(value, float):
        return repr(round(value, 3)) if value == value else "NaN"
    return str(int(value))


def family(name: str, kind: str, samples: Iterable[tuple[str, Number]]) -> Iterator[str]:
    """Yields one metric: its TYPE line and its samples, in pieces of a few kilobytes.

    :param samples: label text (see :func:`labels_text`) and value
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
    lines = [f"# TYPE {name} summary\n"]
    lines += [
        f'{name}{{{labels},quantile="{quantile!r}"}} {number_text(float(value))}\n'
        for quantile, value in sorted(quantiles.items())
    ]
    lines.append(f"{name}_count{{{labels}}} {float(count)!r}\n")
    lines.append(f"{name}_sum{{{labels}}} {float(round(total, 3))!r}\n")
    yield "".join(lines)


def histogram(
    name: str,
    labels: str,
    bounds: Sequence[float],
    counts: Sequence[int],
    total: float,
    created_seconds: float,
) -> Iterator[str]:
    """Yields one histogram with its creation time.

    :param counts: of each bucket separately, with one more than ``bounds`` for larger values
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
    """Returns the lines of one of several histograms with the same name."""
    lines = []
    below = 0
    for bound, count in zip((*map(str, bounds), "+Inf"), counts, strict=True):
        below += count
        lines.append(f'{name}_bucket{{{labels},le="{bound}"}} {float(below)!r}\n')
    lines.append(f"{name}_count{{{labels}}} {float(below)!r}\n")
    lines.append(f"{name}_sum{{{labels}}} {float(round(total, 3))!r}\n")
    lines.append(f"{name}_created{{{labels}}} {created_seconds!r}\n")
    return lines
