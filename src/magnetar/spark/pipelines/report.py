"""The report of a run, as JSON for programs and as an HTML page with plots for people."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from math import ceil, floor, isfinite, log10
from pathlib import Path
from typing import Any

from magnetar import __version__

__all__ = [
    "Plot",
    "Report",
    "Series",
    "Table",
    "svg_of",
]
_SECRET = re.compile("token|password|secret|credential|authparams", re.IGNORECASE)
_STYLE = (
    "body{font-family:sans-serif;max-width:68em;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;margin:1em 0}"
    "td,th{padding:.25em .8em;border-bottom:1px solid #ddd;text-align:left;vertical-align:top}"
    "table{font-size:.92em}td.s,th{white-space:nowrap}div.t{overflow-x:auto}"
    "td.n,th.n{text-align:right}td.n{font-variant-numeric:tabular-nums}h1{margin-bottom:0}.failed{color:#b00020}"
    ".finished{color:#2e7d32}.differences{color:#b35900}p.sub{color:#666;margin-top:.3em}svg{width:100%;height:auto}"
)
_RIGHT = ' class="n"'
_SHORT = 24
"""Texts up to this length, in characters, are not wrapped."""
_WIDTH, _HEIGHT = 760, 240
"""Size of the plot area in pixels; the texts below the plot are not included."""
_LEFT, _RIGHT_MARGIN, _TOP = 84, 24, 16
_AXIS, _TITLE, _LEGEND = 30, 20, 22
"""Heights in pixels of what is below the plot: numbers or labels, the title of the x axis, and the legend."""
_COLOURS = ("#2a6f97", "#d1495b", "#5b8c5a", "#edae49", "#6a4c93", "#00798c", "#8d5524", "#555555")
_TICKS = 5
_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
"""Possible distances between marks of a time axis in seconds; longer distances are whole days."""
_DAYS = (2, 5, 7, 14, 30, 60, 90, 180, 365)
_LETTER = 6.4
_LABEL = 14
_LABEL_WIDTH = 92
_MOST_NUMBERED = 8
"""Maximum number of bars with numbers, which would otherwise overlap."""


@dataclass(frozen=True)
class Table:
    """A table of strings and numbers in a report."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass
class Report:
    """The results of a run, filled while a pipeline runs; written also after a failure."""

    pipeline: str
    configuration: dict[str, object]
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    outcome: str = "failed"
    """``finished``, ``differences`` or ``failed``."""
    error: str = ""
    details: str = ""
    """The complete text of a Spark error, with stack traces; empty: the error has no further details."""
    figures: dict[str, Any] = field(default_factory=dict)
    """Results, such as counts, by name."""
    tables: list[Table] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)

    def write(self, directory: Path) -> Path:
        """Writes ``NAME-TIME.json`` and ``NAME-TIME.html``; returns the path of the page.

        :raises OSError: the folder cannot be written to
        """
        directory.mkdir(parents=True, exist_ok=True)
        name = f"{self.pipeline}-{self.started:%Y%m%dT%H%M%S%f}Z"
        document = json.dumps(self.to_json(), indent=2, ensure_ascii=False, default=str)
        (directory / f"{name}.json").write_text(document + "\n", "utf-8")
        page = directory / f"{name}.html"
        page.write_text(self.to_html(), "utf-8")
        return page

    def to_json(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "magnetar": __version__,
            "started": self.started.isoformat(),
            "seconds": self._seconds(),
            "outcome": self.outcome,
            "error": self.error,
            "details": self.details,
            "configuration": _without_secrets(self.configuration),
            "figures": self.figures,
            "tables": [
                {"title": each.title, "columns": list(each.columns), "rows": [list(row) for row in each.rows]}
                for each in self.tables
            ],
        }

    def to_html(self) -> str:
        document = self.to_json()
        head = (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(self.pipeline)}</title>'
            f"<style>{_STYLE}</style><h1>{escape(self.pipeline)}</h1>"
            f'<p class="sub">{self.started:%Y-%m-%d %H:%M:%S} UTC, {document["seconds"]:,.1f} s, '
            f'<b class="{escape(self.outcome)}">{escape(self.outcome)}</b>, Magnetar {__version__}</p>'
        )
        pieces = [head]
        if self.error:
            pieces.append(f'<p class="failed">{escape(self.error)}</p>')
        if self.details:
            pieces.append(f"<details><summary>Details</summary><pre>{escape(self.details)}</pre></details>")
        if self.figures:
            pieces.append(_table(Table("", ("", ""), list(self.figures.items()))))
        for plot in self.plots:
            pieces.append(f"<h2>{escape(plot.title)}</h2>{svg_of(plot)}")
        for table in self.tables:
            pieces.append(f"<h2>{escape(table.title)}</h2>{_table(table)}")
        settings = json.dumps(document["configuration"], indent=2, ensure_ascii=False, default=str)
        pieces.append(f"<h2>Configuration</h2><pre>{escape(settings)}</pre></html>")
        return "".join(pieces)

    def _seconds(self) -> float:
        return round((datetime.now(UTC) - self.started).total_seconds(), 3)


