"""Seeds of hostile clients: a short run of what ``make fuzz`` does a million frames of."""

from __future__ import annotations

import os

import pytest
from fuzz_cases import run_seed

_FIRST = int(os.environ.get("MAGNETAR_FUZZ_FIRST_SEED", "0"))
_SEEDS = int(os.environ.get("MAGNETAR_FUZZ_SEEDS", "24"))


@pytest.mark.parametrize("seed", range(_FIRST, _FIRST + _SEEDS))
def test_hostile_clients_disturb_nobody(seed: int) -> None:
    assert run_seed(seed) > 100
