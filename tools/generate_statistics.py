"""Writes the functions that put the figures of objects into JSON, from the table of figures.

    python tools/generate_statistics.py [--check]

The functions are the end of ``magnetar/broker/stats/figure_table.py``. With ``--check`` this command writes
nothing, and fails if they differ.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "src" / "magnetar" / "broker" / "stats"
_TYPES = {
    "topic": "TopicMetrics",
    "subscription": "SubscriptionMetrics",
    "consumer": "ConsumerMetrics",
    "producer": "ProducerMetrics",
}
"""The types of the objects that have figures in JSON."""
_MARK = "# Written by tools/generate_statistics.py"


def generated(text: str, rows: Iterable[Mapping[str, str]]) -> str:
    """Returns the text of the module with present functions.

    :param rows: the table of figures
    """
    before, mark, after = text.partition(_MARK)
    comment = after[: after.index("\n\n")]
    named = [row for row in rows if row["json"]]
    functions = [
        f"def {kind}_json(now: {name}) -> dict[str, object]:\n    return {{\n"
        + "".join(
            f'        "{row["json"]}": now.{row["figure"]},\n' for row in named if row["object"] == kind
        )
        + "    }\n"
        for kind, name in _TYPES.items()
    ]
    return f"{before}{mark}{comment}\n\n\n" + "\n\n".join(functions)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tools/generate_statistics.py")
    parser.add_argument("--check", action="store_true", help="fail if the functions differ, write nothing")
    check = parser.parse_args().check
    module = FOLDER / "figure_table.py"
    with (FOLDER / "figures.tsv").open(encoding="utf-8", newline="") as file:
        found = generated(module.read_text("utf-8"), csv.DictReader(file, delimiter="\t"))
    if found == module.read_text("utf-8"):
        return 0
    if check:
        sys.stderr.write(f"{module} differs from figures.tsv: run python tools/generate_statistics.py\n")
        return 1
    module.write_text(found, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
