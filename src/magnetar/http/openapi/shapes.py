"""The shapes of bodies, as JSON Schema: ``shapes.tsv`` has a row for each field of Pulsar's records."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from magnetar.http.shapes.fields import ACTIONS
from magnetar.http.shapes.policies import (
    AUTO_UPDATE_STRATEGIES,
    QUOTA_TYPES,
    STRATEGIES,
    SUBSCRIPTION_TYPES,
)

Schema = dict[str, object]

_PLAIN: Mapping[str, Schema] = {
    "bool": {"type": "boolean"},
    "int": {"type": "integer", "format": "int32"},
    "long": {"type": "integer", "format": "int64"},
    "double": {"type": "number", "format": "double"},
    "string": {"type": "string"},
    "object": {"type": "object"},
}
_CHOICES: Mapping[str, Sequence[str]] = {
    "AuthAction": ACTIONS,
    "AutoFailoverPolicyType": ("min_available",),
    "BacklogQuotaType": QUOTA_TYPES,
    "InactiveTopicDeleteMode": ("delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"),
    "NamespaceIsolationPolicyUnloadScope": ("all_matching", "none", "changed"),
    "OffloadedReadPriority": ("BOOKKEEPER_FIRST", "TIERED_STORAGE_FIRST"),
    "ProxyProtocol": ("SNI",),
    "RetentionPolicy": ("producer_request_hold", "producer_exception", "consumer_backlog_eviction"),
    "SchemaAutoUpdateCompatibilityStrategy": AUTO_UPDATE_STRATEGIES,
    "SchemaCompatibilityStrategy": STRATEGIES,
    "SubscriptionAuthMode": ("None", "Prefix"),
    "SubscriptionType": SUBSCRIPTION_TYPES,
}
_LIST = re.compile(r"(?:array|set)<(.+)>")
_MAP = re.compile(r"map<[^,]+,\s*(.+)>")
ERROR = "ErrorData"
"""The name of the body of errors."""


def schema_of(kind: str) -> Schema:
    """Returns the schema of a type that the table of endpoints or the table of fields names."""
    kind = kind.strip().partition(" ")[0].removesuffix("?")
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    if found := _LIST.fullmatch(kind):
        return {"type": "array", "items": schema_of(found[1])}
    if found := _MAP.fullmatch(kind):
        return {"type": "object", "additionalProperties": schema_of(found[1])}
    if kind in _CHOICES:
        return {"type": "string", "enum": list(_CHOICES[kind])}
    if kind in _records():
        return {"$ref": f"#/components/schemas/{kind}"}
    return {"type": "object"}


@cache
def _records() -> Mapping[str, Sequence[tuple[str, str, str]]]:
    """Returns the fields of each record: name, type, meaning."""
    found: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for line in (Path(__file__).parent / "shapes.tsv").read_text("utf-8").splitlines():
        record, name, kind, meaning = line.split("\t")
        found[record].append((name, kind, meaning))
    return found


def component_schemas() -> dict[str, Schema]:
    """Returns the schemas of all records by name."""
    schemas: dict[str, Schema] = {
        record: {
            "type": "object",
            "properties": {name: _nullable(kind, meaning) for name, kind, meaning in fields},
        }
        for record, fields in _records().items()
    }
    schemas[ERROR] = {"type": "object", "properties": {"reason": {"type": "string"}}, "required": ["reason"]}
    return schemas


def _nullable(kind: str, meaning: str) -> Schema:
    return {"anyOf": [schema_of(kind), {"type": "null"}], "description": meaning}
