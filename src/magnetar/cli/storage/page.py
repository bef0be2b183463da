"""The storage report as a self-contained HTML page: plots in SVG, and tables with the same numbers."""

from __future__ import annotations

from html import escape
from typing import Any

from magnetar.cli.printable import duration, size, when

_PARTS = (
    ("backlog", "backlogBytes", "#c9793a"),
    ("retained", "retainedBytes", "#2a6f97"),
    ("open ledger", "openLedgerBytes", "#6c9fb8"),
    ("reclaimable", "reclaimableBytes", "#9db4c0"),
)
_BAR, _ROW, _LABEL, _WIDTH = 18, 26, 360, 1080
_NUMBERS = 170
"""Width of the columns with numbers, in pixels."""
_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;max-width:1120px;margin:24px auto;padding:0 16px;color:#1d2b36}
h1{font-size:22px}h2{font-size:17px;margin-top:32px}
table{border-collapse:collapse;width:100%}
th,td{padding:4px 8px;text-align:right;border-bottom:1px solid #e3e8ec}
th:not(:first-child),td:not(:first-child){white-space:nowrap}
th:first-child,td:first-child{text-align:left;overflow-wrap:anywhere}
.warning{color:#a65c00}.full{color:#b00020}svg{max-width:100%;height:auto}
"""


def page(report: dict[str, Any], top: int) -> str:
    """Returns the report as an HTML page.

    :param top: maximum number of topics to list; 0: all topics
    """
    topics = report["topics"][: top or None]
    left = len(report["topics"]) - len(topics)
    more = f"<p>and {left} smaller topics</p>" if left else ""
    if report["notLoaded"]:
        more += f"<p>{report['notLoaded']} topics are not loaded and therefore not listed</p>"
    namespaces = report["namespaces"]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Magnetar: storage</title>'
        f"<style>{_STYLE}</style></head><body><h1>Storage</h1>{_disk(report['disk'])}{_store(report['store'])}"
        f"{_orphaned(report['orphanedLedgers'])}"
        f"<h2>Namespaces</h2>{_bars('namespace', namespaces)}{_table('namespace', namespaces)}"
        f"<h2>Topics</h2>{_bars('topic', topics)}{_table('topic', topics)}{more}</body></html>\n"
    )


def _disk(disk: dict[str, Any]) -> str:
    until_full = disk["secondsUntilFull"]
    foreseen = f"full in {duration(until_full)}" if until_full is not None else "not filling"
    used = disk["totalBytes"] - disk["freeBytes"]
    words = (
        f"{size(used)} of {size(disk['totalBytes'])} used ({disk['usedShare']:.1%}), "
        f"{size(disk['freeBytes'])} free, {foreseen}"
    )
    bar = _stack([("used", used, "#51697a"), ("free", disk["freeBytes"], "#e3e8ec")], disk["totalBytes"])
    state = {"room": "", "warning": ": little free space", "full": ": publishing is refused"}[disk["state"]]
    return f'<h2>Disk</h2><p class="{escape(disk["state"])}">{words}{state}</p>{bar}'


def _store(store: dict[str, Any]) -> str:
    done = store["compactions"]
    bar = _stack(
        [
            ("wanted", store["wantedBytes"], "#2a6f97"),
            ("reclaimable", store["reclaimableBytes"], "#9db4c0"),
            ("preallocated", store["aheadBytes"], "#e3e8ec"),
        ],
        max(1, store["storedBytes"]),
    )
    return (
        f"<h2>Ledger store</h2><p>{size(store['storedBytes'])} in {store['segments']} full segments and "
        f"those ahead, {store['ledgers']} ledgers; compactions rewrote {done['minorSegments']} (minor), "
        f"{done['majorSegments']} (major) and {done['sortedSegments']} (sorted) segments and reclaimed "
        f"{size(done['reclaimedBytes'])}</p>{bar}"
    )


def _orphaned(ledgers: list[dict[str, Any]]) -> str:
    if not ledgers:
        return ""
    rows = "".join(
        f"<tr><td>{escape(ledger['owner'])}</td><td>{ledger['ledger']}</td><td>{ledger['entries']}</td>"
        f"<td>{size(ledger['bytes'])}</td><td>{when(ledger['foundMs'])}</td><td>{when(ledger['deletedMs'])}</td></tr>"
        for ledger in ledgers
    )
    names = ("created for", "ledger", "entries", "bytes", "found", "deleted after")
    head = "".join(f"<th>{name}</th>" for name in names)
    return (
        "<h2>Orphaned ledgers</h2><p>No metadata record refers to them. They are kept until the last "
        f"date.</p><table><tr>{head}</tr>{rows}</table>"
    )


def _stack(parts: list[tuple[str, int, str]], total: int) -> str:
    """Draws one bar that is divided into parts, with a legend of the parts and their sizes.

    :param parts: name, size in bytes, and colour of each part
    :param total: the size in bytes that corresponds to the full width of the drawing
    """
    shapes, x = [], 0.0
    for _, amount, colour in parts:
        width = _WIDTH * amount / total
        shapes.append(f'<rect x="{x:.1f}" width="{width:.1f}" height="{_BAR}" fill="{colour}"/>')
        x += width
    legend = _legend([(f"{name} {size(amount)}", colour) for name, amount, colour in parts], _BAR + 8)
    return f'<svg viewBox="0 0 {_WIDTH} {_BAR + 28}" role="img">{"".join(shapes)}{legend}</svg>'


def _legend(entries: list[tuple[str, str]], y: int) -> str:
    shapes, x = [], 0
    for words, colour in entries:
        shapes.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}" stroke="#8a9aa5"/>')
        shapes.append(f'<text x="{x + 18}" y="{y + 11}" font-size="13">{escape(words)}</text>')
        x += 50 + 8 * len(words)
    return "".join(shapes)


def _bars(what: str, rows: list[dict[str, Any]]) -> str:
    """Draws a bar for each row; the bar's length shows the current size, and a line marks the size estimated
    for one day later.

    :param what: the field of a row with the bar's name
    """
    if not rows:
        return "<p>no topics are loaded</p>"
    room = _WIDTH - _LABEL - _NUMBERS
    most = max(1, *(max(row["storedBytes"], row["forecastBytes"]) for row in rows))
    shapes = []
    for number, row in enumerate(rows):
        y, x = number * _ROW, float(_LABEL)
        name = row[what]
        shown = name if len(name) <= 48 else "…" + name[-47:]
        shapes.append(
            f'<text x="{_LABEL - 8}" y="{y + 13}" font-size="13" text-anchor="end">{escape(shown)}</text>'
        )
        for _, key, colour in _PARTS:
            width = room * row[key] / most
            shapes.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="{colour}"/>')
            x += width
        line = _LABEL + room * row["forecastBytes"] / most
        shapes.append(
            f'<line x1="{line:.1f}" x2="{line:.1f}" y1="{y - 2}" y2="{y + _BAR + 2}" '
            'stroke="#1d2b36" stroke-width="2"/>'
        )
        words = f"{size(row['storedBytes'])} → {size(row['forecastBytes'])}"
        shapes.append(f'<text x="{_WIDTH}" y="{y + 13}" font-size="13" text-anchor="end">{words}</text>')
    height = len(rows) * _ROW
    legend = _legend([(name, colour) for name, _, colour in _PARTS] + [("in a day", "#1d2b36")], height + 6)
    return f'<svg viewBox="0 -3 {_WIDTH} {height + 30}" role="img">{"".join(shapes)}{legend}</svg>'


def _table(what: str, rows: list[dict[str, Any]]) -> str:
    if not rows:
        return ""
    head = "".join(
        f"<th>{name}</th>"
        for name in (what, "stored", *(part[0] for part in _PARTS), "oldest ledger", "in a day")
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td>{cell}</td>"
            for cell in (
                escape(row[what]),
                size(row["storedBytes"]),
                *(size(row[key]) for _, key, _ in _PARTS),
                when(row["oldestClosedMs"]),
                size(row["forecastBytes"]),
            )
        )
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
