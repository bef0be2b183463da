"""Plots as SVG, drawn without a library: a page that is opened years later needs nothing but itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from math import ceil, floor, isfinite, log10

__all__ = ["Plot", "Series", "svg_of"]

_WIDTH, _HEIGHT = 760, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 20, 16, 62
_COLOURS = ("#2a6f97", "#d1495b", "#5b8c5a", "#edae49", "#6a4c93", "#00798c", "#8d5524", "#555555")
_TICKS = 5
_LABEL = 14
_LABEL_WIDTH = 92


@dataclass(frozen=True)
class Series:
    """Points (x, y), x ascending."""

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


@dataclass(frozen=True)
class Plot:
    """Lines over numbers or times; bars where there are ``labels``, one for each point of a series."""

    title: str
    series: Sequence[Series]
    y: str
    x: str = ""
    times: bool = False
    """x is in seconds since 1970."""
    labels: Sequence[str] = ()


def svg_of(plot: Plot) -> str:
    """An ``<svg>`` element."""
    values = [y for series in plot.series for _, y in series.points if isfinite(y)]
    top = _nice(max(values, default=1.0) or 1.0)
    pieces = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(plot.title)}" '
        'font-family="sans-serif" font-size="11" xmlns="http://www.w3.org/2000/svg">'
    ]
    for tick in range(_TICKS + 1):
        y = _y(top * tick / _TICKS, top)
        pieces.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        label = _number(top * tick / _TICKS)
        pieces.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    pieces += _bars(plot, top) if plot.labels else _lines(plot, top)
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    pieces.append(
        f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">'
        f"{escape(plot.y)}</text>"
    )
    pieces += _legend(plot)
    return "".join([*pieces, "</svg>"])


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * value / top


def _lines(plot: Plot, top: float) -> list[str]:
    xs = [x for series in plot.series for x, _ in series.points]
    low, high = min(xs, default=0.0), max(xs, default=1.0)
    span = (high - low) or 1.0
    width = _WIDTH - _LEFT - _RIGHT

    def place(x: float, y: float) -> str:
        return f"{_LEFT + width * (x - low) / span:.1f},{_y(y, top):.1f}"

    pieces = []
    for number, series in enumerate(plot.series):
        colour = _COLOURS[number % len(_COLOURS)]
        points = [(x, y) for x, y in series.points if isfinite(y)]
        path = " ".join(place(x, y) for x, y in points)
        dash = ' stroke-dasharray="5 4"' if series.dashed else ""
        pieces.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        if len(points) <= 2 * _WIDTH // 20:
            for x, y in points:
                at = place(x, y).split(",")
                pieces.append(f'<circle cx="{at[0]}" cy="{at[1]}" r="2.5" fill="{colour}"/>')
    for tick in range(_TICKS + 1):
        x = low + span * tick / _TICKS
        text = _time(x, span) if plot.times else _number(x)
        anchor = {0: "start", _TICKS: "end"}.get(tick, "middle")
        left = _LEFT + width * tick / _TICKS
        pieces.append(
            f'<text x="{left:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="{anchor}">{text}</text>'
        )
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    pieces.append(f'<text x="{middle}" y="{_HEIGHT - 28}" text-anchor="middle">{escape(plot.x)}</text>')
    return pieces


def _bars(plot: Plot, top: float) -> list[str]:
    slot = (_WIDTH - _LEFT - _RIGHT) / len(plot.labels)
    bar = slot * 0.8 / max(1, len(plot.series))
    pieces = []
    for number, series in enumerate(plot.series):
        for index, (_, y) in enumerate(series.points):
            if not isfinite(y):
                continue
            left = _LEFT + slot * index + slot * 0.1 + bar * number
            at = _y(y, top)
            pieces.append(
                f'<rect x="{left:.1f}" y="{at:.1f}" width="{bar:.1f}" height="{_HEIGHT - _BOTTOM - at:.1f}" '
                f'fill="{_COLOURS[number % len(_COLOURS)]}"><title>{_number(y)}</title></rect>'
            )
    every = max(1, ceil(len(plot.labels) * _LABEL_WIDTH / (_WIDTH - _LEFT - _RIGHT)))
    for index in range(0, len(plot.labels), every):
        label = plot.labels[index]
        short = label if len(label) <= _LABEL or len(plot.labels) <= 4 else label[: _LABEL - 1] + "…"
        middle = _LEFT + slot * (index + 0.5)
        pieces.append(
            f'<text x="{middle:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{escape(short)}'
            f"<title>{escape(label)}</title></text>"
        )
    return pieces


def _legend(plot: Plot) -> list[str]:
    pieces, left = [], _LEFT
    for number, series in enumerate(plot.series):
        if not series.name:
            continue
        colour = _COLOURS[number % len(_COLOURS)]
        pieces.append(f'<rect x="{left}" y="{_HEIGHT - 16}" width="10" height="10" fill="{colour}"/>')
        pieces.append(f'<text x="{left + 14}" y="{_HEIGHT - 7}">{escape(series.name)}</text>')
        left += 26 + 7 * len(series.name)
    return pieces


def _nice(value: float) -> float:
    """A round number at or above ``value``."""
    power = float(10 ** floor(log10(value)))
    return next(
        step * power for step in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if step * power >= value * 0.9999
    )


def _number(value: float) -> str:
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):.4g} {unit}"
    return f"{value:,.4g}"


def _time(seconds: float, span: float) -> str:
    shape = "%Y-%m-%d" if span > 4 * 86400 else "%m-%d %H:%M" if span > 86400 else "%H:%M:%S"
    return datetime.fromtimestamp(seconds, UTC).strftime(shape)
