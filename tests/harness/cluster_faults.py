"""What may befall a broker and its servers, from beginning to end. Seconds are those that it lasts."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

from auto_recovery import AutoRecovery
from bookkeeper_servers import BookieServer, BookKeeperServers
from ports import free_port
from proxied_broker import ProxiedBroker
from tcp_proxy import Direction, TcpProxy

LOST_SESSION = 74
"""With this code a broker ends whose session with ZooKeeper is lost."""
_PATIENCE = 90.0
_AFTER_LOSS = 4
"""As many bookies serve after one is lost: the largest ensemble, and one more."""
_REPLICATION_PATIENCE = 300.0
"""AutoRecovery takes one ledger after the other, all of those that were on the lost bookie."""


class Scene:
    """The servers, and two brokers of which one serves."""

    def __init__(self, servers: BookKeeperServers, folder: Path, random: Random) -> None:
        settings: dict[str, int | str] = {
            "metadataStoreSessionTimeoutMillis": 10_000,
            "bookkeeperClientTimeoutInSeconds": 4,
            "brokerDeleteInactiveTopicsEnabled": "false",
        }
        self.servers = servers
        self.random = random
        self.broker = ProxiedBroker(folder / "first", servers, **settings)
        self.other = ProxiedBroker(folder / "second", servers, **settings)
        for broker in (self.broker, self.other):
            broker.take_ports(free_port(), free_port())
        # Clients that know several addresses wait for a minute when they have tried the wrong ones.
        self._front = TcpProxy(self.broker.port)
        self.url = f"pulsar://127.0.0.1:{self._front.port}"
        """Of whichever broker serves, for clients."""
        self.topics: list[str] = []
        """Those with messages in this round."""
        self._folder = folder
        self._came = 0

    @property
    def wires(self) -> list[TcpProxy]:
        """From the broker to the bookies there are."""
        return [self.broker.wires.to_bookie(bookie.port) for bookie in self.servers.bookies]

    def some_wires(self, count: int) -> list[TcpProxy]:
        return self.random.sample(self.wires, count)

    def some_bookies(self, count: int) -> list[BookieServer]:
        return self.random.sample(self.servers.bookies, count)

    def swap(self) -> None:
        """The other broker serves from now on."""
        self.broker, self.other = self.other, self.broker
        self._front.target = self.broker.port
        self._front.reset()

    def revive(self) -> None:
        """Does what whoever supervises a broker does."""
        if not self.broker.runs:
            assert self.broker.ended(1) == LOST_SESSION, self.broker.log[-3000:]
            self.broker.start()

    def repair(self) -> None:
        """What has ended starts again; bookies, too, that run and have not registered again."""
        if not self.servers.zookeeper.runs:
            self.servers.zookeeper.start()
        for bookie in self.servers.bookies:
            deadline = time.monotonic() + 10
            while bookie.runs and not bookie.ready() and time.monotonic() < deadline:
                time.sleep(0.1)
            if bookie.runs and not bookie.ready():
                bookie.kill()
            if not bookie.runs:
                bookie.launch()
        for bookie in self.servers.bookies:
            bookie.wait()

    def ledgers_on(self, bookie: BookieServer) -> list[int]:
        """Those of the topics and their cursors that a bookie has entries of, as the metadata says."""
        ids: set[int] = set()
        for topic in self.topics:
            told = self.ask("GET", f"persistent/{topic.removeprefix('persistent://')}/internalStats")
            ids |= {each["ledgerId"] for each in told["ledgers"]}
            ids |= {each["cursorLedger"] for each in told["cursors"].values()}
        records = self.servers.records(each for each in ids if each >= 0)
        return [
            ledger_id
            for ledger_id, record in records.items()
            if any(bookie.address in segment.ensemble for segment in record.segments)
        ]

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """One request to the broker's HTTP interface."""
        text = None if body is None else json.dumps(body)
        status, answer = self.broker.ask(method, f"/admin/v2/{path}", text)
        assert status < 300, (status, answer)
        return json.loads(answer) if answer else None

    def new_folder(self, name: str) -> Path:
        self._came += 1
        return self._folder / f"{name}{self._came}"

    def close(self) -> None:
        for broker in (self.broker, self.other):
            if broker.runs:
                broker.signal(signal.SIGCONT)
            broker.close()
        self._front.close()


