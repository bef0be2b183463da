"""Statistics of a partitioned topic from those of its partitions."""

from __future__ import annotations

from typing import Any

from peers import TOPIC, Brokers

from magnetar.broker.stats.assembled import StatsSelection, stats_of, total_stats


def publisher(name: str, producer_id: int, rate: float, throughput: float) -> dict[str, Any]:
    return {
        "producerName": name,
        "producerId": producer_id,
        "msgRateIn": rate,
        "msgThroughputIn": throughput,
        "averageMsgSize": throughput / rate if rate else 0.0,
        "address": f"/127.0.0.1:{producer_id}",
        "supportsPartialProducer": True,
    }


def partition(**more: Any) -> dict[str, Any]:
    return {
        "msgRateIn": 0.0,
        "msgThroughputIn": 0.0,
        "averageMsgSize": 0.0,
        "oldestBacklogMessageAgeSeconds": -1,
        "publishers": [],
        "subscriptions": {},
        **more,
    }


def test_producers_of_one_name_count_as_one() -> None:
    total = total_stats(
        [
            partition(publishers=[publisher("p", 3, 10.0, 1000.0), publisher("q", 4, 1.0, 5.0)]),
            partition(publishers=[publisher("p", 9, 30.0, 1000.0)]),
        ]
    )
    first, second = total["publishers"]
    assert (first["producerName"], first["msgRateIn"], first["msgThroughputIn"]) == ("p", 40.0, 2000.0)
    assert (first["averageMsgSize"], first["producerId"]) == (50.0, 0)
    assert (second["producerName"], second["averageMsgSize"]) == ("q", 5.0)
    assert "address" not in first


def test_consumers_of_one_name_count_as_one() -> None:
    def subscription(*consumers: tuple[str, int]) -> dict[str, Any]:
        found = [{"consumerName": name, "availablePermits": permits} for name, permits in consumers]
        return {"subscriptions": {"s": {"type": "Shared", "msgBacklog": 2, "consumers": found}}}

    idle = {"subscriptions": {"s": {"type": "None", "msgBacklog": 0, "consumers": []}}}
    total = total_stats(
        [
            partition(**idle),
            partition(**subscription(("a", 5), ("b", 7))),
            partition(**subscription(("b", 1), ("a", 2))),
        ]
    )
    [found] = total["subscriptions"].values()
    assert (found["type"], found["msgBacklog"]) == ("Shared", 4)
    assert {c["consumerName"]: c["availablePermits"] for c in found["consumers"]} == {"a": 7, "b": 8}


def test_the_oldest_message_names_its_subscription() -> None:
    total = total_stats(
        [
            partition(oldestBacklogMessageAgeSeconds=3, oldestBacklogMessageSubscriptionName="young"),
            partition(oldestBacklogMessageAgeSeconds=30, oldestBacklogMessageSubscriptionName="old"),
            partition(),
        ]
    )
    assert total["oldestBacklogMessageAgeSeconds"] == 30
    assert total["oldestBacklogMessageSubscriptionName"] == "old"


def test_earliest_times_where_some_partitions_have_no_backlog() -> None:
    times = [0, 500, 300, 0]
    total = total_stats([partition(earliestMsgPublishTimeInBacklogs=each) for each in times])
    assert total["earliestMsgPublishTimeInBacklogs"] == 300


def test_parts_stay_as_they_are() -> None:
    parts = [partition(publishers=[publisher("p", 3, 10.0, 1000.0)]) for _ in range(2)]
    total_stats(parts)
    assert parts == [partition(publishers=[publisher("p", 3, 10.0, 1000.0)]) for _ in range(2)]


def test_names_that_clients_chose_are_no_fields_of_statistics() -> None:
    words = {"publishers": "3", "consumers": "5", "address": "here", "earliestMsgPublishTimeInBacklog": "x"}
    names = ("address", "publishers", "metadata")
    found = {
        "type": "Shared",
        "msgBacklog": 2,
        "subscriptionProperties": words,
        "consumers": [{"consumerName": "c", "availablePermits": 1, "metadata": words}],
    }
    total = total_stats([partition(subscriptions=dict.fromkeys(names, found))] * 2)
    for name in names:
        subscription = total["subscriptions"][name]
        assert subscription["msgBacklog"] == 4
        assert subscription["subscriptionProperties"] == words
        (consumer,) = subscription["consumers"]
        assert (consumer["availablePermits"], consumer["metadata"]) == (2, words)


def test_a_topic_without_partitions_has_all_figures_of_one_that_is_not_used() -> None:
    brokers = Brokers()
    brokers.subscribed("s", 0)
    found = next(topic for topic in brokers.broker.topics.loaded.values() if topic.full_name == TOPIC)
    one = brokers.world.run(stats_of(brokers.broker.io, found, "127.0.0.1:8080", StatsSelection()))
    total = total_stats([])
    assert one.keys() - total.keys() == {"deduplicationStatus", "ownerBroker"}
    assert (total["msgRateIn"], total["publishers"], total["subscriptions"]) == (0.0, [], {})
    assert total.keys() - one.keys() == set()
    # Nobody who changes them changes those of others.
    total["compaction"]["lastCompactionRemovedEventCount"] = 1
    assert total_stats([])["compaction"]["lastCompactionRemovedEventCount"] == 0
