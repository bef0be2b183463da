"""Three clusters that replicate to each other while wires, brokers and operators do what they may."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from geo_rounds import Rounds

_SEED = int(os.environ.get("MAGNETAR_FIRST_SEED", "0"))
_ROUNDS = int(os.environ.get("MAGNETAR_GEO_ROUNDS", "1"))
_FAULTS = 6


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rounds]:
    made = Rounds(tmp_path_factory.mktemp("rounds"))
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.mark.timeout(0 if _ROUNDS > 1 else 300)
@pytest.mark.parametrize("seed", range(_SEED, _SEED + _ROUNDS))
def test_a_round(rounds: Rounds, seed: int) -> None:
    outcome = rounds.live(seed, _FAULTS)
    print("\n".join(outcome.faults))
    print(f"seed {seed}: {outcome.messages} messages, {outcome.again} stored again", flush=True)
    assert outcome.messages
