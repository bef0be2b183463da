"""Policies as official clients meet them: on live topics at once, after restarts, and in system topics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from server import Server

pulsar = pytest.importorskip("pulsar")

NAMESPACE = "policed/n"
PATH = f"/admin/v2/namespaces/{NAMESPACE}"
TOPICS = f"/admin/v2/persistent/{NAMESPACE}"


@pytest.fixture(scope="module")
def policed(start_server: Any) -> Server:
    server: Server = start_server(magnetarMinLedgerRolloverSeconds=0, managedLedgerMaxEntriesPerLedger=5)
    assert server.ask("PUT", "/admin/v2/tenants/policed", '{"allowedClusters":["standalone"]}')[0] == 204
    assert server.ask("PUT", PATH)[0] == 204
    return server


@pytest.fixture
def client(policed: Server) -> Iterator[Any]:
    found = pulsar.Client(
        policed.url, operation_timeout_seconds=10, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    yield found
    found.close()


def put(server: Server, method: str, path: str, value: Any) -> None:
    status, body = server.ask(method, path, json.dumps(value))
    assert status == 204, (path, status, body)


def get(server: Server, path: str) -> Any:
    status, body = server.ask("GET", path)
    assert status == 200, (path, status, body)
    return json.loads(body) if body else None


def name_of(topic: str) -> str:
    return f"persistent://{NAMESPACE}/{topic}"


def test_a_cap_counts_for_live_topics_at_once(policed: Server, client: Any) -> None:
    topic = name_of("caps")
    first = client.create_producer(topic)
    put(policed, "POST", f"{PATH}/maxProducersPerTopic", 1)
    with pytest.raises(pulsar.PulsarException):
        client.create_producer(topic)
    put(policed, "POST", f"{TOPICS}/caps/maxProducers", 2)
    second = client.create_producer(topic)
    with pytest.raises(pulsar.PulsarException):
        client.create_producer(topic)
    assert policed.ask("DELETE", f"{TOPICS}/caps/maxProducers")[0] == 204
    assert policed.ask("DELETE", f"{PATH}/maxProducersPerTopic")[0] == 204
    third = client.create_producer(topic)
    for producer in (first, second, third):
        producer.close()


def test_subscription_types(policed: Server, client: Any) -> None:
    topic = name_of("types")
    put(policed, "POST", f"{PATH}/subscriptionTypesEnabled", ["Exclusive"])
    client.subscribe(topic, "a").close()
    with pytest.raises(pulsar.PulsarException):
        client.subscribe(topic, "b", consumer_type=pulsar.ConsumerType.Shared)
    put(policed, "POST", f"{TOPICS}/types/subscriptionTypesEnabled", ["Shared"])
    client.subscribe(topic, "b", consumer_type=pulsar.ConsumerType.Shared).close()
    assert policed.ask("DELETE", f"{PATH}/subscriptionTypesEnabled")[0] == 204


def test_what_is_made_on_use(policed: Server, client: Any) -> None:
    rule = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3}
    put(policed, "POST", f"{PATH}/autoTopicCreation", rule)
    client.create_producer(name_of("parts")).close()
    assert get(policed, f"{TOPICS}/parts/partitions")["partitions"] == 3
    put(policed, "POST", f"{PATH}/autoTopicCreation", {"allowAutoTopicCreation": False})
    with pytest.raises(pulsar.PulsarException):
        client.create_producer(name_of("never"))
    client.create_producer(name_of("parts")).close()
    put(policed, "POST", f"{PATH}/autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False})
    with pytest.raises(pulsar.PulsarException):
        client.subscribe(name_of("parts-partition-0"), "s")
    assert policed.ask("PUT", f"{TOPICS}/parts-partition-0/subscription/s")[0] == 204
    client.subscribe(name_of("parts-partition-0"), "s").close()
    for policy in ("autoTopicCreation", "autoSubscriptionCreation"):
        assert policed.ask("DELETE", f"{PATH}/{policy}")[0] == 204


def test_a_namespace_has_no_more_topics_than_it_may(policed: Server, client: Any) -> None:
    known = len(get(policed, TOPICS))
    put(policed, "POST", f"{PATH}/maxTopicsPerNamespace", known + 1)
    client.create_producer(name_of("one-more")).close()
    with pytest.raises(pulsar.PulsarException):
        client.create_producer(name_of("too-many"))
    assert policed.ask("PUT", f"{TOPICS}/too-many")[0] == 412
    assert policed.ask("DELETE", f"{PATH}/maxTopicsPerNamespace")[0] == 204


@pytest.mark.parametrize("kill", [False, True])
def test_policies_are_there_after_a_restart(policed: Server, kill: bool) -> None:
    topic = f"kept-{kill}"
    assert policed.ask("PUT", f"{TOPICS}/{topic}")[0] == 204
    # More than a ledger holds, so that what trims ledgers must leave these.
    for number in range(1, 13):
        put(policed, "POST", f"{TOPICS}/{topic}/maxConsumers", number)
    put(policed, "POST", f"{PATH}/messageTTL", 17)
    policed.restart(kill=kill)
    assert get(policed, f"{TOPICS}/{topic}/maxConsumers") == 12
    assert get(policed, f"{PATH}/messageTTL") == 17
    assert policed.ask("DELETE", f"{PATH}/messageTTL")[0] == 204


def test_subscriptions_move_as_operators_say(policed: Server, client: Any) -> None:
    topic, path = name_of("moved"), f"{TOPICS}/moved"
    producer = client.create_producer(topic, batching_enabled=False)
    assert policed.ask("PUT", f"{path}/subscription/s", '"earliest"')[0] == 204
    ids = [producer.send(b"%d" % number) for number in range(20)]
    assert policed.ask("POST", f"{path}/subscription/s/skip/5")[0] == 204
    consumer = client.subscribe(topic, "s", receiver_queue_size=1)
    assert consumer.receive(10_000).data() == b"5"
    # Consumers come back and read from there.
    at = json.dumps({"ledgerId": ids[10].ledger_id(), "entryId": ids[10].entry_id()})
    assert policed.ask("POST", f"{path}/subscription/s/resetcursor", at)[0] == 204
    while (message := consumer.receive(10_000)).data() != b"10":
        assert int(message.data()) < 10
    assert policed.ask("DELETE", f"{path}/subscription/s")[0] == 412
    while consumer.receive(10_000).data() != b"15":
        pass
    assert policed.ask("POST", f"{path}/subscription/s/resetcursor/0")[0] == 204
    # From the oldest that is still stored on; one more may have been on its way.
    assert min(int(consumer.receive(10_000).data()) for _ in range(2)) <= 10
    consumer.close()
    assert policed.ask("POST", f"{path}/subscription/s/skip_all")[0] == 204
    assert get(policed, f"{path}/stats")["subscriptions"]["s"]["msgBacklog"] == 0
    assert policed.ask("DELETE", f"{path}/subscription/s")[0] == 204
    assert get(policed, f"{path}/subscriptions") == []
    producer.close()


def test_more_partitions_have_the_subscriptions_of_the_others(policed: Server, client: Any) -> None:
    topic, path = name_of("growing"), f"{TOPICS}/growing"
    assert policed.ask("PUT", f"{path}/partitions", "1")[0] == 204
    client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared).close()
    assert policed.ask("POST", f"{path}/partitions", "3")[0] == 204
    producer = client.create_producer(
        topic,
        batching_enabled=False,
        message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
    )
    for number in range(30):
        producer.send(b"%d" % number)
    consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    got = {int(consumer.receive(10_000).data()) for _ in range(30)}
    assert got == set(range(30))
    total = get(policed, f"{path}/partitioned-stats")
    assert (total["msgInCounter"], len(total["partitions"])) == (30, 3)
    consumer.close()
    producer.close()


def test_the_systems_topics_are_hidden(policed: Server, client: Any) -> None:
    client.create_producer(name_of("hides")).close()
    put(policed, "POST", f"{TOPICS}/hides/maxProducers", 2)
    assert not [name for name in get(policed, TOPICS) if "/__" in name]
    shown = get(policed, f"{TOPICS}?includeSystemTopic=true")
    assert name_of("__change_events") in shown
