"""Transactions together with the other features of topics, frame by frame.

The outcomes come from a client here, as a coordinator would send them. Each test has topics of
its own, and none depends on how long anything takes.
"""

from __future__ import annotations

import json
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import websocket
from polling import until
from raw_client import EARLIEST, LATEST, Client, Refused, entry_of, id_of, position
from raw_transactions import Sender, acknowledge, end_on_subscription, end_on_topic
from replicated_sites import Site, connect, make_namespace
from server import Server

from magnetar.protocol.metadata import build_entry, parse_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandSubscribe, MessageMetadata

EXCLUSIVE, SHARED = CommandSubscribe.Exclusive, CommandSubscribe.Shared
FAILOVER, KEY_SHARED = CommandSubscribe.Failover, CommandSubscribe.Key_Shared
Kind = CommandSubscribe.SubType.ValueType
Txn = tuple[int, int]
PACKAGE = "org.apache.pulsar.common.intercept"
INTERCEPTORS = f"{PACKAGE}.AppendBrokerTimestampMetadataInterceptor,{PACKAGE}.AppendIndexMetadataInterceptor"
ENCRYPTION = "/admin/v2/namespaces/public/default/encryptionRequired"
ONE, TWO, THREE = (0, 1), (0, 2), (0, 3)


@pytest.fixture(scope="module")
def broker(start_server: Callable[..., Server]) -> Server:
    return start_server(
        clusterName="east",
        transactionCoordinatorEnabled="true",
        delayedDeliveryTickTimeMillis=50,
        activeConsumerFailoverDelayTimeMillis=10,
        acknowledgmentAtBatchIndexLevelEnabled="true",
        backlogQuotaCheckIntervalInSeconds=1,
        replicatedSubscriptionsSnapshotFrequencyMillis=100,
    )


@pytest.fixture(scope="module")
def other(start_server: Callable[..., Server]) -> Server:
    """A broker that writes broker entry metadata, and acknowledges batches only as a whole outside of
    transactions."""
    return start_server(
        clusterName="west",
        transactionCoordinatorEnabled="true",
        acknowledgmentAtBatchIndexLevelEnabled="false",
        brokerEntryMetadataInterceptors=INTERCEPTORS,
    )


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

    until(lambda: "pulsar.dedup" in done(broker, "GET", path(topic, "internalStats"))["cursors"], seconds=20)
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
    until(lambda: done(broker, "GET", path(topic, "maxUnackedMessagesOnConsumer")) == 4, seconds=20)
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
    until(lambda: not stats(broker, topic)["subscriptions"]["s"]["consumers"], seconds=20)
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


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, KEY_SHARED])
def test_an_aborted_cumulative_acknowledgement_of_another_type(
    client: Client, topic: str, kind: Kind
) -> None:
    consumer = client.subscribe(topic, "s", permits=100)
    sender = Sender(client, topic)
    where = [sender.send(b"%d" % number) for number in range(4)]
    client.messages(consumer, 4)
    acknowledge(client, consumer, [id_of(where[2])], ONE, cumulative=True)
    client.close_consumer(consumer)
    consumer = client.subscribe(topic, "s", kind, permits=100)
    message, payload = client.message(consumer)
    assert payload == b"3"
    nothing_waits(client, consumer)
    client.acknowledge(consumer, [message.message_id])
    end_on_subscription(client, topic, ONE, commit=False)
    assert sorted(received(client, consumer, 3)) == [b"0", b"1", b"2"]
    nothing_waits(client, consumer)


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
@pytest.mark.parametrize("commit", [True, False])
def test_parts_of_batches_that_are_acknowledged_otherwise(
    client: Client, broker: Server, topic: str, kind: Kind, commit: bool
) -> None:
    """Some messages of a batch are acknowledged plainly, some in a transaction, and some not at all."""
    consumer = client.subscribe(topic, "s", kind, permits=100)
    client.published(client.produce(topic)[0], [b"batch"], batch=4)
    where = position(client.message(consumer)[0].message_id)
    client.acknowledge(consumer, [id_of(where, ack_set=[0b1110], batch_size=4)])
    got = acknowledge(client, consumer, [id_of(where, ack_set=[0b1101], batch_size=4)], ONE)
    assert not got.HasField("error"), got.message
    assert stats(broker, topic)["subscriptions"]["s"]["unackedMessages"] == 2
    end_on_subscription(client, topic, ONE, commit=commit)
    if not commit:
        assert list(client.message(consumer)[0].ack_set) == [0b1110]
    assert stats(broker, topic)["subscriptions"]["s"]["unackedMessages"] == (2 if commit else 3)
    client.redeliver(consumer)
    assert list(client.message(consumer)[0].ack_set) == [0b1100 if commit else 0b1110]
    left = [0b0011] if commit else [0b0001]
    client.acknowledge(consumer, [id_of(where, ack_set=left, batch_size=4)])
    until(lambda: backlog(broker, topic) == 0, seconds=20)
    assert stats(broker, topic)["subscriptions"]["s"]["unackedMessages"] == 0


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_a_plain_acknowledgement_of_a_pending_message(
    client: Client, broker: Server, topic: str, kind: Kind
) -> None:
    """It counts, whatever becomes of the transaction."""
    consumer = client.subscribe(topic, "s", kind, permits=100)
    sender = Sender(client, topic)
    where = [sender.send(b"%d" % number) for number in range(2)]
    client.messages(consumer, 2)
    acknowledge(client, consumer, [id_of(each) for each in where], ONE)
    client.acknowledge(consumer, [id_of(where[0])])
    done(broker, "PUT", path(topic, "unload"))
    consumer = client.subscribe(topic, "s", kind, permits=100)
    nothing_waits(client, consumer)
    end_on_subscription(client, topic, ONE, commit=False)
    assert received(client, consumer, 1) == [b"1"]
    nothing_waits(client, consumer)


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
    until(lambda: backlog(broker, topic) == 0, seconds=20)


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
    until(lambda: backlog(broker, topic) == 2, seconds=20)
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
    until(lambda: backlog(server, topic) == 5, seconds=20)
    sender.end(ONE, commit=True)
    client.flow(consumer, 10)
    assert received(client, consumer, 5) == [b"open", b"0", b"1", b"2", b"3"]
    client.close()


