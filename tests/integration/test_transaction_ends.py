"""Messages and acknowledgements of transactions, and what consumers see of them, frame by frame.

The outcomes come from a client here, as a coordinator would send them: these tests need no coordinator.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from raw_client import Client, Refused, entry_of, id_of, position
from raw_transactions import Sender, acknowledge, end_on_subscription, end_on_topic, transactional
from server import VARIANTS, Server

from magnetar.errors import ServerErrorCode
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandSubscribe

SHARED, KEY_SHARED = CommandSubscribe.Shared, CommandSubscribe.Key_Shared
Kind = CommandSubscribe.SubType.ValueType
ALL_KINDS = (CommandSubscribe.Exclusive, CommandSubscribe.Failover, SHARED, KEY_SHARED)


@pytest.fixture(scope="module", params=list(VARIANTS))
def broker(request: pytest.FixtureRequest, start_server: Callable[..., Server]) -> Server:
    return start_server(transactionCoordinatorEnabled="true", **VARIANTS[request.param])


@pytest.fixture
def client(broker: Server) -> Iterator[Client]:
    made = Client(broker.port)
    yield made
    made.close()


def received(client: Client, consumer: int, count: int) -> list[bytes]:
    return [payload for _message, payload in client.messages(consumer, count)]


def nothing_comes(client: Client, consumer: int) -> None:
    with pytest.raises(TimeoutError):
        client.message(consumer, 0.3)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_an_open_transaction_hides_what_follows(client: Client, topic: str, kind: Kind) -> None:
    consumer = client.subscribe(topic, "s", kind, permits=100)
    sender = Sender(client, topic)
    sender.send(b"before")
    sender.send(b"in 1", (0, 1))
    sender.send(b"plain")
    sender.send(b"in 2", (0, 2))
    assert received(client, consumer, 1) == [b"before"]
    nothing_comes(client, consumer)
    sender.end((0, 2), commit=True)
    nothing_comes(client, consumer)
    sender.end((0, 1), commit=True)
    assert received(client, consumer, 3) == [b"in 1", b"plain", b"in 2"]
    sender.send(b"after")
    assert received(client, consumer, 1) == [b"after"]


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_messages_of_aborted_transactions_are_left_out(
    client: Client, broker: Server, topic: str, kind: Kind
) -> None:
    consumer = client.subscribe(topic, "s", kind, permits=100)
    sender = Sender(client, topic)
    sender.send(b"gone", (0, 1))
    sender.send(b"stays", (0, 2))
    sender.send(b"gone", (0, 1))
    sender.send(b"plain")
    sender.end((0, 2), commit=True)
    sender.end((0, 1), commit=False)
    sender.send(b"last")
    got = client.messages(consumer, 3)
    assert [payload for _message, payload in got] == [b"stays", b"plain", b"last"]
    client.acknowledge(consumer, [message.message_id for message, _payload in got])
    stats = client.ask(BaseCommand.CONSUMER_STATS, BaseCommand.CONSUMER_STATS_RESPONSE, consumer_id=consumer)
    assert stats.msgBacklog == 0
    found = json.loads(broker.ask("GET", f"/admin/v2/{topic.replace('://', '/')}/stats")[1])
    assert (found["ongoingTxnCount"], found["abortedTxnCount"], found["committedTxnCount"]) == (0, 1, 1)


def test_what_has_ended_stays_so_after_an_unload(client: Client, broker: Server, topic: str) -> None:
    client.close_consumer(client.subscribe(topic, "s"))
    sender = Sender(client, topic)
    sender.send(b"aborted", (0, 1))
    sender.send(b"committed", (0, 2))
    sender.send(b"open", (0, 3))
    sender.send(b"behind")
    sender.end((0, 1), commit=False)
    sender.end((0, 2), commit=True)
    path = f"/admin/v2/{topic.replace('://', '/')}"
    assert broker.ask("PUT", f"{path}/unload")[0] == 204
    other = Client(broker.port)
    consumer = other.subscribe(topic, "s", permits=100)
    assert received(other, consumer, 1) == [b"committed"]
    nothing_comes(other, consumer)
    end_on_topic(other, topic, (0, 3), commit=True)
    assert received(other, consumer, 2) == [b"open", b"behind"]
    other.close()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"transactionBufferSnapshotMaxTransactionCount": 1},
        {
            "transactionBufferSnapshotMaxTransactionCount": 1,
            "transactionBufferSegmentedSnapshotEnabled": "true",
            "transactionBufferSnapshotSegmentSize": 55,
        },
    ],
)
def test_a_killed_broker_remembers_what_has_ended(
    start_server: Callable[..., Server], settings: dict[str, Any]
) -> None:
    server = start_server(transactionCoordinatorEnabled="true", **settings)
    topic = "persistent://public/default/killed"
    client = Client(server.port)
    client.close_consumer(client.subscribe(topic, "s"))
    sender = Sender(client, topic)
    for number in range(20):
        sender.send(b"%d" % number, (0, number))
        if number < 15:
            sender.end((0, number), commit=number % 2 == 0)
    client.close()
    server.restart(kill=True)
    client = Client(server.port)
    consumer = client.subscribe(topic, "s", permits=100)
    assert received(client, consumer, 8) == [b"%d" % number for number in range(0, 15, 2)]
    nothing_comes(client, consumer)
    for number in range(15, 20):
        end_on_topic(client, topic, (0, number), commit=number % 2 == 0)
    assert received(client, consumer, 2) == [b"16", b"18"]
    client.close()


def test_ids_that_a_client_does_not_write_are_added(client: Client, topic: str) -> None:
    """Otherwise messages of an aborted transaction of such a client would be delivered."""
    sender = Sender(client, topic)
    consumer = client.subscribe(topic, "s", permits=100)
    sender.send(b"", (0, 1), entry=entry_of(b"gone", 0))
    sender.send(b"", (0, 2), entry=entry_of(b"stays", 1))
    sender.end((0, 1), commit=False)
    sender.end((0, 2), commit=True)
    assert received(client, consumer, 1) == [b"stays"]
    nothing_comes(client, consumer)


def test_a_transaction_that_has_ended_is_refused(client: Client, topic: str) -> None:
    sender = Sender(client, topic)
    sender.send(b"one", (7, 40))
    sender.end((7, 40), commit=True, low_water=40)
    for txn in ((7, 40), (7, 12)):
        client.publish(
            sender.number, 9, transactional(b"late", txn), txnid_most_bits=txn[0], txnid_least_bits=txn[1]
        )
        error = client.take(BaseCommand.SEND_ERROR, producer_id=sender.number)
        assert error.error == ServerErrorCode.NOT_ALLOWED
        assert error.message == (
            f"Transaction [({txn[0]},{txn[1]})] has been ended. Please use a new transaction to send message."
        )


def late(sender: Sender, txn: tuple[int, int]) -> None:
    """Sends a message that the topic refuses, as its transaction has ended."""
    most, least = txn
    entry = transactional(b"late", txn)
    sender.client.publish(sender.number, 9, entry, txnid_most_bits=most, txnid_least_bits=least)
    error = sender.client.take(BaseCommand.SEND_ERROR, producer_id=sender.number)
    assert error.error == ServerErrorCode.NOT_ALLOWED
    assert f"Transaction [({most},{least})] has been ended." in error.message


@pytest.mark.parametrize("commit", [False, True])
def test_messages_that_come_after_the_end_of_their_transaction_are_refused(
    client: Client, topic: str, commit: bool
) -> None:
    """A client sends while its transaction times out. What was stored then would hide all that follows."""
    sender = Sender(client, topic)
    consumer = client.subscribe(topic, "s", permits=100)
    sender.send(b"one", (7, 40))
    sender.end((7, 40), commit=True)
    sender.end((7, 41), commit=commit)
    late(sender, (7, 41))
    sender.send(b"plain")
    assert received(client, consumer, 2) == [b"one", b"plain"]


@pytest.mark.parametrize("commit", [False, True])
def test_the_first_message_of_a_transaction_in_a_topic_may_come_after_the_end(
    client: Client, broker: Server, topic: str, commit: bool
) -> None:
    """The end leaves nothing that is stored."""
    sender = Sender(client, topic)
    consumer = client.subscribe(topic, "s", permits=100)
    sender.end((7, 41), commit=commit)
    late(sender, (7, 41))
    sender.send(b"plain")
    assert received(client, consumer, 1) == [b"plain"]
    path = f"/admin/v3/transactions/transactionBufferStats/{topic.partition('://')[2]}"
    found = json.loads(broker.ask("GET", path)[1])
    assert (found["state"], found["ongoingTxnSize"]) == ("NoSnapshot", 0)
    sender.send(b"in", (7, 42))
    nothing_comes(client, consumer)
    sender.end((7, 42), commit=True)
    assert received(client, consumer, 1) == [b"in"]


def test_the_last_message_is_one_that_can_be_read(client: Client, topic: str) -> None:
    sender = Sender(client, topic)
    consumer = client.subscribe(topic, "s")
    where = sender.send(b"plain")
    sender.send(b"aborted", (0, 1))
    sender.end((0, 1), commit=False)

    def last() -> tuple[int, int]:
        found = client.ask(
            BaseCommand.GET_LAST_MESSAGE_ID, BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE, consumer_id=consumer
        )
        return position(found.last_message_id)

    assert last() == where
    open_one = sender.send(b"open", (0, 2))
    assert last() == where
    sender.end((0, 2), commit=True)
    assert last() == open_one


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_acknowledgements_wait_for_the_end(client: Client, broker: Server, topic: str, kind: Kind) -> None:
    consumer = client.subscribe(topic, "s", kind, permits=100)
    sender = Sender(client, topic)
    for number in range(4):
        sender.send(b"%d" % number)
    got = client.messages(consumer, 4)
    ids = [message.message_id for message, _payload in got]
    assert not acknowledge(client, consumer, ids[:1], (0, 1)).HasField("error")
    assert not acknowledge(client, consumer, ids[1:2], (0, 2)).HasField("error")
    client.redeliver(consumer)
    assert received(client, consumer, 2) == [b"2", b"3"]
    end_on_subscription(client, topic, (0, 1), commit=True)
    end_on_subscription(client, topic, (0, 2), commit=False)
    again = received(client, consumer, 3 if kind not in (SHARED, KEY_SHARED) else 1)
    assert again == ([b"1", b"2", b"3"] if kind not in (SHARED, KEY_SHARED) else [b"1"])
    client.close_consumer(consumer)
    consumer = client.subscribe(topic, "s", kind, permits=100)
    assert sorted(received(client, consumer, 3)) == [b"1", b"2", b"3"]
    nothing_comes(client, consumer)


def test_conflicts_are_refused_as_a_whole(client: Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", SHARED, permits=100)
    sender = Sender(client, topic)
    for number in range(4):
        sender.send(b"%d" % number)
    ids = [message.message_id for message, _payload in client.messages(consumer, 4)]
    acknowledge(client, consumer, ids[:1], (0, 1))
    refused = acknowledge(client, consumer, ids[:2], (0, 2))
    where = f"{ids[0].ledgerId}:{ids[0].entryId}"
    assert refused.error == ServerErrorCode.TRANSACTION_CONFLICT
    assert refused.message == (
        "org.apache.pulsar.transaction.common.exception.TransactionConflictException: "
        f"[{topic}][s] Transaction:(0,2) try to ack message:{where} (ackSet is null) in pending ack status."
    )
    refused = acknowledge(client, consumer, [ids[1], ids[1]], (0, 2))
    assert refused.message.endswith("(ackSet is null) in pending ack status.")
    # Nothing of it became pending.
    assert not acknowledge(client, consumer, ids[1:2], (0, 3)).HasField("error")
    client.acknowledge(consumer, ids[2:3])
    refused = acknowledge(client, consumer, ids[2:3], (0, 3))
    assert refused.message.endswith(
        f"{ids[2].ledgerId}:{ids[2].entryId} (ackSet is null) already acked before."
    )


def test_cumulative_acknowledgements(client: Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", permits=100)
    sender = Sender(client, topic)
    for number in range(6):
        sender.send(b"%d" % number)
    ids = [message.message_id for message, _payload in client.messages(consumer, 6)]
    acknowledge(client, consumer, ids[2:3], (0, 17), cumulative=True)
    refused = acknowledge(client, consumer, ids[1:2], (0, 17), cumulative=True)
    assert refused.error == ServerErrorCode.TRANSACTION_CONFLICT
    assert not acknowledge(client, consumer, ids[3:4], (0, 17), cumulative=True).HasField("error")
    refused = acknowledge(client, consumer, ids[4:5], (0, 18), cumulative=True)
    where, known = (f"{ids[n].ledgerId}:{ids[n].entryId}" for n in (4, 3))
    assert refused.message.endswith(
        f"Transaction:(0,18) try to cumulative batch ack position: {where} within range of current "
        f"currentPosition: {known}"
    )
    client.redeliver(consumer)
    assert received(client, consumer, 2) == [b"4", b"5"]
    end_on_subscription(client, topic, (0, 17), commit=False)
    assert received(client, consumer, 6) == [b"%d" % number for number in range(6)]
    acknowledge(client, consumer, ids[3:4], (0, 19), cumulative=True)
    end_on_subscription(client, topic, (0, 19), commit=True)
    client.redeliver(consumer)
    assert received(client, consumer, 2) == [b"4", b"5"]


def test_parts_of_batches(client: Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", SHARED, permits=100)
    sender = client.produce(topic)[0]
    client.published(sender, [b"x" * 10], batch=4)
    where = position(client.message(consumer)[0].message_id)

    def part(bits: int) -> Any:
        return id_of(where, ack_set=[bits], batch_size=4)

    assert not acknowledge(client, consumer, [part(0b1110)], (0, 1)).HasField("error")
    assert not acknowledge(client, consumer, [part(0b1101)], (0, 2)).HasField("error")
    refused = acknowledge(client, consumer, [part(0b1100)], (0, 3))
    assert refused.message.endswith("(ackSet with long[] size of 1) in pending ack status.")
    refused = acknowledge(client, consumer, [id_of(where)], (0, 3))
    assert refused.message.endswith("(ackSet is null) in pending ack status.")
    client.redeliver(consumer)
    assert list(client.message(consumer)[0].ack_set) == [0b1100]
    end_on_subscription(client, topic, (0, 1), commit=True)
    end_on_subscription(client, topic, (0, 2), commit=False)
    assert list(client.message(consumer)[0].ack_set) == [0b1110]


@pytest.mark.parametrize("kill", [False, True])
def test_pending_acknowledgements_survive(start_server: Callable[..., Server], kill: bool) -> None:
    server = start_server(transactionCoordinatorEnabled="true")
    topic = "persistent://public/default/pending"
    client = Client(server.port)
    consumer = client.subscribe(topic, "s", SHARED, permits=100)
    sender = Sender(client, topic)
    for number in range(5):
        sender.send(b"%d" % number)
    ids = [message.message_id for message, _payload in client.messages(consumer, 5)]
    for number in range(4):
        acknowledge(client, consumer, ids[number : number + 1], (0, number))
    end_on_subscription(client, topic, (0, 0), commit=True)
    end_on_subscription(client, topic, (0, 1), commit=False)
    client.close()
    server.restart(kill=kill)
    client = Client(server.port)
    consumer = client.subscribe(topic, "s", SHARED, permits=100)
    assert sorted(received(client, consumer, 2)) == [b"1", b"4"]
    nothing_comes(client, consumer)
    end_on_subscription(client, topic, (0, 2), commit=True)
    end_on_subscription(client, topic, (0, 3), commit=False)
    assert received(client, consumer, 1) == [b"3"]
    client.close()


def test_unknown_topics_and_subscriptions_have_nothing_to_end(client: Client, topic: str) -> None:
    assert not end_on_topic(client, topic, (0, 1), commit=True).HasField("error")
    assert not end_on_subscription(client, topic, (0, 1), commit=True).HasField("error")


def test_logs_are_not_topics(client: Client, broker: Server, topic: str) -> None:
    """A topic on the same managed ledger would take it from the subscription."""
    consumer = client.subscribe(topic, "s", permits=10)
    Sender(client, topic).send(b"x")
    where = client.message(consumer)[0].message_id
    assert not acknowledge(client, consumer, [where], (0, 1)).HasField("error")
    log = f"{topic}-s__transaction_pending_ack"
    with pytest.raises(Refused, match=f"Can not create transaction system topic {log}"):
        client.subscribe(log, "s")
    names = json.loads(broker.ask("GET", "/admin/v2/persistent/public/default")[1])
    assert topic in names
    assert log not in names


def test_deletions_take_everything_along(client: Client, broker: Server) -> None:
    assert broker.ask("PUT", "/admin/v2/namespaces/public/passing")[0] == 204
    topic = "persistent://public/passing/t"
    consumer = client.subscribe(topic, "s", permits=10)
    sender = Sender(client, topic)
    sender.send(b"x")
    sender.send(b"y", (0, 1))
    where = client.message(consumer)[0].message_id
    acknowledge(client, consumer, [where], (0, 1))
    client.close_consumer(consumer)
    client.close_producer(sender.number)
    assert broker.ask("DELETE", "/admin/v2/persistent/public/passing/t/subscription/s")[0] == 204
    consumer = client.subscribe(topic, "s", permits=10)
    assert received(client, consumer, 1) == [b"x"]
    acknowledge(client, consumer, [where], (0, 1))
    client.close_consumer(consumer)
    assert broker.ask("DELETE", "/admin/v2/persistent/public/passing/t")[0] == 204
    # A new topic of that name has nothing of the old one.
    consumer = client.subscribe(topic, "s", permits=10)
    sender = Sender(client, topic)
    sender.send(b"new")
    assert received(client, consumer, 1) == [b"new"]
    sender.send(b"again", (0, 1))
    client.close_consumer(consumer)
    assert broker.ask("DELETE", "/admin/v2/namespaces/public/passing?force=true")[0] in (204, 405)
    client.close_producer(sender.number)
    assert broker.ask("DELETE", "/admin/v2/persistent/public/passing/t")[0] == 204
    assert broker.ask("DELETE", "/admin/v2/namespaces/public/passing")[0] == 204
    assert broker.ask("PUT", "/admin/v2/namespaces/public/passing")[0] == 204
    consumer = client.subscribe(topic, "s", permits=10)
    sender = Sender(client, topic)
    sender.send(b"third", (0, 1))
    sender.end((0, 1), commit=True)
    assert received(client, consumer, 1) == [b"third"]


def test_a_topic_is_terminated_after_its_transactions(client: Client, broker: Server, topic: str) -> None:
    consumer = client.subscribe(topic, "s", permits=10)
    sender = Sender(client, topic)
    sender.send(b"x", (0, 1))
    done: list[int] = []
    path = f"/admin/v2/{topic.replace('://', '/')}/terminate"
    waiting = threading.Thread(target=lambda: done.append(broker.ask("POST", path)[0]))
    waiting.start()
    waiting.join(0.5)
    assert waiting.is_alive()
    sender.end((0, 1), commit=True)
    waiting.join(10)
    assert done == [200]
    assert received(client, consumer, 1) == [b"x"]


def test_a_non_persistent_topic_closes_the_connection(broker: Server) -> None:
    client = Client(broker.port)
    sender = client.produce("non-persistent://public/default/np")[0]
    client.publish(sender, 0, transactional(b"x", (0, 1)), txnid_most_bits=0, txnid_least_bits=1)
    client.expect_closed()


def test_without_transactions_everything_is_refused(plain_broker: Server, topic: str) -> None:
    client = Client(plain_broker.port)
    with pytest.raises(Refused, match="Transactions are not enabled; set transactionCoordinatorEnabled=true"):
        client.produce(topic, txn_enabled=True)
    sender = client.produce(topic)[0]
    client.publish(sender, 0, transactional(b"x", (0, 1)), txnid_most_bits=0, txnid_least_bits=1)
    error = client.take(BaseCommand.SEND_ERROR, producer_id=sender)
    assert (error.error, error.message) == (ServerErrorCode.NOT_ALLOWED, "Transaction buffer disable!")
    consumer = client.subscribe(topic, "s")
    refused = acknowledge(client, consumer, [id_of((1, 1))], (0, 1))
    assert refused.error == ServerErrorCode.NOT_ALLOWED
    assert refused.message.endswith("NotAllowedException: Server don't support transaction ack!")
    assert end_on_topic(client, topic, (0, 1), commit=True).message == "Transaction buffer disable!"
    assert end_on_subscription(client, topic, (0, 1), commit=True).message == (
        "Handle end txn on subscription failed: The transaction is disabled"
    )
    client.close()
