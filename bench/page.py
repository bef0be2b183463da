"""The report: ``docs/measurements/benchmarks.md`` and its plots, from the kept results."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.workloads import WORKLOADS, Row, Workload

_OWN = "magnetar"
_PURE = "magnetar-pure"
_INTERPRETED_RATIO = 1.5
_COLOURS = {"magnetar": "#2a6f97", "pure": "#89c2d9", "pulsar": "#c9793a"}


class Sample:
    """The runs of one server for one figure."""

    def __init__(self, values: list[float]) -> None:
        self.median = statistics.median(values)
        self.lowest = min(values)
        self.highest = max(values)

    def text(self, digits: int) -> str:
        numbers = [f"{value:,.{digits}f}" for value in (self.median, self.lowest, self.highest)]
        return f"{numbers[0]} [{numbers[1]} .. {numbers[2]}]"


def sample(runs: dict[str, Any], server: str, figure: str) -> Sample | None:
    """Returns the sample; None without valid runs of that server."""
    values = [run[figure] for run in runs.get(server, []) if figure in run]
    return Sample(values) if values else None


def best(runs: dict[str, Any], servers: dict[str, Any], group: str, row: Row) -> tuple[str, Sample] | None:
    """Returns the best server of a group."""
    found = []
    for name, (_title, its_group) in servers.items():
        its = sample(runs, name, row.figure)
        if its_group == group and its is not None:
            found.append((name, its))
    if not found:
        return None
    return (min if row.less else max)(found, key=lambda each: each[1].median)


def verdict(row: Row, own: Sample, peer: Sample | None) -> tuple[str, str]:
    """Returns the target, and whether it is met."""
    if row.bound is not None:
        return f"≤ {row.bound:g} {row.unit}", "yes" if own.median <= row.bound else "**no**"
    if row.ratio is None or peer is None or not peer.median:
        return "", ""
    ratio = own.median / peer.median
    if row.less:
        return f"≤ 1/{1 / row.ratio:g}", "yes" if ratio <= row.ratio else "**no**"
    return f"≥ {row.ratio:g}x", "yes" if ratio >= row.ratio else "**no**"


def ratio_text(own: Sample, peer: Sample) -> str:
    """Returns the ratio of the medians, with the range of single runs."""
    if not peer.lowest or not peer.median:
        return ""
    digits = 2 if own.median < peer.median else 1
    numbers = (own.median / peer.median, own.lowest / peer.highest, own.highest / peer.lowest)
    text = [f"{number:.{digits}f}" for number in numbers]
    return f"{text[0]} [{text[1]} .. {text[2]}]"


def _table(results: dict[str, Any], workload: Workload) -> list[str]:
    runs, servers = results["runs"].get(workload.name, {}), results["servers"]
    lines = []
    for row in workload.rows:
        own = sample(runs, _OWN, row.figure)
        if own is None:
            continue
        peer = best(runs, servers, "pulsar", row)
        wanted, met = verdict(row, own, None if peer is None else peer[1])
        theirs = "" if peer is None else peer[1].text(row.digits)
        name = "" if peer is None else servers[peer[0]][0].removeprefix("Apache Pulsar, ")
        ratio = "" if peer is None else ratio_text(own, peer[1])
        lines.append(
            f"| {row.title}, {row.unit} | {own.text(row.digits)} | {theirs} | {name} | {ratio}"
            f" | {wanted} | {met} |"
        )
        interpreted = sample(runs, _PURE, row.figure)
        if interpreted is not None and row.figure == "deliver_rate":
            target, about = _INTERPRETED_RATIO, "hot modules interpreted"
            lines.extend(_beside(results, runs, row, "pulsar", target, interpreted, about))
        for group, target in row.beside:
            lines.extend(_beside(results, runs, row, group, target, own, f"compared with {group}"))
    return lines


def _beside(
    results: dict[str, Any],
    runs: dict[str, Any],
    row: Row,
    group: str,
    ratio: float,
    own: Sample,
    about: str,
) -> list[str]:
    """Returns a line that compares with a group, if it was measured."""
    peer = best(runs, results["servers"], group, row)
    if peer is None:
        return []
    name = results["servers"][peer[0]][0].removeprefix("Apache Pulsar, ")
    wanted, met = verdict(replace(row, ratio=ratio), own, peer[1])
    return [
        f"| {row.title} ({about}), {row.unit} | {own.text(row.digits)} | {peer[1].text(row.digits)} | {name}"
        f" | {ratio_text(own, peer[1])} | {wanted} | {met} |"
    ]


def _others(results: dict[str, Any], workload: Workload) -> list[str]:
    """Returns a line for each other server."""
    runs, servers = results["runs"].get(workload.name, {}), results["servers"]
    lines = []
    for name, (title, _group) in servers.items():
        shown = []
        for row in workload.rows:
            its = sample(runs, name, row.figure)
            if its is not None:
                shown.append(f"{row.title} {its.text(row.digits)} {row.unit}")
        void = sum("void" in run for run in runs.get(name, []))
        if void:
            shown.append(f"{void} void run" + "s" * (void > 1))
        if shown:
            lines.append(f"- {title}: {'; '.join(shown)}")
    return lines


_HEAD = """# Benchmarks

