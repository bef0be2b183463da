"""Rounds: official clients publish and consume, something happens to the cluster, nothing is missing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import NamedTuple

from bookkeeper_servers import BookKeeperServers
from client_load import ClientLoad, Stored
from cluster_faults import KINDS, Scene
from entry_copies import copies

_NAMESPACES = {"public/rounds": (3, 3, 2), "public/rounds-once": (2, 2, 2)}
"""Ensemble, write and ack quorum: without a spare bookie, and with one. In the second what clients send again
is left out."""
_MORE = 50
_topics = count()


class Told(NamedTuple):
    """Of one fault."""

    kind: str
    lasted: float
    """Seconds from its beginning to its end."""
    gaps: Sequence[float]
    """For each topic, the longest time without an acknowledgement, from its beginning on."""
    back: float
    """Seconds from its end until each topic had acknowledged something again."""


class Outcome(NamedTuple):
    faults: Sequence[Told]
    messages: int
    short: int
    """Entries that are on their ack quorum and not on their whole write quorum."""


class Rounds:
    def __init__(self, servers: BookKeeperServers, folder: Path, random: Random) -> None:
        self.scene = Scene(servers, folder, random)
        self._folder = folder

    def start(self) -> None:
        self.scene.broker.start()
        for namespace, (ensemble, write, ack) in _NAMESPACES.items():
            self._make(namespace, ensemble, write, ack)
        self.scene.ask("POST", "namespaces/public/rounds-once/deduplication", True)

    def _make(self, namespace: str, ensemble: int, write: int, ack: int) -> None:
        ask = self.scene.ask
        if namespace in ask("GET", "namespaces/public"):
            return
        ask("PUT", f"namespaces/{namespace}", {})
        kept = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        ask("POST", f"namespaces/{namespace}/retention", kept)
        quorums = {"bookkeeperEnsemble": ensemble, "bookkeeperWriteQuorum": write, "bookkeeperAckQuorum": ack}
        ask("POST", f"namespaces/{namespace}/persistence", quorums | {"managedLedgerMaxMarkDeleteRate": 1})

    def live(self, kinds: Sequence[tuple[str, float]]) -> Outcome:
        """One round, with these faults one after the other; how many seconds each lasts."""
        scene = self.scene
        number = next(_topics)
        loads = [ClientLoad(scene.url, f"persistent://{each}/t{number}") for each in _NAMESPACES]
        scene.topics = [load.topic for load in loads]
        for load in loads:
            load.start()
        try:
            self._more(loads)
            told = [self._befall(kind, seconds, loads) for kind, seconds in kinds]
            scene.repair()
            for load in loads:
                load.stop_publishing()
            scene.revive()
            for load in loads:
                load.finish()
        except BaseException:
            for load in loads:
                load.close()
            raise
        stored = [load.stored() for load in loads]
        for load, found in zip(loads, stored, strict=True):
            load.check(found.bodies, once="once" in load.topic)
        short = sum(self._short(found) for found in stored)
        for topic in scene.topics:
            scene.ask("DELETE", f"persistent/{topic.removeprefix('persistent://')}?force=true")
        return Outcome(told, sum(load.published for load in loads), short)

    def _befall(self, kind: str, seconds: float, loads: Sequence[ClientLoad]) -> Told:
        fault, _ = KINDS[kind]
        began = time.monotonic()
        fault(self.scene, seconds)
        ended = time.monotonic()
        self._more(loads)
        gaps = [load.longest_gap(began) for load in loads]
        back = max(next(at for at in load.times if at > ended) - ended for load in loads)
        return Told(kind, ended - began, gaps, back)

    def _more(self, loads: Sequence[ClientLoad]) -> None:
        """Returns when each has acknowledged some more."""
        targets = [len(load.acknowledged) + _MORE for load in loads]
        deadline = time.monotonic() + 120
        while not all(load.reached(target) for load, target in zip(loads, targets, strict=True)):
            self.scene.revive()
            missing = [
                load.topic for load, target in zip(loads, targets, strict=True) if not load.reached(target)
            ]
            assert time.monotonic() < deadline, (missing, self.scene.broker.log[-6000:])
            time.sleep(0.01)

    def _short(self, stored: Stored) -> int:
        [(quorums, counts)] = copies(self.scene.servers, self._folder, stored.entries).items()
        assert min(counts) >= quorums.ack, (quorums, counts)
        return sum(number for copy_count, number in counts.items() if copy_count < quorums.write)

    def close(self) -> None:
        self.scene.close()


def chosen(random: Random) -> tuple[str, float]:
    """A fault, and how many seconds it lasts."""
    kinds = sorted(KINDS)
    # There are many ways to cut a wire.
    [kind] = random.choices(kinds, [1 if kind.startswith("no wire") else 3 for kind in kinds])
    least, most = KINDS[kind][1]
    return kind, random.uniform(least, most)
