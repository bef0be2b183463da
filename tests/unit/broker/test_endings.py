"""Ends that meet something else: a seek, an unload in the same turn, a look at the metadata."""

from __future__ import annotations

from typing import Any

import pytest
from lived import NAME, Lived
from peers import TOPIC, Brokers, send_frame

from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.schemas.data import SchemaData, SchemaType
from magnetar.broker.subscriptions.base import SubscriptionType
from magnetar.broker.subscriptions.persistent import begin_seek, end_seek
from magnetar.errors import NamespaceNotFound, ServiceNotReady
from magnetar.io.slices import let_others
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerFenced
from magnetar.managed_ledger.position import EARLIEST
from magnetar.metadata.interface import MetadataError
from magnetar.naming.namespace_name import NamespaceName
from magnetar.protocol.pulsar_api_pb2 import BaseCommand


def test_a_seek_that_ends_does_not_open_a_subscription_that_is_being_deleted() -> None:
    lived = Lived(EffectivePolicies())
    topic = lived.topic()
    subscription = lived.subscribe(topic)
    begin_seek(subscription)
    deleting = lived.world.simulation.loop.create_task(topic.subscriptions.unsubscribe("s"))
    lived.world.wait(0)
    assert not deleting.done()
    end_seek(subscription)
    consumer: Any = None
    with pytest.raises(ServiceNotReady):
        subscription.add(consumer, SubscriptionType.Exclusive, 0)
    lived.world.run(deleting)
    assert subscription.closing


def test_a_subscription_that_could_not_be_deleted_stays_closed_until_its_seek_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lived = Lived(EffectivePolicies())
    topic = lived.topic()
    subscription = lived.subscribe(topic)
    begin_seek(subscription)

    async def fails(_name: str) -> None:
        raise LedgerError("not now")

    monkeypatch.setattr(topic.managed_ledger.cursors, "delete", fails)
    with pytest.raises(LedgerError):
        lived.world.run(topic.subscriptions.unsubscribe("s"))
    assert subscription.closing
    with pytest.raises(ServiceNotReady):
        begin_seek(subscription)
    end_seek(subscription)
    assert not subscription.closing


