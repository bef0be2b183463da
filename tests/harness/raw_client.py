"""A client that speaks frames: each command as it is, and the answers as they come."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import count
from typing import Any

from google.protobuf.message import Message
from raw_connection import RawConnection, sub_message

from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandAck,
    CommandSubscribe,
    MessageIdData,
    MessageMetadata,
)

SECONDS = 10.0
FROM_BROKER = 2**64 - 1
EARLIEST = MessageIdData(ledgerId=2**64 - 1, entryId=2**64 - 1)
LATEST = MessageIdData(ledgerId=2**63 - 1, entryId=2**63 - 1)

Received = tuple[Any, bytes]


class Refused(Exception):
    """The broker answered ERROR."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text


def command(kind: int, **fields: Any) -> BaseCommand:
    """A command of a kind with the fields of its message."""
    built = BaseCommand(type=kind)  # type: ignore[arg-type]
    message = sub_message(built)[1]
    message.SetInParent()
    for name, value in fields.items():
        if isinstance(value, Message):
            getattr(message, name).CopyFrom(value)
        elif isinstance(value, list):
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)
    return built


def entry_of(payload: bytes, sequence_id: int = 0, batch: int = 0, publish_time: int = 0) -> bytes:
    """An entry with one message, or with a batch of so many."""
    metadata = MessageMetadata(
        producer_name="raw", sequence_id=sequence_id, publish_time=publish_time or int(time.time() * 1000)
    )
    if batch:
        metadata.num_messages_in_batch = batch
    return build_entry(metadata, payload)


def position(message_id: Any) -> tuple[int, int]:
    return message_id.ledgerId, message_id.entryId


def id_of(where: tuple[int, int], **fields: Any) -> MessageIdData:
    return MessageIdData(ledgerId=where[0], entryId=where[1], **fields)


