"""A broker's load report: ``LocalBrokerData`` in ``/loadbalance/brokers``, with Pulsar's fields."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields
from math import isfinite

from magnetar.lazy_dataclass import dataclass
from magnetar.naming.bundles import BundleRange
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.namespace_name import NamespaceName

MODULAR = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
_KIND = "LocalBrokerData"
RESOURCES = ("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut")


def number(value: object) -> float:
    """Returns a number in another broker's record; 0 for an invalid or infinite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    try:
        found = float(value)
    except OverflowError:
        return 0.0
    return found if isfinite(found) else 0.0


def _texts(value: object) -> frozenset[str]:
    return (
        frozenset(item for item in value if isinstance(item, str)) if isinstance(value, list) else frozenset()
    )


def _are_bundles(names: Iterable[str]) -> frozenset[str]:
    """Returns the names that are full names of bundles; other names are dropped, because the names become
    parts of paths.
    """
    ranges = defaultdict[str, list[str]](list)
    for name in names:
        namespace, _, told = name.rpartition("/")
        ranges[namespace].append(told)
    return frozenset(
        f"{namespace}/{told}"
        for namespace, found in ranges.items()
        if _is(NamespaceName.parse, namespace)
        for told in found
        if _is(BundleRange.parse, told)
    )


def _is(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except InvalidName:
        return False
    return True


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True, slots=True)
class Usage:
    """The use of one resource, in its unit: percent of a core, MiB, kbit/s."""

    usage: float = 0.0
    limit: float = 0.0
    """The available amount; 0 or less: unknown, so that the use counts as zero."""

    @property
    def percent(self) -> float:
        return 100.0 * self.usage / self.limit if self.limit > 0 else 0.0

    @classmethod
    def from_json(cls, value: object) -> Usage:
        record = _object(value)
        return cls(number(record.get("usage")), number(record.get("limit")))

    def to_json(self) -> dict[str, float]:
        return {"usage": self.usage, "limit": self.limit}


@dataclass(frozen=True, slots=True)
class BundleStats:
    """``NamespaceBundleStats``: the traffic of a bundle; rates per second, throughput in bytes per second."""

    rate_in: float = 0.0
    throughput_in: float = 0.0
    rate_out: float = 0.0
    throughput_out: float = 0.0
    consumers: int = 0
    producers: int = 0
    topics: int = 0
    cache_bytes: int = 0

    @property
    def rate(self) -> float:
        return self.rate_in + self.rate_out

    @property
    def throughput(self) -> float:
        return self.throughput_in + self.throughput_out

    @classmethod
    def from_json(cls, value: object) -> BundleStats:
        record = _object(value)
        return cls(
            number(record.get("msgRateIn")),
            number(record.get("msgThroughputIn")),
            number(record.get("msgRateOut")),
            number(record.get("msgThroughputOut")),
            int(number(record.get("consumerCount"))),
            int(number(record.get("producerCount"))),
            int(number(record.get("topics"))),
            int(number(record.get("cacheSize"))),
        )

    def to_json(self) -> dict[str, float]:
        return {
            "msgRateIn": self.rate_in,
            "msgThroughputIn": self.throughput_in,
            "msgRateOut": self.rate_out,
            "msgThroughputOut": self.throughput_out,
            "consumerCount": self.consumers,
            "producerCount": self.producers,
            "topics": self.topics,
            "cacheSize": self.cache_bytes,
        }


@dataclass(frozen=True, slots=True)
class Weights:
    """The weight of each resource in the usage of a broker (``loadBalancer…ResourceWeight``)."""

    cpu: float = 1.0
    memory: float = 0.0
    direct_memory: float = 0.0
    bandwidth_in: float = 1.0
    bandwidth_out: float = 1.0


@dataclass(frozen=True, slots=True)
class Resources:
    cpu: Usage = field(default_factory=Usage)
    """Percent of a core; the limit is 100 per core."""
    memory: Usage = field(default_factory=Usage)
    """Used and available heap memory, in MiB."""
    direct_memory: Usage = field(default_factory=Usage)
    """Used and available direct memory, in MiB."""
    bandwidth_in: Usage = field(default_factory=Usage)
    """Received data in kbit per second; ``bandwidth_out``: sent data."""
    bandwidth_out: Usage = field(default_factory=Usage)

    @property
    def most(self) -> float:
        """Returns the highest usage of a resource (1.0: fully used); memory does not count, as in Pulsar."""
        used = (self.cpu, self.direct_memory, self.bandwidth_in, self.bandwidth_out)
        return max(0.0, *(each.percent for each in used)) / 100

    def weighed(self, weights: Weights) -> float:
        """Returns the highest usage of a resource after weighting; the weight of memory is not used, as in
        Pulsar."""
        return (
            max(
                0.0,
                self.cpu.percent * weights.cpu,
                self.direct_memory.percent * weights.direct_memory,
                self.bandwidth_in.percent * weights.bandwidth_in,
                self.bandwidth_out.percent * weights.bandwidth_out,
            )
            / 100
        )

    def named(self) -> Mapping[str, Usage]:
        """Returns the resources by their names in records."""
        values = (self.cpu, self.memory, self.direct_memory, self.bandwidth_in, self.bandwidth_out)
        return dict(zip(RESOURCES, values, strict=True))


