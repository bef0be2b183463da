"""Subscriptions: who may join, what is delivered from where, for how many permits, and seek."""

from __future__ import annotations

import time

import pytest
from raw_client import EARLIEST, FROM_BROKER, LATEST, Client, Refused, command, entry_of, id_of, position
from server import Server

from magnetar.errors import ServerErrorCode
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandSubscribe, MessageIdData

SHARED = CommandSubscribe.Shared
EXCLUSIVE = CommandSubscribe.Exclusive


@pytest.fixture
def client(server: Server) -> Client:
    return Client(server.port)


def kept_topic(client: Client, topic: str, count: int) -> list[tuple[int, int]]:
    """A topic with messages 0, 1, ... that stay, consumed or not; where they are."""
    client.close_consumer(client.subscribe(topic, "keep"))
    producer, _ = client.produce(topic)
    return client.published(producer, [b"%d" % n for n in range(count)])


def numbers(client: Client, consumer: int, wanted: int) -> list[int]:
    return [int(text) for _m, text in client.messages(consumer, wanted)]


# Who may join


def test_an_exclusive_subscription_takes_one(client: Client, topic: str) -> None:
    client.subscribe(topic, "s")
    with pytest.raises(Refused) as refused:
        client.subscribe(topic, "s")
    assert refused.value.code == ServerErrorCode.CONSUMER_BUSY
    assert "Exclusive consumer is already connected" in refused.value.text


@pytest.mark.parametrize(("first", "second"), [(SHARED, EXCLUSIVE), (EXCLUSIVE, SHARED)])
def test_a_subscription_has_one_type_at_a_time(
    client: Client,
    topic: str,
    first: CommandSubscribe.SubType.ValueType,
    second: CommandSubscribe.SubType.ValueType,
) -> None:
    consumer = client.subscribe(topic, "s", first)
    with pytest.raises(Refused) as refused:
        client.subscribe(topic, "s", second)
    assert refused.value.code == ServerErrorCode.CONSUMER_BUSY
    assert "different type" in refused.value.text
    client.close_consumer(consumer)
    client.subscribe(topic, "s", second)


def test_subscribing_again_with_the_same_id_is_answered(client: Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    client.subscribe(topic, "s", consumer_id=consumer)


def test_closing_a_consumer_that_is_being_opened_leaves_nothing(client: Client, topic: str) -> None:
    """It joined after its own end, and kept the subscription for as long as the connection lived."""
    for number in range(20):
        client.begin(
            BaseCommand.SUBSCRIBE,
            topic=f"{topic}-{number}",
            subscription="s",
            subType=EXCLUSIVE,
            consumer_id=number,
        )
        client.begin(BaseCommand.CLOSE_CONSUMER, consumer_id=number)
    for _ in range(20):
        client.take(BaseCommand.SUCCESS)
    for number in range(20):
        client.subscribe(f"{topic}-{number}", "s", consumer_id=100 + number)


# Permits


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED])
def test_permits_are_never_exceeded_by_single_messages(
    client: Client, topic: str, kind: CommandSubscribe.SubType.ValueType
) -> None:
    kept_topic(client, topic, 50)
    consumer = client.subscribe(topic, "s", kind, permits=13)
    assert numbers(client, consumer, 13) == list(range(13))
    assert client.count_kept(BaseCommand.MESSAGE) == 0
    client.flow(consumer, 20)
    assert numbers(client, consumer, 20) == list(range(13, 33))
    assert client.count_kept(BaseCommand.MESSAGE) == 0


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED])
def test_a_batch_overdraws_the_permits_once(
    client: Client, topic: str, kind: CommandSubscribe.SubType.ValueType
) -> None:
    """As many entries as there were permits were sent, each with a batch of messages."""
    consumer = client.subscribe(topic, "s", kind)
    producer, _ = client.produce(topic)
    client.published(producer, [b"%d" % n for n in range(30)], batch=10)
    client.flow(consumer, 15)
    assert numbers(client, consumer, 2) == [0, 1]
    assert client.count_kept(BaseCommand.MESSAGE) == 0
    client.flow(consumer, 5)
    assert client.count_kept(BaseCommand.MESSAGE) == 0
    client.flow(consumer, 1)
    assert numbers(client, consumer, 1) == [2]
    client.flow(consumer, 1000)
    assert numbers(client, consumer, 27) == list(range(3, 30))