# Backlogs


def test_markers_and_aborted_messages_leave_no_backlog(client: Client, broker: Server, topic: str) -> None:
    consumer = client.subscribe(topic, "s", permits=100)
    sender = Sender(client, topic)
    where = sender.send(b"plain")
    client.message(consumer)
    client.acknowledge(consumer, [id_of(where)])
    for number in range(20):
        sender.send(b"gone", (0, number))
        sender.end((0, number), commit=False)
    until(lambda: backlog(broker, topic) == 0, seconds=20)


@pytest.mark.parametrize("commit", [True, False])
def test_evictions_for_a_quota(client: Client, broker: Server, topic: str, commit: bool) -> None:
    client.close_consumer(client.subscribe(topic, "s"))
    quota = {"limitSize": 4000, "limit": 4000, "policy": "consumer_backlog_eviction"}
    sender = Sender(client, topic)
    for number in range(10):
        put(sender, b"x" * 500, ONE if number % 2 else None)
        if number % 3 == 0:
            put(sender, b"y" * 100, (0, 100 + number))
            sender.end((0, 100 + number), commit=False)
    done(broker, "POST", path(topic, "backlogQuota") + "?backlogQuotaType=destination_storage", quota)
    before = backlog(broker, topic)
    until(lambda: backlog(broker, topic) < before, seconds=20)
    sender.end(ONE, commit=commit)
    sender.send(b"last")
    consumer = client.subscribe(topic, "s", permits=100)
    while client.message(consumer)[1] != b"last":
        pass
    assert stats(broker, topic)["ongoingTxnCount"] == 0


def test_a_topic_is_trimmed_behind_its_transactions(start_server: Callable[..., Server]) -> None:
    server = start_server(
        transactionCoordinatorEnabled="true",
        managedLedgerMaxEntriesPerLedger=3,
        magnetarMinLedgerRolloverSeconds=0,
    )
    client = Client(server.port)
    topic = "persistent://public/default/trimmed"
    consumer = client.subscribe(topic, "s", SHARED, permits=1000)
    sender = Sender(client, topic)
    for number in range(20):
        put(sender, b"%d" % number, (0, number))
        sender.end((0, number), commit=number % 2 == 0)
    got = client.messages(consumer, 10)
    acknowledge(client, consumer, [message.message_id for message, _payload in got], THREE)
    end_on_subscription(client, topic, THREE, commit=True)
    for number in range(20, 24):
        put(sender, b"%d" % number, (0, number))
        sender.end((0, number), commit=True)
    until(lambda: len(done(server, "GET", path(topic, "internalStats"))["ledgers"]) <= 4, seconds=20)
    done(server, "PUT", path(topic, "unload"))
    consumer = client.subscribe(topic, "s", SHARED, permits=1000)
    assert sorted(received(client, consumer, 4)) == [b"20", b"21", b"22", b"23"]
    client.close()