def _table(table: Table) -> str:
    head = ""
    if any(table.columns):
        numbers = [any(_is_number(row[place]) for row in table.rows) for place in range(len(table.columns))]
        cells = (
            f"<th{_RIGHT if number else ''}>{escape(str(name))}</th>"
            for name, number in zip(table.columns, numbers, strict=True)
        )
        head = f"<tr>{''.join(cells)}</tr>"
    rows = "".join(f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in table.rows)
    return f'<div class="t"><table>{head}{rows}</table></div>'


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: object) -> str:
    if not _is_number(value):
        shown = str(value)
        if len(shown) <= _SHORT:
            return f'<td class="s">{escape(shown)}</td>'
        # Long topic names may break between their parts.
        return f"<td>{escape(shown).replace('/', '/<wbr>')}</td>"
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
    return f'<td class="n">{text}</td>'


def _without_secrets(value: object) -> object:
    if isinstance(value, dict):
        return {
            key: "***" if _SECRET.search(str(key)) else _without_secrets(item) for key, item in value.items()
        }
    return value


@dataclass(frozen=True)
class Series:
    """Points (x, y) with ascending x; a dashed series has the colour of the previous series."""

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


@dataclass(frozen=True)
class Plot:
    """A plot: lines over numbers or times; or, with ``labels``, bars, one for each point of a series."""

    title: str
    series: Sequence[Series]
    y: str
    x: str = ""
    times: bool = False
    """Whether x is a time in seconds since 1970."""
    labels: Sequence[str] = ()


@dataclass(frozen=True)
class _Frame:
    """The coordinates of the plot: y goes from 0 at ``bottom`` to ``top`` at ``_TOP``."""

    top: float
    bottom: float
    height: float
    """Height of the whole image, in pixels."""

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - _TOP) * value / self.top


def svg_of(plot: Plot) -> str:
    """Returns a plot as an ``<svg>`` element."""
    values = [y for series in plot.series for _, y in series.points if isfinite(y)]
    below = _AXIS + (_TITLE if plot.x else 0) + (_LEGEND if _named(plot) else 0)
    frame = _Frame(_nice(max(values, default=1.0) or 1.0), _HEIGHT, _HEIGHT + below)
    pieces = [
        f'<svg viewBox="0 0 {_WIDTH} {frame.height}" role="img" aria-label="{escape(plot.title)}" '
        'font-family="sans-serif" font-size="11" xmlns="http://www.w3.org/2000/svg">'
    ]
    for tick in range(_TICKS + 1):
        y = frame.y(frame.top * tick / _TICKS)
        pieces.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT_MARGIN}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        )
        label = _number(frame.top * tick / _TICKS)
        pieces.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    pieces += _bars(plot, frame) if plot.labels else _lines(plot, frame)
    middle = (_TOP + frame.bottom) / 2
    pieces.append(
        f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">'
        f"{escape(plot.y)}</text>"
    )
    if plot.x:
        centre = (_LEFT + _WIDTH - _RIGHT_MARGIN) / 2
        name = escape(plot.x) + (" (UTC)" if plot.times else "")
        pieces.append(f'<text x="{centre}" y="{frame.bottom + _AXIS + 8}" text-anchor="middle">{name}</text>')
    pieces += _legend(plot, frame)
    return "".join([*pieces, "</svg>"])


def _colours(plot: Plot) -> list[str]:
    """Returns the colour of each series."""
    found: list[str] = []
    used = 0
    for series in plot.series:
        if series.dashed and found:
            found.append(found[-1])
        else:
            found.append(_COLOURS[used % len(_COLOURS)])
            used += 1
    return found


def _lines(plot: Plot, frame: _Frame) -> list[str]:
    xs = [x for series in plot.series for x, _ in series.points]
    low, high = min(xs, default=0.0), max(xs, default=1.0)
    span = (high - low) or 1.0
    width = _WIDTH - _LEFT - _RIGHT_MARGIN

    def place(x: float) -> float:
        return _LEFT + width * (x - low) / span

    pieces = []
    for series, colour in zip(plot.series, _colours(plot), strict=True):
        points = [(place(x), frame.y(y)) for x, y in series.points if isfinite(y)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dash = ' stroke-dasharray="5 4"' if series.dashed else ""
        pieces.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        if len(points) <= 2 * _WIDTH // 20 and not series.dashed:
            pieces += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in points]
    step = _time_step(span / _TICKS) if plot.times else _nice(span / _TICKS)
    for number in range(ceil(low / step), floor(high / step + 1e-9) + 1):
        x = place(number * step)
        text = _time(number * step, step) if plot.times else _number(number * step)
        pieces.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{frame.bottom}" y2="{frame.bottom + 4}" stroke="#888"/>'
        )
        pieces.append(f'<text x="{x:.1f}" y="{frame.bottom + 17}" text-anchor="middle">{text}</text>')
    return pieces