def test_shared_consumers_get_what_others_have_no_permits_for(
    server: Server, client: Client, topic: str
) -> None:
    where = kept_topic(client, topic, 60)
    few = client.subscribe(topic, "s", SHARED, permits=5)
    many = client.subscribe(topic, "s", SHARED, permits=100)
    got = numbers(client, few, 5) + numbers(client, many, 55)
    assert sorted(got) == list(range(len(where)))


def test_a_lower_priority_waits_until_those_above_have_no_permits(client: Client, topic: str) -> None:
    low = client.subscribe(topic, "s", SHARED, permits=100, priority_level=1)
    high = client.subscribe(topic, "s", SHARED, permits=10, priority_level=0)
    producer, _ = client.produce(topic)
    client.published(producer, [b"%d" % n for n in range(15)])
    assert len(numbers(client, high, 10)) == 10
    assert len(numbers(client, low, 5)) == 5


# Where it begins


def test_a_new_subscription_begins_at_either_end(client: Client, topic: str) -> None:
    kept_topic(client, topic, 20)
    late = client.subscribe(topic, "late", permits=10, initialPosition=CommandSubscribe.Latest)
    early = client.subscribe(topic, "early", permits=1, initialPosition=CommandSubscribe.Earliest)
    assert numbers(client, early, 1) == [0]
    producer, _ = client.produce(topic)
    client.published(producer, [b"20"])
    assert numbers(client, late, 1) == [20]


def test_a_known_subscription_begins_where_it_was(client: Client, topic: str) -> None:
    where = kept_topic(client, topic, 20)
    consumer = client.subscribe(topic, "s", permits=10)
    client.acknowledge(consumer, [id_of(where[4])], cumulative=True)
    client.close_consumer(consumer)
    again = client.subscribe(topic, "s", permits=1, initialPosition=CommandSubscribe.Latest)
    assert numbers(client, again, 1) == [5]


@pytest.mark.parametrize("first", [0, 6, 7, 13, 29])
def test_a_reader_begins_with_its_start_id(client: Client, topic: str, first: int) -> None:
    where = kept_topic(client, topic, 30)
    reader = client.subscribe(topic, "r", permits=100, durable=False, start_message_id=id_of(where[first]))
    assert numbers(client, reader, 30 - first) == list(range(first, 30))


@pytest.mark.parametrize(("start", "wanted"), [(EARLIEST, [0, 1, 2]), (LATEST, [30])])
def test_a_reader_begins_at_either_end(
    client: Client, topic: str, start: MessageIdData, wanted: list[int]
) -> None:
    kept_topic(client, topic, 30)
    reader = client.subscribe(topic, "r", permits=3, durable=False, start_message_id=start)
    producer, _ = client.produce(topic)
    client.published(producer, [b"30"])
    assert numbers(client, reader, len(wanted)) == wanted


def test_a_reader_may_begin_by_time(client: Client, topic: str) -> None:
    client.close_consumer(client.subscribe(topic, "keep"))
    producer, _ = client.produce(topic)
    now = int(time.time() * 1000)
    for number in range(20):
        client.publish(producer, number, entry_of(b"%d" % number, publish_time=now - (20 - number) * 60_000))
        client.take(BaseCommand.SEND_RECEIPT)
    reader = client.subscribe(
        topic, "r", permits=20, durable=False, start_message_rollback_duration_sec=5 * 60 + 30
    )
    assert numbers(client, reader, 5) == [15, 16, 17, 18, 19]


def test_a_readers_subscription_goes_with_it(server: Server, client: Client, topic: str) -> None:
    kept_topic(client, topic, 5)
    reader = client.subscribe(topic, "r", permits=5, durable=False, start_message_id=EARLIEST)
    assert numbers(client, reader, 5) == list(range(5))
    client.close_consumer(reader)
    again = client.subscribe(topic, "r", permits=5, durable=False, start_message_id=EARLIEST)
    assert numbers(client, again, 5) == list(range(5))


def test_durable_and_not_do_not_mix(client: Client, topic: str) -> None:
    client.close_consumer(client.subscribe(topic, "s"))
    with pytest.raises(Refused) as refused:
        client.subscribe(topic, "s", durable=False)
    assert refused.value.code == ServerErrorCode.NOT_ALLOWED


