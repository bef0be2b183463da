"""Metrics of metadata stores: duration of operations, and written bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from magnetar.broker.stats.figures import MetadataMetrics
from magnetar.http.metrics.exposition import histogram_samples, labels_text

_LATENCY = "pulsar_metadata_store_ops_latency_ms"
_PUT_BYTES = "pulsar_metadata_store_put_bytes"


def of_stores(stores: Sequence[MetadataMetrics], cluster: str, started_seconds: float) -> Iterator[str]:
    """Yields the metrics of the measured stores.

    :param cluster: its name
    """
    if not stores:
        return
    lines = [f"# TYPE {_LATENCY} histogram\n"]
    for store in stores:
        for kind, status, counts, total in store.operations:
            if any(counts):
                labels = labels_text({"cluster": cluster, "name": store.name, "type": kind, "status": status})
                lines += histogram_samples(_LATENCY, labels, store.bounds_ms, counts, total, started_seconds)
    yield "".join(lines)
    lines = [f"# TYPE {_PUT_BYTES} counter\n"]
    for store in stores:
        labels = labels_text({"cluster": cluster, "name": store.name})
        lines.append(f"{_PUT_BYTES}_total{{{labels}}} {float(store.put_bytes)!r}\n")
        lines.append(f"{_PUT_BYTES}_created{{{labels}}} {started_seconds!r}\n")
    yield "".join(lines)
