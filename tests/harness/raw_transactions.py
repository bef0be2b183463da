"""Transactions of a bare client, which says itself what its coordinator is to know."""

from __future__ import annotations

from typing import Any

from raw_client import Client, position
from server import Server

from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandAck, MessageMetadata, Subscription, TxnAction


def ok(client: Client, kind: int, answer: int, **fields: Any) -> Any:
    got = client.ask(kind, answer, **fields)
    assert not got.HasField("error"), got.message
    return got


class Transactions:
    """A bare client of coordinator 0."""

    def __init__(self, server: Server) -> None:
        self.client = Client(server.port)
        ok(
            self.client,
            BaseCommand.TC_CLIENT_CONNECT_REQUEST,
            BaseCommand.TC_CLIENT_CONNECT_RESPONSE,
            tc_id=0,
        )

    def begin(self, milliseconds: int = 600_000) -> int:
        answer = ok(
            self.client,
            BaseCommand.NEW_TXN,
            BaseCommand.NEW_TXN_RESPONSE,
            txn_ttl_seconds=milliseconds,
            tc_id=0,
        )
        return int(answer.txnid_least_bits)

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
