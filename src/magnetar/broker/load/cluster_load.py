"""The load of a cluster as its leader knows it: reports, averages, quotas, and placements since the
reports."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from magnetar.broker.load.reports import BrokerReport, BundleStats, number
from magnetar.broker.policies.records import encode, read
from magnetar.errors import InvalidRequest
from magnetar.lazy_dataclass import dataclass
from magnetar.metadata.interface import MetadataStore, NodeMissing

_HEARTBEAT = re.compile(r"(pulsar|sla-monitor)/(?:[^/]+/)?[^/]+:[0-9]+/0x[0-9a-f]{8}_0x[0-9a-f]{8}")
SHORT_SAMPLES = 10
LONG_SAMPLES = 1000
UNSEEN = BundleStats(50.0, 50_000.0, 50.0, 50_000.0)
"""The assumed traffic of a bundle without reports, as in Pulsar."""
_BUNDLES = "/loadbalance/bundle-data"
BROKERS = "/loadbalance/broker-time-average"
_DEFAULT = "/loadbalance/resource-quota/default"
_QUOTAS_OF_BUNDLES = "/loadbalance/resource-quota"
_FIELDS = ("msgRateIn", "msgRateOut", "bandwidthIn", "bandwidthOut", "memory")


def namespace_of(bundle: str) -> str:
    """Returns the namespace in ``tenant/namespace/0xSTART_0xEND``."""
    return bundle.rpartition("/")[0]


def range_of(bundle: str) -> str:
    return bundle.rpartition("/")[2]


def belongs_to_a_broker(bundle: str) -> bool:
    """Whether the bundle belongs to a heartbeat or monitoring namespace: the topics of such a namespace test
    one broker, and the bundle stays at this broker.
    """
    return _HEARTBEAT.fullmatch(bundle) is not None


class BrokerLoad:
    """The load of one broker."""

    __slots__ = ("averages", "namespaces", "pending", "report")

    def __init__(self, report: BrokerReport) -> None:
        self.report = report
        self.averages = BrokerAverages.of(())
        self.pending: dict[str, BundleHistory] = {}
        """Bundles that were placed at the broker since its last report."""
        self.namespaces: Counter[str] = Counter()
        """The number of the broker's bundles by namespace, including the pending bundles."""

    def topics(self) -> int:
        return self.report.total.topics + sum(each.topics for each in self.pending.values())

    def rate(self) -> float:
        """Returns the expected long-term messages per second."""
        return self.averages.long.rate + sum(each.long.rate for each in self.pending.values())

    def count_namespaces(self) -> None:
        names = self.report.bundles | self.report.stats.keys() | self.pending.keys()
        self.namespaces = Counter(map(namespace_of, names))


class ClusterLoad:
    def __init__(self) -> None:
        self.brokers: dict[str, BrokerLoad] = {}
        self.bundles: dict[str, BundleHistory] = {}
        self.moved: dict[str, float] = {}
        """The time of each bundle's last move, on the caller's clock."""
        self._reporters: defaultdict[str, set[str]] = defaultdict(set)
        """The brokers that report a bundle; for a moment there may be two."""

    def unknown(self, report: BrokerReport) -> Iterator[str]:
        """Yields the reported bundles whose histories are needed."""
        return (bundle for bundle in report.stats if bundle not in self.bundles)

    def take(self, broker_id: str, report: BrokerReport, histories: Mapping[str, BundleHistory]) -> None:
        """Takes a report into account; taking the same report again changes no averages.

        :param histories: the stored histories of bundles that are new to the leader
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
        """Records that a broker no longer reports some bundles; :meth:`drop_unused` drops the histories of
        bundles that no broker reports."""
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
        """Forgets a bundle that was split."""
        self.bundles.pop(bundle, None)
        self._reporters.pop(bundle, None)

    def give(self, broker_id: str, bundle: str) -> None:
        """Records that a broker was chosen for a bundle, so that the next choice takes this choice into
        account."""
        broker = self.brokers.get(broker_id)
        if broker is None or bundle in broker.report.bundles:
            return
        for other in self.brokers.values():
            if other.pending.pop(bundle, None) is not None:
                other.count_namespaces()
        broker.pending[bundle] = self.history(bundle)
        broker.namespaces[namespace_of(bundle)] += 1

    def history(self, bundle: str) -> BundleHistory:
        """Returns the history of a bundle or, if it is unknown, the assumed history (:data:`UNSEEN`)."""
        return self.bundles.get(bundle) or BundleHistory.unseen()

    def movable(self, broker_id: str) -> list[tuple[str, BundleHistory]]:
        """Returns the broker's bundles that may be moved (they were not moved recently), sorted by name."""
        report = self.brokers[broker_id].report
        return [
            (bundle, self.bundles[bundle])
            for bundle in sorted(report.bundles)
            if bundle in self.bundles and bundle not in self.moved and not belongs_to_a_broker(bundle)
        ]

    def forgive(self, before: float) -> None:
        """Permits another move of each bundle whose last move was earlier than ``before``."""
        self.moved = {bundle: when for bundle, when in self.moved.items() if when >= before}


