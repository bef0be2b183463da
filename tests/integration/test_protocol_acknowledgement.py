"""Acknowledgement: one by one, cumulative, inside batches; redelivery; limits on what is outstanding."""

from __future__ import annotations

import pytest
from raw_client import Client, command, id_of
from server import MINIATURE, VARIANTS, Server

from magnetar.errors import ServerErrorCode
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandAck, CommandSubscribe

SHARED = CommandSubscribe.Shared
EXCLUSIVE = CommandSubscribe.Exclusive
BATCH = 10


@pytest.fixture(scope="module", params=list(VARIANTS))
def indexed(request: pytest.FixtureRequest, start_server) -> Server:  # type: ignore[no-untyped-def]
    """A server that acknowledges inside batches."""
    return start_server(acknowledgmentAtBatchIndexLevelEnabled="true", **VARIANTS[request.param])


@pytest.fixture
def client(server: Server) -> Client:
    return Client(server.port)


Kind = CommandSubscribe.SubType.ValueType


def published(client: Client, topic: str, count: int, batch: int = 0) -> list[tuple[int, int]]:
    client.close_consumer(client.subscribe(topic, "keep"))
    producer, _ = client.produce(topic)
    return client.published(producer, [b"%d" % n for n in range(count)], batch)


def numbers(client: Client, consumer: int, wanted: int) -> list[int]:
    return [int(text) for _m, text in client.messages(consumer, wanted)]


def remaining(client: Client, topic: str, kind: CommandSubscribe.SubType.ValueType = EXCLUSIVE) -> list[int]:
    """What a consumer who comes next on ``s`` gets; the last message of the topic is always among it."""
    consumer = client.subscribe(topic, "s", kind, permits=1000)
    producer, _ = client.produce(topic)
    client.published(producer, [b"-1"])
    got = []
    while (number := int(client.message(consumer)[1])) >= 0:
        got.append(number)
    return sorted(got)


def backlog(client: Client, consumer: int) -> int:
    stats = client.ask(BaseCommand.CONSUMER_STATS, BaseCommand.CONSUMER_STATS_RESPONSE, consumer_id=consumer)
    found: int = stats.msgBacklog
    return found


def unacked(client: Client, consumer: int) -> int:
    stats = client.ask(BaseCommand.CONSUMER_STATS, BaseCommand.CONSUMER_STATS_RESPONSE, consumer_id=consumer)
    found: int = stats.unackedMessages
    return found


# Whole entries


def test_individual_acknowledgements_leave_holes(client: Client, topic: str) -> None:
    where = published(client, topic, 30)
    consumer = client.subscribe(topic, "s", permits=100)
    client.messages(consumer, 30)
    gone = {0, 1, 5, 7, 8, 13, 20, 28}
    answer = client.acknowledge(consumer, [id_of(where[n]) for n in sorted(gone)])
    assert not answer.HasField("error")
    assert backlog(client, consumer) == 30 - len(gone)
    client.close_consumer(consumer)
    assert remaining(client, topic) == [n for n in range(30) if n not in gone]


def test_acknowledgements_without_request_id_count_and_are_not_answered(client: Client, topic: str) -> None:
    where = published(client, topic, 20)
    consumer = client.subscribe(topic, "s", permits=100)
    client.messages(consumer, 20)
    for there in where[:10]:
        client.send(
            command(
                BaseCommand.ACK,
                consumer_id=consumer,
                ack_type=CommandAck.Individual,
                message_id=[id_of(there)],
            )
        )
    assert client.count_kept(BaseCommand.ACK_RESPONSE) == 0
    assert backlog(client, consumer) == 10


def test_acknowledging_twice_counts_once(client: Client, topic: str) -> None:
    where = published(client, topic, 5)
    consumer = client.subscribe(topic, "s", SHARED, permits=100)
    client.messages(consumer, 5)
    for _ in range(3):
        client.acknowledge(consumer, [id_of(where[2]), id_of(where[2])])
    assert (backlog(client, consumer), unacked(client, consumer)) == (4, 4)


def test_cumulative_takes_all_before(client: Client, topic: str) -> None:
    where = published(client, topic, 30)
    consumer = client.subscribe(topic, "s", permits=100)
    client.messages(consumer, 30)
    client.acknowledge(consumer, [id_of(where[20])])
    client.acknowledge(consumer, [id_of(where[10])], cumulative=True)
    client.acknowledge(consumer, [id_of(where[3])], cumulative=True)
    client.close_consumer(consumer)
    assert remaining(client, topic) == [n for n in range(11, 30) if n != 20]


