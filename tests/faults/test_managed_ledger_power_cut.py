"""Power cuts at random moments while topics are published to, acknowledged, rolled and trimmed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from managed_ledger_workload import ManagedLedgerWorkload
from power_cut import Plan, each_seed, run_lives

PLAN = Plan(most_operations=200, longest_life=0.12)


def test_nothing_acknowledged_is_missing_out_of_order_or_invented() -> None:
    checked = 0

    def run(seed: int) -> None:
        nonlocal checked
        workload = ManagedLedgerWorkload(seed)
        run_lives(seed, workload, PLAN)
        checked += workload.checked_entries

    each_seed(run)
    assert checked > 0


@pytest.mark.parametrize("missing", ["ignore_sync", "ignore_sync_directory"])
def test_the_workload_notices_when_a_sync_is_missing(missing: str) -> None:
    """Else the test above would prove nothing."""
    failed = 0
    for seed in range(40):
        try:
            run_lives(seed, ManagedLedgerWorkload(seed), replace(PLAN, **{missing: True}))
        except BaseException:  # noqa: BLE001 - any failure will do
            failed += 1
    assert failed > 5
