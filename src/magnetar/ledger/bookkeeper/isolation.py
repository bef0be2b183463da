"""Isolation groups of a ledger's bookies, in the ledger's metadata, in the form of Pulsar's brokers.

Whatever replaces a bookie of such a ledger (this broker, one of Apache's, or AutoRecovery) obeys them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from magnetar.ledger.interface import DataDamaged, Groups

CUSTOM = "EnsemblePlacementPolicyConfig"
"""The name in a ledger's custom metadata."""
_POLICY = "org.apache.pulsar.bookie.rackawareness.IsolatedBookieEnsemblePlacementPolicy"
_FIRST, _FURTHER = "isolationBookieGroups", "secondaryIsolationBookieGroups"


def written(groups: Groups) -> bytes:
    properties = {_FIRST: _text(groups.first)}
    if groups.further:
        properties[_FURTHER] = _text(groups.further)
    config = {"policyClass": _POLICY, "properties": properties}
    return json.dumps(config, indent=2, separators=(",", " : ")).encode()


def read(custom: Mapping[str, bytes]) -> Groups | None:
    """Returns None if any bookie may have the ledger.

    :raises DataDamaged: the value is not in Pulsar's form
    """
    value = custom.get(CUSTOM)
    if value is None:
        return None
    try:
        properties = json.loads(value)["properties"]
        first, further = (_names(properties.get(name) or "") for name in (_FIRST, _FURTHER))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataDamaged(f"{CUSTOM} of a ledger's metadata is {value[:200]!r}") from error
    return Groups(first, further) if first else None


def _text(names: Iterable[str]) -> str:
    return ",".join(sorted(names))


def _names(text: str) -> frozenset[str]:
    return frozenset(filter(None, map(str.strip, text.split(","))))
