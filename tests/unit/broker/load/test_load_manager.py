"""The load manager of a broker that leads, on a model of ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from several_sessions import SeveralSessions
from tests.unit.broker.load.cluster_of import bundle, report

from magnetar.broker.load.candidates import KeptRules, domains_path, isolation_path
from magnetar.broker.load.cluster_load import (
    BundleHistory,
    ClusterLoad,
    Quotas,
    ResourceQuota,
    broker_path,
    bundle_path,
)
from magnetar.broker.load.explaining import explain
from magnetar.broker.load.manager import Histories, LoadManager, bundle_address
from magnetar.broker.load.reporter import HostSample, Meter, Reporter
from magnetar.broker.load.reports import BrokerReport, BundleStats, Identity
from magnetar.broker.load.settings import LoadSettings, ReportSettings, ShedderSettings
from magnetar.broker.ownership.brokers import BrokerRecord, Leadership
from magnetar.broker.ownership.contract import Bundle
from magnetar.broker.ownership.peers import PeerAnswer, PeerRefused
from magnetar.io.waiting import nobody_waits, outcome, sleep
from magnetar.io.wheel import TimerWheel
from magnetar.metadata.passing_on import ResolvingStore
from magnetar.naming.bundles import BundleRange
from magnetar.naming.namespace_name import NamespaceName

MIB = 1024 * 1024
ONE, TWO, THREE = "one:8080", "two:8080", "three:8080"


class Peers:
    """Other brokers: what they were asked, and whom they refuse."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str, Mapping[str, str]]] = []
        self.refuse: set[str] = set()

    async def call(
        self,
        broker: BrokerRecord,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> PeerAnswer:
        self.asked.append((broker.broker_id, method, path, query or {}))
        if broker.broker_id in self.refuse:
            raise PeerRefused(404, "no such bundle")
        return PeerAnswer(204, b"")


class Cluster:
    """Brokers with records, and the load manager of the first one."""

    def __init__(self, *names: str) -> None:
        self.several = SeveralSessions()
        self.store: ResolvingStore = self.several.session()
        self.peers = Peers()
        self.settings = LoadSettings(shed=ShedderSettings(min_throughput=1))
        self.bundles = 4
        brokers = self.several.live_brokers(self.store)
        self.tell(**{name.partition(":")[0]: report({}) for name in names})
        io = self.several.io
        self.wheel = TimerWheel(io.loop)
        self.leadership = Leadership(io, self.store, brokers, ONE, f"http://{ONE}")
        self.manager = LoadManager(
            io,
            self.wheel,
            brokers,
            self.leadership,
            self.peers,
            KeptRules(self.store, "c"),
            Histories(self.store, Quotas(self.store)),
            lambda: self.settings,
            ONE,
        )
        self.manager.start(self._count)
        self.several.run(self.leadership.start())
        self.pause()

    async def _count(self, _namespace: NamespaceName) -> int:
        return self.bundles

    def pause(self, seconds: float = 0.2) -> None:
        self.several.loop.run_for(seconds)

    def tell(self, **reports: BrokerReport) -> None:
        now = self.several.io.clock.wall_ms()
        for name, told in reports.items():
            self.several.register(self.store, f"{name}:8080", **replace(told, updated_ms=now).to_json())
        self.pause()

    def put(self, path: str, record: Mapping[str, Any]) -> None:
        self.several.run(self.store.put(path, json.dumps(record).encode()))
        self.pause()

    def read(self, path: str) -> Any:
        node = self.several.run(self.store.get(path))
        return None if node is None else json.loads(node.value)

    def choose(
        self, number: int, namespace: str = "public/default", exclude: frozenset[str] = frozenset()
    ) -> str | None:
        return self.several.run(self.manager.choose(named(number, namespace), exclude))


def named(number: int, namespace: str = "public/default") -> Bundle:
    return Bundle(NamespaceName.parse(namespace), BundleRange(number * 0x1000, (number + 1) * 0x1000))


def busy(count: int, mib: float, first: int = 0) -> dict[str, BundleStats]:
    return {bundle(first + n): BundleStats(1000, mib * MIB) for n in range(count)}


def test_bundles_go_where_there_is_least_and_spread_before_anybody_tells_of_them() -> None:
    cluster = Cluster(ONE, TWO)
    cluster.tell(one=report(busy(1, 1)))
    assert cluster.choose(50, "public/a") == TWO
    given = [cluster.choose(60 + n, "public/b") for n in range(10)]
    assert sorted(given, key=str) == [ONE] * 5 + [TWO] * 5


def test_what_all_wait_for_is_read_once_and_all_hear_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the loss of a leader the new one read all histories once for each lookup that waited."""
    cluster = Cluster(ONE, TWO)
    cluster.tell(one=report(busy(20, 1)), two=report(busy(20, 1, first=30)))
    cluster.manager.load = ClusterLoad()
    cluster.manager._raws.clear()
    asked: list[str] = []
    histories = cluster.manager._histories

    class Counting:
        async def of(self, bundles: Iterable[str]) -> Mapping[str, BundleHistory]:
            names = list(bundles)
            asked.extend(names)
            return await histories.of(names)

    monkeypatch.setattr(cluster.manager, "_histories", Counting())

    async def choose() -> list[str | None]:
        loop = cluster.several.loop
        tasks = [loop.create_task(cluster.manager.choose(named(60))) for _ in range(20)]
        return [await outcome(loop, task) for task in tasks]

    assert len(set(cluster.several.run(choose()))) == 1
    assert sorted(asked) == sorted({*busy(20, 1), *busy(20, 1, first=30), str(named(60))})


def test_a_broker_that_stops_still_asks_where_its_bundles_go() -> None:
    """Whatever was being read when it was told to stop: its hand-over was cancelled with that."""
    cluster = Cluster(ONE, TWO)
    cluster.tell(one=report(busy(20, 1)), two=report(busy(20, 1, first=30)))
    cluster.manager.load = ClusterLoad()
    cluster.manager._raws.clear()

    async def stopped_meanwhile() -> str | None:
        loop = cluster.several.loop
        reading = loop.create_task(cluster.manager.take_reports())
        reading.add_done_callback(nobody_waits)
        await sleep(loop, 0)
        cluster.manager.stop()
        return await cluster.manager.choose(named(60))

    assert cluster.several.run(stopped_meanwhile()) is not None


def test_the_same_is_answered_while_a_bundle_is_loaded_and_no_longer() -> None:
    cluster = Cluster(ONE, TWO)
    first = cluster.choose(1)
    assert first is not None
    cluster.tell(**{first.partition(":")[0]: report(busy(1, 9, first=7))})
    assert cluster.choose(1) == first
    other = cluster.choose(1, exclude=frozenset([first]))
    assert other not in (first, None)
    cluster.pause(11)
    assert cluster.choose(1) == other


def test_those_who_ask_at_the_same_time_hear_the_same() -> None:
    cluster = Cluster(ONE, TWO, THREE)
    loop = cluster.several.loop
    for number in range(5):
        asked = [loop.create_task(cluster.manager.choose(named(number))) for _ in range(10)]
        assert len({cluster.several.run(each) for each in asked}) == 1


def test_a_wish_is_heard_unless_policies_forbid_it() -> None:
    cluster = Cluster(ONE, TWO)
    cluster.tell(two=report(busy(4, 50), percent=50))
    cluster.manager.prefer(named(9), TWO, owned=False)
    assert cluster.choose(9) == TWO
    cluster.tell(two=report({}, identity=Identity(persistent_topics=False)))
    cluster.manager.prefer(named(8), TWO, owned=False)
    assert cluster.choose(8) == ONE


def test_a_wish_counts_more_than_what_was_chosen_before_and_until_somebody_has_the_bundle() -> None:
    cluster = Cluster(ONE, TWO)
    first = cluster.choose(9)
    other = TWO if first == ONE else ONE
    assert other != first
    cluster.manager.prefer(named(9), other, owned=False)
    assert cluster.choose(9) == other
    cluster.tell(**{other.partition(":")[0]: report(busy(4, 50, first=20), percent=50)})
    assert cluster.choose(9) == other
    cluster.manager.arrived(named(9))
    assert cluster.choose(9) == first


def test_where_a_bundle_is_to_go_is_forgotten_with_the_broker() -> None:
    cluster = Cluster(ONE, TWO)
    cluster.tell(two=report(busy(4, 50, first=20), percent=50))
    cluster.manager.prefer(named(9), TWO, owned=False)
    cluster.several.run(cluster.store.delete(f"/loadbalance/brokers/{TWO}"))
    cluster.pause()
    assert cluster.choose(9) == ONE
    cluster.manager.arrived(named(9))
    cluster.tell(two=report(busy(4, 50, first=20), percent=50))
    assert cluster.choose(9) == ONE


def test_kinds_of_topics_are_heeded() -> None:
    cluster = Cluster(ONE, TWO)
    cluster.tell(
        one=report({}, identity=Identity(non_persistent_topics=False)),
        two=report({}, identity=Identity(persistent_topics=False)),
    )
    cluster.manager.wants(named(1), persistent=False)
    assert cluster.choose(1) == TWO
    assert cluster.choose(2) == ONE
    cluster.several.run(cluster.store.delete(f"/loadbalance/brokers/{TWO}"))
    cluster.pause()
    cluster.manager.wants(named(3), persistent=False)
    assert cluster.choose(3) is None


def test_isolation_domains_and_groups_count_as_soon_as_they_are_set() -> None:
    cluster = Cluster(ONE, TWO, THREE)
    policy = {
        "namespaces": ["public/default"],
        "primary": ["three"],
        "secondary": [],
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": "1", "usage_threshold": "100"},
        },
    }
    assert cluster.choose(1) is not None
    cluster.put(isolation_path("c"), {"mine": policy})
    assert {cluster.choose(10 + n) for n in range(5)} == {THREE}
    cluster.put(isolation_path("c"), {})
    cluster.settings = replace(cluster.settings, failure_domains=True, spread_namespaces=False)
    for name in ("a", "b"):
        cluster.put(f"/admin/local-policies/public/{name}", {"namespaceAntiAffinityGroup": "G"})
    cluster.put(f"{domains_path('c')}/d1", {"brokers": [ONE, TWO]})
    cluster.put(f"{domains_path('c')}/d2", {"brokers": [THREE]})
    first, second = cluster.choose(1, "public/a"), cluster.choose(1, "public/b")
    assert (first == THREE) != (second == THREE)


@pytest.mark.parametrize(
    "name", ["", "x", "a//0x00000000_0x00001000", "../ns/0x00000000_0x00001000", "a/b/c/d/e"]
)
def test_what_one_broker_tells_that_is_no_bundle_keeps_nobody_from_being_placed_moved_or_split(
    name: str,
) -> None:
    cluster = Cluster(ONE, TWO, THREE)
    odd = {**report({}).to_json(), "lastUpdate": 1, "bundles": [name], "msgRateIn": 10**400}
    odd["lastStats"] = {name: {"msgRateIn": 10**400, "topics": 5000}}
    cluster.several.register(cluster.store, THREE, **odd)
    assert cluster.choose(1) is not None
    cluster.tell(two=report({**busy(10, 20), bundle(20): BundleStats(topics=5000)}, percent=90))
    assert [path.rpartition("/")[2] for _, _, path, _ in cluster.peers.asked] == ["split"]
    cluster.several.run(cluster.manager.shed())
    assert cluster.manager.done.moved_bundles
    cluster.several.run(cluster.manager.write_averages())
    assert cluster.read(bundle_path(bundle(0))) is not None


def test_a_record_that_cannot_be_read_is_as_if_nothing_were_said_there() -> None:
    cluster = Cluster(ONE, TWO)
    for path in ("/admin/local-policies/public/odd", f"{domains_path('c')}/odd", isolation_path("c")):
        cluster.several.run(cluster.store.put(path, b"nonsense"))
    cluster.put("/admin/local-policies/public/default", {"namespaceAntiAffinityGroup": "G"})
    cluster.tell(two=report({**busy(10, 20), bundle(0, "public/odd"): BundleStats(1)}, percent=90))
    assert cluster.choose(20) is not None
    assert cluster.choose(20, "public/odd") is not None
    cluster.several.run(cluster.manager.shed())
    assert cluster.manager.done.moved_bundles


def test_a_leader_moves_bundles_from_the_busy_to_the_idle_and_answers_where_they_go() -> None:
    cluster = Cluster(ONE, TWO, THREE)
    cluster.tell(two=report(busy(10, 20), percent=90), one=report(busy(2, 5, 20), percent=10))
    cluster.several.run(cluster.manager.shed())
    moved = [path for _, _, path, _ in cluster.peers.asked]
    assert moved
    assert {asked[:2] for asked in cluster.peers.asked} == {(TWO, "PUT")}
    assert moved[0] == "/admin/v2/namespaces/public/default/0x00000000_0x00001000/unload"
    assert cluster.choose(0) in (ONE, THREE)
    assert cluster.manager.done.moved_bundles == len(moved)
    cluster.peers.asked.clear()
    cluster.several.run(cluster.manager.shed())
    again = {path for _, _, path, _ in cluster.peers.asked}
    assert not again & set(moved), "what was moved of late stays"


@pytest.mark.parametrize("version", ["4.0.8", "magnetar-1.0"])
def test_brokers_that_tell_their_clients_where_bundles_go_hear_of_it(version: str) -> None:
    cluster = Cluster(ONE, TWO, THREE)
    moving = report(busy(10, 20), percent=90, identity=Identity(version=version))
    cluster.tell(two=moving, one=report(busy(2, 5, 20), percent=10))
    cluster.several.run(cluster.manager.shed())
    ((_, _, path, query), *_) = cluster.peers.asked
    assert path.endswith("0x00000000_0x00001000/unload")
    expected = {"destinationBroker": cluster.choose(0)} if version.startswith("magnetar") else {}
    assert query == expected


def test_a_bundle_whose_broker_refuses_is_free_again() -> None:
    cluster = Cluster(ONE, TWO)
    cluster.tell(two=report(busy(10, 20), percent=90))
    cluster.peers.refuse.add(TWO)
    cluster.several.run(cluster.manager.shed())
    assert cluster.peers.asked
    assert not cluster.manager.load.moved
    assert cluster.manager.done.moved_bundles == 0


@pytest.mark.parametrize("changed", [{"shedding": False}, {"enabled": False}])
def test_nothing_moves_where_it_is_switched_off(changed: dict[str, bool]) -> None:
    cluster = Cluster(ONE, TWO)
    cluster.tell(two=report(busy(10, 20), percent=90))
    cluster.settings = replace(cluster.settings, **changed)
    cluster.several.run(cluster.manager.shed())
    assert not cluster.peers.asked
    if not cluster.settings.enabled:
        assert cluster.choose(1) == ONE, "whoever is asked takes it"


def test_a_bundle_with_too_many_topics_is_split_once() -> None:
    cluster = Cluster(ONE, TWO)
    large = {bundle(0): BundleStats(topics=5000), "old/c/ns/0x00000000_0xffffffff": BundleStats(topics=5000)}
    cluster.tell(two=report(large))
    asked = sorted(cluster.peers.asked)
    assert [each[2] for each in asked] == [
        "/admin/namespaces/old/c/ns/0x00000000_0xffffffff/split",
        "/admin/v2/namespaces/public/default/0x00000000_0x00001000/split",
    ]
    assert {each[3]["unload"] for each in asked} == {"true"}
    cluster.tell(two=report(large))
    assert len(cluster.peers.asked) == 2
    assert cluster.manager.done.splits == 2
    cluster.pause(61)
    cluster.bundles = 128
    cluster.tell(two=report(large))
    assert len(cluster.peers.asked) == 2, "the namespace may not have more"


def test_what_is_known_is_there_for_the_next_leader() -> None:
    cluster = Cluster(ONE, TWO)
    cluster.put(bundle_path(bundle(9)), BundleHistory.unseen().to_json())
    cluster.put(broker_path("gone:8080"), {})
    cluster.tell(two=report(busy(2, 1)))
    cluster.several.run(cluster.manager.write_averages())
    known = BundleHistory.from_json(cluster.read(bundle_path(bundle(0))))
    assert (known.long.rate, known.long.samples) == (1000, 1)
    assert cluster.read(broker_path(TWO))["longTermMsgRateIn"] == 2000
    assert cluster.read(broker_path("gone:8080")) is None
    cluster.tell(two=report({}))
    cluster.several.run(cluster.manager.write_averages())
    assert cluster.read(bundle_path(bundle(0))) is None


def test_a_new_leader_begins_with_what_was_known() -> None:
    cluster = Cluster(ONE)
    quiet = BundleHistory.by_quota(BundleStats(10, 10))
    cluster.put(bundle_path(bundle(0)), quiet.to_json())
    quotas = Quotas(cluster.store)
    cluster.several.run(quotas.set(bundle(1), ResourceQuota(rate_in=500, rate_out=0)))
    cluster.tell(one=report(busy(2, 0)))
    assert cluster.manager.load.bundles[bundle(0)].long.rate == pytest.approx(10.99)
    assert cluster.manager.load.bundles[bundle(1)].long.rate == pytest.approx(500.5)


def test_placement_is_explained_and_asking_leaves_no_trace() -> None:
    cluster = Cluster(ONE, TWO, THREE)
    cluster.tell(
        one=report(busy(2, 10), percent=20),
        two=report(busy(5, 10, 20), percent=60),
        three=report({}, identity=Identity(persistent_topics=False)),
    )
    placer = cluster.several.run(cluster.manager.placer(bundle(0), pure=True))
    told = explain(placer, bundle(0), cluster.manager.kinds_of(bundle(0)), 0.0)
    assert told.owner == ONE
    assert told.brokers[THREE] == "it serves no persistent topics"
    assert told.brokers[TWO].startswith("it has more than 1 bundles of public/default")
    assert any("ThresholdShedder" in sentence and "20.0 % now" in sentence for sentence in told.moves)
    assert any("10.00 MiB/s" in sentence for sentence in told.here)
    nobody = cluster.several.run(cluster.manager.placer(bundle(77, "public/new"), pure=True))
    free = explain(nobody, bundle(77, "public/new"), cluster.manager.kinds_of(""), 0.0)
    assert free.owner is None
    assert any("It would be assigned to one:8080" in sentence for sentence in free.here)
    assert not any(broker.pending for broker in cluster.manager.load.brokers.values())


def test_addresses_of_bundles() -> None:
    assert bundle_address("a/b/0x1_0x2") == "/admin/v2/namespaces/a/b/0x1_0x2"
    assert bundle_address("a/c/b/0x1_0x2") == "/admin/namespaces/a/c/b/0x1_0x2"


class Machine:
    def __init__(self) -> None:
        self.now = HostSample(0.0, 2, 100 * MIB, 1000 * MIB, nic_kbits=1000)

    def sample(self) -> HostSample:
        return self.now


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.used = 0.0

    def wall_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds

    def processor(self) -> float:
        return self.used


def test_a_broker_whose_thread_is_full_is_full_whatever_the_machine_does() -> None:
    clock, machine = Clock(), Machine()
    meter = Meter(clock, machine)
    clock.seconds, clock.used = 60, 6
    machine.now = replace(machine.now, processor_seconds=48, received_bytes=60 * 125 * 500)
    calm = meter.take(60)
    assert (calm.cpu.usage, calm.cpu.limit) == (80, 200), "of the machine"
    assert calm.bandwidth_in.percent == 50
    assert (calm.memory.percent, calm.direct_memory.percent) == (10, 0)
    assert calm.direct_memory.limit > 0
    clock.seconds, clock.used = 70, 16
    assert (meter.take(60).cpu.usage, meter.take(60).cpu.limit) == (100, 100), "of the thread"


def test_a_report_is_written_when_something_changed_or_much_time_has_passed() -> None:
    several = SeveralSessions()
    machine, written = Machine(), list[Mapping[str, Any]]()
    stats: dict[str, BundleStats] = {}

    async def gather() -> Mapping[str, BundleStats]:
        return dict(stats)

    async def write(record: Mapping[str, Any]) -> None:
        written.append(record)

    settings = LoadSettings(report=ReportSettings(max_seconds=900))
    meter = Meter(several.io.clock, machine)
    reporter = Reporter(
        several.io, TimerWheel(several.loop), meter, lambda: settings, lambda: Identity(), gather, write
    )
    assert reporter.first_record()["loadReportType"] == "LocalBrokerData"
    reporter.start()
    several.loop.run_for(60)
    assert not written
    stats[bundle(0)] = BundleStats(100, 1000)
    several.loop.run_for(6)
    assert written[-1]["lastBundleGains"] == [bundle(0)]
    stats[bundle(0)] = BundleStats(105, 1050)
    several.loop.run_for(60)
    assert len(written) == 1, "5 % are not worth telling"
    stats[bundle(0)] = BundleStats(120, 1050)
    several.loop.run_for(6)
    assert (len(written), written[-1]["msgRateIn"], written[-1]["lastBundleGains"]) == (2, 120, [])
    several.loop.run_for(910)
    assert len(written) == 3
    machine.now = replace(machine.now, processor_seconds=10_000)
    several.loop.run_for(70)
    assert written[-1]["cpu"]["usage"] > 100
    reporter.stop()
