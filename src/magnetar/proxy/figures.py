"""Metrics of a proxy in Prometheus's format; the names are Pulsar's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from magnetar.lazy_dataclass import dataclass


@dataclass(slots=True)
class Figures:
    """Counts since the start, and the number of present connections."""

    active_connections: int = 0
    new_connections: int = 0
    rejected_connections: int = 0
    binary_ops: int = 0
    """Pieces that ended tunnels have forwarded."""
    binary_bytes: int = 0
    lookup_requests: int = 0
    partitions_metadata_requests: int = 0
    get_topics_of_namespace_requests: int = 0
    get_schema_requests: int = 0
    rejected_lookup_requests: int = 0
    rejected_partitions_metadata_requests: int = 0
    rejected_get_topics_of_namespace_requests: int = 0
    denied_targets: int = 0
    """Requests of clients for targets that are not allowed brokers."""
    http_requests: int = 0
    """Forwarded requests."""


_OWN = frozenset({"denied_targets", "http_requests"})


def exposition(figures: Figures, live_ops: int, live_bytes: int, cluster: str) -> str:
    """Returns the text of ``/metrics``.

    :param live_ops: pieces that open tunnels have forwarded
    """
    return "\n".join(_lines(figures, live_ops, live_bytes, cluster)) + "\n"


def _lines(figures: Figures, live_ops: int, live_bytes: int, cluster: str) -> Iterator[str]:
    labels = f'{{cluster="{cluster}"}}' if cluster else ""
    more = {"binary_ops": live_ops, "binary_bytes": live_bytes}
    for each in fields(Figures):
        value = getattr(figures, each.name) + more.get(each.name, 0)
        name = f"{'magnetar' if each.name in _OWN else 'pulsar'}_proxy_{each.name}"
        if each.name == "active_connections":
            yield f"# TYPE {name} gauge"
        else:
            yield f"# TYPE {name} counter"
            name += "_total"
        yield f"{name}{labels} {value}"
