"""Power cuts at random moments: the metadata keep what was acknowledged."""

from __future__ import annotations

import pytest
from metadata_workload import MetadataWorkload
from power_cut import Plan, each_seed, run_lives
from simulated_io import ProcessStopped
from simulated_io.sqlite import apsw

from magnetar.metadata.embedded import DatabaseDamaged

PLAN = Plan(most_operations=600, longest_life=0.3)


def test_nothing_acknowledged_is_lost() -> None:
    checked = 0

    def run(seed: int) -> None:
        nonlocal checked
        workload = MetadataWorkload(seed)
        run_lives(seed, workload, PLAN)
        checked += workload.checked

    each_seed(run)
    assert checked > 0


@pytest.mark.parametrize(
    "plan",
    [
        Plan(most_operations=600, longest_life=0.3, ignore_sync="metadata"),
        Plan(most_operations=600, longest_life=0.3, ignore_sync_directory=True),
    ],
    ids=["sync", "directory"],
)
def test_the_workload_notices_when_a_sync_is_missing(plan: Plan) -> None:
    failed = 0
    for seed in range(30):
        try:
            run_lives(seed, MetadataWorkload(seed), plan)
        except (AssertionError, ProcessStopped, DatabaseDamaged, apsw.Error, OSError):
            failed += 1
    assert failed >= 5