# Compaction


def test_compaction(client: Client, broker: Server, topic: str) -> None:
    client.close_consumer(client.subscribe(topic, "s"))
    sender = Sender(client, topic)
    put(sender, b"a plain", partition_key="a")
    put(sender, b"a committed", TWO, partition_key="a")
    put(sender, b"a aborted", ONE, partition_key="a")
    put(sender, b"b aborted", ONE, partition_key="b")
    put(sender, b"c plain", partition_key="c")
    sender.end(ONE, commit=False)
    sender.end(TWO, commit=True)
    put(sender, b"c open", THREE, partition_key="c")
    put(sender, b"d behind", partition_key="d")

    def compact() -> None:
        done(broker, "PUT", path(topic, "compaction"))
        until(lambda: done(broker, "GET", path(topic, "compaction"))["status"] == "SUCCESS", seconds=20)

    def read(count: int) -> list[bytes]:
        reader = client.subscribe(
            topic, "reader", permits=100, durable=False, start_message_id=EARLIEST, read_compacted=True
        )
        found = received(client, reader, count)
        nothing_waits(client, reader)
        client.close_consumer(reader)
        return found

    compact()
    assert read(2) == [b"a committed", b"c plain"]
    sender.end(THREE, commit=True)
    assert read(4) == [b"a committed", b"c plain", b"c open", b"d behind"]
    compact()
    assert read(3) == [b"a committed", b"c open", b"d behind"]


# Topics that go and come


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, KEY_SHARED])
def test_unloads_in_between(client: Client, broker: Server, topic: str, kind: Kind) -> None:
    """Whatever is under way, an unload changes nothing of what a consumer gets."""
    consumer = client.subscribe(topic, "s", kind, permits=100)

    def unload() -> tuple[Sender, int]:
        done(broker, "PUT", path(topic, "unload"))
        return Sender(client, topic), client.subscribe(topic, "s", kind, permits=100)

    sender = Sender(client, topic)
    where = [sender.send(b"0"), sender.send(b"1")]
    client.messages(consumer, 2)
    acknowledge(client, consumer, [id_of(where[0])], ONE)
    sender.send(b"in 1", ONE)
    sender, consumer = unload()
    assert received(client, consumer, 1) == [b"1"]
    sender.send(b"in 2", TWO)
    sender.end(ONE, commit=True)
    sender, consumer = unload()
    # The acknowledgement is still pending, as only the topic knows the end yet.
    assert sorted(received(client, consumer, 2)) == [b"1", b"in 1"]
    end_on_subscription(client, topic, ONE, commit=True)
    sender, consumer = unload()
    assert sorted(received(client, consumer, 2)) == [b"1", b"in 1"]
    sender.end(TWO, commit=False)
    sender, consumer = unload()
    assert sorted(received(client, consumer, 2)) == [b"1", b"in 1"]
    nothing_waits(client, consumer)


def test_partitions_added_within_a_transaction(client: Client, broker: Server, topic: str) -> None:
    done(broker, "PUT", path(topic, "partitions"), 1)
    consumer = client.subscribe(f"{topic}-partition-0", "s", permits=100)
    first = Sender(client, f"{topic}-partition-0")
    first.send(b"0", ONE)
    done(broker, "POST", path(topic, "partitions"), 2)
    second = Sender(client, f"{topic}-partition-1")
    second.send(b"1", ONE)
    added = client.subscribe(f"{topic}-partition-1", "s", permits=100)
    first.end(ONE, commit=True)
    second.end(ONE, commit=True)
    assert received(client, consumer, 1) + received(client, added, 1) == [b"0", b"1"]