def _bars(plot: Plot, frame: _Frame) -> list[str]:
    slot = (_WIDTH - _LEFT - _RIGHT_MARGIN) / len(plot.labels)
    bar = slot * 0.8 / max(1, len(plot.series))
    pieces = []
    numbered = len(plot.series) * len(plot.labels) <= _MOST_NUMBERED
    for number, series in enumerate(plot.series):
        for index, (_, y) in enumerate(series.points):
            if not isfinite(y):
                continue
            left = _LEFT + slot * index + slot * 0.1 + bar * number
            at = frame.y(y)
            pieces.append(
                f'<rect x="{left:.1f}" y="{at:.1f}" width="{bar:.1f}" height="{frame.bottom - at:.1f}" '
                f'fill="{_COLOURS[number % len(_COLOURS)]}"><title>{_exact(y)}</title></rect>'
            )
            if numbered:
                # A small value among large ones has no visible bar.
                pieces.append(
                    f'<text x="{left + bar / 2:.1f}" y="{at - 3:.1f}" text-anchor="middle">{_exact(y)}</text>'
                )
    every = max(1, ceil(len(plot.labels) * _LABEL_WIDTH / (_WIDTH - _LEFT - _RIGHT_MARGIN)))
    for index in range(0, len(plot.labels), every):
        label = plot.labels[index]
        short = label if len(label) <= _LABEL or len(plot.labels) <= 4 else label[: _LABEL - 1] + "…"
        middle = _LEFT + slot * (index + 0.5)
        pieces.append(
            f'<text x="{middle:.1f}" y="{frame.bottom + 17}" text-anchor="middle">{escape(short)}'
            f"<title>{escape(label)}</title></text>"
        )
    return pieces


def _named(plot: Plot) -> bool:
    """Whether to show the names of the series; for a single series, the title suffices."""
    return len(plot.series) > 1 and any(series.name for series in plot.series)


def _legend(plot: Plot, frame: _Frame) -> list[str]:
    if not _named(plot):
        return []
    y = frame.height - 8
    pieces, left = [], float(_LEFT)
    for series, colour in zip(plot.series, _colours(plot), strict=True):
        room = _WIDTH - left - 20
        if not series.name or room < 4 * _LETTER:
            continue
        most = max(3, int(room / _LETTER))
        short = series.name if len(series.name) <= most else series.name[: most - 1] + "…"
        dash = ' stroke-dasharray="4 3"' if series.dashed else ""
        pieces.append(
            f'<line x1="{left:.0f}" x2="{left + 14:.0f}" y1="{y - 4}" y2="{y - 4}" stroke="{colour}"'
            f' stroke-width="{3 if series.dashed else 8}"{dash}/>'
            f'<text x="{left + 19:.0f}" y="{y}">{escape(short)}<title>{escape(series.name)}</title></text>'
        )
        left += 34 + _LETTER * len(short)
    return pieces


def _time_step(least: float) -> float:
    """Returns the distance between the marks of a time axis: the smallest suitable number of seconds that is
    at least ``least``.
    """
    for step in (*_SECONDS, *(86_400 * days for days in _DAYS)):
        if step >= least:
            return float(step)
    return float(86_400 * ceil(least / 86_400))


def _nice(value: float) -> float:
    """Returns a round number that is at least ``value``."""
    power = float(10 ** floor(log10(value)))
    return next(
        step * power for step in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if step * power >= value * 0.9999
    )


def _number(value: float) -> str:
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):.4g} {unit}"
    return f"{value:,.4g}"


def _exact(value: float) -> str:
    """Formats a count: an integer below 1e9 with all digits, any other number rounded."""
    return f"{value:,.0f}" if value.is_integer() and abs(value) < 1e9 else _number(value)


def _time(seconds: float, step: float) -> str:
    shape = "%Y-%m-%d" if step >= 86_400 else "%m-%d %H:%M" if step >= 10_800 else "%H:%M:%S"
    if 60 <= step < 10_800:
        shape = "%H:%M"
    return datetime.fromtimestamp(seconds, UTC).strftime(shape)