def bundle_path(bundle: str) -> str:
    return f"{_BUNDLES}/{bundle}"


def broker_path(broker_id: str) -> str:
    return f"{BROKERS}/{broker_id}"


@dataclass(frozen=True, slots=True)
class Average:
    """An average of the traffic of a bundle or broker, as leaders store it in ``/loadbalance``.

    The format is ``TimeAverageMessageData``: the first samples count equally; later on, old samples fade.
    """

    most: int
    """The number of samples after which old samples begin to fade."""
    samples: int = 0
    throughput_in: float = 0.0
    throughput_out: float = 0.0
    rate_in: float = 0.0
    rate_out: float = 0.0

    @property
    def rate(self) -> float:
        return self.rate_in + self.rate_out

    @property
    def throughput(self) -> float:
        return self.throughput_in + self.throughput_out

    def with_sample(self, stats: BundleStats) -> Average:
        samples = min(self.samples + 1, self.most)
        old, new = (samples - 1) / samples, 1 / samples
        return Average(
            self.most,
            samples,
            old * self.throughput_in + new * stats.throughput_in,
            old * self.throughput_out + new * stats.throughput_out,
            old * self.rate_in + new * stats.rate_in,
            old * self.rate_out + new * stats.rate_out,
        )

    @classmethod
    def assumed(cls, most: int, stats: BundleStats, samples: int = 0) -> Average:
        """Returns an initial value with the weight of ``samples`` samples; if ``samples`` is 0, the first
        sample replaces the value."""
        return cls(most, samples, stats.throughput_in, stats.throughput_out, stats.rate_in, stats.rate_out)

    @classmethod
    def from_json(cls, value: object, most: int) -> Average:
        record: Mapping[str, object] = value if isinstance(value, dict) else {}
        told = int(number(record.get("maxSamples"))) or most
        return cls(
            max(1, told),
            max(0, min(told, int(number(record.get("numSamples"))))),
            number(record.get("msgThroughputIn")),
            number(record.get("msgThroughputOut")),
            number(record.get("msgRateIn")),
            number(record.get("msgRateOut")),
        )

    def to_json(self) -> dict[str, float]:
        return {
            "maxSamples": self.most,
            "numSamples": self.samples,
            "msgThroughputIn": self.throughput_in,
            "msgThroughputOut": self.throughput_out,
            "msgRateIn": self.rate_in,
            "msgRateOut": self.rate_out,
        }


@dataclass(frozen=True, slots=True)
class BundleHistory:
    """``BundleData``: the traffic of a bundle over its last 10 and its last 1000 samples."""

    short: Average
    long: Average
    topics: int = 0

    @classmethod
    def unseen(cls) -> BundleHistory:
        return cls(Average.assumed(SHORT_SAMPLES, UNSEEN), Average.assumed(LONG_SAMPLES, UNSEEN))

    @classmethod
    def by_quota(cls, quota: BundleStats) -> BundleHistory:
        """Returns the history of a bundle with a quota, as if the quota had always been its traffic."""
        return cls(
            Average.assumed(SHORT_SAMPLES, quota, SHORT_SAMPLES),
            Average.assumed(LONG_SAMPLES, quota, LONG_SAMPLES),
        )

    def with_sample(self, stats: BundleStats) -> BundleHistory:
        return BundleHistory(self.short.with_sample(stats), self.long.with_sample(stats), stats.topics)

    @classmethod
    def from_json(cls, record: Mapping[str, object]) -> BundleHistory:
        return cls(
            Average.from_json(record.get("shortTermData"), SHORT_SAMPLES),
            Average.from_json(record.get("longTermData"), LONG_SAMPLES),
            int(number(record.get("topics"))),
        )

    def to_json(self) -> dict[str, object]:
        return {
            "shortTermData": self.short.to_json(),
            "longTermData": self.long.to_json(),
            "topics": self.topics,
        }