Fault = Callable[[Scene, float], None]


def broker_killed(scene: Scene, seconds: float) -> None:
    scene.broker.kill()
    time.sleep(seconds / 4)
    scene.broker.start()


def broker_stopped(scene: Scene, seconds: float) -> None:
    scene.broker.signal(signal.SIGSTOP)
    time.sleep(seconds)
    scene.broker.signal(signal.SIGCONT)


def broker_taken_over(scene: Scene, _seconds: float) -> None:
    """Stopped beyond its session, while another one opens its topics; then it goes on."""
    stopped = scene.broker
    stopped.signal(signal.SIGSTOP)
    try:
        scene.other.start()
        scene.swap()
    finally:
        stopped.signal(signal.SIGCONT)
    assert stopped.ended(_PATIENCE) == LOST_SESSION, stopped.log[-3000:]


def _killed(count: int) -> Fault:
    def fault(scene: Scene, seconds: float) -> None:
        bookies = scene.some_bookies(count)
        for bookie in bookies:
            bookie.kill()
        time.sleep(seconds)
        for bookie in bookies:
            bookie.launch()
        for bookie in bookies:
            bookie.wait()

    return fault


def zookeeper_killed(scene: Scene, seconds: float) -> None:
    scene.servers.zookeeper.kill()
    time.sleep(seconds / 4)
    scene.servers.zookeeper.start()


