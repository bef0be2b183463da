"""Transactions together with the other features of topics, frame by frame.

The outcomes come from a client here, as a coordinator would send them. Each test has topics of
its own, and none depends on how long anything takes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from raw_client import EARLIEST, Client, id_of, position
from raw_transactions import Sender, acknowledge, end_on_subscription, end_on_topic
from server import Server

from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandSubscribe, MessageMetadata

EXCLUSIVE, SHARED = CommandSubscribe.Exclusive, CommandSubscribe.Shared
FAILOVER, KEY_SHARED = CommandSubscribe.Failover, CommandSubscribe.Key_Shared
Kind = CommandSubscribe.SubType.ValueType
Txn = tuple[int, int]
ONE, TWO, THREE = (0, 1), (0, 2), (0, 3)


@pytest.fixture(scope="module")
def broker(start_server: Callable[..., Server]) -> Server:
    return start_server(transactionCoordinatorEnabled="true", delayedDeliveryTickTimeMillis=50)


@pytest.fixture
def client(broker: Server) -> Iterator[Client]:
    made = Client(broker.port)
    yield made
    made.close()


def path(topic: str, *more: str) -> str:
    return "/".join((f"/admin/v2/{topic.replace('://', '/')}", *more))


def done(broker: Server, method: str, where: str, body: object = None) -> Any:
    """An administrative request that succeeds; its answer."""
    status, answer = broker.ask(method, where, None if body is None else json.dumps(body))
    assert status in (200, 204), (where, status, answer)
    return json.loads(answer) if answer else None


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def put(sender: Sender, payload: bytes, txn: Txn | None = None, **metadata: Any) -> tuple[int, int]:
    """Sends a message with metadata of its own; returns its position."""
    sequence, sender.sequence = sender.sequence, sender.sequence + 1
    fields: dict[str, Any] = {"producer_name": "raw", "sequence_id": sequence, "publish_time": now_ms()}
    ids = {} if txn is None else {"txnid_most_bits": txn[0], "txnid_least_bits": txn[1]}
    more = {"num_messages": metadata["num_messages_in_batch"]} if "num_messages_in_batch" in metadata else {}
    entry = build_entry(MessageMetadata(**{**fields, **ids, **metadata}), payload)
    sender.client.publish(sender.number, sequence, entry, **ids, **more)
    receipt = sender.client.take(BaseCommand.SEND_RECEIPT, producer_id=sender.number, sequence_id=sequence)
    return position(receipt.message_id)


def received(client: Client, consumer: int, count: int) -> list[bytes]:
    return [payload for _message, payload in client.messages(consumer, count)]


def nothing_waits(client: Client, consumer: int) -> None:
    """The broker has sent the consumer all that it may see now."""
    with pytest.raises(TimeoutError):
        client.message(consumer, 0.15)


def stats(broker: Server, topic: str) -> Any:
    return done(broker, "GET", path(topic, "stats"))


def backlog(broker: Server, topic: str, subscription: str = "s") -> int:
    return int(stats(broker, topic)["subscriptions"][subscription]["msgBacklog"])


# Deduplication


def test_sequence_ids_of_an_aborted_attempt_count(client: Client, broker: Server, topic: str) -> None:
    consumer = client.subscribe(topic, "s", permits=100)
    done(broker, "POST", path(topic, "deduplicationEnabled"), True)
    number = client.produce(topic, producer_name="own")[0]

    def send(sequence: int, payload: bytes, txn: Txn) -> tuple[int, int]:
        metadata = MessageMetadata(
            producer_name="own",
            sequence_id=sequence,
            publish_time=1,
            txnid_most_bits=txn[0],
            txnid_least_bits=txn[1],
        )
        client.publish(
            number,
            sequence,
            build_entry(metadata, payload),
            txnid_most_bits=txn[0],
            txnid_least_bits=txn[1],
        )
        return position(client.take(BaseCommand.SEND_RECEIPT, producer_id=number).message_id)

    until(lambda: "pulsar.dedup" in done(broker, "GET", path(topic, "internalStats"))["cursors"])
    assert send(0, b"first attempt", ONE)[1] < 2**63
    end_on_topic(client, topic, ONE, commit=False)
    duplicate = send(0, b"second attempt", TWO)
    assert duplicate == (2**64 - 1, 2**64 - 1)
    send(1, b"new", TWO)
    # An unload in between: what was sent before is known afterwards, and the transaction is still open.
    assert broker.ask("PUT", path(topic, "unload"))[0] == 204
    consumer = client.subscribe(topic, "s", permits=100)
    number = client.produce(topic, producer_name="own")[0]
    assert send(1, b"new", TWO) == (2**64 - 1, 2**64 - 1)
    send(2, b"newer", TWO)
    end_on_topic(client, topic, TWO, commit=True)
    assert received(client, consumer, 2) == [b"new", b"newer"]
    nothing_waits(client, consumer)


# Batches and chunks


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, KEY_SHARED])
def test_batches(client: Client, topic: str, kind: Kind) -> None:
    consumer = client.subscribe(topic, "s", kind, permits=100)
    sender = Sender(client, topic)
    put(sender, b"gone", ONE, num_messages_in_batch=5)
    put(sender, b"kept", TWO, num_messages_in_batch=3)
    put(sender, b"plain", num_messages_in_batch=2)
    sender.end(ONE, commit=False)
    sender.end(TWO, commit=True)
    got = client.messages(consumer, 2)
    assert [payload for _message, payload in got] == [b"kept", b"plain"]
    client.acknowledge(consumer, [message.message_id for message, _payload in got])
    found = client.ask(BaseCommand.CONSUMER_STATS, BaseCommand.CONSUMER_STATS_RESPONSE, consumer_id=consumer)
    assert (found.msgBacklog, found.unackedMessages) == (0, 0)


def chunk(sender: Sender, number: int, uuid: str, txn: Txn | None) -> None:
    put(
        sender,
        f"{uuid}/{number}".encode(),
        txn,
        uuid=uuid,
        chunk_id=number,
        num_chunks_from_msg=3,
        total_chunk_msg_size=30,
    )


def test_chunks_of_a_message_go_to_one_consumer(client: Client, topic: str) -> None:
    consumers = [client.subscribe(topic, "s", SHARED, permits=100) for _ in range(2)]
    sender = Sender(client, topic)
    # The transaction is aborted within its message, which is sent again as a whole.
    chunk(sender, 0, "m", ONE)
    chunk(sender, 1, "m", ONE)
    sender.end(ONE, commit=False)
    for number in range(3):
        chunk(sender, number, "m", TWO)
        chunk(sender, number, "n", THREE)
    sender.end(TWO, commit=True)
    sender.end(THREE, commit=True)
    got: dict[int, list[bytes]] = {each: [] for each in consumers}
    for _ in range(6):
        message, entry = client.take_frame(BaseCommand.MESSAGE)
        size = int.from_bytes(entry[6:10], "big")
        got[message.consumer_id].append(entry[10 + size :])
    for uuid in ("m", "n"):
        whole = [b"%s/%d" % (uuid.encode(), number) for number in range(3)]
        assert whole in [[p for p in each if p.startswith(uuid.encode())] for each in got.values()]
    for each in consumers:
        nothing_waits(client, each)


# Delayed delivery


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_delayed_messages(client: Client, broker: Server, topic: str, kind: Kind) -> None:
    consumer = client.subscribe(topic, "s", kind, permits=100)
    sender = Sender(client, topic)
    soon, late = now_ms() + 300, now_ms() + 3_600_000
    put(sender, b"due before the commit", ONE, deliver_at_time=now_ms() - 10)
    put(sender, b"aborted", TWO, deliver_at_time=soon)
    put(sender, b"due after the commit", ONE, deliver_at_time=soon)
    put(sender, b"aborted, late", TWO, deliver_at_time=late)
    put(sender, b"late", ONE, deliver_at_time=late)
    nothing_waits(client, consumer)
    sender.end(TWO, commit=False)
    sender.end(ONE, commit=True)
    assert received(client, consumer, 2) == [b"due before the commit", b"due after the commit"]
    nothing_waits(client, consumer)
    found = stats(broker, topic)["subscriptions"]["s"]
    assert found["msgDelayed"] == 1
    assert found["msgBacklog"] == 3


# Redelivery


def test_keys_keep_their_order_after_an_abort(client: Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", KEY_SHARED, permits=100)
    sender = Sender(client, topic)
    for number in range(9):
        put(sender, b"%d" % number, partition_key="abc"[number % 3])
    got = client.messages(consumer, 9)
    acknowledge(client, consumer, [message.message_id for message, _payload in got[:6]], ONE)
    end_on_subscription(client, topic, ONE, commit=False)
    again = client.messages(consumer, 6)
    by_key = {key: [payload for _message, payload in again if int(payload) % 3 == key] for key in range(3)}
    assert by_key == {key: [b"%d" % key, b"%d" % (key + 3)] for key in range(3)}
    assert {message.redelivery_count for message, _payload in again} == {1}


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_each_abort_counts_as_a_redelivery(client: Client, topic: str, kind: Kind) -> None:
    """Clients send a message to their dead letter topic by this count."""
    consumer = client.subscribe(topic, "s", kind, permits=100)
    Sender(client, topic).send(b"x")
    for attempt in range(4):
        message, payload = client.message(consumer)
        assert (payload, message.redelivery_count) == (b"x", attempt)
        acknowledge(client, consumer, [message.message_id], (0, attempt))
        end_on_subscription(client, topic, (0, attempt), commit=False)


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
@pytest.mark.parametrize("commit", [True, False])
def test_acknowledgements_free_a_blocked_consumer(
    client: Client, broker: Server, topic: str, kind: Kind, commit: bool
) -> None:
    consumer = client.subscribe(topic, "s", kind, permits=100)
    done(broker, "POST", path(topic, "maxUnackedMessagesOnConsumer"), 4)
    until(lambda: done(broker, "GET", path(topic, "maxUnackedMessagesOnConsumer")) == 4)
    sender = Sender(client, topic)
    for number in range(10):
        sender.send(b"%d" % number)
    got = client.messages(consumer, 4)
    assert stats(broker, topic)["subscriptions"]["s"]["consumers"][0]["blockedConsumerOnUnackedMsgs"]
    acknowledge(client, consumer, [message.message_id for message, _payload in got], ONE)
    again = client.messages(consumer, 4)
    assert [payload for _message, payload in again] == [b"4", b"5", b"6", b"7"]
    end_on_subscription(client, topic, ONE, commit=commit)
    client.acknowledge(consumer, [message.message_id for message, _payload in again])
    seen: set[bytes] = set()
    left = 2 if commit else 6
    while len(seen) < left:
        message, payload = client.message(consumer)
        seen.add(payload)
        client.acknowledge(consumer, [message.message_id])
    assert seen == ({b"8", b"9"} if commit else {b"0", b"1", b"2", b"3", b"8", b"9"})
    assert stats(broker, topic)["subscriptions"]["s"]["unackedMessages"] == 0


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_negative_acknowledgements_of_pending_messages(client: Client, topic: str, kind: Kind) -> None:
    consumer = client.subscribe(topic, "s", kind, permits=100)
    sender = Sender(client, topic)
    sender.send(b"pending")
    sender.send(b"other")
    ids = [message.message_id for message, _payload in client.messages(consumer, 2)]
    acknowledge(client, consumer, ids[:1], ONE)
    client.redeliver(consumer, ids)
    assert received(client, consumer, 1) == [b"other"]
    nothing_waits(client, consumer)
    end_on_subscription(client, topic, ONE, commit=False)
    message, payload = client.message(consumer)
    assert (payload, message.redelivery_count) == (b"pending", 1)


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED])
@pytest.mark.parametrize("commit", [True, False])
def test_a_lost_connection_leaves_pending_acknowledgements(
    client: Client, broker: Server, topic: str, kind: Kind, commit: bool
) -> None:
    other = Client(broker.port)
    consumer = other.subscribe(topic, "s", kind, permits=100)
    sender = Sender(client, topic)
    for number in range(3):
        sender.send(b"%d" % number)
    ids = [message.message_id for message, _payload in other.messages(consumer, 3)]
    acknowledge(other, consumer, ids[:2], ONE)
    other.close()
    until(lambda: not stats(broker, topic)["subscriptions"]["s"]["consumers"])
    # Without any consumer, the end of the transaction counts for the next one.
    end_on_subscription(client, topic, ONE, commit=commit)
    consumer = client.subscribe(topic, "s", kind, permits=100)
    expected = [b"2"] if commit else [b"0", b"1", b"2"]
    assert sorted(received(client, consumer, len(expected))) == expected
    nothing_waits(client, consumer)


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_an_abort_gives_messages_to_the_consumers_that_are_left(
    client: Client, topic: str, kind: Kind
) -> None:
    first = client.subscribe(topic, "s", kind, permits=100)
    sender = Sender(client, topic)
    for number in range(4):
        sender.send(b"%d" % number)
    ids = [message.message_id for message, _payload in client.messages(first, 4)]
    acknowledge(client, first, ids[:2], ONE)
    second = client.subscribe(topic, "s", kind, permits=100)
    client.close_consumer(first)
    assert sorted(received(client, second, 2)) == [b"2", b"3"]
    end_on_subscription(client, topic, ONE, commit=False)
    assert sorted(received(client, second, 2)) == [b"0", b"1"]


# Positions that are moved


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, KEY_SHARED])
def test_a_seek_back_leaves_out_what_is_pending(client: Client, topic: str, kind: Kind) -> None:
    consumer = client.subscribe(topic, "s", kind, permits=100)
    sender = Sender(client, topic)
    where = [sender.send(b"%d" % number) for number in range(4)]
    client.messages(consumer, 4)
    client.acknowledge(consumer, [id_of(where[0])])
    acknowledge(client, consumer, [id_of(where[1])], ONE)
    acknowledge(client, consumer, [id_of(where[2])], TWO)
    client.ask(BaseCommand.SEEK, BaseCommand.SUCCESS, consumer_id=consumer, message_id=EARLIEST)
    consumer = client.subscribe(topic, "s", kind, permits=100)
    assert sorted(received(client, consumer, 2)) == [b"0", b"3"]
    nothing_waits(client, consumer)
    end_on_subscription(client, topic, ONE, commit=True)
    end_on_subscription(client, topic, TWO, commit=False)
    assert b"2" in received(client, consumer, 1 if kind in (SHARED, KEY_SHARED) else 3)


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, KEY_SHARED])
@pytest.mark.parametrize("commit", [True, False])
def test_skipped_messages_stay_skipped(
    client: Client, broker: Server, topic: str, kind: Kind, commit: bool
) -> None:
    consumer = client.subscribe(topic, "s", kind, permits=100)
    sender = Sender(client, topic)
    where = [sender.send(b"%d" % number) for number in range(3)]
    client.messages(consumer, 3)
    acknowledge(client, consumer, [id_of(where[1])], ONE)
    sender.send(b"hidden", TWO)
    done(broker, "POST", path(topic, "subscription", "s", "skip_all"))
    end_on_subscription(client, topic, ONE, commit=commit)
    sender.end(TWO, commit=commit)
    sender.send(b"last")
    assert received(client, consumer, 1) == [b"last"]
    nothing_waits(client, consumer)
    client.acknowledge(consumer, [id_of((where[0][0], where[0][1] + 5))])
    until(lambda: backlog(broker, topic) == 0)


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED])
def test_a_seek_behind_an_open_transaction(client: Client, topic: str, kind: Kind) -> None:
    consumer = client.subscribe(topic, "s", kind, permits=100)
    sender = Sender(client, topic)
    sender.send(b"before")
    sender.send(b"open", ONE)
    where = sender.send(b"behind")
    client.message(consumer)
    client.ask(BaseCommand.SEEK, BaseCommand.SUCCESS, consumer_id=consumer, message_id=id_of(where))
    consumer = client.subscribe(topic, "s", kind, permits=100)
    nothing_waits(client, consumer)
    sender.end(ONE, commit=True)
    assert received(client, consumer, 1) == [b"behind"]


def test_open_messages_do_not_expire(client: Client, broker: Server, topic: str) -> None:
    consumer = client.subscribe(topic, "s", permits=0)
    sender = Sender(client, topic)
    old = now_ms() - 3_600_000
    put(sender, b"plain", publish_time=old)
    put(sender, b"open", ONE, publish_time=old)
    put(sender, b"behind", publish_time=old)
    done(broker, "POST", path(topic, "subscription", "s", "expireMessages", "60"))
    until(lambda: backlog(broker, topic) == 2)
    done(broker, "POST", path(topic, "subscription", "s", "expireMessages", "60"))
    time.sleep(0.2)
    assert backlog(broker, topic) == 2
    sender.end(ONE, commit=True)
    client.flow(consumer, 10)
    assert received(client, consumer, 2) == [b"open", b"behind"]


def test_open_messages_of_closed_ledgers_do_not_expire(start_server: Callable[..., Server]) -> None:
    """Entries of a ledger that was closed long ago expire whatever their publish time, but hidden ones."""
    server = start_server(
        transactionCoordinatorEnabled="true",
        managedLedgerMaxEntriesPerLedger=2,
        magnetarMinLedgerRolloverSeconds=0,
        messageExpiryCheckIntervalInMinutes=1,
    )
    client = Client(server.port)
    topic = "persistent://public/default/ttl"
    consumer = client.subscribe(topic, "s", permits=0)
    sender = Sender(client, topic)
    put(sender, b"plain")
    put(sender, b"open", ONE)
    for number in range(4):
        put(sender, b"%d" % number)
    time.sleep(1.1)
    done(server, "POST", path(topic, "subscription", "s", "expireMessages", "1"))
    until(lambda: backlog(server, topic) == 5)
    sender.end(ONE, commit=True)
    client.flow(consumer, 10)
    assert received(client, consumer, 5) == [b"open", b"0", b"1", b"2", b"3"]
    client.close()
