"""The load of a cluster as its leader knows it: reports, histories, and placements since the reports."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping

from magnetar.broker.load.averages import BrokerAverages, BundleHistory
from magnetar.broker.load.reports import BrokerReport

_HEARTBEAT = re.compile(r"(pulsar|sla-monitor)/(?:[^/]+/)?[^/]+:[0-9]+/0x[0-9a-f]{8}_0x[0-9a-f]{8}")


def namespace_of(bundle: str) -> str:
    """Returns the namespace in ``tenant/namespace/0xSTART_0xEND``."""
    return bundle.rpartition("/")[0]


def range_of(bundle: str) -> str:
    return bundle.rpartition("/")[2]


def belongs_to_a_broker(bundle: str) -> bool:
    """Whether the bundle is used to test one broker, which keeps it: heartbeat and monitoring namespaces."""
    return _HEARTBEAT.fullmatch(bundle) is not None


class BrokerLoad:
    """The load of one broker."""

    __slots__ = ("averages", "namespaces", "pending", "report")

    def __init__(self, report: BrokerReport) -> None:
        self.report = report
        self.averages = BrokerAverages.of(())
        self.pending: dict[str, BundleHistory] = {}
        """Bundles that were placed there since its last report."""
        self.namespaces: Counter[str] = Counter()
        """The number of its bundles by namespace, including the pending ones."""

    def topics(self) -> int:
        return self.report.total.topics + sum(each.topics for each in self.pending.values())

    def rate(self) -> float:
        """The expected long-term messages per second."""
        return self.averages.long.rate + sum(each.long.rate for each in self.pending.values())

    def count_namespaces(self) -> None:
        names = self.report.bundles | self.report.stats.keys() | self.pending.keys()
        self.namespaces = Counter(map(namespace_of, names))


class ClusterLoad:
    def __init__(self) -> None:
        self.brokers: dict[str, BrokerLoad] = {}
        self.bundles: dict[str, BundleHistory] = {}
        self.moved: dict[str, float] = {}
        """When each bundle was last moved, on a clock of the caller."""
        self._reporters: defaultdict[str, set[str]] = defaultdict(set)
        """The brokers that report a bundle: for a moment there may be two."""

    def unknown(self, report: BrokerReport) -> Iterator[str]:
        """Yields the reported bundles whose histories are needed."""
        return (bundle for bundle in report.stats if bundle not in self.bundles)

    def take(self, broker_id: str, report: BrokerReport, histories: Mapping[str, BundleHistory]) -> None:
        """Takes a report; the same one again changes nothing.

        :param histories: of bundles not seen before, if there are any
        """
        known = self.brokers.get(broker_id)
        if known is None:
            known = self.brokers[broker_id] = BrokerLoad(report)
        elif known.report.updated_ms == report.updated_ms:
            known.report = report
            return
        else:
            self._forget(broker_id, known.report.stats.keys() - report.stats.keys())
            known.report = report
            known.pending.clear()
        for bundle, stats in report.stats.items():
            history = self.bundles.get(bundle) or histories.get(bundle) or BundleHistory.unseen()
            self.bundles[bundle] = history.with_sample(stats)
            self._reporters[bundle].add(broker_id)
        for other in self.brokers.values():
            if other is not known and other.pending.keys() & report.bundles:
                for bundle in report.bundles:
                    other.pending.pop(bundle, None)
                other.count_namespaces()
        known.averages = BrokerAverages.of(self.bundles[bundle] for bundle in report.stats)
        known.count_namespaces()

    def keep_only(self, broker_ids: Collection[str]) -> Collection[str]:
        """Forgets brokers that are no longer live, and returns them."""
        gone = self.brokers.keys() - set(broker_ids)
        for broker_id in gone:
            self._forget(broker_id, self.brokers.pop(broker_id).report.stats.keys())
        return gone

    def _forget(self, broker_id: str, bundles: Collection[str]) -> None:
        """Removes a broker's bundles; a history that no broker reports is dropped a report later."""
        for bundle in bundles:
            self._reporters[bundle].discard(broker_id)

    def drop_unused(self) -> Collection[str]:
        """Forgets the histories of bundles that are neither reported nor pending, and returns them."""
        given = {bundle for broker in self.brokers.values() for bundle in broker.pending}
        unused = [b for b in self.bundles if not self._reporters.get(b) and b not in given]
        for bundle in unused:
            del self.bundles[bundle]
            self._reporters.pop(bundle, None)
        return unused

    def forget_bundle(self, bundle: str) -> None:
        """Called when a bundle was split."""
        self.bundles.pop(bundle, None)
        self._reporters.pop(bundle, None)

    def give(self, broker_id: str, bundle: str) -> None:
        """Notes the choice of a broker, so that the next choice takes it into account."""
        broker = self.brokers.get(broker_id)
        if broker is None or bundle in broker.report.bundles:
            return
        for other in self.brokers.values():
            if other.pending.pop(bundle, None) is not None:
                other.count_namespaces()
        broker.pending[bundle] = self.history(bundle)
        broker.namespaces[namespace_of(bundle)] += 1

    def history(self, bundle: str) -> BundleHistory:
        """Returns the known history, or the assumed one."""
        return self.bundles.get(bundle) or BundleHistory.unseen()

    def movable(self, broker_id: str) -> list[tuple[str, BundleHistory]]:
        """Returns a broker's bundles that may be moved, by name: those not moved recently."""
        report = self.brokers[broker_id].report
        return [
            (bundle, self.bundles[bundle])
            for bundle in sorted(report.bundles)
            if bundle in self.bundles and bundle not in self.moved and not belongs_to_a_broker(bundle)
        ]

    def forgive(self, before: float) -> None:
        """Permits moving again the bundles that were last moved before that time."""
        self.moved = {bundle: when for bundle, when in self.moved.items() if when >= before}
