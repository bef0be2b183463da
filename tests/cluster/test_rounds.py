"""A cluster under load while networks are cut, servers stand still, disks are full and bookies are lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random
from statistics import median

import pytest
from bookkeeper_servers import BookKeeperServers
from cluster_rounds import Outcome, Rounds, Told, chosen

_SEED = int(os.environ.get("MAGNETAR_FIRST_SEED", "0"))
_ROUNDS = int(os.environ.get("MAGNETAR_ROUNDS", "0"))
_SHORT = (
    ("no wire to a bookie, silent", 0.5),
    ("no wire to two bookies, silent from it", 0.5),
    ("no wire to anybody, reset", 0.2),
    ("no wire to ZooKeeper, silent towards it", 0.5),
    ("no wire to all bookies, refused", 0.5),
    ("slow bookies", 0.5),
    ("ZooKeeper stopped", 0.5),
    ("all bookies stopped", 0.5),
    ("a bookie turned read-only", 0.5),
    ("a full bookie, then lost for good", 0.2),
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rounds]:
    """On servers of their own: AutoRecovery copies all ledgers of a lost bookie, one by one."""
    servers = BookKeeperServers(tmp_path_factory.mktemp("cluster"), bookies=3)
    for bookie in servers.bookies:
        bookie.administer()
    made = Rounds(servers, tmp_path_factory.mktemp("rounds"), Random(_SEED))
    try:
        servers.start()
        made.start()
        yield made
    finally:
        made.close()
        servers.close()


@pytest.fixture
def rounds(made: Rounds) -> Rounds:
    made.scene.repair()
    made.scene.revive()
    return made


def test_nothing_is_missing_after_what_networks_and_servers_do(rounds: Rounds) -> None:
    """The bookie that is lost in the end leaves its entries to AutoRecovery."""
    outcome = rounds.live(_SHORT)
    print("\n".join(map(told, outcome.faults)))
    assert [each.kind for each in outcome.faults] == [kind for kind, _ in _SHORT]


@pytest.mark.skipif(not _ROUNDS, reason="tools/soak does so")
@pytest.mark.timeout(0)
def test_rounds(rounds: Rounds) -> None:
    outcomes = []
    for number in range(_ROUNDS):
        random = rounds.scene.random = Random(_SEED + number)
        kind, seconds = chosen(random)
        outcome = rounds.live([(kind, seconds)])
        print(
            f"seed {_SEED + number}: {told(outcome.faults[0])}; {outcome.messages} messages, "
            f"{outcome.short} entries on fewer bookies than their write quorum",
            flush=True,
        )
        outcomes.append(outcome)
    print(summary(outcomes), flush=True)


def told(fault: Told) -> str:
    gaps = ", ".join(f"{gap:.2f}" for gap in fault.gaps)
    return (
        f"{fault.kind}, {fault.lasted:.1f} s: longest without a receipt {gaps} s, "
        f"the first {fault.back:.2f} s after its end"
    )


def summary(outcomes: list[Outcome]) -> str:
    messages = sum(each.messages for each in outcomes)
    lines = [f"{len(outcomes)} rounds, {messages} messages; seconds, p50 and most"]
    by_kind: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_kind.setdefault(outcome.faults[0].kind, []).append(outcome)
    for kind, those in sorted(by_kind.items()):
        gaps = sorted(max(each.faults[0].gaps) for each in those)
        backs = sorted(each.faults[0].back for each in those)
        lines.append(
            f"{kind}: {len(those)} rounds, without a receipt {median(gaps):.2f} {gaps[-1]:.2f}, "
            f"until the first after its end {median(backs):.2f} {backs[-1]:.2f}"
        )
    return "\n".join(lines)
