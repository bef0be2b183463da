"""Applies the rules that operators have set: which brokers may own a bundle, and why the others may not."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field

from magnetar.broker.load.cluster_load import ClusterLoad, namespace_of
from magnetar.broker.load.reports import MODULAR
from magnetar.broker.load.settings import LoadSettings
from magnetar.broker.policies.records import Record, read
from magnetar.errors import InvalidRequest, MetadataFailure
from magnetar.lazy_dataclass import dataclass
from magnetar.metadata.following import MetadataCache
from magnetar.metadata.interface import MetadataStore
from magnetar.naming.namespace_name import LOCAL_POLICIES, NamespaceName

_DEFAULT_DOMAIN = "default"
_SYSTEM = "pulsar/system"
_VERSION = re.compile(r"([0-9]+)\.([0-9]+)\.([0-9]+)(?:[-+].*)?")
_POLICY = "min_available"
_ALL = 100
log = logging.getLogger(__name__)
CLUSTERS = "/admin/clusters"
GROUP = "namespaceAntiAffinityGroup"
_MOST_NAMESPACES = 100_000


def host_of(broker_id: str) -> str:
    """Returns the host in ``host:port``, because policies name hosts."""
    host = broker_id.rpartition(":")[0]
    return host.removeprefix("[").removesuffix("]")


def _compile(expression: str) -> Callable[[str], bool]:
    """Returns a function that matches whole names with a regular expression, in linear time.

    :raises InvalidRequest: the expression is not valid, or needs more than linear time
    """
    # Imported with the first policy: most clusters have none.
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(expression, options)
    except re2.error as error:
        raise InvalidRequest(f"{expression!r} is not a valid regular expression: {error}") from error
    return lambda text: compiled.fullmatch(text) is not None


def _lists(record: Mapping[str, object], name: str, *, needed: bool = True) -> Sequence[str]:
    value = record.get(name)
    if value is None and not needed:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidRequest(f"{name} must be a list of regular expressions, not {str(value)[:100]}")
    return value


@dataclass(frozen=True, slots=True)
class IsolationPolicy:
    """An isolation policy in a cluster's record: the brokers that may serve a namespace.

    The record is ``NamespaceIsolationData``; its expressions match the whole names of namespaces and the
    whole host names of brokers.
    """

    name: str
    namespaces: Sequence[str]
    primary: Sequence[str]
    secondary: Sequence[str]
    min_available: int
    """The number of available primary brokers below which secondary brokers are used, too."""
    usage_threshold: int
    """A primary broker with at least this usage, in percent, does not count as available; 100: all primary
    brokers count as available."""
    _matchers: Mapping[str, Sequence[Callable[[str], bool]]]

    @classmethod
    def from_json(cls, name: str, record: Mapping[str, object]) -> IsolationPolicy:
        """Returns the isolation policy in a record.

        :raises InvalidRequest: the record is not a valid policy; the text gives the reason
        """
        lists = {
            "namespaces": _lists(record, "namespaces"),
            "primary": _lists(record, "primary"),
            "secondary": _lists(record, "secondary", needed=False),
        }
        for needed in ("namespaces", "primary"):
            if not lists[needed]:
                raise InvalidRequest(f"{needed} must not be empty")
        failover = record.get("auto_failover_policy")
        if not isinstance(failover, dict) or failover.get("policy_type") != _POLICY:
            raise InvalidRequest(f"auto_failover_policy must be an object with policy_type {_POLICY}")
        parameters = failover.get("parameters")
        if not isinstance(parameters, dict):
            raise InvalidRequest("auto_failover_policy must have an object named parameters")
        matchers = {kind: [_compile(each) for each in expressions] for kind, expressions in lists.items()}
        return cls(
            name,
            lists["namespaces"],
            lists["primary"],
            lists["secondary"],
            _whole(parameters, "min_limit"),
            _whole(parameters, "usage_threshold"),
            matchers,
        )

    def is_for(self, namespace: str) -> bool:
        return self._any("namespaces", namespace)

    def is_primary(self, broker_id: str) -> bool:
        return self._any("primary", host_of(broker_id))

    def is_secondary(self, broker_id: str) -> bool:
        return self._any("secondary", host_of(broker_id))

    def _any(self, kind: str, text: str) -> bool:
        return any(matches(text) for matches in self._matchers[kind])

    def counts_as_available(self, percent: float) -> bool:
        """Whether a primary broker with that usage counts as available.

        :param percent: the usage of the broker
        """
        return self.usage_threshold >= _ALL or percent < self.usage_threshold


def _whole(parameters: Mapping[str, object], name: str) -> int:
    """Returns a parameter that is a whole number.

    :raises InvalidRequest: the parameter is missing, or not a number
    """
    try:
        return int(str(parameters[name]))
    except (KeyError, ValueError) as error:
        raise InvalidRequest(f"auto_failover_policy: {name} must be a whole number") from error


@dataclass(frozen=True, slots=True)
class Isolation:
    """All policies of a cluster; the first policy that matches a namespace applies."""

    policies: Sequence[IsolationPolicy] = ()

    def of(self, namespace: str) -> IsolationPolicy | None:
        return next((policy for policy in self.policies if policy.is_for(namespace)), None)

    def is_shared(self, broker_id: str) -> bool:
        """Whether namespaces without a policy may use a broker, because it is not the primary broker of any
        policy."""
        return not any(policy.is_primary(broker_id) for policy in self.policies)


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that operators have set for the placement of bundles."""

    isolation: Isolation = field(default_factory=Isolation)
    domains: Mapping[str, str] = field(default_factory=dict)
    """The failure domain of each broker, by broker id; brokers without a failure domain are missing."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """The anti-affinity group of each namespace, in lower case, by the namespace's name; namespaces without a
    group are missing."""


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds of topics in a bundle."""

    persistent: bool = True
    non_persistent: bool = False


