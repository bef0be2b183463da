"""Publishes a batch as one transaction (docs/decisions/036-spark-batches-as-transactions.md)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum

from magnetar.admin_client import AdminClient
from magnetar.admin_client.errors import AdminError, NotFound
from magnetar.client.aio import Client
from magnetar.client.coordinators import TransactionId
from magnetar.client.exceptions import (
    InvalidTxnStatusError,
    PulsarException,
    TransactionNotFound,
    TransactionOutcomeUnknown,
)
from magnetar.client.message_id import MessageId
from magnetar.client.producer import Producer
from magnetar.client.transactions import OpenTransaction
from magnetar.spark.errors import DataLoss, NotPublished
from magnetar.spark.options import QueryOptions
from magnetar.spark.writing.cutting import CutEntry
from magnetar.spark.writing.publishing import (
    SEQUENCE_BITS,
    TopicPublisher,
    gather,
    is_deleted,
    last_entry,
    publish_entries,
)
from magnetar.spark.writing.staging import Attempt, Manifest, Staging

__all__ = ["TransactionalBatch", "begin"]

_PATIENCE_SECONDS = 60.0
"""Maximum time in seconds to wait for the outcome of an earlier attempt."""
_LOOK_AGAIN_SECONDS = 0.2
_READ_MILLIS = 30_000
Ends = Mapping[str, tuple[int, int]]
"""(ledger id, entry id) of the last entry of each topic."""


class _Told(Enum):
    """The outcome of a transaction that its coordinator has forgotten, as the topics show it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    HIDDEN = "hidden"
    """Unknown, because an earlier transaction that is still open hides the entries."""
    GONE = "gone"
    """Unknown, because the entries were deleted."""


async def begin(client: Client, options: QueryOptions) -> OpenTransaction:
    """Begins a transaction.

    :raises NotPublished: the cluster has no transactions, or no coordinator answers
    """
    try:
        transaction = client.transaction(options.transaction_timeout_ms / 1000)
        return (await transaction.begin()).begun()
    except PulsarException as error:
        raise NotPublished(f"'delivery=transactional' cannot begin a transaction: {error}") from error


def _while_open(transaction: OpenTransaction, entries: Iterable[CutEntry]) -> Iterator[CutEntry]:
    """Yields the entries as long as the transaction is open; messages that are published after its end could
    hide later messages of the topic forever.

    :raises InvalidTxnStatusError: the transaction has timed out
    """
    for entry in entries:
        transaction.check_open()
        yield entry