@dataclass(frozen=True, slots=True)
class Identity:
    """The part of a record that does not change while a broker runs."""

    addresses: Mapping[str, str] = field(default_factory=dict)
    """The addresses by field, ``webServiceUrl`` and so on; an address that the broker lacks is missing."""
    persistent_topics: bool = True
    non_persistent_topics: bool = True
    version: str = ""
    protocols: Mapping[str, object] = field(default_factory=dict)
    listeners: Mapping[str, object] = field(default_factory=dict)
    load_manager: str = MODULAR
    started_ms: int = 0


_ADDRESSES = ("webServiceUrl", "webServiceUrlTls", "pulsarServiceUrl", "pulsarServiceUrlTls")


@dataclass(frozen=True, slots=True)
class BrokerReport:
    """A broker's report, ``LocalBrokerData``; unknown fields are ignored."""

    identity: Identity
    resources: Resources = field(default_factory=Resources)
    stats: Mapping[str, BundleStats] = field(default_factory=dict)
    """The statistics of bundles by their full names, ``tenant/namespace/0xSTART_0xEND``."""
    bundles: frozenset[str] = frozenset()
    gains: frozenset[str] = frozenset()
    """Bundles that are new since the previous report; ``losses``: bundles that are gone."""
    losses: frozenset[str] = frozenset()
    updated_ms: int = 0
    """The time of the report on the wall clock of the broker that wrote it, in ms since 1970."""
    total: BundleStats = field(default_factory=BundleStats)
    """The statistics of all bundles together."""

    @classmethod
    def from_json(cls, record: Mapping[str, object]) -> BrokerReport:
        """Returns the report in a record; missing or malformed fields count as not reported."""
        told, has = _object(record.get("lastStats")), _texts(record.get("bundles"))
        known = _are_bundles(has | told.keys())
        stats = {name: BundleStats.from_json(value) for name, value in told.items() if name in known}
        return cls(
            _identity(record),
            Resources(*(Usage.from_json(record.get(name)) for name in RESOURCES)),
            stats,
            has & known,
            _texts(record.get("lastBundleGains")),
            _texts(record.get("lastBundleLosses")),
            int(number(record.get("lastUpdate"))),
            _total(record),
        )

    def to_json(self) -> dict[str, object]:
        identity, total = self.identity, self.total
        return {
            **identity.addresses,
            "persistentTopicsEnabled": identity.persistent_topics,
            "nonPersistentTopicsEnabled": identity.non_persistent_topics,
            **{name: usage.to_json() for name, usage in self.resources.named().items()},
            "msgThroughputIn": total.throughput_in,
            "msgThroughputOut": total.throughput_out,
            "msgRateIn": total.rate_in,
            "msgRateOut": total.rate_out,
            "lastUpdate": self.updated_ms,
            "lastStats": {name: stats.to_json() for name, stats in self.stats.items()},
            "numTopics": total.topics,
            "numBundles": len(self.bundles),
            "numConsumers": total.consumers,
            "numProducers": total.producers,
            "bundles": sorted(self.bundles),
            "lastBundleGains": sorted(self.gains),
            "lastBundleLosses": sorted(self.losses),
            "brokerVersionString": identity.version,
            "protocols": dict(identity.protocols),
            "advertisedListeners": dict(identity.listeners),
            "loadManagerClassName": identity.load_manager,
            "startTimestamp": identity.started_ms,
            "maxResourceUsage": self.resources.most,
            "loadReportType": _KIND,
        }


def _identity(record: Mapping[str, object]) -> Identity:
    addresses = {name: url for name in _ADDRESSES if isinstance(url := record.get(name), str)}
    return Identity(
        addresses,
        record.get("persistentTopicsEnabled") is not False,
        record.get("nonPersistentTopicsEnabled") is not False,
        str(record.get("brokerVersionString") or ""),
        _object(record.get("protocols")),
        _object(record.get("advertisedListeners")),
        str(record.get("loadManagerClassName") or ""),
        int(number(record.get("startTimestamp"))),
    )


def _total(record: Mapping[str, object]) -> BundleStats:
    return BundleStats(
        number(record.get("msgRateIn")),
        number(record.get("msgThroughputIn")),
        number(record.get("msgRateOut")),
        number(record.get("msgThroughputOut")),
        int(number(record.get("numConsumers"))),
        int(number(record.get("numProducers"))),
        int(number(record.get("numTopics"))),
    )


def sum_of(stats: Mapping[str, BundleStats]) -> BundleStats:
    """Returns the traffic of several bundles together."""
    names = [each.name for each in fields(BundleStats)]
    return BundleStats(*(sum(getattr(each, name) for each in stats.values()) for name in names))


def new_report(
    identity: Identity,
    resources: Resources,
    stats: Mapping[str, BundleStats],
    before: BrokerReport | None,
    now_ms: int,
) -> BrokerReport:
    """Returns a new report.

    :param stats: the statistics of each bundle that the broker serves
    :param before: the broker's previous report; None: this is the first report
    """
    bundles = frozenset(stats)
    earlier = before.bundles if before is not None else frozenset()
    return BrokerReport(
        identity, resources, stats, bundles, bundles - earlier, earlier - bundles, now_ms, sum_of(stats)
    )