@pytest.mark.parametrize("kind", [SHARED, CommandSubscribe.Failover, CommandSubscribe.Key_Shared])
def test_several_may_share_a_subscription_that_is_not_durable(
    client: Client, topic: str, kind: CommandSubscribe.SubType
) -> None:
    where = kept_topic(client, topic, 20)
    consumers = [
        client.subscribe(topic, "r", kind, permits=20, durable=False, start_message_id=EARLIEST)
        for _ in range(2)
    ]
    got = [client.take_frame(BaseCommand.MESSAGE) for _ in range(20)]
    assert sorted(position(message.message_id) for message, _entry in got) == where
    for consumer in consumers:
        client.close_consumer(consumer)
    # It went with the last of them: else a durable one of its name would be refused.
    client.subscribe(topic, "r", kind)


@pytest.mark.parametrize("kind", [EXCLUSIVE, CommandSubscribe.Failover])
def test_the_newest_of_each_key_is_everything_where_nothing_was_compacted(
    client: Client, topic: str, kind: CommandSubscribe.SubType
) -> None:
    kept_topic(client, topic, 5)
    reader = client.subscribe(
        topic, "r", kind, permits=5, durable=False, start_message_id=EARLIEST, read_compacted=True
    )
    assert numbers(client, reader, 5) == list(range(5))


@pytest.mark.parametrize("kind", [SHARED, CommandSubscribe.Key_Shared])
def test_what_is_compacted_is_not_shared(client: Client, topic: str, kind: CommandSubscribe.SubType) -> None:
    with pytest.raises(Refused, match="readCompacted only allowed on failover or exclusive") as refused:
        client.subscribe(topic, "s", kind, read_compacted=True)
    assert refused.value.code == ServerErrorCode.NOT_ALLOWED


def test_only_what_is_stored_is_compacted_and_by_the_broker_alone(client: Client, topic: str) -> None:
    other = topic.replace("persistent", "non-persistent")
    with pytest.raises(Refused, match="readCompacted only valid on persistent topics"):
        client.subscribe(other, "s", EXCLUSIVE, read_compacted=True)
    with pytest.raises(Refused, match="is reserved for compaction") as refused:
        client.subscribe(topic, "__compaction", EXCLUSIVE)
    assert refused.value.code == ServerErrorCode.NOT_ALLOWED


# Seek


def seek(client: Client, consumer: int, **fields: object) -> None:
    client.ask(BaseCommand.SEEK, BaseCommand.SUCCESS, consumer_id=consumer, **fields)
    closed = client.take(BaseCommand.CLOSE_CONSUMER, consumer_id=consumer)
    assert closed.request_id == FROM_BROKER


@pytest.mark.parametrize("target", [0, 6, 7, 19])
def test_seek_by_id_moves_a_durable_cursor(client: Client, topic: str, target: int) -> None:
    where = kept_topic(client, topic, 20)
    consumer = client.subscribe(topic, "s", permits=20)
    client.messages(consumer, 20)
    client.acknowledge(consumer, [id_of(where[19])], cumulative=True)
    seek(client, consumer, message_id=id_of(where[target]))
    back = client.subscribe(topic, "s", permits=20)
    assert numbers(client, back, 20 - target) == list(range(target, 20))


def test_seek_to_either_end(client: Client, topic: str) -> None:
    kept_topic(client, topic, 20)
    consumer = client.subscribe(topic, "s", permits=20)
    seek(client, consumer, message_id=LATEST)
    back = client.subscribe(topic, "s", permits=20)
    assert client.count_kept(BaseCommand.MESSAGE) <= 20
    client.kept.clear()
    seek(client, back, message_id=EARLIEST)
    client.kept.clear()
    last = client.subscribe(topic, "s", permits=20)
    assert numbers(client, last, 20) == list(range(20))


def test_seek_by_time(client: Client, topic: str) -> None:
    client.close_consumer(client.subscribe(topic, "keep"))
    producer, _ = client.produce(topic)
    for number in range(20):
        client.publish(producer, number, entry_of(b"%d" % number, publish_time=1000 + number * 10))
        client.take(BaseCommand.SEND_RECEIPT)
    for moment, first in ((0, 0), (1000, 0), (1055, 6), (1190, 19)):
        consumer = client.subscribe(topic, "s", permits=1)
        seek(client, consumer, message_publish_time=moment)
        client.kept.clear()
        back = client.subscribe(topic, "s", permits=20)
        assert numbers(client, back, 20 - first) == list(range(first, 20))
        client.close_consumer(back)