@pytest.mark.parametrize("loaded", [True, False])
def test_nobody_makes_a_topic_anew_before_its_schema_is_gone(
    loaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schema of the new topic went with that of the old one."""
    lived = Lived(EffectivePolicies())
    broker, loop = lived.broker, lived.world.simulation.loop
    topic = lived.topic()
    schema = SchemaData(SchemaType.STRING)
    lived.world.run(broker.schemas.put_if_absent(NAME.schema_path, schema, "FULL"))
    if not loaded:
        lived.world.run(broker.topics.unload_topic(topic))
    delete, gate = broker.schemas.delete, loop.create_future()

    async def waits(schema_id: str) -> None:
        await gate
        await delete(schema_id)

    monkeypatch.setattr(broker.schemas, "delete", waits)
    deleting = loop.create_task(broker.topics.delete_stored_topic(NAME))
    lived.world.wait(1)
    with pytest.raises(ServiceNotReady):
        lived.topic()
    gate.set_result(None)
    lived.world.run(deleting)
    lived.topic()
    assert lived.world.run(broker.schemas.get(NAME.schema_path)) is None
    lived.world.run(broker.schemas.put_if_absent(NAME.schema_path, schema, "FULL"))
    lived.world.wait(1)
    assert lived.world.run(broker.schemas.get(NAME.schema_path)) is not None


def test_a_topic_that_is_being_loaded_is_deleted_when_it_is_there() -> None:
    lived = Lived(EffectivePolicies())
    broker, loop = lived.broker, lived.world.simulation.loop
    lived.publish(lived.topic(), 5)
    lived.world.run(broker.topics.unload_topic(lived.topic()))
    loading = loop.create_task(broker.topics.load(NAME, create=True))
    lived.world.wait(0)
    deleting = loop.create_task(broker.topics.delete_stored_topic(NAME))
    lived.world.run(loading)
    lived.world.run(deleting)
    assert str(NAME) not in broker.topics.loaded
    assert not lived.topic().managed_ledger.ledgers.total_size()


@pytest.mark.parametrize(
    "error", [LedgerError("not now"), ManagedLedgerFenced("not ours"), MetadataError("lost")]
)
def test_a_consumer_whose_subscription_could_not_be_deleted_comes_back(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = Brokers()
    consumer, publisher = brokers.subscribed("s"), brokers.publisher()
    topic: Any = brokers.broker.topics.loaded[TOPIC]

    async def fails(_name: str) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(topic.managed_ledger.cursors, "delete", fails)
        consumer.send(BaseCommand.UNSUBSCRIBE, "unsubscribe", consumer_id=1, request_id=9)
        brokers.until(lambda: consumer.count(BaseCommand.CLOSE_CONSUMER) == 1)
    assert [each.type for each in consumer.told()[-2:]] == [BaseCommand.ERROR, BaseCommand.CLOSE_CONSUMER]
    assert not topic.subscriptions["s"].closing
    again = brokers.subscribed("s", number=2)
    again.send(BaseCommand.FLOW, "flow", consumer_id=2, messagePermits=10)
    brokers.publish(publisher, 1)
    brokers.until(lambda: again.count(BaseCommand.MESSAGE) == 1)


def test_a_closed_producer_gets_no_receipt_of_a_duplicate_either() -> None:
    """It waited for the receipts of what came before, which a closed producer does not get."""
    brokers = Brokers(policies=EffectivePolicies(deduplication=True))
    publisher = brokers.publisher()
    brokers.publish(publisher, 1)
    publisher.forget()
    publisher.connection.data_received(send_frame(1) + send_frame(0))
    topic: Any = brokers.broker.topics.loaded[TOPIC]
    [producer] = topic.producers.values()
    assert (producer.pending, len(producer.held_receipts)) == (1, 1)
    topic.producers.disconnect()
    brokers.until(lambda: producer.pending == 0)
    brokers.world.wait(1)
    assert [each.type for each in publisher.told()] == [BaseCommand.CLOSE_PRODUCER]
    assert not producer.held_receipts


def test_a_topic_that_is_to_be_unloaded_in_this_turn_is_not_deleted_beside_it() -> None:
    lived = Lived(EffectivePolicies())
    topic = lived.topic()
    loop, broker = lived.world.simulation.loop, lived.broker
    unloading = loop.create_task(broker.topics.unload_topic(topic))
    deleting = loop.create_task(broker.topics.delete_topic(topic))
    with pytest.raises(ServiceNotReady):
        lived.world.run(deleting)
    lived.world.run(unloading)
    assert lived.topic() is not topic


def test_deleting_whatever_is_stored_waits_for_an_unload_of_the_same_turn() -> None:
    lived = Lived(EffectivePolicies())
    topic = lived.topic()
    loop, broker = lived.world.simulation.loop, lived.broker
    unloading = loop.create_task(broker.topics.unload_topic(topic))
    deleting = loop.create_task(broker.topics.delete_stored_topic(NAME))
    lived.world.run(unloading)
    lived.world.run(deleting)
    assert not lived.world.run(broker.topics.creation.exists(NAME))


def test_a_namespace_deleted_while_it_is_looked_up_is_not_taken_for_known() -> None:
    lived = Lived(EffectivePolicies())
    namespace, path = NamespaceName.parse("public/gone"), "/admin/policies/public/gone"
    metadata, names = lived.world.metadata, lived.broker.namespaces
    lived.world.run(metadata.put(path, b"{}"))
    loop = lived.world.simulation.loop
    looking = loop.create_task(names.check(namespace))
    deleting = loop.create_task(metadata.delete(path))
    lived.world.run(looking)
    lived.world.run(deleting)
    with pytest.raises(NamespaceNotFound):
        lived.world.run(names.check(namespace))


def test_partitions_changed_while_they_are_looked_up_are_not_remembered() -> None:
    lived = Lived(EffectivePolicies())
    metadata, names = lived.world.metadata, lived.broker.namespaces
    path = f"/admin/partitioned-topics/{NAME.path}"
    lived.world.run(metadata.put(path, b'{"partitions": 3}'))
    loop = lived.world.simulation.loop
    looking = loop.create_task(names.partitions(NAME))
    deleting = loop.create_task(metadata.delete(path))
    lived.world.run(looking)
    lived.world.run(deleting)
    assert lived.world.run(names.partitions(NAME)) == 0


def test_who_deletes_a_subscription_late_leaves_its_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    lived = Lived(EffectivePolicies())
    topic, loop = lived.topic(), lived.broker.io.loop
    lived.subscribe(topic)
    delete, late = topic.managed_ledger.cursors.delete, loop.create_future()

    async def ends_late(name: str) -> None:
        await delete(name)
        await late

    with monkeypatch.context() as patched:
        patched.setattr(topic.managed_ledger.cursors, "delete", ends_late)
        second = loop.create_task(topic.subscriptions.unsubscribe("s"))
        lived.world.run(let_others(loop))
    lived.world.run(topic.subscriptions.unsubscribe("s"))
    made = lived.world.run(topic.subscriptions.subscribe("s", EARLIEST, {}, durable=True, create=True))
    late.set_result(None)
    lived.world.run(second)
    assert topic.subscriptions.get("s") is made
