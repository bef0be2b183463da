"""Power cuts at random moments: the ledger store keeps what it acknowledged and invents nothing."""

from __future__ import annotations

import pytest
from ledger_workload import LedgerWorkload, open_default
from power_cut import Plan, each_seed, run_lives
from simulated_io import ProcessStopped

from magnetar.ledger.interface import LedgerError


def test_nothing_acknowledged_is_lost() -> None:
    checked = 0

    def run(seed: int) -> None:
        nonlocal checked
        workload = LedgerWorkload(seed)
        run_lives(seed, workload, Plan())
        checked += workload.checked_entries

    each_seed(run)
    assert checked > 0


def test_nothing_acknowledged_is_lost_with_default_sizes() -> None:
    def run(seed: int) -> None:
        if seed % 10 == 0:
            run_lives(seed, LedgerWorkload(seed, open_default), Plan(lives=3))

    each_seed(run)


@pytest.mark.parametrize(
    "plan",
    [Plan(ignore_sync="segment-"), Plan(ignore_sync="checkpoint"), Plan(ignore_sync_directory=True)],
    ids=["log", "checkpoint", "directory"],
)
def test_the_workload_notices_when_a_sync_is_missing(plan: Plan) -> None:
    """Else the test above would prove nothing."""
    failed = 0
    for seed in range(30):
        try:
            run_lives(seed, LedgerWorkload(seed), plan)
        except (AssertionError, LedgerError, ProcessStopped):
            failed += 1
    assert failed >= 10