class TransactionalBatch:
    """A batch that is published as one transaction; earlier executions of the query may have published it."""

    def __init__(
        self, client: Client, options: QueryOptions, staging: Staging, admin: AdminClient, batch_id: int
    ) -> None:
        self._client = client
        self._options = options
        self._staging = staging
        self._admin = admin
        self._batch_id = batch_id

    async def is_committed(self) -> bool:
        """Returns whether an earlier attempt was committed; if the last attempt is still open, first commits
        or aborts it.

        :raises NotPublished: the outcome is not known yet; call again later
        :raises DataLoss: the outcome can no longer be determined
        """
        attempt = self._staging.last_attempt(self._batch_id)
        if attempt is None:
            return False
        transaction = TransactionId(attempt.most, attempt.least)
        coordinators = self._client.services.transaction_coordinators()
        until = time.monotonic() + _PATIENCE_SECONDS
        while True:
            ends = self._staging.commits(self._batch_id, attempt)
            try:
                await coordinators.end(transaction, commit=ends is not None)
                return ends is not None
            except TransactionNotFound:
                # Another driver may have recorded the commit since, and committed.
                ends = self._staging.commits(self._batch_id, attempt)
                told = await self._told(attempt, ends) if ends is not None else _Told.ABORTED
                if told is not _Told.HIDDEN:
                    return told is _Told.COMMITTED
                why = "another open transaction hides its messages"
            except InvalidTxnStatusError as error:
                if ends is not None:
                    return False
                why = f"another run of this query commits it: {error}"
            except TransactionOutcomeUnknown as error:
                why = str(error)
            except PulsarException as error:
                raise NotPublished(f"{self._name(attempt)} cannot be ended: {error}") from error
            if time.monotonic() > until:
                raise NotPublished(f"the outcome of {self._name(attempt)} is not known yet: {why}")
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    async def publish(
        self, transaction: OpenTransaction, manifest: Manifest, producers: Mapping[str, Producer], base: int
    ) -> None:
        """Publishes and commits the batch; returns when the commit is effective on all topics.

        :param transaction: a new transaction
        :param producers: producers for all topics of the batch
        :param base: the first sequence id of the batch
        :raises NotPublished: the batch is not published, or the outcome is unknown; a repeated call of
            :func:`magnetar.spark.writing.committing.commit` continues
        """
        last = self._staging.last_attempt(self._batch_id)
        number = last.number + 1 if last is not None else 0
        first = base + number * manifest.rows
        self._check_sequence(first, manifest, base, producers)
        attempt = Attempt(number, *transaction.id, self._ends(producers))
        if not self._staging.begin_attempt(self._batch_id, attempt):
            raise NotPublished(f"batch {self._batch_id} is being published by another run of this query")
        try:
            await gather([transaction.add_topic(topic) for topic in producers])
            publishers = {
                topic: TopicPublisher(producer, first, -1, transaction)
                for topic, producer in producers.items()
            }
            await publish_entries(_while_open(transaction, self._staging.entries(manifest)), publishers)
            ends = self._ends(producers)
            transaction.check_open()
            self._staging.decide_commit(self._batch_id, attempt, ends)
            await transaction.commit()
        except TransactionOutcomeUnknown as error:
            if not await self.is_committed():
                raise self._failure(attempt, transaction, error) from error
        except (PulsarException, NotPublished) as error:
            raise self._failure(attempt, transaction, error) from error

    def _failure(self, attempt: Attempt, transaction: OpenTransaction, error: Exception) -> NotPublished:
        late = f"; it took longer than {self._options.transaction_timeout_ms} ms ('transactionTimeoutMs')"
        return NotPublished(
            f"{self._name(attempt)} is not committed: {error}{late if transaction.is_over else ''}"
        )

    def _check_sequence(
        self, first: int, manifest: Manifest, base: int, producers: Mapping[str, Producer]
    ) -> None:
        if first + manifest.rows > base + (1 << SEQUENCE_BITS):
            raise NotPublished(
                f"batch {self._batch_id} of {manifest.rows} rows has been tried so often that its sequence "
                f"ids are used up. Nothing of it is published: empty {self._staging.folder} and set "
                "'newStaging' to true"
            )
        for topic, producer in producers.items():
            known = producer.last_sequence_id()
            if known >= first:
                raise NotPublished(
                    f"{topic}: {manifest.producer} has published up to sequence id {known}, so that the "
                    f"broker would drop batch {self._batch_id}, which begins at {first}; files of "
                    f"{self._staging.folder} were removed while the query was running"
                )

    def _ends(self, topics: Mapping[str, object]) -> dict[str, tuple[int, int]]:
        return {topic: last_entry(self._admin.topic_internal_stats(topic)) for topic in topics}

    async def _told(self, attempt: Attempt, ends: Ends) -> _Told:
        """Returns the outcome of a forgotten transaction, as the topics show it: COMMITTED, ABORTED or
        HIDDEN.

        :raises DataLoss: every topic has deleted the entries, so the outcome is unknown
        """
        found = []
        for topic, end in sorted(ends.items()):
            try:
                told = await self._told_by(topic, attempt, end)
            except (AdminError, PulsarException) as error:
                raise NotPublished(f"{topic}: {self._name(attempt)} cannot be looked up: {error}") from error
            if told in (_Told.COMMITTED, _Told.ABORTED):
                return told
            found.append(told)
        if _Told.HIDDEN in found:
            return _Told.HIDDEN
        raise DataLoss(
            f"{self._name(attempt)} may have been committed: its coordinator has forgotten it, and "
            f"{', '.join(sorted(ends))} deleted the ledgers with its messages"
        )

    async def _told_by(self, topic: str, attempt: Attempt, end: tuple[int, int]) -> _Told:
        behind = attempt.behind[topic]
        try:
            # Asked before reading: what is visible by then is read.
            visible = self._admin.visible_end(topic)
            # Open in the topic although its coordinator has forgotten it: the last messages arrived after the
            # end. A commit is recorded after all receipts, so that it was an abort.
            if self._admin.is_open_or_aborted(topic, (attempt.most, attempt.least)):
                return _Told.ABORTED
        except NotFound:
            return _Told.GONE
        start = MessageId(-1, *behind) if behind[0] >= 0 else MessageId.earliest
        reader = await self._client.create_reader(topic, start)
        try:
            while await reader.has_message_available():
                entry = await reader.read_next_entry(_READ_MILLIS)
                if (entry.ledger_id, entry.entry_id) > end:
                    break
                metadata = entry.metadata
                is_of_one = metadata.HasField("txnid_most_bits") and metadata.HasField("txnid_least_bits")
                ids = (metadata.txnid_most_bits, metadata.txnid_least_bits)
                if is_of_one and ids == (attempt.most, attempt.least):
                    return _Told.COMMITTED
        finally:
            await reader.close()
        if is_deleted(behind[0], self._admin.topic_internal_stats(topic)):
            return _Told.GONE
        return _Told.ABORTED if visible is not None and visible >= end else _Told.HIDDEN

    def _name(self, attempt: Attempt) -> str:
        return f"transaction ({attempt.most},{attempt.least}) of batch {self._batch_id}"
