"""Producers: names, epochs, access modes, receipts, and how much may be on its way."""

from __future__ import annotations

import pytest
from raw_client import FROM_BROKER, Client, Refused, command, entry_of, position
from server import VARIANTS, Server

from magnetar.errors import ServerErrorCode
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, ProducerAccessMode

SHARED = ProducerAccessMode.Shared
EXCLUSIVE = ProducerAccessMode.Exclusive
WAIT = ProducerAccessMode.WaitForExclusive
FENCING = ProducerAccessMode.ExclusiveWithFencing


@pytest.fixture
def client(server: Server) -> Client:
    return Client(server.port)


def refused(code: ServerErrorCode, client: Client, topic: str, **fields: object) -> str:
    with pytest.raises(Refused) as found:
        client.produce(topic, **fields)  # type: ignore[arg-type]
    assert found.value.code == code, found.value
    return found.value.text


# Names


def test_generated_names_differ(server: Server, client: Client, topic: str) -> None:
    other = Client(server.port)
    names = {c.produce(topic)[1].producer_name for c in (client, client, other)}
    assert len(names) == 3
    assert all(name.startswith("standalone-") for name in names)


def test_success_tells_no_sequence_id_and_no_epoch(client: Client, topic: str) -> None:
    success = client.produce(topic, producer_name="p")[1]
    assert success.producer_name == "p"
    assert success.last_sequence_id == -1
    assert success.producer_ready
    assert success.schema_version == b""
    assert not success.HasField("topic_epoch")


def test_a_name_is_taken_once_a_connection(client: Client, topic: str) -> None:
    client.produce(topic, producer_name="p")
    text = refused(ServerErrorCode.PRODUCER_BUSY, client, topic, producer_name="p")
    assert "Producer with name 'p' is already connected" in text


def test_the_same_request_again_is_answered_again(client: Client, topic: str) -> None:
    producer, first = client.produce(topic)
    assert client.produce(topic, producer_id=producer)[1].producer_name == first.producer_name
    assert client.published(producer, [b"m"])


@pytest.mark.parametrize("mode", [SHARED, EXCLUSIVE])
def test_a_higher_epoch_replaces_a_producer(
    client: Client, topic: str, mode: ProducerAccessMode.ValueType
) -> None:
    """An exclusive producer that came back was fenced by itself."""
    fields = {"producer_id": 5, "producer_name": "p", "producer_access_mode": mode}
    client.produce(topic, epoch=1, **fields)
    client.produce(topic, epoch=2, **fields)
    assert client.published(5, [b"m"])


def test_a_producer_replaced_under_another_name_is_gone(client: Client, topic: str) -> None:
    """The former one stayed with the topic for ever, and its name was never free again."""
    client.produce(topic, producer_id=5, producer_name="a", epoch=1)
    client.produce(topic, producer_id=5, producer_name="b", epoch=2)
    client.produce(topic, producer_id=6, producer_name="a")