@dataclass(slots=True)
class Candidates:
    """The brokers that remain for a bundle, and the reasons why other brokers were excluded."""

    brokers: set[str]
    against: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def refuse(self, broker_id: str, why: str) -> None:
        self.brokers.discard(broker_id)
        self.against[broker_id] = why

    def prefer(self, better: Collection[str], why: str) -> None:
        """Keeps only the brokers in ``better``, unless none of them is left; records ``why`` for each of the
        other brokers.
        """
        kept = self.brokers & set(better)
        if not kept:
            return
        for broker_id in self.brokers - kept:
            self.against[broker_id] = why
        self.brokers = kept


def allowed(bundle: str, kinds: Kinds, load: ClusterLoad, rules: Rules, settings: LoadSettings) -> Candidates:
    """Returns the brokers that may own a bundle: those that isolation policies allow, that serve its kinds of
    topics, and whose load manager is compatible."""
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
    """Returns the best of the allowed brokers; at least one, unless no broker is allowed."""
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
    """Returns the number of a namespace's bundles at a broker, not counting ``bundle`` itself."""
    broker = load.brokers[broker_id]
    has = bundle in broker.report.bundles or bundle in broker.pending
    return broker.namespaces[namespace] - int(has)


def _prefer_least(found: Candidates, counts: Mapping[str, int], why: str) -> None:
    least = min(counts.values(), default=0)
    found.prefer([broker_id for broker_id, count in counts.items() if count == least], why)


def neighbours(namespace: str, bundle: str, load: ClusterLoad, rules: Rules) -> Mapping[str, int] | None:
    """Returns, by broker, the number of served namespaces of the same anti-affinity group; None if the
    namespace is in no group."""
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
    """Returns the reason why a bundle cannot leave its broker; empty if it can."""
    others = allowed(bundle, kinds, load, rules, settings).brokers - {source}
    if not others:
        return "no other broker may serve it"
    counts = neighbours(namespace_of(bundle), bundle, load, rules)
    if counts is not None and min(counts[each] for each in others) > counts.get(source, 0):
        return "all other brokers serve more namespaces of its anti-affinity group"
    return ""


