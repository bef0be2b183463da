"""Ensembles of random clusters, judged by Apache BookKeeper's own policies of placement."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from java_servers import class_path

from magnetar.io.real import SystemRandomness
from magnetar.ledger.bookkeeper.placement import NotEnoughBookies
from magnetar.ledger.bookkeeper.rack_placement import PlacementSettings, RackPlacement
from magnetar.ledger.bookkeeper.racks import DEFAULT_RACK, Stand
from magnetar.ledger.interface import Quorums

_JUDGE = Path(__file__).parent / "programs" / "PlacementJudge.java"
_TOPOLOGIES = 1000


class Topology(NamedTuple):
    racks: dict[str, str]
    settings: PlacementSettings
    quorums: Quorums

    @property
    def kind(self) -> str:
        return "region" if self.settings.regions else "rack"

    def question(self, ensemble: Sequence[str]) -> str:
        known = ",".join(f"{each}={rack}" if rack else each for each, rack in self.racks.items())
        size, write, ack = self.quorums.ensemble, self.quorums.write, self.quorums.ack
        rules = f"{self.settings.min_racks} {str(self.settings.enforced).lower()}"
        return f"{self.kind} {rules} {write} {ack} {known} {','.join(ensemble) or '-'} {size}"

    def placement(self) -> RackPlacement:
        bookies, table = Registered(tuple(self.racks)), Table(self.racks)
        return RackPlacement(bookies, table, self.settings, SystemRandomness())  # type: ignore[arg-type]

    def in_each_write_quorum(self, ensemble: Sequence[str], pieces: int) -> int:
        """How many racks, or regions (the first of the ``pieces`` of a path), each has at least."""
        size, write = self.quorums.ensemble, self.quorums.write
        names = ["/".join(self.racks[each].split("/")[: pieces + 1]) for each in ensemble]
        return min(len({names[(first + step) % size] for step in range(write)}) for first in range(size))


class Registered(NamedTuple):
    writable: tuple[str, ...]

    def doubtful(self, _bookie_id: str) -> bool:
        return False

    def trouble(self, _bookie_id: str) -> str:
        return ""


class Table(NamedTuple):
    racks: dict[str, str]

    def of(self, bookie_id: str) -> Stand:
        return Stand(frozenset(), self.racks[bookie_id] or DEFAULT_RACK)


def topology(random: Random, *, regions: bool) -> Topology:
    write = random.randint(2, 4)
    size = write + random.choice((0, 0, 1, 2))
    racks = [
        f"/r{number % 3}/{number}" if regions else f"/{number}" for number in range(random.randint(1, 6))
    ]
    if not regions and random.random() < 0.2:
        racks.append("")
    bookies = [f"10.0.0.{number}:3181" for number in range(1, size + 1 + random.randint(0, 6))]
    chosen = {each: random.choice(racks) for each in bookies}
    enforced = random.random() < 0.5
    settings = PlacementSettings(regions=regions, min_racks=random.randint(1, 3), enforced=enforced)
    return Topology(chosen, settings, Quorums(size, write, random.randint(1, write)))


def judged(questions: Sequence[str]) -> list[list[str]]:
    """The verdict on each ensemble, that on Apache's own, and that one itself."""
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", class_path(), str(_JUDGE)]
    done = subprocess.run(
        command, input="\n".join(questions) + "\n", capture_output=True, text=True, check=False
    )
    answers = [line[2:] for line in done.stdout.splitlines() if line.startswith("> ")]
    assert len(answers) == len(questions), done.stderr[-3000:]
    return [answer.replace(" ", ":", 1).split(":", 2) for answer in answers]


@pytest.mark.parametrize("regions", [False, True])
def test_apache_approves(regions: bool) -> None:
    random = Random(1)
    asked: list[tuple[Topology, Sequence[str]]] = []
    for _ in range(_TOPOLOGIES):
        each = topology(random, regions=regions)
        try:
            asked.append((each, each.placement().ensemble(each.quorums)))
        except NotEnoughBookies:
            asked.append((each, ()))
    refused = 0
    verdicts = judged([each.question(ensemble) for each, ensemble in asked])
    for (each, ensemble), (verdict, own, *found) in zip(asked, verdicts, strict=True):
        theirs = found[0].strip("[]").split(",") if found else []
        if not ensemble:
            refused += 1
            # Its policy of regions does not look at racks of different regions.
            racks = each.in_each_write_quorum(theirs, 2) if theirs else 0
            least = min(each.settings.min_racks, each.quorums.write)
            assert own in ("NONE", "FAIL") or (regions and racks < least), (each, theirs)
            continue
        assert len(set(ensemble)) == each.quorums.ensemble
        if each.settings.enforced or own == "MEETS_STRICT":
            assert verdict == "MEETS_STRICT", (each, ensemble)
        if regions and theirs:
            ours = each.in_each_write_quorum(ensemble, 1)
            assert ours >= each.in_each_write_quorum(theirs, 1), (each, ensemble, theirs)
    assert 0 < refused < _TOPOLOGIES // 2
