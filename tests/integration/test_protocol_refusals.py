"""What the broker refuses by name: later features, caps, creation on use; and how it lists topics."""

from __future__ import annotations

import pytest
from raw_client import Client, Refused, command, entry_of
from server import Server

from magnetar.errors import ServerErrorCode
from magnetar.naming.hashes import topic_list_hash
from magnetar.protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandAck,
    CommandGetTopicsOfNamespace,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadataResponse,
    CommandSubscribe,
    MessageIdData,
)

NOT_ALLOWED = ServerErrorCode.NOT_ALLOWED


@pytest.fixture(scope="module")
def plain(start_server) -> Server:  # type: ignore[no-untyped-def]
    return start_server()  # type: ignore[no-any-return]


@pytest.fixture
def client(plain: Server) -> Client:
    return Client(plain.port)


def partitions_of(client: Client, topic: str) -> CommandPartitionedTopicMetadataResponse:
    found: CommandPartitionedTopicMetadataResponse = client.ask(
        BaseCommand.PARTITIONED_METADATA, BaseCommand.PARTITIONED_METADATA_RESPONSE, topic=topic
    )
    return found


def topics_of(client: Client, namespace: str = "public/default", **fields: object) -> object:
    return client.ask(
        BaseCommand.GET_TOPICS_OF_NAMESPACE,
        BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE,
        namespace=namespace,
        **fields,
    )


# Later features


def test_transactions(client: Client, topic: str) -> None:
    with pytest.raises(Refused, match="Transactions") as refused:
        client.ask(BaseCommand.NEW_TXN, BaseCommand.NEW_TXN_RESPONSE, txn_ttl_seconds=1)
    assert refused.value.code == NOT_ALLOWED
    with pytest.raises(Refused, match="Transactions"):
        client.produce(topic, txn_enabled=True)
    producer, _ = client.produce(topic)
    client.publish(producer, 3, entry_of(b"m"), txnid_least_bits=1, txnid_most_bits=0)
    error = client.take(BaseCommand.SEND_ERROR)
    assert (error.sequence_id, error.error) == (3, NOT_ALLOWED)
    consumer = client.subscribe(topic, "s", permits=1)
    where = client.published(producer, [b"m"])[0]
    answer = client.ask(
        BaseCommand.ACK,
        BaseCommand.ACK_RESPONSE,
        consumer_id=consumer,
        ack_type=CommandAck.Individual,
        message_id=[MessageIdData(ledgerId=where[0], entryId=where[1])],
        txnid_least_bits=1,
        txnid_most_bits=1,
    )
    assert answer.error == NOT_ALLOWED


def test_markers_and_message_ids_of_replicators(client: Client, topic: str) -> None:
    producer, _ = client.produce(topic)
    client.publish(producer, 1, entry_of(b"m"), marker=True)
    assert client.take(BaseCommand.SEND_ERROR).error == NOT_ALLOWED
    client.publish(producer, 2, entry_of(b"m"), message_id=MessageIdData(ledgerId=1, entryId=1))
    assert client.take(BaseCommand.SEND_ERROR).error == NOT_ALLOWED
    assert client.published(producer, [b"m"])


# Names


@pytest.mark.parametrize("name", ["persistent://a", "persistent://a/b/c/d/e/", "x://public/default/t", ""])
def test_names_that_are_none(client: Client, name: str) -> None:
    with pytest.raises(Refused) as refused:
        client.produce(name)
    assert refused.value.code in (ServerErrorCode.INVALID_TOPIC_NAME, ServerErrorCode.TOPIC_NOT_FOUND)


def test_namespaces_that_are_not_there(client: Client) -> None:
    for attempt in (
        lambda: client.produce("persistent://public/none/t"),
        lambda: client.subscribe("persistent://none/default/t", "s"),
    ):
        with pytest.raises(Refused) as refused:
            attempt()
        assert refused.value.code == ServerErrorCode.TOPIC_NOT_FOUND


def test_subscriptions_need_a_name_and_a_sane_priority(client: Client, topic: str) -> None:
    with pytest.raises(Refused, match="empty"):
        client.subscribe(topic, "")
    with pytest.raises(Refused, match="Priority level -1"):
        client.subscribe(topic, "s", priority_level=-1)