@pytest.mark.parametrize("commit", [True, False])
def test_a_deleted_topic_lets_its_transactions_end(
    client: Client, broker: Server, topic: str, commit: bool
) -> None:
    consumer = client.subscribe(topic, "s", permits=100)
    sender = Sender(client, topic)
    where = sender.send(b"x")
    sender.send(b"open", ONE)
    client.message(consumer)
    acknowledge(client, consumer, [id_of(where)], ONE)
    done(broker, "DELETE", path(topic) + "?force=true")
    assert not end_on_topic(client, topic, ONE, commit=commit).HasField("error")
    assert not end_on_subscription(client, topic, ONE, commit=commit).HasField("error")
    assert broker.ask("GET", path(topic, "stats"))[0] == 404
    # A new topic of that name has nothing of it.
    consumer = client.subscribe(topic, "s", permits=100)
    Sender(client, topic).send(b"new", TWO)
    end_on_topic(client, topic, TWO, commit=True)
    assert received(client, consumer, 1) == [b"new"]


@pytest.mark.parametrize("commit", [True, False])
def test_a_deleted_subscription_lets_its_transactions_end(
    client: Client, broker: Server, topic: str, commit: bool
) -> None:
    consumer = client.subscribe(topic, "s", SHARED, permits=100)
    where = Sender(client, topic).send(b"x")
    client.message(consumer)
    acknowledge(client, consumer, [id_of(where)], ONE)
    done(broker, "DELETE", path(topic, "subscription", "s") + "?force=true")
    consumer = client.subscribe(topic, "s", SHARED, permits=100)
    assert received(client, consumer, 1) == [b"x"]
    assert not end_on_subscription(client, topic, ONE, commit=commit).HasField("error")
    assert backlog(broker, topic) == 1
    nothing_waits(client, consumer)


def test_a_topic_is_deleted_whose_subscriptions_nobody_has_used_since_its_load(
    client: Client, broker: Server, topic: str
) -> None:
    """Their pending acknowledgements are loaded to be deleted."""
    consumers = [client.subscribe(topic, name, permits=100) for name in ("s", "without")]
    where = Sender(client, topic).send(b"x")
    client.message(consumers[0])
    acknowledge(client, consumers[0], [id_of(where)], ONE)
    end_on_subscription(client, topic, ONE, commit=True)
    for consumer in consumers:
        client.close_consumer(consumer)
    done(broker, "PUT", path(topic, "unload"))
    assert set(stats(broker, topic)["subscriptions"]) == {"s", "without"}
    done(broker, "DELETE", path(topic) + "?force=true")
    assert broker.ask("GET", path(topic, "stats"))[0] == 404
    consumer = client.subscribe(topic, "s", permits=100)
    Sender(client, topic).send(b"new")
    assert received(client, consumer, 1) == [b"new"]


# Producers and readers


def test_an_exclusive_producer(client: Client, topic: str) -> None:
    """Markers come from the broker, which needs no access."""
    consumer = client.subscribe(topic, "s", permits=100)
    number = client.produce(topic, producer_access_mode=1)[0]
    sender = Sender.__new__(Sender)
    sender.client, sender.topic, sender.number, sender.sequence = client, topic, number, 0
    sender.send(b"x", ONE)
    sender.end(ONE, commit=True)
    assert received(client, consumer, 1) == [b"x"]


def last_id(client: Client, consumer: int) -> tuple[int, int]:
    answer = client.ask(
        BaseCommand.GET_LAST_MESSAGE_ID, BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE, consumer_id=consumer
    )
    return position(answer.last_message_id)


def test_readers(client: Client, topic: str) -> None:
    client.close_consumer(client.subscribe(topic, "s"))
    sender = Sender(client, topic)
    before = sender.send(b"before")
    sender.send(b"aborted", ONE)
    sender.send(b"open", TWO)
    behind = sender.send(b"behind")
    sender.end(ONE, commit=False)
    earliest = client.subscribe(topic, "e", permits=100, durable=False, start_message_id=EARLIEST)
    latest = client.subscribe(topic, "l", permits=100, durable=False, start_message_id=LATEST)
    assert received(client, earliest, 1) == [b"before"]
    # A reader that asks whether there is more stops here.
    assert last_id(client, earliest) == before
    nothing_waits(client, latest)
    sender.end(TWO, commit=True)
    assert received(client, earliest, 2) == [b"open", b"behind"]
    assert last_id(client, earliest) == behind
    sender.send(b"new")
    assert received(client, latest, 1) == [b"new"]