def _prefer_later_versions(found: Candidates, load: ClusterLoad) -> None:
    """Keeps the brokers with the latest version, if every broker reports a comparable version, as in
    Pulsar."""
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


def isolation_path(cluster: str) -> str:
    return f"{CLUSTERS}/{cluster}/namespaceIsolationPolicies"


def domains_path(cluster: str) -> str:
    return f"{CLUSTERS}/{cluster}/failureDomain"


def local_policies_path(namespace: NamespaceName) -> str:
    return f"{LOCAL_POLICIES}/{namespace.path}"


def isolation_of(record: Mapping[str, object]) -> Isolation:
    """Returns the policies in a record. Invalid policies are logged and left out, because they must not
    prevent topics from being served."""
    found = []
    for name, value in record.items():
        try:
            found.append(IsolationPolicy.from_json(name, value if isinstance(value, dict) else {}))
        except InvalidRequest as error:
            log.error("isolation policy ignored: it is invalid", extra={"policy": name, "error": str(error)})
    return Isolation(found)


class KeptRules:
    """Placement rules of operators, cached until they change."""

    def __init__(self, metadata: MetadataStore, cluster: str) -> None:
        self._metadata = metadata
        self._cluster = cluster
        root = f"{CLUSTERS}/{cluster}"
        self._isolation = MetadataCache(metadata, root, self._read_isolation, most=10)
        self._domains = MetadataCache(metadata, root, self._read_domains, most=10)
        self._groups = MetadataCache(metadata, LOCAL_POLICIES, self._read_group, most=_MOST_NAMESPACES)
        metadata.listen(domains_path(cluster), lambda _change: self._domains.forget_all())

    async def of(self, namespace: str, others: Iterable[str]) -> Rules:
        """Returns the rules for a bundle of a namespace.

        :param others: the namespaces that brokers serve; those of the same anti-affinity group count
        :raises MetadataError: the rules cannot be read now
        """
        isolation = await self._isolation.get(isolation_path(self._cluster))
        group = await self._group(namespace)
        if not group:
            return Rules(isolation)
        domains = await self._domains.get(domains_path(self._cluster))
        groups = {name: await self._group(name) for name in sorted({namespace, *others})}
        return Rules(isolation, domains, {name: found for name, found in groups.items() if found})

    async def of_all(self, namespaces: Iterable[str]) -> Rules:
        """Returns the rules for bundles of several namespaces; raises as :meth:`of` does."""
        isolation = await self._isolation.get(isolation_path(self._cluster))
        domains = await self._domains.get(domains_path(self._cluster))
        groups = {name: await self._group(name) for name in sorted(namespaces)}
        return Rules(isolation, domains, {name: found for name, found in groups.items() if found})

    async def _group(self, namespace: str) -> str:
        return await self._groups.get(f"{LOCAL_POLICIES}/{namespace}")

    async def _read_isolation(self, path: str) -> Isolation:
        return isolation_of(await self._readable(path))

    async def _read_domains(self, path: str) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for name in await self._metadata.children(path):
            record = await self._readable(f"{path}/{name}")
            brokers = record.get("brokers")
            found |= dict.fromkeys(map(str, brokers if isinstance(brokers, list) else ()), name)
        return found

    async def _read_group(self, path: str) -> str:
        """Returns the anti-affinity group of a namespace; empty: no group."""
        return str((await self._readable(path)).get(GROUP) or "").lower()

    async def _readable(self, path: str) -> Record:
        """Returns a record; empty if it is missing or damaged, because topics must still be served, as in
        Pulsar.
        """
        try:
            return await read(self._metadata, path) or {}
        except MetadataFailure as error:
            log.error("metadata record ignored: it cannot be read", extra={"error": str(error)})
            return {}
