"""The report of a run, as JSON for programs and as an HTML page for people."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from magnetar import __version__
from magnetar.spark.pipelines.plots import Plot, svg_of

__all__ = ["Report", "Table"]

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
"""Texts up to this length stay on one line."""


@dataclass(frozen=True)
class Table:
    """Rows of texts and numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass
class Report:
    """Filled while a pipeline runs; written also after a failure."""

    pipeline: str
    configuration: dict[str, Any]
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    outcome: str = "failed"
    """``finished``, ``differences`` or ``failed``."""
    error: str = ""
    figures: dict[str, Any] = field(default_factory=dict)
    """Figures by name."""
    tables: list[Table] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)

    def write(self, directory: Path) -> Path:
        """Writes ``NAME-TIME.json`` and ``NAME-TIME.html``; returns the path of the page.

        :raises OSError: the folder is not writable
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


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: Any) -> str:
    if not _is_number(value):
        shown = str(value)
        if len(shown) <= _SHORT:
            return f'<td class="s">{escape(shown)}</td>'
        # Long topic names may break between their parts.
        return f"<td>{escape(shown).replace('/', '/<wbr>')}</td>"
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
    return f'<td class="n">{text}</td>'


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: "***" if _SECRET.search(str(key)) else _without_secrets(item) for key, item in value.items()
        }
    return value
