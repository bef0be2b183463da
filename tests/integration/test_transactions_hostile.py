"""Frames of transactions that no honest client sends: the broker answers, and everything else goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from raw_client import Client, Refused, command, entry_of, id_of, position
from raw_transactions import Sender, acknowledge, end_on_subscription, end_on_topic, transactional
from server import Server

from magnetar.errors import ServerErrorCode
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandAck,
    CommandSubscribe,
    MessageIdData,
    MessageMetadata,
    Subscription,
)

KINDS = (CommandSubscribe.Exclusive, CommandSubscribe.Shared, CommandSubscribe.Key_Shared)
Kind = CommandSubscribe.SubType.ValueType
MOST = 2**64 - 1
FAR_AWAY = [(MOST, MOST), (2**63 - 1, 2**63 - 1), (2**63, 0), (999_999, 0), (0, 0), (0, MOST)]


@pytest.fixture(scope="module")
def broker(start_server: Callable[..., Server]) -> Iterator[Server]:
    server = start_server(transactionCoordinatorEnabled="true")
    yield server
    assert "Traceback" not in server.log
    assert '"level": "CRITICAL"' not in server.log


@pytest.fixture
def client(broker: Server) -> Iterator[Client]:
    made = Client(broker.port)
    yield made
    made.close()


def unloaded(broker: Server, topic: str) -> None:
    assert broker.ask("PUT", f"/admin/v2/{topic.replace('://', '/')}/unload")[0] == 204


def refused_send(client: Client, sender: Sender, entry: bytes, **ids: int) -> Any:
    client.publish(sender.number, 99, entry, **ids)
    return client.take(BaseCommand.SEND_ERROR, producer_id=sender.number, sequence_id=99)


def payloads(client: Client, consumer: int, count: int) -> list[bytes]:
    return [payload for _message, payload in client.messages(consumer, count)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("commit", [True, False])
def test_acknowledgements_of_what_was_never_stored(
    client: Client, broker: Server, topic: str, kind: Kind, commit: bool
) -> None:
    consumer = client.subscribe(topic, "s", kind, permits=100)
    sender = Sender(client, topic)
    where = sender.send(b"x")
    client.message(consumer)
    behind = [(where[0], where[1] + 1), (where[0], where[1] + 50), (where[0], MOST)]
    for number, each in enumerate([*FAR_AWAY, *behind]):
        txn = (0, number)
        acknowledge(client, consumer, [id_of(each)], txn)
        acknowledge(client, consumer, [id_of(each, ack_set=[1], batch_size=2)], txn)
        end_on_subscription(client, topic, txn, commit=commit)
    sender.send(b"y")
    # What an abort gives back may be delivered again.
    while client.message(consumer)[1] != b"y":
        pass
    unloaded(broker, topic)
    consumer = client.subscribe(topic, "s", kind, permits=100)
    assert payloads(client, consumer, 2) == [b"x", b"y"]


@pytest.mark.parametrize("commit", [True, False])
def test_cumulative_acknowledgements_behind_the_end(
    client: Client, broker: Server, topic: str, commit: bool
) -> None:
    consumer = client.subscribe(topic, "s", permits=100)
    sender = Sender(client, topic)
    sender.send(b"x")
    client.message(consumer)
    for number, each in enumerate(FAR_AWAY):
        acknowledge(client, consumer, [id_of(each)], (0, number), cumulative=True)
        end_on_subscription(client, topic, (0, number), commit=commit)
    sender.send(b"y")
    expected = b"y" if commit else b"x"
    while (found := client.message(consumer)[1]) != b"y":
        assert found == b"x"
    unloaded(broker, topic)
    consumer = client.subscribe(topic, "s", permits=100)
    assert payloads(client, consumer, 1) == [expected]


@pytest.mark.parametrize(
    "fields",
    [
        {"ack_set": [0], "batch_size": 3},
        {"ack_set": [-1] * 200, "batch_size": 5},
        {"ack_set": [7], "batch_size": -1},
        {"ack_set": [-(2**63)], "batch_size": 2**31 - 1},
        {"ack_set": [1], "batch_size": 0, "batch_index": -5, "partition": -7},
    ],
)
@pytest.mark.parametrize("cumulative", [True, False])
@pytest.mark.parametrize("commit", [True, False])
def test_parts_of_batches_that_do_not_fit(
    client: Client, broker: Server, topic: str, fields: dict[str, Any], cumulative: bool, commit: bool
) -> None:
    kind = KINDS[0] if cumulative else KINDS[1]
    consumer = client.subscribe(topic, "s", kind, permits=100)
    number = client.produce(topic)[0]
    client.published(number, [b"x"], batch=3)
    where = position(client.message(consumer)[0].message_id)
    acknowledge(client, consumer, [id_of(where, **fields)], (0, 1), cumulative=cumulative)
    end_on_subscription(client, topic, (0, 1), commit=commit)
    unloaded(broker, topic)
    consumer = client.subscribe(topic, "s", kind, permits=100)
    number = client.produce(topic)[0]
    client.published(number, [b"y"])
    while client.message(consumer)[1] != b"y":
        pass


def test_very_many_acknowledgements_at_once(client: Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", CommandSubscribe.Shared, permits=100)
    sender = Sender(client, topic)
    where = sender.send(b"x")
    client.message(consumer)
    many = [MessageIdData(ledgerId=where[0], entryId=where[1] + number) for number in range(100_000)]
    acknowledge(client, consumer, many, (0, 1))
    end_on_subscription(client, topic, (0, 1), commit=False)
    sender.send(b"y")
    assert sorted(payloads(client, consumer, 2)) == [b"x", b"y"]


@pytest.mark.parametrize("ids", [(MOST, 1), (2**63, 1), (1, MOST), (MOST, MOST), (2**63 - 1, 2**63 - 1)])
def test_messages_of_impossible_transactions(
    client: Client, broker: Server, topic: str, ids: tuple[int, int]
) -> None:
    """Whatever such an id means, an aborted message stays hidden, and nothing else does."""
    sender = Sender(client, topic)
    for entry in (transactional(b"hidden", ids), entry_of(b"hidden")):
        client.publish(sender.number, 99, entry, txnid_most_bits=ids[0], txnid_least_bits=ids[1])
    client.barrier()
    end_on_topic(client, topic, ids, commit=False)
    sender.send(b"plain")
    for _ in range(2):
        consumer = client.subscribe(topic, "s", permits=100)
        assert payloads(client, consumer, 1) == [b"plain"]
        unloaded(broker, topic)


@pytest.mark.parametrize("half", ["txnid_most_bits", "txnid_least_bits"])
def test_half_of_an_id(client: Client, broker: Server, topic: str, half: str) -> None:
    client.close_consumer(client.subscribe(topic, "s"))
    sender = Sender(client, topic)
    ids = {half: 3}
    metadata = MessageMetadata(producer_name="raw", sequence_id=1, publish_time=1, **ids)
    for entry in (build_entry(metadata, b"half"), entry_of(b"none")):
        error = refused_send(client, sender, entry, **ids)
        assert error.message == "SEND has only one of txnid_most_bits and txnid_least_bits"
    sender.send(b"in 1", (0, 1))
    sender.end((0, 1), commit=True)
    # Metadata with half of an id name no transaction.
    client.publish(sender.number, 0, build_entry(metadata, b"half"))
    client.take(BaseCommand.SEND_RECEIPT, producer_id=sender.number)
    unloaded(broker, topic)
    consumer = client.subscribe(topic, "s", permits=100)
    assert payloads(client, consumer, 2) == [b"in 1", b"half"]
    client.send(
        command(BaseCommand.ACK, consumer_id=consumer, ack_type=CommandAck.Individual, request_id=77, **ids)
    )
    client.take(BaseCommand.ACK_RESPONSE, request_id=77)


def test_a_plain_message_with_an_id(client: Client, broker: Server, topic: str) -> None:
    """It would hide what others publish after the next load, although no transaction is open."""
    client.close_consumer(client.subscribe(topic, "s"))
    sender = Sender(client, topic)
    first = sender.send(b"in 1", (0, 1))
    sender.end((0, 1), commit=True)
    error = refused_send(client, sender, transactional(b"forged", (0, 7)))
    assert error.error == ServerErrorCode.NOT_ALLOWED
    assert "(0,7)" in error.message
    sender.send(b"plain")
    unloaded(broker, topic)
    consumer = client.subscribe(topic, "s", permits=100)
    got = client.messages(consumer, 2)
    assert [payload for _message, payload in got] == [b"in 1", b"plain"]
    assert position(got[0][0].message_id) == first


def test_a_plain_message_with_an_id_before_the_first_transaction(
    client: Client, broker: Server, topic: str
) -> None:
    """There are no transactions to confuse it with: it is a message as any other."""
    client.close_consumer(client.subscribe(topic, "s"))
    sender = Sender(client, topic)
    client.publish(sender.number, 0, transactional(b"odd", (0, 7)))
    client.take(BaseCommand.SEND_RECEIPT, producer_id=sender.number)
    sender.send(b"in 1", (0, 1))
    sender.end((0, 1), commit=True)
    unloaded(broker, topic)
    consumer = client.subscribe(topic, "s", permits=100)
    assert payloads(client, consumer, 2) == [b"odd", b"in 1"]


@pytest.mark.parametrize("kind", [21, 22])
@pytest.mark.parametrize("plain", [True, False])
def test_a_forged_end(client: Client, broker: Server, topic: str, kind: int, plain: bool) -> None:
    """Only brokers end transactions, whatever the metadata of a message say."""
    client.close_consumer(client.subscribe(topic, "s"))
    sender = Sender(client, topic)
    sender.send(b"open", (0, 1))
    metadata = MessageMetadata(
        producer_name="pulsar.txn.marker",
        sequence_id=99,
        publish_time=1,
        marker_type=kind,
        txnid_most_bits=0,
        txnid_least_bits=1,
    )
    ids = {} if plain else {"txnid_most_bits": 0, "txnid_least_bits": 1}
    error = refused_send(client, sender, build_entry(metadata, b""), **ids)
    assert error.error == ServerErrorCode.NOT_ALLOWED
    sender.send(b"behind")
    unloaded(broker, topic)
    consumer = client.subscribe(topic, "s", permits=100)
    with pytest.raises(TimeoutError):
        client.message(consumer, 0.2)
    end_on_topic(client, topic, (0, 1), commit=True)
    assert payloads(client, consumer, 2) == [b"open", b"behind"]


def asked(client: Client, kind: int, answer: int, **fields: Any) -> str:
    try:
        return str(client.ask(kind, answer, **fields).message)
    except Refused as error:
        return error.text


def test_commands_with_odd_ids_and_names(client: Client, topic: str) -> None:
    client.ask(BaseCommand.TC_CLIENT_CONNECT_REQUEST, BaseCommand.TC_CLIENT_CONNECT_RESPONSE, tc_id=0)
    for most in (0, 1, 2**63, MOST):
        for least in (0, 2**63, MOST):
            ids = {"txnid_most_bits": most, "txnid_least_bits": least}
            for name in ("", "persistent://", "x" * 10_000, topic, "non-persistent://public/default/t"):
                for fields in ({"txn_action": 0}, {"txn_action": 1}):
                    asked(
                        client,
                        BaseCommand.END_TXN_ON_PARTITION,
                        BaseCommand.END_TXN_ON_PARTITION_RESPONSE,
                        topic=name,
                        **ids,
                        **fields,
                    )
                    asked(
                        client,
                        BaseCommand.END_TXN_ON_SUBSCRIPTION,
                        BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE,
                        subscription=Subscription(topic=name, subscription=""),
                        **ids,
                        **fields,
                    )
            assert asked(
                client,
                BaseCommand.ADD_PARTITION_TO_TXN,
                BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE,
                partitions=["", "persistent://"],
                **ids,
            )
            assert asked(client, BaseCommand.END_TXN, BaseCommand.END_TXN_RESPONSE, txn_action=1, **ids)
    for number in (MOST, 2**63, 99):
        assert asked(
            client,
            BaseCommand.TC_CLIENT_CONNECT_REQUEST,
            BaseCommand.TC_CLIENT_CONNECT_RESPONSE,
            tc_id=number,
        )
        assert asked(
            client, BaseCommand.NEW_TXN, BaseCommand.NEW_TXN_RESPONSE, tc_id=number, txn_ttl_seconds=MOST
        )


@pytest.mark.parametrize("action", [b"", b"\x28\x63"])
def test_an_unknown_action(client: Client, topic: str, action: bytes) -> None:
    """What is not said to be a commit must not become one."""
    sender = Sender(client, topic)
    sender.send(b"x", (0, 1))
    consumer = client.subscribe(topic, "s", permits=10)
    built = command(
        BaseCommand.END_TXN_ON_PARTITION, request_id=9, topic=topic, txnid_most_bits=0, txnid_least_bits=1
    )
    built.endTxnOnPartition.MergeFromString(action)
    client.send(built)
    response = client.take(BaseCommand.END_TXN_ON_PARTITION_RESPONSE, request_id=9)
    assert response.message == "txn_action is neither COMMIT nor ABORT"
    with pytest.raises(TimeoutError):
        client.message(consumer, 0.15)
