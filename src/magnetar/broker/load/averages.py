"""Averages of the traffic of bundles and brokers, as leaders keep them in ``/loadbalance``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from magnetar.broker.load.reports import BundleStats, number
from magnetar.lazy_dataclass import dataclass

SHORT_SAMPLES = 10
LONG_SAMPLES = 1000
UNSEEN = BundleStats(50.0, 50_000.0, 50.0, 50_000.0)
"""The assumed traffic of a bundle without reports, as in Pulsar."""
_BUNDLES = "/loadbalance/bundle-data"
BROKERS = "/loadbalance/broker-time-average"


def bundle_path(bundle: str) -> str:
    return f"{_BUNDLES}/{bundle}"


def broker_path(broker_id: str) -> str:
    return f"{BROKERS}/{broker_id}"


@dataclass(frozen=True, slots=True)
class Average:
    """``TimeAverageMessageData``: the first samples count equally, later on old ones fade."""

    most: int
    """Number of samples at which old ones begin to fade."""
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
        """Returns an initial value that samples replace; with ``samples``, one that weighs as many."""
        return cls(most, samples, stats.throughput_in, stats.throughput_out, stats.rate_in, stats.rate_out)

    @classmethod
    def from_json(cls, value: object, most: int) -> Average:
        record: Mapping[str, Any] = value if isinstance(value, dict) else {}
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
        """Returns the history of a bundle with a quota, as if that had always been its traffic."""
        return cls(
            Average.assumed(SHORT_SAMPLES, quota, SHORT_SAMPLES),
            Average.assumed(LONG_SAMPLES, quota, LONG_SAMPLES),
        )

    def with_sample(self, stats: BundleStats) -> BundleHistory:
        return BundleHistory(self.short.with_sample(stats), self.long.with_sample(stats), stats.topics)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> BundleHistory:
        return cls(
            Average.from_json(record.get("shortTermData"), SHORT_SAMPLES),
            Average.from_json(record.get("longTermData"), LONG_SAMPLES),
            int(number(record.get("topics"))),
        )

    def to_json(self) -> dict[str, Any]:
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