def test_seek_closes_all_consumers_of_the_subscription(server: Server, client: Client, topic: str) -> None:
    kept_topic(client, topic, 20)
    other = Client(server.port)
    theirs = other.subscribe(topic, "s", SHARED, permits=5)
    consumer = client.subscribe(topic, "s", SHARED, permits=5)
    seek(client, consumer, message_id=EARLIEST)
    assert other.take(BaseCommand.CLOSE_CONSUMER).consumer_id == theirs
    client.kept.clear()
    back = client.subscribe(topic, "s", SHARED, permits=20)
    assert numbers(client, back, 20) == list(range(20))


def test_seek_is_durable(tmp_path_factory: pytest.TempPathFactory, topic: str) -> None:
    server = Server(tmp_path_factory.mktemp("seek"), {})
    try:
        server.start()
        client = Client(server.port)
        where = kept_topic(client, topic, 20)
        consumer = client.subscribe(topic, "s", permits=20)
        client.acknowledge(consumer, [id_of(where[19])], cumulative=True)
        seek(client, consumer, message_id=id_of(where[3]))
        server.restart(kill=True)
        back = Client(server.port)
        assert numbers(back, back.subscribe(topic, "s", permits=1), 1) == [3]
    finally:
        server.close()


def test_a_reader_comes_back_from_seek_to_where_it_sought(client: Client, topic: str) -> None:
    where = kept_topic(client, topic, 30)
    reader = client.subscribe(topic, "r", permits=5, durable=False, start_message_id=EARLIEST)
    assert numbers(client, reader, 5) == list(range(5))
    seek(client, reader, message_id=id_of(where[20]))
    # What it says now is where it began once: the broker knows better.
    back = client.subscribe(topic, "r", permits=10, durable=False, start_message_id=EARLIEST)
    assert numbers(client, back, 10) == list(range(20, 30))


def test_a_reader_comes_back_from_seek_by_time_without_a_start_id(client: Client, topic: str) -> None:
    kept_topic(client, topic, 10)
    reader = client.subscribe(topic, "r", permits=5, durable=False, start_message_id=EARLIEST)
    assert numbers(client, reader, 5) == list(range(5))
    seek(client, reader, message_publish_time=1)
    back = client.subscribe(topic, "r", permits=10, durable=False)
    assert numbers(client, back, 10) == list(range(10))


# The end


def test_unsubscribe_forgets_and_is_refused_with_others_connected(
    server: Server, client: Client, topic: str
) -> None:
    where = kept_topic(client, topic, 3)
    consumer = client.subscribe(topic, "s", SHARED, permits=10)
    client.messages(consumer, 3)
    client.acknowledge(consumer, [id_of(where[2])])
    other = Client(server.port)
    theirs = other.subscribe(topic, "s", SHARED)
    with pytest.raises(Refused) as refused:
        client.ask(BaseCommand.UNSUBSCRIBE, BaseCommand.SUCCESS, consumer_id=consumer)
    assert refused.value.code == ServerErrorCode.METADATA
    client.ask(BaseCommand.UNSUBSCRIBE, BaseCommand.SUCCESS, consumer_id=consumer, force=True)
    assert other.take(BaseCommand.CLOSE_CONSUMER).consumer_id == theirs
    with pytest.raises(Refused) as refused:
        client.ask(BaseCommand.UNSUBSCRIBE, BaseCommand.SUCCESS, consumer_id=consumer)
    assert refused.value.code == ServerErrorCode.CONSUMER_NOT_FOUND
    again = client.subscribe(topic, "s", permits=10)
    assert numbers(client, again, 3) == [0, 1, 2]


def test_unload_closes_consumers_who_come_back(server: Server, client: Client, topic: str) -> None:
    kept_topic(client, topic, 10)
    consumer = client.subscribe(topic, "s", permits=4)
    assert numbers(client, consumer, 4) == [0, 1, 2, 3]
    assert server.ask("PUT", f"/admin/v2/{topic.replace('://', '/')}/unload")[0] == 204
    closed = client.take(BaseCommand.CLOSE_CONSUMER)
    assert (closed.consumer_id, closed.request_id) == (consumer, FROM_BROKER)
    client.kept.clear()
    back = client.subscribe(topic, "s", permits=10, consumer_id=consumer)
    assert numbers(client, back, 10) == list(range(10))


