"""The load manager of one broker: reports its load and, as the leader, places, moves and splits bundles."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from copy import deepcopy
from dataclasses import field

from magnetar.broker.load.candidates import KeptRules, Kinds, Rules, allowed, may_leave
from magnetar.broker.load.cluster_load import (
    BROKERS,
    BundleHistory,
    ClusterLoad,
    Quotas,
    broker_path,
    bundle_path,
    namespace_of,
    range_of,
)
from magnetar.broker.load.placing import (
    Anywhere,
    LeastLongTermMessageRate,
    LeastResourceUsageWithWeight,
    PlacementStrategy,
    RoundRobin,
)
from magnetar.broker.load.planning import Placer
from magnetar.broker.load.reports import BrokerReport
from magnetar.broker.load.settings import LoadSettings
from magnetar.broker.load.shedding import (
    AvgShedder,
    Move,
    OverloadShedder,
    Shedder,
    Split,
    ThresholdShedder,
    UniformLoadShedder,
    too_large,
    within_bounds,
)
from magnetar.broker.ownership.brokers import Leadership, LiveBrokers
from magnetar.broker.ownership.cluster import Destinations
from magnetar.broker.ownership.contract import Bundle
from magnetar.broker.ownership.peers import PeerAdmin
from magnetar.broker.policies.records import encode, read
from magnetar.errors import BrokerError, MetadataFailure
from magnetar.io.interfaces import Cancellable, Io
from magnetar.io.tasks import KeyedTasks, TaskScope, owner_goes_on
from magnetar.io.waiting import outcome
from magnetar.io.wheel import TimerWheel
from magnetar.lazy_dataclass import dataclass
from magnetar.metadata.interface import MetadataError, MetadataStore, NodeMissing
from magnetar.naming.namespace_name import NamespaceName

log = logging.getLogger(__name__)
PLACEMENTS: Mapping[str, Callable[[], PlacementStrategy]] = {
    "LeastLongTermMessageRate": LeastLongTermMessageRate,
    "LeastResourceUsageWithWeight": LeastResourceUsageWithWeight,
    "RoundRobinBrokerSelector": RoundRobin,
    "AvgShedder": Anywhere,
}
SHEDDERS: Mapping[str, Callable[[], Shedder]] = {
    "ThresholdShedder": ThresholdShedder,
    "OverloadShedder": OverloadShedder,
    "UniformLoadShedder": UniformLoadShedder,
    "AvgShedder": AvgShedder,
}
_HALVES_SECONDS = 60.0
"""The seconds for which a broker may still report a bundle that was split."""
_MOST_KINDS = 100_000
CountBundles = Callable[[NamespaceName], Awaitable[int]]


@dataclass(slots=True)
class Done:
    """The actions of this broker since its start, while it was the leader."""

    moved_bundles: int = 0
    relieved_brokers: int = 0
    splits: int = 0
    last_moves: Mapping[str, str] = field(default_factory=dict)
    """The reasons of the last moves, by bundle."""


class LoadManager:
    """The load manager; implements :class:`magnetar.broker.ownership.contract.Placement`."""

    def __init__(
        self,
        io: Io,
        wheel: TimerWheel,
        brokers: LiveBrokers,
        leadership: Leadership,
        peers: PeerAdmin,
        rules: KeptRules,
        histories: Histories,
        settings: Callable[[], LoadSettings],
        own_id: str,
    ) -> None:
        self._io = io
        self._wheel = wheel
        self._brokers = brokers
        self._leadership = leadership
        self._peers = peers
        self._rules = rules
        self._histories = histories
        self._settings = settings
        self._own_id = own_id
        self.load = ClusterLoad()
        self.done = Done()
        self._count_bundles: CountBundles | None = None
        self._placements = {name: make() for name, make in PLACEMENTS.items()}
        self._shedders = {name: make() for name, make in SHEDDERS.items()}
        self._destinations = Destinations(io.clock, brokers)
        self._kinds: dict[str, Kinds] = {}
        self._halves: dict[str, float] = {}
        """Bundles that were split, with the time by the monotonic clock until which they are not split again,
        because brokers may still report them."""
        self._timers: dict[str, Cancellable] = {}
        self._tasks = TaskScope(io.loop, "load balancing", owner_goes_on)
        self._runs: KeyedTasks[str, None] = KeyedTasks(self._tasks)
        self._asked: KeyedTasks[tuple[Bundle, frozenset[str]] | None, str | None] = KeyedTasks(self._tasks)
        """Running tasks whose result concurrent callers share: placements by bundle and excluded brokers, and
        with the key None the task that takes reports."""
        self._raws: dict[str, Mapping[str, object]] = {}
        brokers.listen(self._brokers_changed)
        leadership.listen(self._leader_changed)

    @property
    def settings(self) -> LoadSettings:
        """Returns the current settings."""
        return self._settings()

    # Start and stop

    def start(self, count_bundles: CountBundles) -> None:
        """Starts moving and splitting bundles whenever this broker is the leader; placement works before this
        call, too.

        :param count_bundles: returns the number of bundles of a namespace; raises BrokerError
        """
        self._count_bundles = count_bundles
        settings = self._settings()
        self._repeat("shedding", lambda: self._settings().shedding_seconds, self.shed)
        self._repeat("averages", lambda: settings.report.quota_seconds, self.write_averages)
        self._leader_changed()

    def stop(self) -> None:
        """Stops the timers; a broker that stops still asks for the next owners of its bundles."""
        self._asked = KeyedTasks(self._tasks)
        for timer in self._timers.values():
            timer.cancel()
        self._tasks.cancel()

    def _repeat(
        self, kind: str, seconds: Callable[[], float], work: Callable[[], Coroutine[object, object, object]]
    ) -> None:
        def run() -> None:
            self._timers[kind] = self._wheel.schedule(seconds(), run)
            if self._leadership.is_leader:
                self._begin(kind, work)

        self._timers[kind] = self._wheel.schedule(seconds(), run)

    def _begin(self, kind: str, work: Callable[[], Coroutine[object, object, object]]) -> None:
        """Starts a task, unless the previous task of its kind is still running."""

        async def run() -> None:
            try:
                await work()
            except (MetadataError, BrokerError) as error:
                log.warning(
                    "load balancing failed; trying again later", extra={"work": kind, "error": str(error)}
                )

        self._runs.start(kind, run, kind)

    async def _shared(
        self,
        key: tuple[Bundle, frozenset[str]] | None,
        work: Callable[[], Coroutine[object, None, str | None]],
    ) -> str | None:
        """Returns the result of a task that all concurrent callers with the same key share."""
        return await outcome(self._io.loop, self._asked.answer(key, work))

    def _leader_changed(self) -> None:
        if self._leadership.is_leader:
            self._brokers_changed()
        else:
            self.load = ClusterLoad()
            self._raws.clear()
            self._destinations.forget_all()

    def _brokers_changed(self) -> None:
        if self._leadership.is_leader:
            self._begin("reports", self._follow)

    async def _follow(self) -> None:
        await self.take_reports()
        await self.split()

    # Reports

    async def take_reports(self) -> None:
        """Takes new reports of brokers into account; only a leader keeps them.

        :raises MetadataError: histories cannot be read now
        """
        # Shared: a new leader reads all histories while all clients of a lost broker look up another.
        await self._shared(None, self._take_reports)

    async def _take_reports(self) -> None:
        while True:
            changed = {
                broker_id: record.raw
                for broker_id, record in self._brokers.all.items()
                if self._raws.get(broker_id) is not record.raw
            }
            gone = self.load.keep_only(self._brokers.all.keys())
            if gone or any(broker_id not in self.load.brokers for broker_id in changed):
                self._others_are_there()
            for broker_id in gone:
                self._raws.pop(broker_id, None)
            if not changed:
                break
            for broker_id, raw in changed.items():
                report = BrokerReport.from_json(raw)
                found = await self._histories.of(self.load.unknown(report))
                if broker_id in self._brokers.all:
                    self.load.take(broker_id, report, found)
                    self._raws[broker_id] = raw

    def _others_are_there(self) -> None:
        ids = list(self._brokers.all)
        for placement in self._placements.values():
            placement.brokers_changed(ids)
        for shedder in self._shedders.values():
            shedder.brokers_changed(ids)

    async def placer(self, bundle: str, *, pure: bool = False) -> Placer:
        """Returns everything on which the choice of a broker for a bundle depends.

        :param pure: whether the placer's use must not change any state, as for explanations
        :raises MetadataError: the rules of operators cannot be read now
        """
        namespaces = {name for broker in self.load.brokers.values() for name in broker.namespaces}
        rules = await self._rules.of(namespace_of(bundle), namespaces)
        settings = self._settings()
        strategy = self._placements[settings.placement]
        below = (lambda _bound: 0) if pure else self._io.randomness.below
        return Placer(self.load, rules, settings, deepcopy(strategy) if pure else strategy, below)

    def kinds_of(self, bundle: str) -> Kinds:
        return self._kinds.get(bundle, Kinds())

    # Placement

    def wants(self, bundle: Bundle, persistent: bool) -> None:
        """Records that a client looks up a persistent or non-persistent topic in a bundle."""
        if len(self._kinds) >= _MOST_KINDS:
            self._kinds.clear()
        self._kinds[str(bundle)] = Kinds(persistent, not persistent)

    def prefer(self, bundle: Bundle, broker_id: str, *, owned: bool) -> None:
        self._destinations.prefer(bundle, broker_id, owned=owned)

    def left(self, bundle: Bundle) -> None:
        self._destinations.left(bundle)

    def arrived(self, bundle: Bundle) -> None:
        self._destinations.arrived(bundle)

    async def choose(self, bundle: Bundle, exclude: frozenset[str] = frozenset()) -> str | None:
        return await self._shared((bundle, exclude), lambda: self._choose(bundle, exclude))

    async def _choose(self, bundle: Bundle, exclude: frozenset[str]) -> str | None:
        if not self._settings().enabled:
            return self._destinations.of(bundle, exclude) or self._own_id
        name = str(bundle)
        await self.take_reports()
        if name not in self.load.bundles:
            self.load.bundles.update(await self._histories.of([name]))
        placer = await self.placer(name)
        kinds = self.kinds_of(name)
        # No await from here on: concurrent requests get the same answer.
        known = self._destinations.of(bundle, exclude)
        if known in allowed(name, kinds, self.load, placer.rules, placer.settings).brokers:
            self.load.give(known, name)
            return known
        choice, found = placer.place(name, kinds, exclude)
        if choice is None:
            log.warning("no broker may serve the bundle", extra={"bundle": name, "against": found.against})
            return None
        self.load.give(choice.broker_id, name)
        self._destinations.chosen(bundle, choice.broker_id)
        log.info(
            "broker chosen for a bundle",
            extra={"bundle": name, "broker": choice.broker_id, "reason": choice.why},
        )
        return choice.broker_id

    # Moving

    async def shed(self) -> None:
        """Finds overloaded brokers, and moves some of their bundles.

        :raises MetadataError: policies cannot be read now
        """
        settings = self._settings()
        if not (settings.enabled and settings.shedding) or len(self._brokers.all) < 2:
            return
        await self.take_reports()
        now = self._io.clock.monotonic()
        self.load.forgive(now - settings.grace_seconds)
        wanted = self._shedders[settings.shedder].find(self.load, settings)
        if not wanted:
            return
        namespaces = {name for broker in self.load.brokers.values() for name in broker.namespaces}
        placer = Placer(
            self.load,
            await self._rules.of_all(namespaces),
            settings,
            self._placements[settings.placement],
            self._io.randomness.below,
        )
        plan = placer.plan(wanted, self.kinds_of)
        for bundle, why in plan.refused.items():
            log.info("bundle not moved", extra={"bundle": bundle, "reason": why})
        relieved = set()
        for move in plan.moves:
            if await self._move(move):
                relieved.add(move.source)
        self.done.relieved_brokers += len(relieved)
        self.done.last_moves = {move.bundle: move.why for move in plan.moves}

    async def _move(self, move: Move) -> bool:
        source = self._brokers.get(move.source)
        if source is None or move.target is None or not self._leadership.is_leader:
            return False
        log.info(
            "moving a bundle",
            extra={"bundle": move.bundle, "from": move.source, "to": move.target, "reason": move.why},
        )
        # Makes it tell clients where to go. Apache's brokers would redirect the request to the leader.
        query = {"destinationBroker": move.target} if source.is_magnetar else None
        bundle = Bundle.parse(move.bundle)
        self.prefer(bundle, move.target, owned=True)
        try:
            await self._peers.call(source, "PUT", f"{bundle_address(move.bundle)}/unload", query)
        except BrokerError as error:
            log.warning("cannot move the bundle", extra={"bundle": move.bundle, "error": str(error)})
            self._destinations.forget(bundle)
            return False
        self.load.moved[move.bundle] = self._io.clock.monotonic()
        self.done.moved_bundles += 1
        return True

    # Splitting

    async def split(self) -> None:
        """Splits bundles that exceed a limit.

        :raises MetadataError: policies cannot be read now
        """
        settings = self._settings()
        count_bundles = self._count_bundles
        if count_bundles is None or not (settings.enabled and settings.split.enabled):
            return
        now = self._io.clock.monotonic()
        self._halves = {name: until for name, until in self._halves.items() if now < until}
        large = [each for each in too_large(self.load, settings.split) if each.bundle not in self._halves]
        counts: dict[str, int] = {}
        for namespace in sorted({namespace_of(each.bundle) for each in large}):
            try:
                counts[namespace] = await count_bundles(NamespaceName.parse(namespace))
            except BrokerError as error:
                log.warning(
                    "cannot count the bundles of the namespace; trying again later",
                    extra={"namespace": namespace, "error": str(error)},
                )
        for found in within_bounds(large, settings.split, counts):
            await self._split(found, settings)

    async def _split(self, split: Split, settings: LoadSettings) -> None:
        source = self._brokers.get(split.broker_id)
        if source is None or not self._leadership.is_leader:
            return
        rules = await self._rules.of_all([namespace_of(split.bundle)])
        unload = settings.split.unload and not self._stays(split, rules, settings)
        log.info("splitting a bundle", extra={"bundle": split.bundle, "reason": split.why, "unload": unload})
        query = {"unload": "true" if unload else "false"}
        try:
            await self._peers.call(source, "PUT", f"{bundle_address(split.bundle)}/split", query)
        except BrokerError as error:
            log.warning("cannot split the bundle", extra={"bundle": split.bundle, "error": str(error)})
            return
        self._halves[split.bundle] = self._io.clock.monotonic() + _HALVES_SECONDS
        self.load.forget_bundle(split.bundle)
        self.done.splits += 1
        await self._histories.forget([split.bundle])

    def _stays(self, split: Split, rules: Rules, settings: LoadSettings) -> bool:
        kinds = self.kinds_of(split.bundle)
        return bool(may_leave(split.bundle, split.broker_id, kinds, self.load, rules, settings))

    # Averages

    async def write_averages(self) -> None:
        """Writes the averages with which the next leader starts.

        :raises MetadataError: the store refused; the rest is written the next time
        """
        await self.take_reports()
        unused = self.load.drop_unused()
        known = set(self.load.brokers)
        await self._histories.write(self.load)
        await self._histories.forget(unused, await self._histories.brokers_but(known))


def bundle_address(bundle: str) -> str:
    """Returns the REST path for the administration of a bundle; legacy namespaces have other paths."""
    namespace = namespace_of(bundle)
    version = "/admin/v2" if namespace.count("/") == 1 else "/admin"
    return f"{version}/namespaces/{namespace}/{range_of(bundle)}"


class Histories:
    """Histories of bundles and averages of brokers in the metadata store, with which a new leader starts."""

    def __init__(self, metadata: MetadataStore, quotas: Quotas) -> None:
        self._metadata = metadata
        self._quotas = quotas
        self._written: dict[str, BundleHistory] = {}

    async def of(self, bundles: Iterable[str]) -> Mapping[str, BundleHistory]:
        """Returns the stored histories of bundles, or histories made from their quotas; other bundles are
        left out.

        :raises MetadataError: the store does not answer now
        """
        found: dict[str, BundleHistory] = {}
        for bundle in bundles:
            try:
                record = await read(self._metadata, bundle_path(bundle))
                if record is not None:
                    found[bundle] = BundleHistory.from_json(record)
                    continue
                quota = await self._quotas.set_for(bundle)
            except MetadataFailure:
                # A history that cannot be parsed counts as missing.
                continue
            if quota is not None:
                found[bundle] = BundleHistory.by_quota(quota.expected())
        return found

    async def write(self, load: ClusterLoad) -> None:
        """Writes the histories and averages that changed since the last time.

        :raises MetadataError: the store refused; the rest is written the next time
        """
        for bundle, history in list(load.bundles.items()):
            if self._written.get(bundle) != history:
                await self._metadata.put(bundle_path(bundle), encode(history.to_json()))
                self._written[bundle] = history
        for broker_id, broker in list(load.brokers.items()):
            await self._metadata.put(broker_path(broker_id), encode(broker.averages.to_json()))

    async def brokers_but(self, known: Collection[str]) -> Collection[str]:
        """Returns the brokers with stored averages that are not in ``known``.

        :raises MetadataError: the store refused
        """
        return set(await self._metadata.children(BROKERS)) - set(known)

    async def forget(self, bundles: Collection[str], broker_ids: Collection[str] = ()) -> None:
        """Deletes the histories of bundles and the averages of brokers.

        :raises MetadataError: the store refused
        """
        for path in (*map(bundle_path, bundles), *map(broker_path, broker_ids)):
            try:
                await self._metadata.delete(path)
            except NodeMissing:
                continue
        for bundle in bundles:
            self._written.pop(bundle, None)
