"""The report says what was measured and whether a target is met."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[3]))

from bench.page import Sample, verdict, write_page
from bench.workloads import Row

LESS = Row("CPU", "cpu", "us", less=True, ratio=1 / 4)
MORE = Row("rate", "rate", "msg/s", less=False, ratio=4.0)
BOUND = Row("p99", "p99", "ms", less=True, bound=2.0)


@pytest.mark.parametrize(
    ("row", "own", "peer", "met"),
    [
        (LESS, 1.0, 4.0, "yes"),
        (LESS, 1.01, 4.0, "**no**"),
        (MORE, 4.0, 1.0, "yes"),
        (MORE, 3.9, 1.0, "**no**"),
        (BOUND, 2.0, None, "yes"),
        (BOUND, 2.1, 100.0, "**no**"),
        (LESS, 1.0, None, ""),
        (LESS, 1.0, 0.0, ""),
    ],
)
def test_a_target_is_met_or_not(row: Row, own: float, peer: float | None, met: str) -> None:
    assert verdict(row, Sample([own]), None if peer is None else Sample([peer]))[1] == met


def test_the_page_takes_the_best_configuration_and_leaves_void_runs_out(tmp_path: Path) -> None:
    def runs(*values: float) -> list[dict[str, Any]]:
        return [{"server_cpu_us_per_message": value, "deliver_rate": 100 / value} for value in values]

    results: dict[str, Any] = {
        "machine": {"processor": "one"},
        "conditions": {"rounds": 3, "seconds": 1.0},
        "servers": {
            "magnetar": ["Magnetar", "magnetar"],
            "pulsar": ["Apache Pulsar, as shipped", "pulsar"],
            "pulsar-small": ["Apache Pulsar, small heap", "pulsar"],
        },
        "runs": {
            "unbatched": {
                "magnetar": [*runs(3, 1, 2), {"void": "1 message was lost"}],
                "pulsar": runs(20, 20, 20),
                "pulsar-small": runs(10, 9, 11),
            }
        },
    }
    write_page(results, tmp_path)
    page = (tmp_path / "benchmarks.md").read_text()
    assert (
        "| server CPU, µs per message | 2.00 [1.00 .. 3.00] | 10.00 [9.00 .. 11.00] | small heap | 0.20"
        in page
    )
    assert "| ≤ 1/4 | yes |" in page
    assert "1 void run\n" in page
