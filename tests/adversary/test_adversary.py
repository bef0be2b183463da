"""Hostile tenants and strangers against a secured broker, beside a publisher that does nothing wrong.

``MAGNETAR_ADVERSARY=1`` runs all attacks, each for some seconds, and prints what the neighbour noticed. With
``MAGNETAR_ADVERSARY_P99_MS`` that is also bounded: only a machine that does nothing else can keep to it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from stage import Measured, Stage, run

MOST_MEMORY_MIB = 400
_ATTACKS = sorted(
    path.stem for path in (Path(__file__).parent / "attacks").glob("*.py") if path.stem != "__init__"
)
pytestmark = [
    pytest.mark.skipif("MAGNETAR_ADVERSARY" not in os.environ, reason="takes minutes (make soak)"),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    made = Stage(tmp_path_factory.mktemp("adversary"))
    try:
        yield made
    finally:
        made.close()


def shown(attack: str, measured: Measured) -> str:
    times = measured.neighbour
    return (
        f"\n{attack}: neighbour p50 {times['p50']:.1f} ms, p99 {times['p99']:.1f} ms, "
        f"max {times['max']:.1f} ms of {times['sent']:.0f}; broker at most {measured.memory_mib} MiB"
    )


def test_without_an_attack(stage: Stage) -> None:
    """Tells what the machine itself does to the neighbour."""
    with Measured(stage) as measured:
        time.sleep(10)
    print(shown("no attack", measured))
    assert measured.neighbour["failed"] == 0


@pytest.mark.parametrize("attack", _ATTACKS)
def test_an_attack_gets_nothing_and_harms_nobody(stage: Stage, attack: str) -> None:
    before = stage.of_others()
    measured = run(stage, attack, 300)
    neighbour = measured.neighbour
    print(shown(attack, measured))
    assert stage.of_others() == before
    assert measured.memory_mib < MOST_MEMORY_MIB
    assert neighbour["failed"] == 0
    if bar := os.environ.get("MAGNETAR_ADVERSARY_P99_MS"):
        assert neighbour["p99"] < float(bar)
