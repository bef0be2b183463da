"""Determines which brokers may take a bundle, and why the others may not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import field

from magnetar.broker.load.cluster_load import ClusterLoad, namespace_of
from magnetar.broker.load.isolation import Isolation
from magnetar.broker.load.reports import MODULAR
from magnetar.broker.load.settings import LoadSettings
from magnetar.lazy_dataclass import dataclass

_DEFAULT_DOMAIN = "default"
_SYSTEM = "pulsar/system"
_VERSION = re.compile(r"([0-9]+)\.([0-9]+)\.([0-9]+)(?:[-+].*)?")


@dataclass(frozen=True, slots=True)
class Rules:
    """What operators have configured about the placement of bundles."""

    isolation: Isolation = field(default_factory=Isolation)
    domains: Mapping[str, str] = field(default_factory=dict)
    """The failure domain by broker, for brokers that are in one."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """The anti-affinity group by namespace, for namespaces that are in one; in lower case."""


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds of topics that a bundle has."""

    persistent: bool = True
    non_persistent: bool = False


@dataclass(slots=True)
class Candidates:
    """The remaining brokers, and the reasons against each of the others."""

    brokers: set[str]
    against: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def refuse(self, broker_id: str, why: str) -> None:
        self.brokers.discard(broker_id)
        self.against[broker_id] = why

    def prefer(self, better: Collection[str], why: str) -> None:
        """Keeps only these, unless none of them is left."""
        kept = self.brokers & set(better)
        if not kept:
            return
        for broker_id in self.brokers - kept:
            self.against[broker_id] = why
        self.brokers = kept


def allowed(bundle: str, kinds: Kinds, load: ClusterLoad, rules: Rules, settings: LoadSettings) -> Candidates:
    """Returns the brokers that policies allow; no other broker gets the bundle in any case."""
    found = Candidates(set(load.brokers))
    policy = rules.isolation.of(namespace_of(bundle))
    for broker_id, broker in sorted(load.brokers.items()):
        identity = broker.report.identity
        if identity.load_manager not in ("", MODULAR):
            found.refuse(broker_id, f"its load manager is {identity.load_manager.rpartition('.')[2]}")
        elif kinds.persistent and not identity.persistent_topics:
            found.refuse(broker_id, "it serves no persistent topics")
        elif kinds.non_persistent and not identity.non_persistent_topics:
            found.refuse(broker_id, "it serves no non-persistent topics")
        elif policy is None and not rules.isolation.is_shared(broker_id):
            found.refuse(broker_id, "it is reserved for namespaces with an isolation policy")
    if policy is None:
        return found
    primary = {broker_id for broker_id in found.brokers if policy.is_primary(broker_id)}
    counted = {
        each
        for each in primary
        if policy.counts_as_available(100 * load.brokers[each].report.resources.weighed(settings.weights))
    }
    further = set[str]()
    if len(counted) < policy.min_available:
        further = {each for each in found.brokers - primary if policy.is_secondary(each)}
    have = f"{len(counted)} of at least {policy.min_available} primary brokers are available"
    found.notes.append(f"isolation policy {policy.name}: {have}")
    for broker_id in sorted(found.brokers - primary - further):
        secondary = policy.is_secondary(broker_id)
        kind = (
            f"it is a secondary broker, and {have}"
            if secondary
            else "it is neither a primary nor a secondary broker"
        )
        found.refuse(broker_id, f"isolation policy {policy.name}: {kind}")
    return found


def preferred(
    bundle: str, kinds: Kinds, load: ClusterLoad, rules: Rules, settings: LoadSettings
) -> Candidates:
    """Returns the best of the allowed brokers: a preference never leaves none."""
    found = allowed(bundle, kinds, load, rules, settings)
    few = [each for each in found.brokers if load.brokers[each].topics() <= settings.max_topics]
    found.prefer(few, f"it has more than {settings.max_topics} topics")
    _keep_apart(found, bundle, load, rules, settings)
    namespace = namespace_of(bundle)
    if settings.spread_namespaces or namespace == _SYSTEM:
        counts = {each: _count(load, each, namespace, bundle) for each in found.brokers}
        least = min(counts.values(), default=0)
        _prefer_least(found, counts, f"it has more than {least} bundles of {namespace}, unlike other brokers")
    if settings.later_versions:
        _prefer_later_versions(found, load)
    return found


def _count(load: ClusterLoad, broker_id: str, namespace: str, bundle: str) -> int:
    """Counts the other bundles of a namespace at a broker; the bundle itself is not counted."""
    broker = load.brokers[broker_id]
    has = bundle in broker.report.bundles or bundle in broker.pending
    return broker.namespaces[namespace] - int(has)


def _prefer_least(found: Candidates, counts: Mapping[str, int], why: str) -> None:
    least = min(counts.values(), default=0)
    found.prefer([broker_id for broker_id, count in counts.items() if count == least], why)


def neighbours(namespace: str, bundle: str, load: ClusterLoad, rules: Rules) -> Mapping[str, int] | None:
    """Counts namespaces of the same anti-affinity group by broker; None: the namespace is in no group."""
    group = rules.groups.get(namespace)
    if group is None:
        return None
    counts: dict[str, int] = {}
    for broker_id, broker in load.brokers.items():
        counts[broker_id] = sum(
            1
            for other, bundles in broker.namespaces.items()
            if rules.groups.get(other) == group
            and (bundles if other != namespace else _count(load, broker_id, namespace, bundle)) > 0
        )
    return counts


def _keep_apart(
    found: Candidates, bundle: str, load: ClusterLoad, rules: Rules, settings: LoadSettings
) -> None:
    counts = neighbours(namespace_of(bundle), bundle, load, rules)
    if counts is None:
        return
    group = rules.groups[namespace_of(bundle)]
    if settings.failure_domains and rules.domains:
        domains: Counter[str] = Counter()
        for broker_id in found.brokers:
            domains[rules.domains.get(broker_id, _DEFAULT_DOMAIN)] += counts[broker_id]
        least = min(domains.values(), default=0)
        better = [
            each for each in found.brokers if domains[rules.domains.get(each, _DEFAULT_DOMAIN)] == least
        ]
        found.prefer(better, f"its failure domain serves more namespaces of group {group}")
    of_left = {broker_id: counts[broker_id] for broker_id in found.brokers}
    _prefer_least(found, of_left, f"it serves more namespaces of group {group}")


def may_leave(
    bundle: str, source: str, kinds: Kinds, load: ClusterLoad, rules: Rules, settings: LoadSettings
) -> str:
    """Returns why a bundle cannot be taken from the broker that serves it; empty: it can."""
    others = allowed(bundle, kinds, load, rules, settings).brokers - {source}
    if not others:
        return "no other broker may serve it"
    counts = neighbours(namespace_of(bundle), bundle, load, rules)
    if counts is not None and min(counts[each] for each in others) > counts.get(source, 0):
        return "all other brokers serve more namespaces of its anti-affinity group"
    return ""


def _prefer_later_versions(found: Candidates, load: ClusterLoad) -> None:
    """Only if every broker reports a comparable version; otherwise it does nothing, as in Pulsar."""
    versions = {
        each: _VERSION.fullmatch(load.brokers[each].report.identity.version) for each in found.brokers
    }
    numbers = {each: tuple(map(int, match.groups()[:3])) for each, match in versions.items() if match}
    if len(numbers) < len(versions) or not numbers:
        return
    latest = max(numbers.values())
    told = ".".join(map(str, latest))
    found.prefer(
        [each for each, number in numbers.items() if number == latest], f"other brokers have version {told}"
    )