def test_odd_but_legal_names(plain: Server, client: Client, topic: str) -> None:
    odd = f"{topic} ü%2F+&?#"
    producer, _ = client.produce(odd, producer_name="näme / %")
    consumer = client.subscribe(odd, "sub / scription %ü", permits=5)
    client.published(producer, [b"m"])
    assert client.message(consumer)[1] == b"m"
    assert odd in topics_of(client).topics  # type: ignore[attr-defined]


def test_a_namespace_that_does_not_exist_has_no_topics(client: Client) -> None:
    assert list(topics_of(client, "public/none").topics) == []  # type: ignore[attr-defined]
    assert list(topics_of(client, "public/none", topics_pattern="x.*").topics) == []  # type: ignore[attr-defined]


def test_a_partitioned_topic_takes_no_producer_itself(plain: Server, client: Client, topic: str) -> None:
    assert plain.ask("PUT", f"/admin/v2/{topic.replace('://', '/')}/partitions", "2")[0] == 204
    assert partitions_of(client, topic).partitions == 2
    with pytest.raises(Refused, match="partitioned"):
        client.produce(topic)
    producer, _ = client.produce(f"{topic}-partition-1")
    consumer = client.subscribe(f"{topic}-partition-1", "s", permits=1)
    client.published(producer, [b"m"])
    found, _text = client.message(consumer)
    assert found.message_id.partition == 1


# Lists


def test_topics_by_pattern_and_by_hash(client: Client, topic: str) -> None:
    for name in ("red", "red2", "blue"):
        client.produce(f"{topic}-{name}")
    short = topic.partition("://")[2]
    full = topics_of(client)
    assert {f"{topic}-{name}" for name in ("red", "red2", "blue")} <= set(full.topics)  # type: ignore[attr-defined]
    assert full.topics_hash == topic_list_hash(sorted(full.topics))  # type: ignore[attr-defined]
    some = topics_of(client, topics_pattern=f"{short}-red.*")
    assert set(some.topics) == {f"{topic}-red", f"{topic}-red2"}  # type: ignore[attr-defined]
    assert some.filtered  # type: ignore[attr-defined]
    again = topics_of(client, topics_pattern=f"{short}-red.*", topics_hash=some.topics_hash)  # type: ignore[attr-defined]
    assert (again.changed, list(again.topics)) == (False, [])  # type: ignore[attr-defined]
    none = topics_of(client, mode=CommandGetTopicsOfNamespace.NON_PERSISTENT)
    assert (list(none.topics), none.topics_hash) == ([], "00000000")  # type: ignore[attr-defined]


@pytest.mark.parametrize("pattern", ["(", "[", "*", "(?P<x", "(?=a)b", "a" * 100_000])
def test_patterns_that_are_not_for_the_broker_are_left_to_the_client(
    client: Client, topic: str, pattern: str
) -> None:
    client.produce(topic)
    answer = topics_of(client, topics_pattern=pattern)
    assert topic in answer.topics  # type: ignore[attr-defined]
    assert not answer.filtered  # type: ignore[attr-defined]


# Caps and creation on use


def test_caps(start_server) -> None:  # type: ignore[no-untyped-def]
    server = start_server(
        maxProducersPerTopic=2,
        maxConsumersPerTopic=3,
        maxConsumersPerSubscription=2,
        maxSubscriptionsPerTopic=2,
        maxTopicsPerNamespace=2,
    )
    client = Client(server.port)
    topic = "persistent://public/default/capped"
    client.produce(topic, producer_id=1)
    client.produce(topic, producer_id=2)
    with pytest.raises(Refused, match="max producers") as refused:
        client.produce(topic, producer_id=3)
    assert refused.value.code == ServerErrorCode.PRODUCER_BUSY
    client.close_producer(1)
    client.produce(topic, producer_id=3)
    shared = CommandSubscribe.Shared
    client.subscribe(topic, "a", shared, consumer_id=1)
    client.subscribe(topic, "a", shared, consumer_id=2)
    with pytest.raises(Refused, match="max consumers") as refused:
        client.subscribe(topic, "a", shared, consumer_id=3)
    assert refused.value.code == ServerErrorCode.CONSUMER_BUSY
    client.subscribe(topic, "b", shared, consumer_id=3)
    with pytest.raises(Refused, match="max consumers"):
        client.subscribe(topic, "b", shared, consumer_id=4)
    client.close_consumer(3)
    with pytest.raises(Refused, match="maximum number of subscriptions"):
        client.subscribe(topic, "c", shared, consumer_id=5)
    client.produce(f"{topic}-2", producer_id=10)
    with pytest.raises(Refused, match="maximum number of topics"):
        client.produce(f"{topic}-3", producer_id=11)


