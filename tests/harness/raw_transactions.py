"""Transactions of a bare client, which says itself what its coordinator is to know; and messages and
acknowledgements of transactions without a coordinator, frame by frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raw_client import Client, entry_of, position

from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandAck, MessageMetadata, Subscription, TxnAction


def ok(client: Client, kind: int, answer: int, **fields: Any) -> Any:
    got = client.ask(kind, answer, **fields)
    assert not got.HasField("error"), got.message
    return got


def connect_to_coordinator(client: Client) -> None:
    """Connects a client to coordinator 0."""
    ok(client, BaseCommand.TC_CLIENT_CONNECT_REQUEST, BaseCommand.TC_CLIENT_CONNECT_RESPONSE, tc_id=0)


def begin(client: Client, milliseconds: int = 600_000) -> int:
    """Opens a transaction at coordinator 0; returns the lower part of its id."""
    answer = ok(
        client, BaseCommand.NEW_TXN, BaseCommand.NEW_TXN_RESPONSE, txn_ttl_seconds=milliseconds, tc_id=0
    )
    return int(answer.txnid_least_bits)


class Transactions:
    """A bare client of coordinator 0."""

    def __init__(self, port: int) -> None:
        self.client = Client(port)
        connect_to_coordinator(self.client)

    def begin(self, milliseconds: int = 600_000) -> int:
        return begin(self.client, milliseconds)

    def add(self, least: int, topic: str, subscription: str | None = None) -> None:
        ids = {"txnid_least_bits": least, "txnid_most_bits": 0}
        if subscription is None:
            ok(
                self.client,
                BaseCommand.ADD_PARTITION_TO_TXN,
                BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE,
                partitions=[topic],
                **ids,
            )
        else:
            ok(
                self.client,
                BaseCommand.ADD_SUBSCRIPTION_TO_TXN,
                BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE,
                subscription=[Subscription(topic=topic, subscription=subscription)],
                **ids,
            )

    def end(self, least: int, *, commit: bool) -> None:
        ok(
            self.client,
            BaseCommand.END_TXN,
            BaseCommand.END_TXN_RESPONSE,
            txnid_least_bits=least,
            txnid_most_bits=0,
            txn_action=TxnAction.COMMIT if commit else TxnAction.ABORT,
        )

    def send(self, producer: int, payload: bytes, sequence: int, least: int | None) -> tuple[int, int]:
        """Publishes a message, in a transaction or in none; returns its position."""
        ids = {} if least is None else {"txnid_most_bits": 0, "txnid_least_bits": least}
        metadata = MessageMetadata(producer_name="raw", sequence_id=sequence, publish_time=1, **ids)
        self.client.publish(producer, sequence, build_entry(metadata, payload), **ids)
        receipt = self.client.take(BaseCommand.SEND_RECEIPT, producer_id=producer, sequence_id=sequence)
        return position(receipt.message_id)

    def acknowledge(self, consumer: int, ids: Any, least: int, *, cumulative: bool = False) -> None:
        ok(
            self.client,
            BaseCommand.ACK,
            BaseCommand.ACK_RESPONSE,
            consumer_id=consumer,
            ack_type=CommandAck.Cumulative if cumulative else CommandAck.Individual,
            message_id=ids,
            txnid_most_bits=0,
            txnid_least_bits=least,
        )


NO_LOW_WATER = 2**64 - 1


def transactional(payload: bytes, txn: tuple[int, int], sequence_id: int = 0, key: str = "") -> bytes:
    metadata = MessageMetadata(
        producer_name="raw",
        sequence_id=sequence_id,
        publish_time=1,
        txnid_most_bits=txn[0],
        txnid_least_bits=txn[1],
    )
    if key:
        metadata.partition_key = key
    return build_entry(metadata, payload)


class Sender:
    """A producer that sends messages in transactions, or in none."""

    def __init__(self, client: Client, topic: str) -> None:
        self.client, self.topic = client, topic
        self.number = client.produce(topic)[0]
        self.sequence = 0

    def send(self, payload: bytes, txn: tuple[int, int] | None = None, **how: Any) -> tuple[int, int]:
        sequence, self.sequence = self.sequence, self.sequence + 1
        if txn is None:
            self.client.publish(self.number, sequence, entry_of(payload, sequence))
        else:
            entry = how.get("entry") or transactional(payload, txn, sequence, how.get("key", ""))
            self.client.publish(self.number, sequence, entry, txnid_most_bits=txn[0], txnid_least_bits=txn[1])
        receipt = self.client.take(BaseCommand.SEND_RECEIPT, producer_id=self.number, sequence_id=sequence)
        return position(receipt.message_id)

    def end(self, txn: tuple[int, int], *, commit: bool, low_water: int = NO_LOW_WATER) -> Any:
        return end_on_topic(self.client, self.topic, txn, commit=commit, low_water=low_water)


def end_on_topic(
    client: Client, topic: str, txn: tuple[int, int], *, commit: bool, low_water: int = NO_LOW_WATER
) -> Any:
    return client.ask(
        BaseCommand.END_TXN_ON_PARTITION,
        BaseCommand.END_TXN_ON_PARTITION_RESPONSE,
        topic=topic,
        txnid_most_bits=txn[0],
        txnid_least_bits=txn[1],
        txn_action=TxnAction.COMMIT if commit else TxnAction.ABORT,
        txnid_least_bits_of_low_watermark=low_water,
    )


def end_on_subscription(client: Client, topic: str, txn: tuple[int, int], *, commit: bool) -> Any:
    return client.ask(
        BaseCommand.END_TXN_ON_SUBSCRIPTION,
        BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE,
        subscription=Subscription(topic=topic, subscription="s"),
        txnid_most_bits=txn[0],
        txnid_least_bits=txn[1],
        txn_action=TxnAction.COMMIT if commit else TxnAction.ABORT,
        txnid_least_bits_of_low_watermark=NO_LOW_WATER,
    )


def acknowledge(
    client: Client, consumer: int, ids: Sequence[Any], txn: tuple[int, int], *, cumulative: bool = False
) -> Any:
    return client.ask(
        BaseCommand.ACK,
        BaseCommand.ACK_RESPONSE,
        consumer_id=consumer,
        ack_type=CommandAck.Cumulative if cumulative else CommandAck.Individual,
        message_id=list(ids),
        txnid_most_bits=txn[0],
        txnid_least_bits=txn[1],
    )