def test_websocket(client: Client, broker: Server, topic: str) -> None:
    url = broker.http_url.replace("http", "ws", 1)
    over = websocket.create_connection(f"{url}/ws/v2/consumer/{topic.replace('://', '/')}/w", timeout=20)
    sender = Sender(client, topic)
    sender.send(b"aborted", ONE)
    sender.send(b"open", TWO)
    sender.send(b"behind")
    sender.end(ONE, commit=False)
    over.settimeout(0.3)
    with pytest.raises(websocket.WebSocketTimeoutException):
        over.recv()
    over.settimeout(20)
    sender.end(TWO, commit=True)
    found = [b64decode(json.loads(over.recv())["payload"]) for _ in range(2)]
    assert found == [b"open", b"behind"]
    over.close()


def test_encryption(client: Client, broker: Server, topic: str) -> None:
    consumer = client.subscribe(topic, "s", permits=100)
    done(broker, "POST", ENCRYPTION, True)
    try:
        number = client.produce(topic, encrypted=True)[0]
        metadata = MessageMetadata(producer_name="raw", sequence_id=0, publish_time=1)
        metadata.encryption_keys.add(key="k", value=b"secret")
        # The broker adds the id of the transaction, and leaves the rest as it is.
        ids = {"txnid_most_bits": 0, "txnid_least_bits": 1}
        client.publish(number, 0, build_entry(metadata, b"cipher"), **ids)
        client.take(BaseCommand.SEND_RECEIPT, producer_id=number)
        client.publish(number, 1, entry_of(b"open text"), **ids)
        assert client.take(BaseCommand.SEND_ERROR, producer_id=number).sequence_id == 1
    finally:
        done(broker, "POST", ENCRYPTION, False)
    end_on_topic(client, topic, ONE, commit=True)
    assert received(client, consumer, 1) == [b"cipher"]


# Limits of publishing


def test_a_marker_passes_a_publish_rate(client: Client, broker: Server, topic: str) -> None:
    client.close_consumer(client.subscribe(topic, "s"))
    sender = Sender(client, topic)
    sender.send(b"x", ONE)
    done(broker, "POST", path(topic, "publishRate"), {"publishThrottlingRateInMsg": 1})
    until(lambda: bool(done(broker, "GET", path(topic, "publishRate"))), seconds=20)
    for number in range(50):
        client.publish(sender.number, 10 + number, entry_of(b"too many"))
    coordinator = Client(broker.port)
    assert not end_on_topic(coordinator, topic, ONE, commit=True).HasField("error")
    coordinator.close()


def test_a_marker_passes_a_full_disk(start_server: Callable[..., Server]) -> None:
    server = start_server(transactionCoordinatorEnabled="true")
    topic = "persistent://public/default/full"
    client = Client(server.port)
    consumer = client.subscribe(topic, "s", permits=100)
    sender = Sender(client, topic)
    where = sender.send(b"plain")
    client.message(consumer)
    acknowledge(client, consumer, [id_of(where)], ONE)
    sender.send(b"committed", ONE)
    sender.send(b"aborted", TWO)
    client.close()
    server.stop()
    server.configure({"transactionCoordinatorEnabled": "true", "diskUsageThreshold": "0.01"})
    server.start()
    assert "publishing is refused" in server.log
    client = Client(server.port)
    with pytest.raises(Refused):
        client.produce(topic)
    end_on_topic(client, topic, ONE, commit=True)
    end_on_topic(client, topic, TWO, commit=False)
    end_on_subscription(client, topic, ONE, commit=True)
    consumer = client.subscribe(topic, "s", permits=100)
    message, payload = client.message(consumer)
    assert payload == b"committed"
    assert not acknowledge(client, consumer, [message.message_id], THREE).HasField("error")
    end_on_subscription(client, topic, THREE, commit=True)
    until(lambda: backlog(server, topic) == 0, seconds=20)
    client.close()


# Other settings


