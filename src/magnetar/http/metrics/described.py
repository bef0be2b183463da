"""Adds the meaning of each metric to the text, in the format that the scraper requests.

OpenMetrics is https://prometheus.io/docs/specs/om/open_metrics_spec/ (1.0): a family of counters is named
without ``_total``, and the text has an end marker.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from magnetar.http.metrics import exposition

OPEN_METRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_TYPE = "# TYPE "


@cache
def _help() -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Returns the meaning of metrics: by name, and by prefix, longest first."""
    text = (Path(__file__).parent / "help.tsv").read_text("utf-8")
    rows = [line.partition("\t") for line in text.splitlines()]
    named = {name: meaning for name, _, meaning in rows if not name.endswith("*")}
    beginnings = [(name[:-1], meaning) for name, _, meaning in rows if name.endswith("*")]
    return named, sorted(beginnings, key=lambda row: -len(row[0]))


@cache
def meaning_of(name: str) -> str | None:
    """Returns the meaning of a metric; None: it is not in the table."""
    named, beginnings = _help()
    if name in named:
        return named[name]
    for beginning, meaning in beginnings:
        if name.startswith(beginning):
            return meaning
    return None


def content_type(accept: str) -> str:
    """Returns the content type for a scraper with the header ``accept``."""
    return OPEN_METRICS_TYPE if "application/openmetrics-text" in accept else exposition.CONTENT_TYPE


def described(pieces: Iterable[str], kind: str) -> Iterator[str]:
    """Yields the text with a HELP line for each family, in the format of the content type."""
    if kind != OPEN_METRICS_TYPE:
        for piece in pieces:
            yield _with_help(piece) if _TYPE in piece else piece
        return
    for piece in pieces:
        yield _as_open_metrics(piece) if _TYPE in piece else piece
    yield "# EOF\n"


def _lines(piece: str) -> list[str]:
    """Returns lines with their ends. Only ``\\n`` ends a line: client names may contain other line ends."""
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