class Client(RawConnection):
    """Connected when made. Answers PING unless told not to; frames nobody asked for yet are kept."""

    def __init__(self, port: int, *, answers_pings: bool = True, **connect: Any) -> None:
        super().__init__(port)
        self._answers_pings = answers_pings
        self._ids = count(1)
        self.kept: list[tuple[BaseCommand, bytes]] = []
        fields: dict[str, Any] = {"client_version": "raw", "protocol_version": 21} | connect
        self.send(command(BaseCommand.CONNECT, **fields))
        self.connected = self.take(BaseCommand.CONNECTED)

    # What arrives

    def _next(self, seconds: float) -> tuple[BaseCommand, bytes]:
        received = self.receive(seconds)
        if received is None:
            raise ConnectionError("the broker closed the connection")
        if received[0].type == BaseCommand.PING and self._answers_pings:
            self.send(command(BaseCommand.PONG))
        return received

    def take_frame(self, kind: int, seconds: float = SECONDS, **fields: Any) -> Received:
        """The first frame of a kind whose fields have these values, and its entry; others are kept.

        :raises Refused: an ERROR for the same request came instead
        :raises TimeoutError: nothing like it came
        """
        end = time.monotonic() + seconds
        index = 0
        while True:
            while index < len(self.kept):
                found, entry = self.kept[index]
                message = sub_message(found)[1]
                if found.type == kind and all(getattr(message, k) == v for k, v in fields.items()):
                    del self.kept[index]
                    return message, entry
                if found.type == BaseCommand.ERROR and message.request_id == fields.get("request_id"):
                    del self.kept[index]
                    raise Refused(message.error, message.message)
                index += 1
            try:
                self.kept.append(self._next(max(0.001, end - time.monotonic())))
            except TimeoutError:
                wanted = BaseCommand.Type.Name(kind)  # type: ignore[arg-type]
                raise TimeoutError(f"no {wanted} {fields}; there are {self.kept}") from None

    def take(self, kind: int, seconds: float = SECONDS, **fields: Any) -> Any:
        return self.take_frame(kind, seconds, **fields)[0]

    def barrier(self) -> None:
        """Returns when the broker has seen all that was sent; what it answered at once is kept."""
        self.send(command(BaseCommand.PING))
        self.take(BaseCommand.PONG)

    def count_kept(self, kind: int) -> int:
        """How many frames of a kind came that nobody asked for."""
        self.barrier()
        return sum(found.type == kind for found, _entry in self.kept)

    def expect_closed(self, seconds: float = SECONDS) -> None:
        """The broker closes the connection; what came before is kept."""
        end = time.monotonic() + seconds
        try:
            while (received := self.receive(max(0.001, end - time.monotonic()))) is not None:
                self.kept.append(received)
        except TimeoutError:
            raise AssertionError(f"still open; there are {self.kept}") from None

    # What is asked

    def ask(self, kind: int, answer: int, **fields: Any) -> Any:
        """A request; its answer.

        :raises Refused: it is an ERROR
        """
        request_id = next(self._ids)
        self.send(command(kind, request_id=request_id, **fields))
        return self.take(answer, request_id=request_id)

    def begin(self, kind: int, **fields: Any) -> int:
        """Sends a request and does not wait; its id."""
        request_id = next(self._ids)
        self.send(command(kind, request_id=request_id, **fields))
        return request_id

    def produce(self, topic: str, producer_id: int | None = None, **fields: Any) -> tuple[int, Any]:
        """A producer's id, and its PRODUCER_SUCCESS."""
        number = next(self._ids) if producer_id is None else producer_id
        if fields.get("producer_name"):
            fields.setdefault("user_provided_producer_name", True)
        return number, self.ask(
            BaseCommand.PRODUCER, BaseCommand.PRODUCER_SUCCESS, topic=topic, producer_id=number, **fields
        )

    def publish(self, producer_id: int, sequence_id: int, entry: bytes, **fields: Any) -> None:
        self.send(
            command(BaseCommand.SEND, producer_id=producer_id, sequence_id=sequence_id, **fields), entry
        )

    def published(self, producer_id: int, payloads: Sequence[bytes], batch: int = 0) -> list[tuple[int, int]]:
        """Publishes; where each is stored."""
        for index, payload in enumerate(payloads):
            fields = {"num_messages": batch} if batch else {}
            self.publish(producer_id, index, entry_of(payload, index, batch), **fields)
        where = []
        for index in range(len(payloads)):
            receipt = self.take(BaseCommand.SEND_RECEIPT, producer_id=producer_id)
            assert receipt.sequence_id == index
            where.append(position(receipt.message_id))
        return where

    def subscribe(
        self,
        topic: str,
        subscription: str,
        kind: CommandSubscribe.SubType.ValueType = CommandSubscribe.Exclusive,
        permits: int = 0,
        consumer_id: int | None = None,
        **fields: Any,
    ) -> int:
        """A consumer's id, once it is subscribed."""
        number = next(self._ids) if consumer_id is None else consumer_id
        fields.setdefault("initialPosition", CommandSubscribe.Earliest)
        fields.setdefault("consumer_name", f"c{number}")
        self.ask(
            BaseCommand.SUBSCRIBE,
            BaseCommand.SUCCESS,
            topic=topic,
            subscription=subscription,
            subType=kind,
            consumer_id=number,
            **fields,
        )
        if permits:
            self.flow(number, permits)
        return number

    def flow(self, consumer_id: int, permits: int) -> None:
        self.send(command(BaseCommand.FLOW, consumer_id=consumer_id, messagePermits=permits))

    def message(self, consumer_id: int, seconds: float = SECONDS) -> Received:
        """The next MESSAGE of a consumer and its payload, metadata cut off."""
        found, entry = self.take_frame(BaseCommand.MESSAGE, seconds, consumer_id=consumer_id)
        size = int.from_bytes(entry[6:10], "big")
        return found, entry[10 + size :]

    def messages(self, consumer_id: int, wanted: int) -> list[Received]:
        return [self.message(consumer_id) for _ in range(wanted)]

    def acknowledge(self, consumer_id: int, ids: Sequence[MessageIdData], *, cumulative: bool = False) -> Any:
        """ACK with a request id; its ACK_RESPONSE."""
        kind = CommandAck.Cumulative if cumulative else CommandAck.Individual
        return self.ask(
            BaseCommand.ACK,
            BaseCommand.ACK_RESPONSE,
            consumer_id=consumer_id,
            ack_type=kind,
            message_id=list(ids),
        )

    def redeliver(self, consumer_id: int, ids: Sequence[MessageIdData] = ()) -> None:
        self.send(
            command(
                BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=consumer_id, message_ids=list(ids)
            )
        )

    def close_consumer(self, consumer_id: int) -> None:
        self.ask(BaseCommand.CLOSE_CONSUMER, BaseCommand.SUCCESS, consumer_id=consumer_id)

    def close_producer(self, producer_id: int) -> None:
        self.ask(BaseCommand.CLOSE_PRODUCER, BaseCommand.SUCCESS, producer_id=producer_id)
