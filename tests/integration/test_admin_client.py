"""The admin client against a real broker: what it can ask, and errors by status with the broker's reason."""

from __future__ import annotations

import pytest
from server import Server

from magnetar.admin_client import (
    AdminClient,
    AdminError,
    CannotConnect,
    Conflict,
    NotFound,
    PreconditionFailed,
)
from magnetar.client import Client, InitialPosition
from magnetar.naming.name_rules import InvalidName


@pytest.fixture
def admin(server: Server) -> AdminClient:
    return AdminClient(server.http_url)


def test_life_of_a_topic(server: Server, admin: AdminClient, topic: str) -> None:
    admin.create_topic(topic)
    assert topic in admin.topics("public/default")
    assert admin.partitions(topic) == 0
    with Client(server.url) as client:
        consumer = client.subscribe(topic, "s", initial_position=InitialPosition.Earliest)
        producer = client.create_producer(topic)
        first = producer.send(b"x")
        assert admin.topic_stats(topic, precise_backlog=True)["subscriptions"]["s"]["msgBacklog"] == 1
        assert admin.topic_internal_stats(topic)["entriesAddedCounter"] == 1
        with pytest.raises(PreconditionFailed):
            admin.delete_topic(topic)
        admin.unload_topic(topic)
        assert consumer.receive(20_000).data() == b"x"
        assert admin.terminate_topic(topic) == first.position
    admin.delete_topic(topic, force=True)
    assert topic not in admin.topics("public/default")


def test_partitioned_topics(admin: AdminClient, topic: str) -> None:
    admin.create_partitioned_topic(topic, 3)
    assert admin.partitions(topic) == 3
    assert topic in admin.partitioned_topics("public/default")
    with pytest.raises(Conflict) as conflict:
        admin.create_partitioned_topic(topic, 3)
    assert conflict.value.status == 409
    assert conflict.value.reason
    admin.delete_partitioned_topic(topic)
    assert topic not in admin.partitioned_topics("public/default")


def test_what_is_not_there(admin: AdminClient, topic: str) -> None:
    with pytest.raises(NotFound) as missing:
        admin.topic_stats(topic)
    assert missing.value.status == 404
    assert missing.value.reason in str(missing.value)
    with pytest.raises(NotFound):
        admin.delete_topic(topic)
    with pytest.raises(InvalidName):
        admin.topic_stats("a/b")
    with pytest.raises(CannotConnect):
        AdminClient("http://127.0.0.1:1").clusters()
    with pytest.raises(AdminError):
        AdminClient("localhost:8080")


def test_the_cluster(admin: AdminClient) -> None:
    (cluster,) = admin.clusters()
    assert len(admin.brokers(cluster)) == 1
    assert "public" in admin.tenants()
    assert "public/default" in admin.namespaces("public")
    admin.health_check()


def test_an_address_that_is_dead_is_left_for_the_next(server: Server, topic: str) -> None:
    both = AdminClient(server.http_url.replace("http://", "http://127.0.0.1:1,"))
    both.create_topic(topic)
    assert both.partitions(topic) == 0
    both.delete_topic(topic)
    with pytest.raises(CannotConnect):
        AdminClient("http://127.0.0.1:1,127.0.0.1:2").create_topic(topic)
    with pytest.raises(AdminError):
        AdminClient("http://127.0.0.1:1,")