def test_broker_entry_metadata(other: Server, topic: str) -> None:
    client = Client(other.port)
    consumer = client.subscribe(topic, "s", permits=100)
    sender = Sender(client, topic)
    sender.send(b"", ONE, entry=entry_of(b"aborted"))
    sender.send(b"committed", TWO)
    sender.send(b"plain")
    sender.end(ONE, commit=False)
    sender.end(TWO, commit=True)
    done(other, "PUT", path(topic, "unload"))
    consumer = client.subscribe(topic, "s", permits=100)
    assert received(client, consumer, 2) == [b"committed", b"plain"]
    sender = Sender(client, topic)
    sender.send(b"last")
    assert received(client, consumer, 1) == [b"last"]
    # Messages and markers count alike.
    body = other.ask("GET", path(topic, "internalStats"))[1]
    assert json.loads(body)["entriesAddedCounter"] >= 1
    client.close()


@pytest.mark.parametrize("commit", [True, False])
def test_parts_of_batches_whatever_the_setting(other: Server, topic: str, commit: bool) -> None:
    client = Client(other.port)
    consumer = client.subscribe(topic, "s", SHARED, permits=100)
    client.published(client.produce(topic)[0], [b"batch"], batch=2)
    where = position(client.message(consumer)[0].message_id)
    acknowledge(client, consumer, [id_of(where, ack_set=[0b10], batch_size=2)], ONE)
    acknowledge(client, consumer, [id_of(where, ack_set=[0b01], batch_size=2)], TWO)
    client.redeliver(consumer)
    nothing_waits(client, consumer)
    end_on_subscription(client, topic, ONE, commit=True)
    end_on_subscription(client, topic, TWO, commit=commit)
    if commit:
        until(lambda: backlog(other, topic) == 0, seconds=20)
    else:
        assert received(client, consumer, 1) == [b"batch"]
    client.close()


# Other clusters


@pytest.fixture(scope="module")
def sites(broker: Server, other: Server) -> Iterator[tuple[Site[Server], Site[Server]]]:
    pair = Site("east", broker), Site("west", other)
    connect(*pair)
    yield pair
    for each in pair:
        each.client.close()


def test_replication(sites: tuple[Site[Server], Site[Server]]) -> None:
    """The other cluster gets what is visible, in order, as plain messages."""
    topic = f"persistent://{make_namespace('replicated', *sites)}/t"
    here, there = Client(sites[0].server.port), Client(sites[1].server.port)
    consumer = there.subscribe(topic, "s", permits=100)
    sender = Sender(here, topic)
    sender.send(b"plain")
    sender.send(b"committed", ONE)
    sender.send(b"aborted", TWO)
    sender.send(b"behind")
    assert received(there, consumer, 1) == [b"plain"]
    nothing_waits(there, consumer)
    sender.end(TWO, commit=False)
    nothing_waits(there, consumer)
    sender.end(ONE, commit=True)
    for expected in (b"committed", b"behind"):
        _message, entry = there.take_frame(BaseCommand.MESSAGE)
        parsed = parse_entry(entry)
        assert bytes(parsed.payload) == expected
        assert not parsed.metadata.HasField("txnid_most_bits")
        assert not parsed.metadata.HasField("txnid_least_bits")
    nothing_waits(there, consumer)
    # It has transactions of its own beside that.
    local = Sender(there, topic)
    local.send(b"local", ONE)
    sender.send(b"from the east")
    nothing_waits(there, consumer)
    local.end(ONE, commit=True)
    assert sorted(received(there, consumer, 2)) == [b"from the east", b"local"]
    here.close()
    there.close()


def test_replicated_subscriptions(sites: tuple[Site[Server], Site[Server]]) -> None:
    """Their markers stand beside those of transactions, and the subscription moves along."""
    topic = f"persistent://{make_namespace('moving', *sites)}/t"
    here, there = Client(sites[0].server.port), Client(sites[1].server.port)
    there.close_consumer(there.subscribe(topic, "s", replicate_subscription_state=True))
    consumer = here.subscribe(topic, "s", permits=100, replicate_subscription_state=True)
    sender = Sender(here, topic)

    def moved() -> bool:
        number = sender.sequence
        sender.send(b"aborted", (0, number))
        sender.send(b"committed", (0, number + 1))
        sender.end((0, number), commit=False)
        sender.end((0, number + 1), commit=True)
        message, payload = here.message(consumer)
        assert payload == b"committed"
        here.acknowledge(consumer, [message.message_id])
        found = json.loads(sites[1].server.ask("GET", path(topic, "stats"))[1])["subscriptions"]["s"]
        return number > 10 and int(found["msgBacklog"]) < number // 4

    until(moved, seconds=20)
    nothing_waits(here, consumer)
    here.close()
    there.close()