def test_names_generated_before_a_restart_are_not_given_again(
    topic: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A client that came back with its generated name found it given to another."""
    server = Server(tmp_path_factory.mktemp("names"), {})
    try:
        server.start()
        before = Client(server.port).produce(topic)[1].producer_name
        server.restart(kill=True)
        assert Client(server.port).produce(topic)[1].producer_name != before
        back = Client(server.port).produce(topic, producer_name=before, user_provided_producer_name=False)
        assert back[1].producer_name == before
    finally:
        server.close()


def test_closing_frees_the_name(server: Server, client: Client, topic: str) -> None:
    producer, _ = client.produce(topic, producer_name="p")
    client.close_producer(producer)
    other = Client(server.port)
    other.produce(topic, producer_name="p")
    other.close()
    client.produce(topic, producer_name="p", producer_id=99)


def test_closing_a_producer_that_is_being_opened_leaves_nothing(client: Client, topic: str) -> None:
    for number in range(20):
        client.begin(
            BaseCommand.PRODUCER,
            topic=f"{topic}-{number}",
            producer_id=number,
            producer_name="p",
            user_provided_producer_name=True,
        )
        client.begin(BaseCommand.CLOSE_PRODUCER, producer_id=number)
    for _ in range(20):
        client.take(BaseCommand.SUCCESS)
    for number in range(20):
        client.produce(f"{topic}-{number}", producer_id=100 + number, producer_name="p")


def test_closing_waits_for_its_own_receipts_only(server: Server, client: Client, topic: str) -> None:
    """It waited for a moment in which nobody else had anything on its way."""
    busy = Client(server.port)
    loud, _ = busy.produce(topic)
    producer, _ = client.produce(topic)
    for number in range(300):
        busy.publish(loud, number, entry_of(b"x" * 1000))
        if number == 100:
            client.publish(producer, 0, entry_of(b"last"))
            closing = client.begin(BaseCommand.CLOSE_PRODUCER, producer_id=producer)
    client.take(BaseCommand.SEND_RECEIPT, producer_id=producer)
    client.take(BaseCommand.SUCCESS, request_id=closing)
    for _ in range(300):
        busy.take(BaseCommand.SEND_RECEIPT)


def test_initial_subscription_sees_what_is_published_next(client: Client, topic: str) -> None:
    producer, _ = client.produce(topic, initial_subscription_name="first")
    client.published(producer, [b"a", b"b"])
    consumer = client.subscribe(topic, "first", permits=10, initialPosition=0)
    assert [text for _m, text in client.messages(consumer, 2)] == [b"a", b"b"]


# Access modes


def test_exclusive_keeps_others_out(server: Server, client: Client, topic: str) -> None:
    success = client.produce(topic, producer_name="owner", producer_access_mode=EXCLUSIVE)[1]
    assert success.topic_epoch == 0
    other = Client(server.port)
    assert "owner" in refused(ServerErrorCode.PRODUCER_BUSY, other, topic)
    refused(ServerErrorCode.PRODUCER_FENCED, other, topic, producer_access_mode=EXCLUSIVE)


def test_exclusive_is_refused_while_a_shared_one_is_there(server: Server, client: Client, topic: str) -> None:
    producer, _ = client.produce(topic)
    other = Client(server.port)
    refused(ServerErrorCode.PRODUCER_FENCED, other, topic, producer_access_mode=EXCLUSIVE)
    client.close_producer(producer)
    assert other.produce(topic, producer_access_mode=EXCLUSIVE)[1].producer_ready


def test_waiting_producers_take_turns(server: Server, client: Client, topic: str) -> None:
    owner, _ = client.produce(topic, producer_access_mode=EXCLUSIVE)
    waiting = [Client(server.port) for _ in range(2)]
    for other in waiting:
        success = other.produce(topic, producer_id=7, producer_access_mode=WAIT)[1]
        assert not success.producer_ready
    client.close_producer(owner)
    ready = waiting[0].take(BaseCommand.PRODUCER_SUCCESS)
    assert (ready.producer_ready, ready.topic_epoch) == (True, 1)
    assert waiting[0].published(7, [b"m"])
    assert not waiting[1].count_kept(BaseCommand.PRODUCER_SUCCESS)
    waiting[0].close()
    ready = waiting[1].take(BaseCommand.PRODUCER_SUCCESS)
    assert (ready.producer_ready, ready.topic_epoch) == (True, 2)


def test_a_waiting_producer_that_closes_may_come_back(server: Server, client: Client, topic: str) -> None:
    """Its id could never be used again on that connection."""
    owner, _ = client.produce(topic, producer_access_mode=EXCLUSIVE)
    other = Client(server.port)
    other.produce(topic, producer_id=7, producer_access_mode=WAIT)
    other.close_producer(7)
    assert not other.produce(topic, producer_id=7, producer_access_mode=WAIT)[1].producer_ready
    client.close_producer(owner)
    assert other.take(BaseCommand.PRODUCER_SUCCESS).producer_ready


def test_nobody_slips_in_between_two_owners(server: Server, client: Client, topic: str) -> None:
    """While the epoch of the next owner was being stored, a shared producer was let in."""
    for _ in range(5):
        owner, _ = client.produce(topic, producer_access_mode=EXCLUSIVE)
        waiting = Client(server.port)
        waiting.produce(topic, producer_id=7, producer_access_mode=WAIT)
        client.begin(BaseCommand.CLOSE_PRODUCER, producer_id=owner)
        with pytest.raises(Refused) as found:
            client.produce(topic)
        assert found.value.code in (ServerErrorCode.SERVICE_NOT_READY, ServerErrorCode.PRODUCER_BUSY)
        assert waiting.take(BaseCommand.PRODUCER_SUCCESS).producer_ready
        waiting.close_producer(7)
        waiting.close()


def test_fencing_takes_over_and_closes_who_goes_on(server: Server, client: Client, topic: str) -> None:
    shared, _ = client.produce(topic)
    waiting = Client(server.port)
    waiting.produce(topic, producer_id=7, producer_access_mode=WAIT)
    fencing = Client(server.port)
    producer, success = fencing.produce(topic, producer_access_mode=FENCING)
    assert success.producer_ready
    with pytest.raises(Refused) as found:
        waiting.take(BaseCommand.PRODUCER_SUCCESS, request_id=1)
    assert found.value.code == ServerErrorCode.PRODUCER_FENCED
    client.barrier()
    client.publish(shared, 0, entry_of(b"fenced"))
    client.expect_closed()
    fencing.published(producer, [b"mine"])
    consumer = fencing.subscribe(topic, "s", permits=10)
    assert fencing.message(consumer)[1] == b"mine"


def test_a_fenced_owner_cannot_come_back(server: Server, client: Client, topic: str) -> None:
    epoch = client.produce(topic, producer_access_mode=EXCLUSIVE)[1].topic_epoch
    fencing = Client(server.port)
    producer, _ = fencing.produce(topic, producer_access_mode=FENCING)
    fencing.close_producer(producer)
    back = Client(server.port)
    refused(ServerErrorCode.PRODUCER_FENCED, back, topic, producer_access_mode=EXCLUSIVE, topic_epoch=epoch)


@pytest.mark.parametrize("kill", [True, False])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_epoch_survives_a_restart(
    topic: str, variant: str, kill: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    server = Server(tmp_path_factory.mktemp("epoch"), VARIANTS[variant])
    try:
        server.start()
        client = Client(server.port)
        producer, first = client.produce(topic, producer_name="p", producer_access_mode=EXCLUSIVE)
        client.close_producer(producer)
        second = client.produce(topic, producer_name="p", producer_access_mode=EXCLUSIVE)[1]
        assert (first.topic_epoch, second.topic_epoch) == (0, 1)
        server.restart(kill=kill)
        back = Client(server.port)
        refused(
            ServerErrorCode.PRODUCER_FENCED,
            back,
            topic,
            producer_name="p",
            producer_access_mode=EXCLUSIVE,
            topic_epoch=0,
        )
        known = back.produce(topic, producer_name="p", producer_access_mode=EXCLUSIVE, topic_epoch=1)[1]
        assert known.topic_epoch == 1
        third = Client(server.port).produce(topic, producer_name="q", producer_access_mode=FENCING)[1]
        assert third.topic_epoch == 2
    finally:
        server.close()


# Receipts


def test_receipts_come_in_order_with_ids_that_rise(client: Client, topic: str) -> None:
    producer, _ = client.produce(topic)
    consumer = client.subscribe(topic, "s", permits=1000)
    where = client.published(producer, [b"%d" % n for n in range(500)])
    assert where == sorted(set(where))
    found = client.messages(consumer, 500)
    assert [text for _m, text in found] == [b"%d" % n for n in range(500)]
    assert [position(m.message_id) for m, _text in found] == where


def test_the_highest_sequence_id_is_echoed(client: Client, topic: str) -> None:
    producer, _ = client.produce(topic)
    client.publish(producer, 10, entry_of(b"batch", batch=5), num_messages=5, highest_sequence_id=14)
    client.publish(producer, 15, entry_of(b"one"))
    first = client.take(BaseCommand.SEND_RECEIPT)
    assert (first.sequence_id, first.highest_sequence_id) == (10, 14)
    assert client.take(BaseCommand.SEND_RECEIPT).highest_sequence_id == FROM_BROKER


@pytest.mark.parametrize(
    ("unusual", "message"),
    [
        ({"num_messages": 0}, "num_messages of SEND must be at least 1, but is 0"),
        ({"num_messages": -3}, "num_messages of SEND must be at least 1, but is -3"),
        ({}, "SEND has a field that this broker does not know"),
    ],
)
def test_a_send_that_the_broker_cannot_honour_names_the_reason(
    client: Client, topic: str, unusual: dict[str, int], message: str
) -> None:
    producer, _ = client.produce(topic)
    sent = command(BaseCommand.SEND, producer_id=producer, sequence_id=0, **unusual)
    if not unusual:
        sent.send.MergeFromString(b"\xb8\x3e\x01")  # Field 999 is 1.
    client.send(sent, entry_of(b"refused"))
    error = client.take(BaseCommand.SEND_ERROR)
    assert (error.sequence_id, error.error, error.message) == (0, ServerErrorCode.NOT_ALLOWED, message)
    client.publish(producer, 1, entry_of(b"stored"))
    assert client.take(BaseCommand.SEND_RECEIPT).sequence_id == 1


def test_two_producers_of_a_connection_keep_apart(client: Client, topic: str) -> None:
    one, _ = client.produce(topic)
    two, _ = client.produce(f"{topic}-2")
    for number in range(100):
        client.publish(one, number, entry_of(b"1"))
        client.publish(two, 1000 + number, entry_of(b"2"))
    for producer, first in ((one, 0), (two, 1000)):
        got = [client.take(BaseCommand.SEND_RECEIPT, producer_id=producer) for _ in range(100)]
        assert [r.sequence_id for r in got] == list(range(first, first + 100))


# How much may be on its way


@pytest.mark.parametrize("variant", VARIANTS)
def test_more_than_the_pending_limit_is_held_back_and_not_lost(  # type: ignore[no-untyped-def]
    start_server, topic: str, variant: str
) -> None:
    server = start_server(maxPendingPublishRequestsPerConnection=10, **VARIANTS[variant])
    client = Client(server.port)
    one, _ = client.produce(topic)
    two, _ = client.produce(f"{topic}-2")
    for number in range(2000):
        client.publish(one if number % 3 else two, number, entry_of(b"%d" % number))
    for producer, wanted in (
        (one, [n for n in range(2000) if n % 3]),
        (two, [n for n in range(2000) if not n % 3]),
    ):
        got = [client.take(BaseCommand.SEND_RECEIPT, producer_id=producer).sequence_id for _ in wanted]
        assert got == wanted
    client.barrier()


@pytest.mark.parametrize("variant", VARIANTS)
def test_more_than_the_publish_buffer_is_held_back_and_not_lost(  # type: ignore[no-untyped-def]
    start_server, topic: str, variant: str
) -> None:
    server = start_server(maxMessagePublishBufferSizeInMB=1, **VARIANTS[variant])
    clients = [Client(server.port) for _ in range(3)]
    producers = [c.produce(topic)[0] for c in clients]
    payload = bytes(700_000)
    for number in range(6):
        for client, producer in zip(clients, producers, strict=True):
            client.publish(producer, number, entry_of(payload))
    for client in clients:
        assert [client.take(BaseCommand.SEND_RECEIPT).sequence_id for _ in range(6)] == list(range(6))
        client.barrier()
    assert b"magnetar_publish_buffer_bytes" in server.ask("GET", "/metrics")[1]


def test_an_unload_duplicates_and_loses_nothing(server: Server, client: Client, topic: str) -> None:
    """What was on its way to the disk got no receipt, and its producer sent it again."""
    client.close_consumer(client.subscribe(topic, "s"))
    producer, _ = client.produce(topic)
    for number in range(200):
        client.publish(producer, number, entry_of(b"%d" % number, number))
    client.take(BaseCommand.SEND_RECEIPT)
    path = topic.replace("://", "/")
    assert server.ask("PUT", f"/admin/v2/{path}/unload")[0] == 204
    assert client.take(BaseCommand.CLOSE_PRODUCER).request_id == FROM_BROKER
    received = 1 + client.count_kept(BaseCommand.SEND_RECEIPT)
    client.produce(topic, producer_id=producer)
    for number in range(received, 200):
        client.publish(producer, number, entry_of(b"%d" % number, number))
    for _ in range(199):
        client.take(BaseCommand.SEND_RECEIPT)
    consumer = client.subscribe(topic, "s", permits=1000)
    assert [text for _m, text in client.messages(consumer, 200)] == [b"%d" % n for n in range(200)]
