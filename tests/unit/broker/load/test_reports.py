"""Records of load as Apache's brokers write them, read and written."""

from __future__ import annotations

import json

from magnetar.broker.load.cluster_load import BrokerAverages, BundleHistory
from magnetar.broker.load.reports import (
    BrokerReport,
    BundleStats,
    Identity,
    Resources,
    Usage,
    Weights,
    new_report,
)

APACHE = (
    '{"webServiceUrl":"http://127.0.0.1:18081","pulsarServiceUrl":"pulsar://127.0.0.1:16651",'
    '"persistentTopicsEnabled":true,"nonPersistentTopicsEnabled":false,'
    '"cpu":{"usage":6.6744967800536665,"limit":200.0},"memory":{"usage":79.52320861816406,"limit":494.9375},'
    '"directMemory":{"usage":16.0,"limit":512.0},"bandwidthIn":{"usage":0.0,"limit":-1000.0},'
    '"bandwidthOut":{"usage":0.0,"limit":-1000.0},"msgThroughputIn":12.5,"msgThroughputOut":0.0,"msgRateIn":1.5,'
    '"msgRateOut":0.0,"lastUpdate":1795320169670,"lastStats":{"public/default/0xd0000000_0xe0000000":'
    '{"msgRateIn":1.5,"msgThroughputIn":12.5,"msgRateOut":0.0,"msgThroughputOut":0.0,"consumerCount":1,'
    '"producerCount":2,"topics":3,"cacheSize":4}},"numTopics":3,"numBundles":1,"numConsumers":1,"numProducers":2,'
    '"bundles":["public/default/0xd0000000_0xe0000000"],"lastBundleGains":[],"lastBundleLosses":["gone"],'
    '"brokerVersionString":"4.0.8","protocols":{},"advertisedListeners":{},'
    '"loadManagerClassName":"org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",'
    '"startTimestamp":1795319094216,"maxResourceUsage":0.033372483900268334,"loadReportType":"LocalBrokerData"}'
)


def test_apaches_record_is_written_as_it_was_read() -> None:
    record = json.loads(APACHE)
    written = BrokerReport.from_json(record).to_json()
    assert written == record | {"maxResourceUsage": written["maxResourceUsage"]}
    assert list(written) == list(record), "fields in the order in which Apache has them"
    assert abs(written["maxResourceUsage"] - 0.033372483900268334) < 1e-6


def test_what_a_record_lacks_or_has_of_another_shape_is_as_if_nothing_were_told() -> None:
    strange = {
        "cpu": 3,
        "lastStats": {"a": None, "public/default/0x00000000_0x10000000": None},
        "bundles": "all",
        "lastUpdate": "x",
        "unknown": {},
        "msgRateIn": "NaN",
    }
    report = BrokerReport.from_json(strange)
    assert report.resources == Resources()
    assert report.stats == {"public/default/0x00000000_0x10000000": BundleStats()}
    assert report.bundles == frozenset()
    assert report.updated_ms == 0
    assert report.identity.persistent_topics
    assert report.identity.load_manager == ""


def test_usage_is_what_is_used_most_and_memory_does_not_count() -> None:
    resources = Resources(Usage(50, 200), Usage(99, 100), Usage(10, 100), Usage(1, -1000), Usage(300, 1000))
    assert resources.most == 0.3
    assert resources.weighed(Weights(cpu=2.0, memory=5.0, direct_memory=0.0, bandwidth_out=0.5)) == 0.5


def test_a_report_tells_gains_and_losses_since_the_one_before() -> None:
    first = new_report(
        Identity(), Resources(), {"a": BundleStats(1, 10, topics=1), "b": BundleStats()}, None, 5
    )
    second = new_report(
        Identity(), Resources(), {"b": BundleStats(2, 20, producers=3), "c": BundleStats(1)}, first, 6
    )
    assert first.gains == {"a", "b"}
    assert first.losses == frozenset()
    assert second.gains == {"c"}
    assert second.losses == {"a"}
    assert (second.total.rate_in, second.total.throughput_in, second.total.producers) == (3, 20, 3)
    assert second.to_json()["numBundles"] == 2


def test_samples_count_alike_until_they_are_as_many_as_are_kept() -> None:
    history = BundleHistory.unseen()
    for rate in range(1, 21):
        history = history.with_sample(BundleStats(rate, topics=7))
    assert history.long.rate_in == sum(range(1, 21)) / 20, "what was assumed is forgotten with the first"
    assert history.short.samples == 10
    assert history.short.rate_in > history.long.rate_in
    assert history.topics == 7


def test_history_is_written_as_apache_does_and_read_again() -> None:
    record = {
        "shortTermData": {
            "maxSamples": 10,
            "numSamples": 8,
            "msgThroughputIn": 1.0,
            "msgThroughputOut": 2.0,
            "msgRateIn": 3.0,
            "msgRateOut": 4.0,
        },
        "longTermData": {
            "maxSamples": 1000,
            "numSamples": 8,
            "msgThroughputIn": 5.0,
            "msgThroughputOut": 6.0,
            "msgRateIn": 7.0,
            "msgRateOut": 8.0,
        },
        "topics": 1,
    }
    assert BundleHistory.from_json(record).to_json() == record
    averages = BrokerAverages.of([BundleHistory.from_json(record)] * 2).to_json()
    assert averages == {
        "shortTermMsgThroughputIn": 2.0,
        "shortTermMsgThroughputOut": 4.0,
        "shortTermMsgRateIn": 6.0,
        "shortTermMsgRateOut": 8.0,
        "longTermMsgThroughputIn": 10.0,
        "longTermMsgThroughputOut": 12.0,
        "longTermMsgRateIn": 14.0,
        "longTermMsgRateOut": 16.0,
    }


def test_a_quota_counts_as_ample_history() -> None:
    history = BundleHistory.by_quota(BundleStats(100, 1000)).with_sample(BundleStats())
    assert history.long.rate_in == 99.9
    assert history.short.rate_in == 90
