"""Publishes entries. The entries of a fixed batch get sequence ids, so that each entry is stored once;
entries that tasks publish directly are stored at least once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from magnetar.client import client as core
from magnetar.client.aio import Client
from magnetar.client.exceptions import IncompatibleSchema, ProducerBusy, PulsarException
from magnetar.client.message_id import MessageId
from magnetar.client.outgoing_message import PreparedEntry
from magnetar.client.producer import Producer
from magnetar.client.schema import ProducerSchema
from magnetar.client.transactions import OpenTransaction
from magnetar.io.real.loop_thread import LoopThread
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata
from magnetar.spark.codec.schemas import NOTHING, Definition
from magnetar.spark.errors import InvalidRows, NotPublished
from magnetar.spark.ledgers import parsed_position
from magnetar.spark.options import QueryOptions
from magnetar.spark.writing.cutting import CutEntry

__all__ = [
    "DirectPublisher",
    "TopicPublisher",
    "open_producer",
]
SEQUENCE_BITS = 32
"""A sequence id of 63 bits consists of the batch id and, in this number of low bits, the number of the
message in the batch.
"""
WINDOW_BYTES = 8 << 20
"""For each topic: maximum total size of the payloads without a receipt, in bytes."""
_PENDING_ENTRIES = 1000
_FORMER_SECONDS = 30.0
"""Maximum time in seconds to wait until a broker notices that the producer of a killed driver is gone, and
frees the producer's name.
"""
_LOOK_AGAIN_SECONDS = 0.2
_PRODUCER_ARGUMENTS = ("send_timeout_millis",)


async def open_producer(
    client: core.Client, options: QueryOptions, topic: str, name: str | None, schema: Definition
) -> Producer:
    """Opens a producer on a topic without partitions, or on one partition.

    :param name: the name of the producer; None: the broker chooses a name
    :param schema: the schema to declare; with the schema of bytes, the producer declares no schema
    :raises InvalidRows: the declared schema is not compatible with the topic's schema
    :raises NotPublished: the broker refused the producer, or another producer has the name ``name``
    """
    arguments: dict[str, Any] = {
        key: options.producer[key] for key in _PRODUCER_ARGUMENTS if key in options.producer
    }
    if schema != NOTHING:
        arguments["schema"] = ProducerSchema(schema.kind, schema.text)
    until = time.monotonic() + _FORMER_SECONDS
    while True:
        try:
            made = await client.create_producer(
                topic, producer_name=name, max_pending_messages=_PENDING_ENTRIES, **arguments
            )
            break
        except IncompatibleSchema as error:
            raise InvalidRows(f"{topic} does not accept the schema of these rows: {error}") from error
        except ProducerBusy as error:
            if time.monotonic() > until:
                raise NotPublished(f"another run of this query publishes to {topic}: {error}") from error
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        except PulsarException as error:
            raise NotPublished(f"cannot publish to {topic}: {error}") from error
    if not isinstance(made, Producer):
        await made.close()
        raise NotPublished(f"{topic} has become a partitioned topic since its rows were staged")
    return made


class TopicPublisher:
    """Assigns sequence ids to entries of one topic, and waits for their receipts."""

    def __init__(
        self,
        producer: Producer,
        first_sequence_id: int,
        known: int,
        transaction: OpenTransaction | None = None,
    ) -> None:
        """:param first_sequence_id: sequence id of the first message

        :param known: the highest sequence id that is already published; messages up to this sequence id are
            skipped
        :param transaction: the transaction of the messages; the topic must be registered at its coordinator.
            None: no transaction
        """
        self._transaction = transaction
        self._ids = b""
        if transaction is not None:
            most, least = transaction.id
            ids = MessageMetadata(txnid_most_bits=most, txnid_least_bits=least)
            self._ids = ids.SerializePartialToString()
        self._producer = producer
        self._next = first_sequence_id
        self._known = known
        self._pending = 0
        self._bytes = 0
        self._error: PulsarException | None = None
        self._moved: asyncio.Event = asyncio.Event()
        self.left_out = 0
        """Number of messages that were skipped, because they were published before."""

    async def put(self, entry: CutEntry) -> None:
        """Publishes an entry; first waits while more than :data:`WINDOW_BYTES` have no receipt.

        :raises NotPublished: this entry or an earlier one was not accepted
        """
        first = self._next
        highest = first + entry.count - 1
        self._next = highest + 1
        if highest <= self._known:
            self.left_out += entry.count
            return
        if first <= self._known:
            raise NotPublished(
                f"{self._producer.topic()}: {self._producer.producer_name()} has published up to sequence "
                f"id {self._known}, in the middle of a staged entry ({first} to {highest})"
            )
        while self._bytes > WINDOW_BYTES or self._pending >= _PENDING_ENTRIES:
            await self._wait()
        self._check()
        metadata = entry.metadata + self._ids
        if entry.count > 1:
            metadata += MessageMetadata(highest_sequence_id=highest).SerializePartialToString()
        size = len(entry.payload)

        def done(message_id: MessageId | None, error: PulsarException | None) -> None:
            self._bytes -= size
            self._pending -= 1
            self._error = self._error or error
            self._moved.set()

        self._bytes += size
        self._pending += 1
        try:
            self._producer.enqueue_prepared(
                PreparedEntry(first, highest, entry.count, metadata, entry.payload, self._transaction), done
            )
        except PulsarException as error:
            raise NotPublished(f"{self._producer.topic()}: {error}") from error

    async def finish(self) -> None:
        """Waits for all receipts.

        :raises NotPublished: an entry was not accepted
        """
        while self._pending:
            await self._wait()
        self._check()

    async def _wait(self) -> None:
        self._check()
        self._moved.clear()
        await self._moved.wait()

    def _check(self) -> None:
        if self._error is not None:
            raise NotPublished(f"{self._producer.topic()}: {self._error}") from self._error


async def publish_entries(entries: Iterable[CutEntry], publishers: Mapping[str, TopicPublisher]) -> None:
    """Publishes entries, and waits for all receipts.

    :param publishers: publishers by topic
    :raises NotPublished: an entry was not accepted
    """
    for entry in entries:
        await publishers[entry.topic].put(entry)
    for publisher in publishers.values():
        await publisher.finish()


def last_entry(internal_stats: Mapping[str, object]) -> tuple[int, int]:
    """Returns (ledger id, entry id) of a topic's last entry; the entry id is -1 if the last ledger is
    empty.
    """
    return parsed_position(internal_stats["lastConfirmedEntry"])


def is_deleted(ledger_id: int, internal_stats: Mapping[str, Any]) -> bool:
    """Returns whether a ledger of a topic was deleted.

    :param ledger_id: the id of the ledger; -1: the topic had no ledger
    """
    kept = [int(each["ledgerId"]) for each in internal_stats["ledgers"]]
    return ledger_id >= 0 and (not kept or ledger_id < min(kept))


async def gather(work: Sequence[Awaitable[object]]) -> list[Any]:
    """Awaits all ``work`` and returns the results in order; after failures, waits for the end of all work,
    and raises the first failure.
    """
    results = await asyncio.gather(*work, return_exceptions=True)
    for each in results:
        if isinstance(each, BaseException):
            raise each
    return list(results)


def run(options: QueryOptions, work: Callable[[Client], Awaitable[None]]) -> None:
    """Runs ``work`` with a client in a new event loop; blocks the calling thread."""

    async def all_of_it() -> None:
        client = Client(options.service_url, **options.client)
        try:
            await work(client)
        finally:
            await client.close()

    asyncio.run(all_of_it())


class DirectPublisher:
    """A blocking publisher. Its connections run in a separate thread, so that they stay alive while rows
    arrive slowly.
    """

    def __init__(self, options: QueryOptions) -> None:
        self._options = options
        self._thread = LoopThread("spark")
        self._publishers: dict[str, TopicPublisher] = {}
        self._client: core.Client | None = None

    def partitions(self, topic: str) -> int:
        """Returns the number of a topic's partitions; 0: the topic is not partitioned."""
        return self._thread.run(self._partitions(topic))

    def publish(self, entries: Iterable[CutEntry]) -> None:
        """Publishes entries; returns when all are sent. Up to about :data:`WINDOW_BYTES` of each topic may
        have no receipt yet.

        :raises NotPublished: the cluster does not accept an entry
        """
        self._thread.run(self._publish(entries))

    def finish(self) -> None:
        """Waits for the receipts of all entries.

        :raises NotPublished: the cluster does not accept an entry
        """
        self._thread.run(self._finish())

    async def _opened(self) -> core.Client:
        if self._client is None:
            self._client = Client(self._options.service_url, **self._options.client)
        return self._client

    async def _partitions(self, topic: str) -> int:
        return await (await self._opened()).partitions(topic)

    async def _publish(self, entries: Iterable[CutEntry]) -> None:
        client = await self._opened()
        for entry in entries:
            publisher = self._publishers.get(entry.topic)
            if publisher is None:
                producer = await open_producer(client, self._options, entry.topic, None, entry.schema)
                publisher = self._publishers[entry.topic] = TopicPublisher(producer, 0, -1)
            await publisher.put(entry)

    async def _finish(self) -> None:
        for publisher in self._publishers.values():
            await publisher.finish()

    async def _close(self) -> None:
        if self._client is not None:
            await self._client.close()

    def __enter__(self) -> DirectPublisher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._thread.run(self._close())
        finally:
            self._thread.close()