def test_connection_caps(start_server) -> None:  # type: ignore[no-untyped-def]
    server = start_server(brokerMaxConnections=3)
    clients = [Client(server.port) for _ in range(3)]
    with pytest.raises((ConnectionError, TimeoutError)):
        Client(server.port)
    clients[0].close()
    clients[1].barrier()
    Client(server.port).barrier()


def test_nothing_is_made_where_creation_is_off(start_server) -> None:  # type: ignore[no-untyped-def]
    server = start_server(allowAutoTopicCreation="false", allowAutoSubscriptionCreation="false")
    client = Client(server.port)
    topic = "persistent://public/default/made"
    for attempt in (lambda: client.produce(topic), lambda: client.subscribe(topic, "s")):
        with pytest.raises(Refused) as refused:
            attempt()
        assert refused.value.code == ServerErrorCode.TOPIC_NOT_FOUND
    assert partitions_of(client, topic).error == ServerErrorCode.TOPIC_NOT_FOUND
    assert server.ask("PUT", "/admin/v2/persistent/public/default/made")[0] == 204
    assert partitions_of(client, topic).partitions == 0
    client.produce(topic)
    with pytest.raises(Refused) as refused:
        client.subscribe(topic, "s")
    assert refused.value.code == ServerErrorCode.SUBSCRIPTION_NOT_FOUND
    client.subscribe(topic, "reader", durable=False)
    assert server.ask("PUT", "/admin/v2/persistent/public/default/parts/partitions", "2")[0] == 204
    client.produce("persistent://public/default/parts-partition-0")
    with pytest.raises(Refused):
        client.produce("persistent://public/default/parts-partition-2")


def test_topics_are_made_with_partitions_where_that_is_set(start_server) -> None:  # type: ignore[no-untyped-def]
    """Of two clients that asked at the same time, one was refused."""
    server = start_server(allowAutoTopicCreationType="partitioned", defaultNumPartitions=3)
    clients = [Client(server.port) for _ in range(4)]
    for number in range(5):
        topic = f"persistent://public/default/parts{number}"
        asked = [c.begin(BaseCommand.PARTITIONED_METADATA, topic=topic) for c in clients]
        for client, request in zip(clients, asked, strict=True):
            found = client.take(BaseCommand.PARTITIONED_METADATA_RESPONSE, request_id=request)
            assert (found.error, found.partitions) == (0, 3)
    producer, _ = clients[0].produce("persistent://public/default/parts0-partition-2")
    assert clients[0].published(producer, [b"m"])


def test_only_enabled_subscription_types(start_server) -> None:  # type: ignore[no-untyped-def]
    server = start_server(subscriptionTypesEnabled="Exclusive")
    client = Client(server.port)
    client.subscribe("persistent://public/default/t", "s")
    with pytest.raises(Refused, match="subscriptionTypesEnabled") as refused:
        client.subscribe("persistent://public/default/t", "z", CommandSubscribe.Shared)
    assert refused.value.code == NOT_ALLOWED


def test_commands_in_flight_are_answered_each(client: Client, topic: str) -> None:
    for request in range(500):
        client.send(command(BaseCommand.LOOKUP, topic=f"{topic}-{request}", request_id=10_000 + request))
    for request in range(500):
        found = client.take(BaseCommand.LOOKUP_RESPONSE, request_id=10_000 + request)
        assert found.response == CommandLookupTopicResponse.Connect
