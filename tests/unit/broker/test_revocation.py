"""What rested on a permission ends when the permission does, and nothing else."""

from __future__ import annotations

import pytest
from peers import subscribe_frame
from secured import NAMESPACE, TOPIC, Secured

from magnetar.errors import ServerErrorCode
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

SECONDS = 1


def test_who_was_granted_nothing_gets_nothing() -> None:
    brokers = Secured()
    for peer in (brokers.producer("ann"), brokers.consumer("ann"), brokers.watcher("ann")):
        [told] = peer.received(BaseCommand.ERROR)
        assert told.error.error == ServerErrorCode.AUTHORIZATION
        assert not peer.closed
    assert TOPIC not in brokers.broker.topics


def test_a_permission_that_is_gone_ends_what_rested_on_it() -> None:
    brokers = Secured()
    brokers.grant("ann", "produce", "consume")
    brokers.grant("bob", "produce", "consume")
    anns = brokers.producer("ann"), brokers.consumer("ann", "a"), brokers.watcher("ann")
    bobs = brokers.producer("bob"), brokers.consumer("bob", "b"), brokers.watcher("bob")
    brokers.grant("ann", "consume")
    brokers.world.wait(SECONDS)
    topic = brokers.broker.topics[TOPIC]
    assert anns[0].count(BaseCommand.CLOSE_PRODUCER) == 1
    assert not anns[1].count(BaseCommand.CLOSE_CONSUMER)
    assert len(topic.producers) == 1
    brokers.grant("ann")
    brokers.world.wait(SECONDS)
    assert anns[1].count(BaseCommand.CLOSE_CONSUMER) == 1
    assert topic.consumer_count() == 1
    assert not anns[2].connection.topic_watchers
    assert not bobs[0].count(BaseCommand.CLOSE_PRODUCER)
    assert not bobs[1].count(BaseCommand.CLOSE_CONSUMER)
    assert bobs[2].connection.topic_watchers


def test_admins_of_a_tenant_and_superusers_are_asked_again() -> None:
    brokers = Secured()

    def admins(*roles: str) -> None:
        def work(record: dict[str, object]) -> None:
            record["adminRoles"] = list(roles)

        brokers.world.run(brokers.broker.policies.tenants.change(NAMESPACE.tenant, work))

    admins("ann")
    ann, admin = brokers.producer("ann"), brokers.producer("admin")
    admins()
    brokers.world.wait(SECONDS)
    assert ann.count(BaseCommand.CLOSE_PRODUCER) == 1
    assert not admin.count(BaseCommand.CLOSE_PRODUCER)
    brokers.superusers.clear()
    brokers.broker.revocation.roles_changed()
    brokers.world.wait(SECONDS)
    assert admin.count(BaseCommand.CLOSE_PRODUCER) == 1


def test_another_namespace_is_not_asked_about() -> None:
    brokers = Secured()
    brokers.grant("ann", "produce")
    ann = brokers.producer("ann")
    brokers.world.wait(SECONDS)
    asked = []
    refusal = brokers.broker.authorizer.refusal

    async def watched(principal: object, operation: object, target: object) -> str | None:
        asked.append(str(target))
        return await refusal(principal, operation, target)  # type: ignore[arg-type]

    brokers.broker.authorizer.refusal = watched  # type: ignore[method-assign]
    brokers.world.run(
        brokers.broker.policies.tenants.create(
            "other", {"adminRoles": ["x"], "allowedClusters": ["standalone"]}
        )
    )
    brokers.world.wait(SECONDS)
    assert asked == []
    brokers.grant("bob", "produce")
    brokers.world.wait(SECONDS)
    assert asked == [TOPIC]
    assert not ann.count(BaseCommand.CLOSE_PRODUCER)


def test_messages_that_had_come_before_are_still_acknowledged() -> None:
    brokers = Secured()
    brokers.grant("ann", "produce")
    ann = brokers.producer("ann")
    brokers.publish(ann, 20)
    brokers.grant("ann")
    brokers.world.wait(SECONDS)
    assert ann.count(BaseCommand.CLOSE_PRODUCER) == 1
    assert not ann.closed


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("persistent://nowhere/ns/t", ServerErrorCode.TOPIC_NOT_FOUND),
        ("persistent://nowhere/standalone/ns/t", ServerErrorCode.TOPIC_NOT_FOUND),
        ("persistent://public/nowhere/t", ServerErrorCode.AUTHORIZATION),
        ("persistent://public/default/t", ServerErrorCode.AUTHORIZATION),
    ],
)
def test_a_role_without_rights_hears_of_tenants_that_do_not_exist_and_of_nothing_else(
    topic: str, code: ServerErrorCode
) -> None:
    peer = Secured().peer("ann")
    peer.send(BaseCommand.PARTITIONED_METADATA, "partitionMetadata", topic=topic, request_id=1)
    peer.send(BaseCommand.LOOKUP, "lookupTopic", topic=topic, request_id=2)
    peer.send(BaseCommand.PRODUCER, "producer", topic=topic, producer_id=1, request_id=3)
    peer.connection.data_received(subscribe_frame(4, "s", 0, topic))
    peer.world.until(lambda: peer.count(BaseCommand.ERROR) == 2)
    assert [each.error.error for each in peer.received(BaseCommand.ERROR)] == [code, code]
    assert peer.received(BaseCommand.PARTITIONED_METADATA_RESPONSE)[0].partitionMetadataResponse.error == code
    assert peer.received(BaseCommand.LOOKUP_RESPONSE)[0].lookupTopicResponse.error == code


def test_what_is_open_in_a_tenant_that_is_deleted_is_closed() -> None:
    brokers = Secured()
    brokers.grant("ann", "produce", "consume")
    producer, consumer = brokers.producer("ann"), brokers.consumer("ann")
    brokers.world.run(brokers.world.metadata.delete("/admin/policies/public/default"))
    brokers.world.run(brokers.world.metadata.delete("/admin/policies/public"))
    brokers.world.wait(SECONDS)
    assert producer.count(BaseCommand.CLOSE_PRODUCER) == 1
    assert consumer.count(BaseCommand.CLOSE_CONSUMER) == 1
