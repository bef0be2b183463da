"""Settings of load balancing, with Pulsar's names in configuration files, and the interface of load
management."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from magnetar.broker.load.reports import Weights
from magnetar.broker.ownership.bundles import DEFAULT_DIVISION, DIVISIONS
from magnetar.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from magnetar.broker.load.manager import LoadManager
    from magnetar.broker.load.reporter import Reporter


@dataclass(frozen=True, slots=True)
class ShedderSettings:
    """Settings of load shedding. Shares are fractions: 0.1 for 10 %."""

    overloaded: float = 0.85
    """The usage above which a broker counts as overloaded
    (loadBalancerBrokerOverloadedThresholdPercentage)."""
    above_average: float = 0.10
    """How far a broker's usage must be above the average for ThresholdShedder to relieve the broker
    (loadBalancerBrokerThresholdShedderPercentage)."""
    history: float = 0.9
    """The weight of the previous value in a smoothed value, 0 to 1
    (loadBalancerHistoryResourcePercentage).
    """
    min_throughput: float = 10.0 * 1024 * 1024
    """The minimum throughput that ThresholdShedder moves, in bytes per second
    (loadBalancerBundleUnloadMinThroughputThreshold)."""
    lower_boundary: bool = False
    """Whether bundles also move because a broker is far below the average (lowerBoundarySheddingEnabled)."""
    rate_difference: float = 0.5
    """The difference of message rates at which UniformLoadShedder moves bundles, as a share of the
    lowest rate
    (loadBalancerMsgRateDifferenceShedderThreshold)."""
    throughput_factor: float = 4.0
    """The ratio of throughputs at which UniformLoadShedder moves bundles
    (loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold)."""
    min_unload_rate: float = 1000.0
    """The minimum rate that UniformLoadShedder moves, in messages per second (minUnloadMessage)."""
    min_unload_throughput: float = 1048576.0
    """The minimum throughput that UniformLoadShedder moves, in bytes per second
    (minUnloadMessageThroughput)."""
    max_unload_share: float = 0.2
    """The maximum fraction of the difference between two brokers that is moved (maxUnloadPercentage)."""
    max_bundles: int = -1
    """The maximum number of bundles that UniformLoadShedder moves in a round; -1: no limit
    (maxUnloadBundleNumPerShedding)."""
    low: float = 15.0
    """The difference of usage in percentage points that AvgShedder tolerates for ``hits_low`` rounds
    (loadBalancerAvgShedderLowThreshold); ``high`` is the difference that it tolerates for ``hits_high``
    rounds."""
    high: float = 40.0
    hits_low: int = 8
    """The number of consecutive rounds in which the difference exceeds ``low`` before bundles move
    (loadBalancerAvgShedderHitCountLowThreshold); ``hits_high`` is the same for ``high``."""
    hits_high: int = 2


@dataclass(frozen=True, slots=True)
class SplitSettings:
    enabled: bool = True
    """Whether bundles that exceed a limit are split automatically (loadBalancerAutoBundleSplitEnabled)."""
    unload: bool = True
    """Whether the parts of a split bundle may be unloaded immediately
    (loadBalancerAutoUnloadSplitBundlesEnabled)."""
    max_topics: int = 1000
    """The number of topics of a bundle above which it is split (loadBalancerNamespaceBundleMaxTopics)."""
    max_sessions: int = 1000
    """The number of producers and consumers of a bundle above which it is split; 0 or less: no limit."""
    max_rate: float = 30_000.0
    """The rate of a bundle above which it is split: incoming and outgoing messages per second together."""
    max_throughput: float = 100.0 * 1024 * 1024
    """The throughput of a bundle above which it is split: incoming and outgoing bytes per second together."""
    max_bundles: int = 128
    """The number of bundles of a namespace at which no more bundles are split
    (loadBalancerNamespaceMaximumBundles)."""
    algorithm: str = DEFAULT_DIVISION
    """The algorithm for requests that name no algorithm (defaultNamespaceBundleSplitAlgorithm)."""
    supported: tuple[str, ...] = tuple(DIVISIONS)
    """The algorithms that requests may name (supportedNamespaceBundleSplitAlgorithms)."""
    tolerance: float = 0.1
    """A rate that exceeds its limit by a smaller fraction does not cause a split
    (flowOrQpsDifferenceThresholdPercentage)."""


@dataclass(frozen=True, slots=True)
class ReportSettings:
    change: float = 0.10
    """The fraction by which a value must change to be reported
    (loadBalancerReportUpdateThresholdPercentage)."""
    min_seconds: float = 5.0
    max_seconds: float = 900.0
    host_seconds: float = 60.0
    """Seconds between two measurements of the host (loadBalancerHostUsageCheckIntervalMinutes)."""
    quota_seconds: float = 900.0
    """Seconds between two writes of the averages by the leader
    (loadBalancerResourceQuotaUpdateIntervalMinutes)."""
    nic_gbps: float | None = None
    """The speed of all network cards together, in Gbit/s; None: as reported by the host
    (loadBalancerOverrideBrokerNicSpeedGbps)."""


@dataclass(frozen=True, slots=True)
class LoadSettings:
    enabled: bool = True
    """Whether the leader places, moves and splits bundles (loadBalancerEnabled); otherwise a bundle goes to
    the broker at which it is first looked up."""
    placement: str = "LeastLongTermMessageRate"
    shedder: str = "ThresholdShedder"
    shedding: bool = True
    """Whether bundles are moved away from overloaded brokers (loadBalancerSheddingEnabled)."""
    shedding_seconds: float = 60.0
    grace_seconds: float = 1800.0
    """The time after a move, in seconds, in which a bundle is not moved again
    (loadBalancerSheddingGracePeriodMinutes)."""
    spread_namespaces: bool = True
    """Whether each namespace's bundles are spread evenly (loadBalancerDistributeBundlesEvenlyEnabled)."""
    max_topics: int = 50_000
    """The maximum number of topics of a broker (loadBalancerBrokerMaxTopics)."""
    average_difference: float = 0.10
    """How far below the average usage a broker must be for LeastResourceUsageWithWeight to prefer it, as a
    fraction of full usage (loadBalancerAverageResourceUsageDifferenceThresholdPercentage)."""
    unload_seconds: float = 60.0
    """The maximum time for closing the topics of a bundle, in seconds (namespaceBundleUnloadingTimeoutMs)."""
    failure_domains: bool = False
    """Whether the bundles of an anti-affinity group are spread over failure domains
    (failureDomainsEnabled)."""
    later_versions: bool = False
    """Whether bundles are placed at the brokers with the latest version (preferLaterVersions)."""
    weights: Weights = field(default_factory=Weights)
    shed: ShedderSettings = field(default_factory=ShedderSettings)
    split: SplitSettings = field(default_factory=SplitSettings)
    report: ReportSettings = field(default_factory=ReportSettings)


@dataclass(frozen=True, slots=True)
class LoadDesk:
    """The load management of a broker in a cluster, for other parts of the process."""

    manager: LoadManager
    reporter: Reporter
