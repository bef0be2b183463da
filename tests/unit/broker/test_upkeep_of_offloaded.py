"""Periodic checks of topics whose backlog is in tiered storage, while the store does not answer."""

from __future__ import annotations

from lived import NAME, Lived
from memory_bucket import MemoryBucket

from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.values import BacklogQuota
from magnetar.broker.topics.persistent import Topic
from magnetar.broker.upkeep.backlog_quotas import EVICTION, EXCEPTION
from magnetar.managed_ledger.settings import OffloadPolicy, OffloadStorage
from magnetar.naming.topic_name import TopicName

AT_ONCE = OffloadPolicy(OffloadStorage("memory"), threshold_bytes=0, deletion_lag_ms=0)
OTHER = TopicName.parse("persistent://public/default/zz")
YEARS = 1e9
"""Seconds; far more than a test lasts."""


def offloaded(lived: Lived, bucket: MemoryBucket) -> Topic:
    """Returns a topic with a subscription that has consumed nothing, and all closed ledgers offloaded; from
    now on the store does not answer."""
    topic = lived.topic(NAME)
    lived.subscribe(topic)
    lived.publish(topic, 25)
    topic.managed_ledger.cache.clear()
    for summary in list(topic.managed_ledger.ledgers):
        # Starts the threads of the ledger store, which go on.
        lived.world.run(topic.managed_ledger.reader.read_one((summary.ledger_id, 0)))
    workers = len(lived.world.simulation.workers)
    topic.managed_ledger.use_offload(AT_ONCE)
    topic.managed_ledger.check_rollover()
    lived.world.wait(3)
    assert len(bucket.complete) == 2
    for worker in lived.world.simulation.workers[workers:]:
        worker.longest_delay = YEARS
    topic.managed_ledger.cache.clear()
    return topic


def test_backlogs_of_other_topics_expire() -> None:
    bucket = MemoryBucket()
    lived = Lived(
        EffectivePolicies(message_ttl_seconds=60), expiry_check_seconds=10, open_driver=bucket.open_driver
    )
    offloaded(lived, bucket)
    other = lived.topic(OTHER)
    subscription = lived.subscribe(other)
    lived.publish(other, 25)
    lived.world.wait(75)
    assert subscription.backlog() == 0


def test_the_age_of_a_backlog_is_that_of_its_ledger() -> None:
    bucket = MemoryBucket()
    policies = EffectivePolicies(age_quota=BacklogQuota(-1, 60, EXCEPTION))
    lived = Lived(
        policies, precise_age_quota=True, backlog_quota_check_seconds=10, open_driver=bucket.open_driver
    )
    topic = offloaded(lived, bucket)
    quotas = lived.broker.upkeep.quotas
    lived.world.run(quotas.check_producer(topic))
    lived.world.wait(30)
    assert 20 < quotas.of(topic).age_seconds < 60
    lived.world.wait(45)
    assert quotas.of(topic).age_seconds > 60


def test_an_old_backlog_is_evicted_without_the_store() -> None:
    bucket = MemoryBucket()
    policies = EffectivePolicies(age_quota=BacklogQuota(-1, 60, EVICTION))
    lived = Lived(
        policies, precise_age_quota=True, backlog_quota_check_seconds=10, open_driver=bucket.open_driver
    )
    topic = offloaded(lived, bucket)
    lived.world.wait(75)
    assert topic.subscriptions["s"].backlog() == 0
