"""Power cuts at random moments: the ledger store keeps what it acknowledged and invents nothing."""

from __future__ import annotations

import pytest
from ledger_workload import LedgerWorkload
from power_cut import Plan, each_seed, run_lives


def test_nothing_acknowledged_is_lost() -> None:
    checked = 0

    def run(seed: int) -> None:
        nonlocal checked
        workload = LedgerWorkload(seed)
        run_lives(seed, workload, Plan())
        checked += workload.checked_entries

    each_seed(run)
    assert checked > 0


@pytest.mark.parametrize("missing", ["ignore_sync", "ignore_sync_directory"])
def test_the_workload_notices_when_a_sync_is_missing(missing: str) -> None:
    """Else the test above would prove nothing."""
    failed = 0
    for seed in range(40):
        try:
            run_lives(seed, LedgerWorkload(seed), Plan(**{missing: True}))
        except BaseException:  # noqa: BLE001 - any failure will do
            failed += 1
    assert failed > 5
