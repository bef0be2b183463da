"""Writes docs/measurements/scale.md and its curves from the measurements."""

from __future__ import annotations

from collections.abc import Mapping
from math import log, log2
from pathlib import Path

Figures = Mapping[str, float]


_CURVES = {
    "operations": (
        "One operation, by the number of topics",
        "ms",
        (
            "lookup (ms)",
            "create one more topic (ms)",
            "load one topic from disk (ms)",
            "subscribe (ms)",
            "publish, durable (ms)",
            "statistics of one topic (ms)",
        ),
    ),
    "start": (
        "Start, by the number of topics on disk",
        "s",
        ("start, nothing on disk (s)", "start, all on disk (s)", "start after a kill (s)"),
    ),
    "all": (
        "Operations over all topics",
        "ms",
        ("list all topics (ms)", "scrape of the metrics of all topics (ms)"),
    ),
    "memory": (
        "Memory per topic",
        "KB",
        ("memory per loaded topic (KB)", "memory per topic that is only on disk (KB)"),
    ),
}


def exponent(found: Mapping[int, Figures], name: str) -> float | None:
    """Returns the exponent k of growth as n to the k, from the smallest to the largest number of topics."""
    sizes = sorted(found)
    low, high = found[sizes[0]][name], found[sizes[-1]][name]
    if len(sizes) < 2 or low <= 0 or high <= 0:
        return None
    return log(high / low) / log(sizes[-1] / sizes[0])


def bound(found: Mapping[int, Figures]) -> float:
    """Returns the exponent of n log n over the measured sizes."""
    low, high = min(found), max(found)
    return log(high * log2(high) / (low * log2(low))) / log(high / low)


def write_page(
    docs: Path, found: Mapping[int, Figures], busy_topics: int, busy: Figures, machine: str
) -> None:
    """Writes docs/measurements/scale.md and docs/measurements/scale/*.svg."""
    curves = draw(docs / "scale", found)
    sizes = sorted(found)
    lines = [
        "# Scale",
        "",
        f"Measured by `python bench/scale.py` ({machine}).",
        "Run this program to produce this page for your machine. The times of single operations (from",
        "*lookup* to *list all topics*) are medians; these operations run one at a time over one connection.",
        "*Grows as* is computed from the smallest and the largest number of topics, n: n^1 means that the",
        "value grows in proportion to n. *Longest slice* is the longest time for which a piece of background",
        "work kept the server's event loop busy.",
        "",
        "## Topics on disk",
        "",
        "| | " + " | ".join(f"{size:,} topics" for size in sizes) + " | grows as |",
        "| --- |" + " ---: |" * (len(sizes) + 1),
    ]
    for name in found[sizes[0]]:
        grows = exponent(found, name)
        shown = "" if grows is None else f"n^{grows:.2f}"
        figures = " | ".join(f"{found[size][name]:,.3g}" for size in sizes)
        lines.append(f"| {name} | {figures} | {shown} |")
    lines += ["", _verdict(found), ""]
    lines += [f"![{title}](scale/{file})" for file, title in curves]
    lines += ["", f"## {busy_topics:,} topics with traffic", ""]
    lines += ["In each round, one topic after another gets one message of 100 bytes, which is published"]
    lines += ["durably, delivered and acknowledged.", "", "| | |", "| --- | ---: |"]
    lines += [f"| {name} | {value:,.4g} |" for name, value in busy.items()]
    (docs / "scale.md").write_text("\n".join(lines) + "\n")


def _verdict(found: Mapping[int, Figures]) -> str:
    worst = []
    for name in found[min(found)]:
        grows = exponent(found, name)
        if grows is not None and grows > bound(found):
            worst.append(f"{name} (n^{grows:.2f})")
    if worst:
        return f"Faster than n log n (n^{bound(found):.2f} over these sizes) grow: {', '.join(worst)}."
    return f"No value grows faster than n log n, which is n^{bound(found):.2f} over these sizes."


def draw(folder: Path, found: Mapping[int, Figures]) -> list[tuple[str, str]]:
    """Draws the curves; returns file names and titles."""
    import matplotlib

    matplotlib.use("svg")
    # Otherwise every run would write different files for the same figures.
    matplotlib.rcParams["svg.hashsalt"] = "scale"
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    sizes = sorted(found)
    files = []
    for key, (title, unit, names) in _CURVES.items():
        figure, axes = pyplot.subplots(figsize=(7, 4))
        for name in names:
            axes.plot(sizes, [found[size][name] for size in sizes], marker="o", label=name)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("topics")
        axes.set_ylabel(unit)
        axes.set_title(title)
        axes.grid(visible=True, which="both", alpha=0.3)
        axes.legend(fontsize="small")
        figure.tight_layout()
        figure.savefig(folder / f"{key}.svg", metadata={"Date": None})
        pyplot.close(figure)
        files.append((f"{key}.svg", title))
    return files