def last_id(client: Client, consumer: int) -> MessageIdData:
    answer = client.ask(
        BaseCommand.GET_LAST_MESSAGE_ID, BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE, consumer_id=consumer
    )
    found: MessageIdData = answer.last_message_id
    return found


def test_last_message_id_of_nothing_one_and_a_batch(client: Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", permits=100)
    empty = last_id(client, consumer)
    assert (empty.entryId, empty.batch_index) == (FROM_BROKER, -1)
    producer, _ = client.produce(topic)
    where = client.published(producer, [b"m"])
    one = last_id(client, consumer)
    assert (position(one), one.batch_index) == (where[0], -1)
    where = client.published(producer, [b"b"], batch=4)
    batch = last_id(client, consumer)
    assert (position(batch), batch.batch_index) == (where[0], 3)


def test_last_message_id_says_what_was_consumed(client: Client, topic: str) -> None:
    where = kept_topic(client, topic, 20)
    consumer = client.subscribe(topic, "s", permits=100)
    client.acknowledge(consumer, [id_of(where[9])], cumulative=True)
    answer = client.ask(
        BaseCommand.GET_LAST_MESSAGE_ID, BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE, consumer_id=consumer
    )
    assert position(answer.consumer_mark_delete_position) == where[9]
    assert position(answer.last_message_id) == where[19]


def test_last_message_id_after_trimming(server: Server, client: Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", permits=100)
    producer, _ = client.produce(topic)
    where = client.published(producer, [b"%d" % n for n in range(14)])
    client.messages(consumer, 14)
    client.acknowledge(consumer, [id_of(where[-1])], cumulative=True)
    assert server.ask("PUT", f"/admin/v2/{topic.replace('://', '/')}/unload")[0] == 204
    back = client.subscribe(topic, "s", consumer_id=50)
    end = time.monotonic() + 5
    while (found := last_id(client, back)).entryId != FROM_BROKER:
        assert position(found) == where[-1]
        assert time.monotonic() < end, "nothing was trimmed"


def test_consumer_stats(client: Client, topic: str) -> None:
    kept_topic(client, topic, 10)
    consumer = client.subscribe(topic, "s", SHARED, permits=4, consumer_name="who")
    client.messages(consumer, 4)
    stats = client.ask(BaseCommand.CONSUMER_STATS, BaseCommand.CONSUMER_STATS_RESPONSE, consumer_id=consumer)
    assert (stats.consumerName, stats.type) == ("who", "Shared")
    assert (stats.unackedMessages, stats.availablePermits, stats.msgBacklog) == (4, 0, 10)
    assert stats.address.startswith("/127.0.0.1:")
    missing = client.ask(BaseCommand.CONSUMER_STATS, BaseCommand.CONSUMER_STATS_RESPONSE, consumer_id=99)
    assert missing.error_code == ServerErrorCode.CONSUMER_NOT_FOUND


@pytest.mark.parametrize("kind", ["Exclusive", "Failover", "Shared", "Key_Shared"])
def test_messages_carry_the_epoch_that_their_consumer_gave(client: Client, topic: str, kind: str) -> None:
    """Also when it is 0: else Java's consumers take what was on its way for what comes again."""
    in_order = kind in ("Exclusive", "Failover")
    producer, _ = client.produce(topic)
    value = CommandSubscribe.SubType.Value(kind)
    consumer = client.subscribe(topic, "s", value, 10, consumer_epoch=0)
    client.published(producer, [b"1"])
    found, _ = client.message(consumer)
    assert found.HasField("consumer_epoch") is in_order
    client.send(
        command(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=consumer, consumer_epoch=7)
    )
    found, _ = client.message(consumer)
    assert (found.HasField("consumer_epoch"), found.consumer_epoch) == (in_order, 7 if in_order else 0)
    without = client.subscribe(topic, "without", value, 10)
    client.published(producer, [b"2"])
    found, _ = client.message(without)
    assert not found.HasField("consumer_epoch")
