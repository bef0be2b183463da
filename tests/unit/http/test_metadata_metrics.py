"""Metrics of metadata stores, in Pulsar's names."""

from __future__ import annotations

from magnetar.broker.stats.figures import MetadataMetrics
from magnetar.http.metrics.sections import metadata_stores


def test_stores_are_told_apart_and_what_never_happened_is_left_out() -> None:
    operations = (("get", "success", (1, 2, 3), 12.5), ("get", "fail", (0, 0, 0), 0.0))
    stores = [
        MetadataMetrics("metadata-store", (1.0, 3.0), operations, 7),
        MetadataMetrics("configuration-metadata-store", (1.0, 3.0), (("put", "fail", (0, 1, 0), 2.0),), 0),
    ]
    text = "".join(metadata_stores(stores, "here", 5.5))
    first = 'cluster="here",name="metadata-store",type="get",status="success"'
    second = 'cluster="here",name="configuration-metadata-store",type="put",status="fail"'
    assert text.splitlines() == [
        "# TYPE pulsar_metadata_store_ops_latency_ms histogram",
        f'pulsar_metadata_store_ops_latency_ms_bucket{{{first},le="1.0"}} 1.0',
        f'pulsar_metadata_store_ops_latency_ms_bucket{{{first},le="3.0"}} 3.0',
        f'pulsar_metadata_store_ops_latency_ms_bucket{{{first},le="+Inf"}} 6.0',
        f"pulsar_metadata_store_ops_latency_ms_count{{{first}}} 6.0",
        f"pulsar_metadata_store_ops_latency_ms_sum{{{first}}} 12.5",
        f"pulsar_metadata_store_ops_latency_ms_created{{{first}}} 5.5",
        f'pulsar_metadata_store_ops_latency_ms_bucket{{{second},le="1.0"}} 0.0',
        f'pulsar_metadata_store_ops_latency_ms_bucket{{{second},le="3.0"}} 1.0',
        f'pulsar_metadata_store_ops_latency_ms_bucket{{{second},le="+Inf"}} 1.0',
        f"pulsar_metadata_store_ops_latency_ms_count{{{second}}} 1.0",
        f"pulsar_metadata_store_ops_latency_ms_sum{{{second}}} 2.0",
        f"pulsar_metadata_store_ops_latency_ms_created{{{second}}} 5.5",
        "# TYPE pulsar_metadata_store_put_bytes counter",
        'pulsar_metadata_store_put_bytes_total{cluster="here",name="metadata-store"} 7.0',
        'pulsar_metadata_store_put_bytes_created{cluster="here",name="metadata-store"} 5.5',
        'pulsar_metadata_store_put_bytes_total{cluster="here",name="configuration-metadata-store"} 0.0',
        'pulsar_metadata_store_put_bytes_created{cluster="here",name="configuration-metadata-store"} 5.5',
    ]
    assert list(metadata_stores([], "here", 5.5)) == []
