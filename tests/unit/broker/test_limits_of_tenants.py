"""How much one tenant may make, where nobody has set anything."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lived import Lived

from magnetar.broker.admin.all import Admin
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.values import AutoTopics
from magnetar.errors import NotAllowed, PartitionCountRefused, PreconditionFailed, TopicNotFound
from magnetar.managed_ledger.position import EARLIEST
from magnetar.naming.topic_name import TopicName
from magnetar.security.authentication import ANONYMOUS

PARTITIONED = "persistent://public/default/partitioned"


def test_partitions_of_a_topic() -> None:
    lived = Lived(EffectivePolicies(), max_partitions=3)
    partitions = Admin(lived.broker).partitions
    with pytest.raises(PartitionCountRefused, match="less than or equal to 3"):
        lived.world.run(partitions.create(PARTITIONED, 4, {}))
    lived.world.run(partitions.create(PARTITIONED, 2, {}))
    with pytest.raises(PartitionCountRefused, match="less than or equal to 3"):
        lived.world.run(partitions.update(PARTITIONED, 4, force=False))
    lived.world.run(partitions.update(PARTITIONED, 3, force=False))
    assert lived.broker.topics.creation.refused_partitions == 2


def test_partitions_of_a_topic_made_on_use() -> None:
    lived = Lived(EffectivePolicies(auto_topics=AutoTopics(allowed=True, partitions=4)), max_partitions=3)
    name = lived.broker.parse_topic(PARTITIONED)
    with pytest.raises(PartitionCountRefused, match="less than or equal to 3"):
        lived.world.run(lived.broker.topics.creation.partitions_or_create(name))
    with pytest.raises(TopicNotFound):
        lived.world.run(lived.broker.topics.creation.existing_partitions(name, ANONYMOUS))


def test_topics_of_a_tenant() -> None:
    """Topics of all its namespaces count, persistent or not, and each partition."""
    lived = Lived(EffectivePolicies(), max_topics_per_tenant=5)
    admin = Admin(lived.broker)

    def make(name: str) -> None:
        lived.world.run(
            lived.broker.topics.load(lived.broker.parse_topic(name), create=True, principal=ANONYMOUS)
        )

    lived.world.run(admin.namespaces.create("public/second", {}))
    lived.world.run(admin.tenants.create("other", {"allowedClusters": ["standalone"]}))
    lived.world.run(admin.namespaces.create("other/ns", {}))
    make("persistent://public/default/one")
    lived.world.run(admin.partitions.create("persistent://public/second/two", 2, {}))
    make("non-persistent://public/second/three")
    with pytest.raises(PreconditionFailed, match="Exceed maximum number of topics in tenant"):
        lived.world.run(admin.partitions.create(PARTITIONED, 2, {}))
    make("persistent://public/default/four")
    refused = "persistent://public/second/five", "non-persistent://public/default/five"
    for name in refused:
        with pytest.raises(NotAllowed, match="Exceed maximum number of topics in tenant: 5"):
            make(name)
    assert lived.broker.topics.creation.refused_topics == 3
    make("persistent://other/ns/one")
    gone = lived.broker.topics.loaded["non-persistent://public/second/three"]
    lived.world.run(lived.broker.topics.delete_topic(gone))
    make(refused[0])
    with pytest.raises(NotAllowed):
        make(refused[1])


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_partitions_made_on_use_count_for_the_tenant(domain: str) -> None:
    """Topics whose partitions nobody has used yet do not count: any number of them may be made."""
    policies = EffectivePolicies(auto_topics=AutoTopics(allowed=True, partitions=3))
    lived = Lived(policies, max_topics_per_tenant=4)
    creation = lived.broker.topics.creation
    names = [lived.broker.parse_topic(f"{domain}://public/default/{each}") for each in ("a", "b")]
    for name in names:
        assert lived.world.run(creation.partitions_or_create(name, ANONYMOUS)) == 3

    def use(name: TopicName) -> None:
        lived.world.run(lived.broker.topics.load(name, create=True, principal=ANONYMOUS))

    used = [*(names[0].partition(index) for index in range(3)), names[1].partition(0)]
    for partition in used:
        use(partition)
    with pytest.raises(NotAllowed, match="Exceed maximum number of topics in tenant: 4"):
        use(names[1].partition(1))
    assert creation.refused_topics == 1
    for partition in used:
        use(partition)
    lived.world.run(lived.broker.topics.unload_topic(lived.broker.topics.loaded[str(used[0])]))
    use(used[0])


def test_subscriptions_of_a_topic() -> None:
    lived = Lived(EffectivePolicies())
    topic = lived.topic()
    topic.settings = replace(topic.settings, max_subscriptions=2)
    for name in "abab":
        lived.subscribe(topic, name)
    with pytest.raises(NotAllowed, match="Exceed the maximum number of subscriptions of the topic"):
        lived.subscribe(topic, "c")
    assert lived.broker.topics.shared_limits.refused.subscriptions == 1
    lived.world.run(topic.subscriptions.subscribe("reader", EARLIEST, {}, durable=False, create=True))
    lived.world.run(topic.subscriptions.unsubscribe("a"))
    lived.subscribe(topic, "c")


def test_a_limit_that_somebody_has_set_on_subscriptions_counts_instead() -> None:
    lived = Lived(EffectivePolicies(max_subscriptions=3))
    topic = lived.topic()
    topic.settings = replace(topic.settings, max_subscriptions=2)
    for name in "abc":
        lived.subscribe(topic, name)
    with pytest.raises(NotAllowed):
        lived.subscribe(topic, "d")