`make bench` writes this page. It starts Magnetar and other servers (its peers) on this machine, gives each of
them the same work, one server after another, and records every run in
[benchmarks/results.json](benchmarks/results.json). Magnetar and its peers sync each message to disk before
they confirm it to the producer. A figure is the median of its runs; the lowest and the highest run follow in
brackets. A run is void and not counted if a message of a persistent topic was lost, came twice, came out of
order or was left over in the topic; for a non-persistent topic, the page shows the share of lost messages.
Server CPU is the processor time that the operating system counts for all threads of the server's process. The
peer of a row is Apache Pulsar 4.0.8, in the configuration that does best in that row, or another server; the
fourth column shows which. A ratio is Magnetar's figure divided by the peer's figure.
"""


def write_page(results: dict[str, Any], docs: Path) -> None:
    """Writes page and plots below ``docs``; the page ends with ``benchmarks/notes.md`` from there."""
    machine, conditions = results["machine"], results["conditions"]
    lines = [_HEAD]
    lines.append("Measured on " + "; ".join(f"{name}: {value}" for name, value in machine.items()) + ".")
    lines.append(f"{conditions['rounds']} rounds, runs of {conditions['seconds']:g} s after a warm-up.\n")
    lines.append(
        "| measurement | Magnetar | peer | configuration of Apache Pulsar, or other server | ratio | target "
        "| target met |"
    )
    lines.append("| --- | --- | --- | --- | --- | --- | --- |")
    starts = Workload("start", "First start to serving", _never, (_START,))
    shown = [starts, *(each for each in WORKLOADS if each.name in results["runs"])]
    for workload in shown:
        rows = _table(results, workload)
        if rows:
            lines.append(f"| **{workload.title}** | | | | | | |")
            lines.extend(rows)
    plotted = plot(results, docs / "benchmarks")
    if plotted:
        lines.append("\n![Server CPU per message and throughput](benchmarks/overview.svg)")
    lines.append("\n## Every server\n")
    for workload in shown:
        each = _others(results, workload)
        if each:
            lines.extend([f"### {workload.title}\n", *each, ""])
    notes = docs / "benchmarks" / "notes.md"
    if notes.exists():
        lines.append(notes.read_text())
    (docs / "benchmarks.md").write_text("\n".join(lines).rstrip() + "\n")


_START = Row("start", "start_seconds", "s", less=True, bound=0.5, digits=2)


def _never(*_: object) -> dict[str, float]:
    raise AssertionError("the start is measured while servers start")


def plot(results: dict[str, Any], folder: Path) -> bool:
    """Draws the figures with a ratio; False without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "magnetar"
    wanted = [
        (workload, row)
        for workload in WORKLOADS
        for row in workload.rows
        if row.figure in ("server_cpu_us_per_message", "deliver_rate", "publish_rate")
        and sample(results["runs"].get(workload.name, {}), _OWN, row.figure) is not None
    ]
    columns = 3
    count = -(-len(wanted) // columns)
    figure, axes = plt.subplots(count, columns, figsize=(13, 2.3 * count), squeeze=False)
    for axis in axes.flat[len(wanted) :]:
        axis.set_visible(False)
    for axis, (workload, row) in zip(axes.flat, wanted, strict=False):
        runs = results["runs"][workload.name]
        for name, (_title, group) in results["servers"].items():
            its = sample(runs, name, row.figure)
            if its is None:
                continue
            error = [[its.median - its.lowest], [its.highest - its.median]]
            axis.barh(name, its.median, xerr=error, color=_COLOURS.get(group, "#777777"))
        axis.invert_yaxis()
        axis.set_title(f"{workload.name}: {row.title}, {row.unit}", fontsize=9)
        axis.tick_params(labelsize=8)
    figure.tight_layout()
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "overview.svg", metadata={"Date": None})
    plt.close(figure)
    return True