def _stopped(choose: Callable[[Scene], Iterable[BookieServer]]) -> Fault:
    def fault(scene: Scene, seconds: float) -> None:
        servers = list(choose(scene))
        for server in servers:
            server.signal(signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            for server in servers:
                server.signal(signal.SIGCONT)

    return fault


def zookeeper_stopped(scene: Scene, seconds: float) -> None:
    scene.servers.zookeeper.signal(signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        scene.servers.zookeeper.signal(signal.SIGCONT)


def zookeeper_stopped_for_too_long(scene: Scene, _seconds: float) -> None:
    """Beyond the broker's session, within those of the bookies."""
    scene.servers.zookeeper.signal(signal.SIGSTOP)
    try:
        assert scene.broker.ended(_PATIENCE) == LOST_SESSION, scene.broker.log[-3000:]
    finally:
        scene.servers.zookeeper.signal(signal.SIGCONT)
    scene.broker.start()


Cut = Callable[[TcpProxy], None]

CUTS: dict[str, Cut] = {
    "silent": TcpProxy.stall,
    "silent towards it": lambda wire: wire.stall(Direction.TO_SERVER),
    "silent from it": lambda wire: wire.stall(Direction.TO_CLIENT),
    "refused": TcpProxy.refuse,
    "reset": TcpProxy.reset,
}


def _cut(choose: Callable[[Scene], Iterable[TcpProxy]], cut: Cut) -> Fault:
    def fault(scene: Scene, seconds: float) -> None:
        wires = list(choose(scene))
        for wire in wires:
            cut(wire)
        time.sleep(seconds)
        for wire in wires:
            wire.heal()

    return fault


def _slow(count: int) -> Fault:
    def fault(scene: Scene, seconds: float) -> None:
        wires = scene.some_wires(count)
        for wire in wires:
            wire.slow(0.02 + 0.3 * scene.random.random(), 20_000 + 200_000 * scene.random.random())
        time.sleep(seconds)
        for wire in wires:
            wire.heal()

    return fault


_FULL = {"diskUsageThreshold": 0.0001, "diskUsageWarnThreshold": 0.0001, "diskUsageLwmThreshold": 0.0001}
_NOT_FULL = {"diskUsageThreshold": 0.99, "diskUsageWarnThreshold": 0.99, "diskUsageLwmThreshold": 0.98}


def _fill(bookie: BookieServer, *, full: bool) -> None:
    """It comes back with a disk that counts as full, and is read-only; or with one that does not."""
    bookie.kill()
    bookie.set(**(_FULL if full else _NOT_FULL))
    bookie.start()
    assert bookie.read_only == full


def bookie_full(scene: Scene, seconds: float) -> None:
    [bookie] = scene.some_bookies(1)
    _fill(bookie, full=True)
    time.sleep(seconds)
    _fill(bookie, full=False)


def bookie_turned_read_only(scene: Scene, seconds: float) -> None:
    """While it runs: it answers that it takes nothing."""
    [bookie] = scene.some_bookies(1)
    bookie.turn(read_only=True)
    time.sleep(seconds)
    bookie.turn(read_only=False)
    while bookie.read_only:
        time.sleep(0.05)


def bookie_lost(scene: Scene, _seconds: float) -> None:
    [bookie] = scene.some_bookies(1)
    _lose(scene, bookie)


def full_bookie_lost(scene: Scene, seconds: float) -> None:
    [bookie] = scene.some_bookies(1)
    _fill(bookie, full=True)
    time.sleep(seconds)
    _lose(scene, bookie)


def _lose(scene: Scene, lost: BookieServer) -> None:
    """For good, with its disk. Others come, and AutoRecovery copies what the lost one had.

    An entry that reached its ack quorum alone may be missing on another bookie of its ensemble, too.
    AutoRecovery then needs a bookie outside the ensemble for each of the two, and copies nothing without.
    """
    servers = scene.servers
    lost.close()
    shutil.rmtree(lost.folder)
    servers.forget(lost)
    servers.bookies.remove(lost)
    newcomers = []
    while len(servers.bookies) < _AFTER_LOSS:
        newcomer = servers.another_bookie(scene.new_folder("bookie"))
        newcomer.administer()
        newcomers.append(newcomer)
        servers.bookies.append(newcomer)
    recovery = AutoRecovery(scene.new_folder("recovery"), servers)
    for newcomer in newcomers:
        newcomer.launch()
    recovery.launch()
    try:
        for newcomer in newcomers:
            newcomer.wait()
        deadline = time.monotonic() + _REPLICATION_PATIENCE
        while left := scene.ledgers_on(lost):
            assert time.monotonic() < deadline, (left, recovery.said())
            time.sleep(0.2)
    finally:
        recovery.close()


KINDS: dict[str, tuple[Fault, tuple[float, float]]] = {
    "broker killed": (broker_killed, (1, 8)),
    "broker stopped": (broker_stopped, (1, 6)),
    "broker stopped, another one takes over": (broker_taken_over, (0, 0)),
    "a bookie killed": (_killed(1), (0.5, 8)),
    "two bookies killed": (_killed(2), (0.5, 6)),
    "ZooKeeper killed": (zookeeper_killed, (1, 8)),
    "a bookie stopped": (_stopped(lambda scene: scene.some_bookies(1)), (1, 9)),
    "two bookies stopped": (_stopped(lambda scene: scene.some_bookies(2)), (1, 9)),
    "all bookies stopped": (_stopped(lambda scene: scene.servers.bookies), (1, 9)),
    "ZooKeeper stopped": (zookeeper_stopped, (1, 6)),
    "ZooKeeper stopped for too long": (zookeeper_stopped_for_too_long, (0, 0)),
    "a slow bookie": (_slow(1), (2, 6)),
    "slow bookies": (_slow(3), (2, 6)),
    "a full bookie": (bookie_full, (1, 3)),
    "a bookie turned read-only": (bookie_turned_read_only, (1, 6)),
    "a bookie lost for good": (bookie_lost, (0, 0)),
    "a full bookie, then lost for good": (full_bookie_lost, (0, 2)),
    **{
        f"no wire to {whom}, {how}": (_cut(choose, cut), (0.5, 9))
        for how, cut in CUTS.items()
        for whom, choose in {
            "ZooKeeper": lambda scene: [scene.broker.wires.zookeeper],
            "a bookie": lambda scene: scene.some_wires(1),
            "two bookies": lambda scene: scene.some_wires(2),
            "all bookies": lambda scene: scene.wires,
            "anybody": lambda scene: [scene.broker.wires.zookeeper, *scene.wires],
        }.items()
    },
}
"""By name: what happens, and how many seconds it may last."""
