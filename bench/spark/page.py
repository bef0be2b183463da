"""The report: ``docs/measurements/spark-benchmarks.md``, from the kept results."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

_HEAD = """# Benchmarks of the Spark source and sink

`python -m bench.spark` writes this page. It starts Magnetar and Apache Pulsar 4.0.8 (fsync on in both),
fills topics of two partitions with batches of 1,000 messages, and measures whole Spark queries. A
reading query counts the rows and adds up the lengths of all columns; a writing query stores rows that
Spark holds in memory. The JVM connector ("the connector") is the newest version of StreamNative's
connector in Maven Central (3.1.1.4), on the Spark version for which this connector was built (3.1.3);
`magnetar.spark` runs on PySpark {pyspark}. Figures are medians [lowest .. highest] of {rounds} runs
after a warm-up run. Reading queries have {rows:,} rows of 100 B or a fifth as many rows of 1,000 B;
writing queries have half as many rows as reading queries. If a table has other numbers of runs or rows,
the text above the table says so. *Rows/s* is measured by the wall clock. *CPU* is the CPU time of the
driver, the JVM and the Python workers together; *server* is the CPU time of the broker and its storage. A
run is void if the number of rows differs from the number of published messages. All runs are in
[benchmarks/spark.json](benchmarks/spark.json).

Measured on {machine}.
"""
_COLUMNS = (
    "cores",
    "",
    "rows/s",
    "CPU, s per million rows",
    "rows per CPU second, relative to the connector",
    "server, s per million rows",
)
_TITLES = {
    "read-bytes-100": "Reading 100 B as bytes",
    "read-bytes-1000": "Reading 1,000 B as bytes",
    "read-avro-100": "Reading AVRO of 100 B into columns",
    "read-avro-1000": "Reading AVRO of 1,000 B into columns",
    "write-100": "Writing 100 B",
    "write-1000": "Writing 1,000 B",
    "store-100": "Writing a topic of 100 B to Parquet files",
}
_WRITING = """The values of Magnetar come from three runs on 2026-11-27, with 1,000,000 rows of 100 B or
200,000 rows of 1,000 B, while other processes ran. The connector was measured earlier."""
_TEXTS = {
    "write-100": _WRITING,
    "write-1000": _WRITING,
    "store-100": """The connector reads the topic, and Spark writes the rows to Parquet (`python -m
bench.spark --what store`, a million rows and three runs on 2026-11-27, while other processes ran). The
pipelines `table` and `archive` do everything that belongs to a run of a pipeline: they list the topic,
use a subscription, write files with statistics, and commit. Each run makes a new table in a Spark
session that is already running.""",
}


def _cell(runs: list[dict[str, float]], figure: str, digits: int) -> str:
    values = [run[figure] for run in runs]
    numbers = [f"{number:,.{digits}f}" for number in (statistics.median(values), min(values), max(values))]
    return f"{numbers[0]} [{numbers[1]} .. {numbers[2]}]"


def _ratio(runs: list[dict[str, float]], peer: list[dict[str, float]] | None) -> str:
    if not peer or runs is peer:
        return ""
    figure = "rows_per_cpu_second"
    own, others = (statistics.median(run[figure] for run in each) for each in (runs, peer))
    return f"{own / others:.1f}x"


def write_page(results: dict[str, Any], docs: Path) -> None:
    """Writes the page, with the notes of ``docs/measurements/benchmarks/spark-notes.md`` at its end."""
    import pyspark

    machine = "; ".join(f"{key}: {value}" for key, value in results["machine"].items())
    lines = [_HEAD.format(pyspark=pyspark.__version__, machine=machine, **results["conditions"])]
    for name, title in _TITLES.items():
        if not any(results["runs"].get(f"{name}-{cores}") for cores in (1, 2)):
            continue
        lines += [f"## {title}", ""]
        if name in _TEXTS:
            lines += [_TEXTS[name], ""]
        lines += [f"| {' | '.join(_COLUMNS)} |", "| --- " * len(_COLUMNS) + "|"]
        for cores in (1, 2):
            found = results["runs"].get(f"{name}-{cores}", {})
            for system, runs in found.items():
                cells = [
                    str(cores),
                    results["systems"][system],
                    _cell(runs, "rows_per_second", 0),
                    _cell(runs, "cpu_seconds_per_million", 2),
                    _ratio(runs, found.get("connector")),
                    _cell(runs, "server_cpu_seconds_per_million", 2),
                ]
                lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    notes = docs / "benchmarks" / "spark-notes.md"
    if notes.exists():
        lines.append(notes.read_text())
    (docs / "spark-benchmarks.md").write_text("\n".join(lines).rstrip() + "\n")