@pytest.mark.parametrize("kind", [SHARED, CommandSubscribe.Key_Shared])
def test_cumulative_is_ignored_on_a_shared_subscription(client: Client, topic: str, kind: Kind) -> None:
    """As in Pulsar: its receipt says no error, and nothing is acknowledged."""
    where = published(client, topic, 5)
    consumer = client.subscribe(topic, "s", kind, permits=100)
    client.messages(consumer, 5)
    assert not client.acknowledge(consumer, [id_of(where[4])], cumulative=True).HasField("error")
    assert (backlog(client, consumer), unacked(client, consumer)) == (5, 5)


def test_positions_that_do_not_exist_change_nothing(client: Client, topic: str) -> None:
    where = published(client, topic, 5)
    consumer = client.subscribe(topic, "s", permits=100)
    client.messages(consumer, 5)
    ledger = where[-1][0]
    for strange in (
        (ledger, 10**12),
        (ledger + 10**6, 0),
        (2**63 - 1, 2**63 - 1),
        (2**64 - 1, 0),
        (0, 2**64 - 1),
    ):
        client.acknowledge(consumer, [id_of(strange)])
    assert backlog(client, consumer) == 5
    client.acknowledge(consumer, [id_of((ledger, 10**12))], cumulative=True)
    assert backlog(client, consumer) == 0


def test_a_cumulative_acknowledgement_names_one_id(client: Client, topic: str) -> None:
    where = published(client, topic, 5)
    consumer = client.subscribe(topic, "s", permits=100)
    for ids in ([], [id_of(where[0]), id_of(where[1])]):
        assert client.acknowledge(consumer, ids, cumulative=True).HasField("error")
    assert backlog(client, consumer) == 5


# Inside batches: bit i of an ack set is set while message i is not acknowledged


def bits(*left: int) -> list[int]:
    return [sum(1 << n for n in left)]


def test_inside_a_batch_only_whole_ones_count_where_it_is_off(client: Client, topic: str) -> None:
    where = published(client, topic, 3, BATCH)
    consumer = client.subscribe(topic, "s", permits=100)
    client.messages(consumer, 3)
    client.acknowledge(consumer, [id_of(where[1], ack_set=bits(0, 1, 2), batch_size=BATCH)])
    assert backlog(client, consumer) == 3
    client.acknowledge(consumer, [id_of(where[1], ack_set=[0], batch_size=BATCH)])
    assert backlog(client, consumer) == 2
    cumulative = [id_of(where[2], ack_set=bits(8, 9), batch_size=BATCH)]
    client.acknowledge(consumer, cumulative, cumulative=True)
    client.close_consumer(consumer)
    assert remaining(client, topic) == [2]


def test_inside_a_batch_what_is_left_is_delivered(indexed: Server, topic: str) -> None:
    client = Client(indexed.port)
    where = published(client, topic, 3, BATCH)
    consumer = client.subscribe(topic, "s", permits=100)
    client.messages(consumer, 3)
    client.acknowledge(consumer, [id_of(where[1], ack_set=bits(*range(4, 10)), batch_size=BATCH)])
    client.acknowledge(consumer, [id_of(where[1], ack_set=bits(0, 5, 6, 7), batch_size=BATCH)])
    client.close_consumer(consumer)
    back = client.subscribe(topic, "s", permits=100)
    found = client.messages(back, 3)
    assert [int(text) for _m, text in found] == [0, 1, 2]
    assert list(found[1][0].ack_set) == bits(5, 6, 7)
    assert not found[0][0].ack_set


def test_the_last_message_of_a_batch_acknowledges_it(indexed: Server, topic: str) -> None:
    client = Client(indexed.port)
    where = published(client, topic, 3, BATCH)
    consumer = client.subscribe(topic, "s", SHARED, permits=100)
    client.messages(consumer, 3)
    assert unacked(client, consumer) == 3 * BATCH
    for number in range(BATCH):
        left = bits(*(n for n in range(BATCH) if n != number))
        client.acknowledge(consumer, [id_of(where[0], ack_set=left, batch_size=BATCH)])
        assert unacked(client, consumer) == 3 * BATCH - number - 1
    assert backlog(client, consumer) == 2


