"""What brokers are told of how load is measured and spread; by Pulsar's names in configuration files."""

from __future__ import annotations

from dataclasses import field

from magnetar.broker.load.reports import Weights
from magnetar.broker.ownership.splitting import ALGORITHMS, DEFAULT
from magnetar.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ShedderSettings:
    """Shares are fractions: 0.1 for 10 %."""

    overloaded: float = 0.85
    """loadBalancerBrokerOverloadedThresholdPercentage"""
    above_average: float = 0.10
    """loadBalancerBrokerThresholdShedderPercentage"""
    history: float = 0.9
    """loadBalancerHistoryResourcePercentage: how much of what was counts in what is."""
    min_throughput: float = 10.0 * 1024 * 1024
    """Bytes a second; ThresholdShedder moves no less (loadBalancerBundleUnloadMinThroughputThreshold)."""
    lower_boundary: bool = False
    """Whether a broker far below the average is enough (lowerBoundarySheddingEnabled)."""
    rate_difference: float = 0.5
    """Of UniformLoadShedder, as a share of the lowest (loadBalancerMsgRateDifferenceShedderThreshold)."""
    throughput_factor: float = 4.0
    """loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold"""
    min_unload_rate: float = 1000.0
    """Messages a second (minUnloadMessage)."""
    min_unload_throughput: float = 1048576.0
    """Bytes a second (minUnloadMessageThroughput)."""
    max_unload_share: float = 0.2
    """Of the difference between two brokers (maxUnloadPercentage)."""
    max_bundles: int = -1
    """Of UniformLoadShedder at a time; -1: any number (maxUnloadBundleNumPerShedding)."""
    low: float = 15.0
    """Points between brokers that AvgShedder counts (loadBalancerAvgShedderLowThreshold); so is the next."""
    high: float = 40.0
    hits_low: int = 8
    """How often in a row (loadBalancerAvgShedderHitCountLowThreshold); so is the next."""
    hits_high: int = 2


@dataclass(frozen=True, slots=True)
class SplitSettings:
    enabled: bool = True
    """loadBalancerAutoBundleSplitEnabled"""
    unload: bool = True
    """Whether halves may go elsewhere at once (loadBalancerAutoUnloadSplitBundlesEnabled)."""
    max_topics: int = 1000
    """Of a bundle (loadBalancerNamespaceBundleMaxTopics)."""
    max_sessions: int = 1000
    """Producers and consumers of a bundle; 0 and less: any number."""
    max_rate: float = 30_000.0
    """Messages a second, in and out."""
    max_throughput: float = 100.0 * 1024 * 1024
    """Bytes a second, in and out."""
    max_bundles: int = 128
    """Of a namespace (loadBalancerNamespaceMaximumBundles)."""
    algorithm: str = DEFAULT
    """Where nobody says how (defaultNamespaceBundleSplitAlgorithm)."""
    supported: tuple[str, ...] = tuple(ALGORITHMS)
    """Others are refused (supportedNamespaceBundleSplitAlgorithms)."""
    tolerance: float = 0.1
    """What is above the two rates by less is not divided by them (flowOrQpsDifferenceThresholdPercentage)."""


@dataclass(frozen=True, slots=True)
class ReportSettings:
    change: float = 0.10
    """A figure that changed by more than this share is told (loadBalancerReportUpdateThresholdPercentage)."""
    min_seconds: float = 5.0
    max_seconds: float = 900.0
    host_seconds: float = 60.0
    """How often the host is measured (loadBalancerHostUsageCheckIntervalMinutes)."""
    quota_seconds: float = 900.0
    """How often the leader writes averages (loadBalancerResourceQuotaUpdateIntervalMinutes)."""
    nic_gbps: float | None = None
    """Of all cards together; None: what the host says (loadBalancerOverrideBrokerNicSpeedGbps)."""


@dataclass(frozen=True, slots=True)
class LoadSettings:
    enabled: bool = True
    """loadBalancerEnabled; else bundles go wherever they are first asked for."""
    placement: str = "LeastLongTermMessageRate"
    shedder: str = "ThresholdShedder"
    shedding: bool = True
    """loadBalancerSheddingEnabled"""
    shedding_seconds: float = 60.0
    grace_seconds: float = 1800.0
    """A bundle that was moved is not moved again for so long (loadBalancerSheddingGracePeriodMinutes)."""
    spread_namespaces: bool = True
    """Each namespace's bundles evenly (loadBalancerDistributeBundlesEvenlyEnabled)."""
    max_topics: int = 50_000
    """Of a broker (loadBalancerBrokerMaxTopics)."""
    average_difference: float = 0.10
    """loadBalancerAverageResourceUsageDifferenceThresholdPercentage, as a share."""
    unload_seconds: float = 60.0
    """In which the topics of a bundle have to be closed (namespaceBundleUnloadingTimeoutMs)."""
    failure_domains: bool = False
    """failureDomainsEnabled"""
    later_versions: bool = False
    """preferLaterVersions"""
    weights: Weights = field(default_factory=Weights)
    shed: ShedderSettings = field(default_factory=ShedderSettings)
    split: SplitSettings = field(default_factory=SplitSettings)
    report: ReportSettings = field(default_factory=ReportSettings)