@dataclass(frozen=True, slots=True)
class BrokerAverages:
    """``TimeAverageBrokerData``: the sums over a broker's bundles."""

    short: Average
    long: Average

    @classmethod
    def of(cls, bundles: Iterable[BundleHistory]) -> BrokerAverages:
        known = list(bundles)
        return cls(
            _sum(SHORT_SAMPLES, [bundle.short for bundle in known]),
            _sum(LONG_SAMPLES, [bundle.long for bundle in known]),
        )

    def to_json(self) -> dict[str, float]:
        return {
            f"{term}TermMsg{figure}": value
            for term, average in (("short", self.short), ("long", self.long))
            for figure, value in (
                ("ThroughputIn", average.throughput_in),
                ("ThroughputOut", average.throughput_out),
                ("RateIn", average.rate_in),
                ("RateOut", average.rate_out),
            )
        }


def _sum(most: int, averages: Sequence[Average]) -> Average:
    return Average(
        most,
        0,
        sum(each.throughput_in for each in averages),
        sum(each.throughput_out for each in averages),
        sum(each.rate_in for each in averages),
        sum(each.rate_out for each in averages),
    )


@dataclass(frozen=True, slots=True)
class ResourceQuota:
    """The quota of a bundle, set by operators: ``/loadbalance/resource-quota``.

    Rates are per second, bandwidth in bytes per second, memory in MiB.
    """

    rate_in: float = 40.0
    rate_out: float = 120.0
    bandwidth_in: float = 100_000.0
    bandwidth_out: float = 300_000.0
    memory: float = 80.0
    dynamic: bool = True
    """Whether load managers may replace the quota by measured values; no load manager does this at
    present.
    """

    @classmethod
    def from_json(cls, record: Mapping[str, object]) -> ResourceQuota:
        rate_in, rate_out, bandwidth_in, bandwidth_out, memory = (
            number(record.get(name)) for name in _FIELDS
        )
        dynamic = record.get("dynamic") is not False
        return cls(rate_in, rate_out, bandwidth_in, bandwidth_out, memory, dynamic)

    @classmethod
    def checked(cls, record: Mapping[str, object]) -> ResourceQuota:
        """Returns the quota in a request.

        :raises InvalidRequest: a number is missing, invalid or negative
        """
        for name in _FIELDS:
            value = record.get(name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
                raise InvalidRequest(f"{name} must be a number that is at least 0, not {str(value)[:100]}")
        return cls.from_json(record)

    def to_json(self) -> dict[str, object]:
        values = (self.rate_in, self.rate_out, self.bandwidth_in, self.bandwidth_out, self.memory)
        return {**dict(zip(_FIELDS, values, strict=True)), "dynamic": self.dynamic}

    def expected(self) -> BundleStats:
        return BundleStats(self.rate_in, self.bandwidth_in, self.rate_out, self.bandwidth_out)


class Quotas:
    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata

    async def default(self) -> ResourceQuota:
        """Returns the quota of bundles that have no quota of their own.

        :raises MetadataFailure: the record is not valid JSON
        """
        record = await read(self._metadata, _DEFAULT)
        return ResourceQuota() if record is None else ResourceQuota.from_json(record)

    async def set_default(self, quota: ResourceQuota) -> None:
        await self._metadata.put(_DEFAULT, encode(quota.to_json()))

    async def set_for(self, bundle: str) -> ResourceQuota | None:
        """Returns the quota that was set for a bundle; None: no quota was set.

        :raises MetadataFailure: the record is not valid JSON
        """
        record = await read(self._metadata, f"{_QUOTAS_OF_BUNDLES}/{bundle}")
        return None if record is None else ResourceQuota.from_json(record)

    async def of(self, bundle: str) -> ResourceQuota:
        return await self.set_for(bundle) or await self.default()

    async def set(self, bundle: str, quota: ResourceQuota) -> None:
        await self._metadata.put(f"{_QUOTAS_OF_BUNDLES}/{bundle}", encode(quota.to_json()))

    async def reset(self, bundle: str) -> None:
        """Removes the quota of a bundle, so that the default applies."""
        try:
            await self._metadata.delete(f"{_QUOTAS_OF_BUNDLES}/{bundle}")
        except NodeMissing:
            return