def test_cumulative_inside_a_batch_takes_all_before(indexed: Server, topic: str) -> None:
    client = Client(indexed.port)
    where = published(client, topic, 9, BATCH)
    consumer = client.subscribe(topic, "s", permits=1000)
    client.messages(consumer, 9)
    ids = [id_of(where[8], ack_set=bits(3, 4, 5, 6, 7, 8, 9), batch_size=BATCH)]
    client.acknowledge(consumer, ids, cumulative=True)
    client.close_consumer(consumer)
    found, text = client.message(client.subscribe(topic, "s", permits=100))
    assert (text, list(found.ack_set)) == (b"8", bits(3, 4, 5, 6, 7, 8, 9))


@pytest.mark.parametrize("kill", [False, True])
def test_what_is_left_of_batches_outlives_the_broker(
    topic: str, kill: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings = {"acknowledgmentAtBatchIndexLevelEnabled": "true"} | (MINIATURE if kill else {})
    server = Server(tmp_path_factory.mktemp("batches"), settings)
    try:
        server.start()
        client = Client(server.port)
        where = published(client, topic, 3, BATCH)
        consumer = client.subscribe(topic, "s", permits=100)
        client.messages(consumer, 3)
        client.acknowledge(consumer, [id_of(where[0], ack_set=bits(9), batch_size=BATCH)])
        server.restart(kill=kill)
        back = Client(server.port)
        found = back.message(back.subscribe(topic, "s", permits=100))[0]
        # A crash may take the last moment's acknowledgements with it; an orderly end may not.
        assert list(found.ack_set) in (([bits(9)[0]], []) if kill else (bits(9),))
    finally:
        server.close()


def test_absurd_ack_sets_are_refused_and_cost_nothing(indexed: Server, topic: str) -> None:
    """A batch size of 2^31 made the broker compute with a number of 256 MB, and keep it."""
    client = Client(indexed.port)
    where = published(client, topic, 3, BATCH)
    consumer = client.subscribe(topic, "s", permits=100)
    client.messages(consumer, 3)
    for absurd in (
        id_of(where[0], ack_set=[1], batch_size=2**31 - 1),
        id_of(where[0], ack_set=[-1] * 100_000),
    ):
        assert client.acknowledge(consumer, [absurd]).error == ServerErrorCode.NOT_ALLOWED
        assert client.acknowledge(consumer, [absurd], cumulative=True).error == ServerErrorCode.NOT_ALLOWED
    assert backlog(client, consumer) == 3


# Redelivery


def test_shared_counts_redeliveries(client: Client, topic: str) -> None:
    where = published(client, topic, 10)
    consumer = client.subscribe(topic, "s", SHARED, permits=100)
    assert all(m.redelivery_count == 0 for m, _text in client.messages(consumer, 10))
    for times in (1, 2):
        client.redeliver(consumer, [id_of(where[3]), id_of(where[7])])
        again = client.messages(consumer, 2)
        assert [(m.redelivery_count, text) for m, text in again] == [(times, b"3"), (times, b"7")]
    client.redeliver(consumer)
    counts = {int(text): m.redelivery_count for m, text in client.messages(consumer, 10)}
    assert counts == {n: 3 if n in (3, 7) else 1 for n in range(10)}


def test_redelivery_of_what_is_acknowledged_brings_nothing(client: Client, topic: str) -> None:
    where = published(client, topic, 5)
    consumer = client.subscribe(topic, "s", SHARED, permits=100)
    client.messages(consumer, 5)
    client.acknowledge(consumer, [id_of(where[2])])
    client.redeliver(consumer, [id_of(where[2]), id_of((where[0][0], 10**9))])
    client.redeliver(consumer, [id_of(where[4])])
    assert numbers(client, consumer, 1) == [4]
    assert client.count_kept(BaseCommand.MESSAGE) == 0


def test_exclusive_redelivers_all_in_order_without_counts(client: Client, topic: str) -> None:
    where = published(client, topic, 20)
    consumer = client.subscribe(topic, "s", permits=1000)
    client.messages(consumer, 20)
    client.acknowledge(consumer, [id_of(where[1]), id_of(where[4])])
    client.acknowledge(consumer, [id_of(where[0])])
    for ids in ([], [id_of(where[10])]):
        client.redeliver(consumer, ids)
        again = client.messages(consumer, 17)
        assert [int(text) for _m, text in again] == [n for n in range(2, 20) if n != 4]
        assert not any(m.redelivery_count for m, _text in again)


def test_a_consumer_that_leaves_gives_its_messages_to_others(
    server: Server, client: Client, topic: str
) -> None:
    published(client, topic, 30)
    leaving = Client(server.port)
    theirs = leaving.subscribe(topic, "s", SHARED, permits=30)
    leaving.messages(theirs, 30)
    consumer = client.subscribe(topic, "s", SHARED, permits=100)
    assert client.count_kept(BaseCommand.MESSAGE) == 0
    leaving.close()
    assert numbers(client, consumer, 30) == list(range(30))


def test_any_shared_consumer_may_acknowledge(server: Server, client: Client, topic: str) -> None:
    where = published(client, topic, 6)
    one = client.subscribe(topic, "s", SHARED, permits=6)
    client.messages(one, 6)
    other = client.subscribe(topic, "s", SHARED, permits=6)
    client.acknowledge(other, [id_of(there) for there in where[:4]])
    assert (unacked(client, one), backlog(client, one)) == (2, 2)


@pytest.mark.parametrize("kind", ["Exclusive", "Failover", "Shared"])
@pytest.mark.parametrize("epoch", [2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1])
def test_an_absurd_consumer_epoch_harms_nobody(
    server: Server, client: Client, topic: str, kind: str, epoch: int
) -> None:
    """It was encoded on the way of the producer's own commit, and did not fit. The highest says that there is
    none, and shared types have none."""
    where = published(client, topic, 3)
    strange = Client(server.port)
    value = CommandSubscribe.SubType.Value(kind)
    theirs = strange.subscribe(topic, "s", value, permits=100, consumer_epoch=epoch)
    carried = epoch if kind != "Shared" and epoch != 2**64 - 1 else 0
    assert [found.consumer_epoch for found, _payload in strange.messages(theirs, 3)] == [carried] * 3
    strange.redeliver(theirs, [id_of(where[0])])
    assert strange.message(theirs)[0].consumer_epoch == carried
    client.barrier()


# Limits


def limited(start_server, variant: str) -> Server:  # type: ignore[no-untyped-def]
    server: Server = start_server(
        maxUnackedMessagesPerConsumer=10, maxUnackedMessagesPerSubscription=16, **VARIANTS[variant]
    )
    return server


@pytest.mark.parametrize("variant", VARIANTS)
def test_unacknowledged_limits_block_and_end_at_half(  # type: ignore[no-untyped-def]
    start_server, topic: str, variant: str
) -> None:
    client = Client(limited(start_server, variant).port)
    where = published(client, topic, 60)
    one = client.subscribe(topic, "s", SHARED, permits=100)
    assert numbers(client, one, 10) == list(range(10))
    assert client.count_kept(BaseCommand.MESSAGE) == 0
    client.acknowledge(one, [id_of(where[n]) for n in range(4)])
    assert client.count_kept(BaseCommand.MESSAGE) == 0, "six are left: more than half"
    client.acknowledge(one, [id_of(where[4])])
    assert numbers(client, one, 5) == list(range(10, 15))
    assert client.count_kept(BaseCommand.MESSAGE) == 0


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_subscriptions_limit_blocks_all_its_consumers(  # type: ignore[no-untyped-def]
    start_server, topic: str, variant: str
) -> None:
    server = limited(start_server, variant)
    client = Client(server.port)
    where = published(client, topic, 100)
    consumers = [client.subscribe(topic, "s", SHARED, permits=5) for _ in range(3)]
    got = [n for c in consumers for n in numbers(client, c, 5)]
    extra = client.subscribe(topic, "s", SHARED, permits=100)
    got += numbers(client, extra, 1)
    assert client.count_kept(BaseCommand.MESSAGE) == 0
    for consumer in consumers:
        client.flow(consumer, 10)
    assert client.count_kept(BaseCommand.MESSAGE) == 0, "the subscription is blocked"
    stats = server.ask("GET", f"/admin/v2/{topic.replace('://', '/')}/stats")[1]
    assert b'"blockedSubscriptionOnUnackedMsgs":true' in stats.replace(b" ", b"")
    client.acknowledge(extra, [id_of(where[n]) for n in got[: len(got) - 8]])
    client.take(BaseCommand.MESSAGE)
