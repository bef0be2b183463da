"""Isolation policies, as stored in a cluster's record: which brokers may serve a namespace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from magnetar.errors import InvalidRequest
from magnetar.lazy_dataclass import dataclass

_POLICY = "min_available"
_ALL = 100


def host_of(broker_id: str) -> str:
    """Returns the host in ``host:port``; policies name hosts."""
    host = broker_id.rpartition(":")[0]
    return host.removeprefix("[").removesuffix("]")


def _compile(expression: str) -> Callable[[str], bool]:
    """Compiles an expression that matches whole names in linear time.

    :raises InvalidRequest: it is not valid, or needs more than linear time
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


def _lists(record: Mapping[str, Any], name: str, *, needed: bool = True) -> Sequence[str]:
    value = record.get(name)
    if value is None and not needed:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidRequest(f"{name} must be a list of regular expressions")
    return value


@dataclass(frozen=True, slots=True)
class IsolationPolicy:
    """``NamespaceIsolationData``; its expressions match whole names of namespaces and hosts of brokers."""

    name: str
    namespaces: Sequence[str]
    primary: Sequence[str]
    secondary: Sequence[str]
    min_available: int
    """With fewer available primary brokers than this, secondary ones are used too."""
    usage_threshold: int
    """Primary brokers at or above this usage, in percent, do not count as available; 100: all do."""
    _matchers: Mapping[str, Sequence[Callable[[str], bool]]]

    @classmethod
    def from_json(cls, name: str, record: Mapping[str, Any]) -> IsolationPolicy:
        """:raises InvalidRequest: the record is not a valid policy; the text says what is wrong"""
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
            raise InvalidRequest(f"auto_failover_policy must be {_POLICY}")
        parameters = failover.get("parameters")
        if not isinstance(parameters, dict):
            raise InvalidRequest("auto_failover_policy must have parameters")
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
        """:param percent: the usage of a primary broker"""
        return self.usage_threshold >= _ALL or percent < self.usage_threshold


def _whole(parameters: Mapping[str, Any], name: str) -> int:
    """:raises InvalidRequest: the parameter is missing, or not a number"""
    try:
        return int(str(parameters[name]))
    except (KeyError, ValueError) as error:
        raise InvalidRequest(f"auto_failover_policy: {name} must be a number") from error


@dataclass(frozen=True, slots=True)
class Isolation:
    """All policies of a cluster; the first one that matches a namespace applies."""

    policies: Sequence[IsolationPolicy] = ()

    def of(self, namespace: str) -> IsolationPolicy | None:
        return next((policy for policy in self.policies if policy.is_for(namespace)), None)

    def is_shared(self, broker_id: str) -> bool:
        """Whether namespaces without a policy may use a broker: it is the primary broker of no policy."""
        return not any(policy.is_primary(broker_id) for policy in self.policies)
