"""Publishes a batch exactly once: first decides which staged files the batch consists of, then publishes all
of them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from magnetar.admin_client import AdminClient
from magnetar.admin_client.errors import AdminError
from magnetar.client.aio import Client
from magnetar.client.enums import TransactionState
from magnetar.client.exceptions import PulsarException
from magnetar.client.message_id import MessageId
from magnetar.client.producer import Producer
from magnetar.naming.topic_name import TopicName
from magnetar.spark.codec.schemas import NOTHING, Definition
from magnetar.spark.connection import Connection
from magnetar.spark.errors import DataLoss, DeduplicationIsOff, NotPublished
from magnetar.spark.options import QueryOptions
from magnetar.spark.writing.publishing import (
    SEQUENCE_BITS,
    TopicPublisher,
    gather,
    is_deleted,
    last_entry,
    open_producer,
    publish_entries,
    run,
)
from magnetar.spark.writing.staging import Manifest, StagedFile, Staging
from magnetar.spark.writing.transactional import TransactionalBatch, begin

__all__ = [
    "commit",
    "switch_on",
]
_READ_MILLIS = 30_000
_WAIT_SECONDS = 30.0
_LOOK_AGAIN_SECONDS = 0.1


def commit(options: QueryOptions, staging: Staging, batch_id: int, files: Sequence[StagedFile]) -> None:
    """Publishes a batch; on return, each message is in its topic exactly once. The call can be repeated for
    the same batch after any failure; all calls publish the files that the first call decided on.

    :raises StagingDamaged: staged files are missing or damaged
    :raises DeduplicationIsOff: a topic does not deduplicate messages
    :raises NotPublished: the cluster does not accept messages; a repeated call continues the publishing
    :raises DataLoss: it cannot be determined what an earlier attempt has published
    """
    if staging.published(batch_id):
        return
    decided = staging.manifest(batch_id)
    if decided is None and not files:
        if _may_begin(options, batch_id):
            # The first batch may have no rows; later ones must find that the query has started here.
            staging.producer(may_begin=True)
        return
    with Connection(options) as connection:
        work = _Commit(options, staging, connection.admin)
        run(options, lambda client: work.publish(client, batch_id, decided, files))


def _may_begin(options: QueryOptions, batch_id: int) -> bool:
    """Whether the staging folder may get a new producer name: for the first batch, because no message can
    have been published under an earlier name, or if the option for a new staging folder permits it.
    """
    return batch_id == 0 or options.new_staging


class _Commit:
    def __init__(self, options: QueryOptions, staging: Staging, admin: AdminClient) -> None:
        self._options = options
        self._staging = staging
        self._admin = admin

    async def publish(
        self, client: Client, batch_id: int, decided: Manifest | None, files: Sequence[StagedFile]
    ) -> None:
        by_option = self._options.delivery == "transactional"
        if decided.transactional if decided is not None else by_option:
            await self._in_transaction(client, batch_id, decided, files)
        else:
            await self._one_by_one(client, batch_id, decided, files)

    async def _one_by_one(
        self, client: Client, batch_id: int, before: Manifest | None, files: Sequence[StagedFile]
    ) -> None:
        decided, producers = await self._decided(client, batch_id, before, files, transactional=False)
        base = batch_id << SEQUENCE_BITS
        publishers = {}
        for topic, producer in producers.items():
            known = producer.last_sequence_id()
            if known < 0 and before is not None:
                known = await self._found(client, topic, decided, base)
            publishers[topic] = TopicPublisher(producer, base, known)
        await publish_entries(self._staging.entries(decided), publishers)
        self._staging.publish_is_done(decided)

    async def _in_transaction(
        self, client: Client, batch_id: int, before: Manifest | None, files: Sequence[StagedFile]
    ) -> None:
        batch = TransactionalBatch(client, self._options, self._staging, self._admin, batch_id)
        if before is not None and await batch.is_committed():
            self._staging.publish_is_done(before)
            return
        # Before anything is decided: in a cluster without transactions the batch stays replaceable.
        transaction = await begin(client, self._options)
        try:
            decided, producers = await self._decided(client, batch_id, before, files, transactional=True)
            await batch.publish(transaction, decided, producers, batch_id << SEQUENCE_BITS)
        finally:
            if transaction.state is TransactionState.OPEN:
                await transaction.abort_quietly()
        self._staging.publish_is_done(decided)

    async def _decided(
        self,
        client: Client,
        batch_id: int,
        decided: Manifest | None,
        files: Sequence[StagedFile],
        *,
        transactional: bool,
    ) -> tuple[Manifest, dict[str, Producer]]:
        """Fixes the files of the batch, unless they are already fixed, and checks the files; returns the
        manifest that names the files, and the producers by topic.

        :param decided: the manifest that already fixes the files; None: the files are not fixed yet
        :param files: the files that tasks have staged; used only if ``decided`` is None
        :raises NotPublished: another process has just fixed the files
        """
        may_begin = _may_begin(self._options, batch_id)
        name = decided.producer if decided is not None else self._staging.producer(may_begin=may_begin)
        staged = decided.files if decided is not None else files
        topics = sorted({topic for each in staged for topic in each.topics})
        schemas = _schemas(staged)
        producers = await self._producers(
            client, {topic: schemas.get(topic, NOTHING) for topic in topics}, name
        )
        if decided is not None:
            self._staging.check(decided)
            return decided, producers
        _check_sizes(producers, files)
        behind = {topic: last_entry(self._admin.topic_internal_stats(topic)) for topic in topics}
        wanted = Manifest(batch_id, name, tuple(files), behind, transactional)
        self._staging.check(wanted)
        decided, is_new = self._staging.decide(wanted)
        if not is_new:
            # Another process has fixed the batch, and may be publishing it.
            raise NotPublished(f"batch {batch_id} is being published by another run of this query")
        return decided, producers

    async def _producers(
        self, client: Client, topics: Mapping[str, Definition], name: str
    ) -> dict[str, Producer]:
        """Opens producers with the given name for all topics, which must have deduplication; each producer
        knows its last stored sequence id.
        """
        opening = [
            open_producer(client, self._options, topic, name, schema) for topic, schema in topics.items()
        ]
        producers = dict(zip(topics, await gather(opening), strict=True))
        for topic, schema in topics.items():
            if switch_on(self._admin, topic, self._options.deduplication):
                await producers[topic].close()
                producers[topic] = await open_producer(client, self._options, topic, name, schema)
        return producers

    async def _found(self, client: Client, topic: str, manifest: Manifest, base: int) -> int:
        """Returns the highest of a batch's sequence ids that a topic contains; -1 if the topic contains no
        message of the batch. Called only if the broker has forgotten the producer.

        :param base: the first sequence id of the batch
        :raises DataLoss: entries that could be of the batch were deleted
        """
        ledger_id, entry_id = manifest.behind[topic]
        if is_deleted(ledger_id, self._admin.topic_internal_stats(topic)):
            raise DataLoss(
                f"{topic}: batch {manifest.batch_id} may have been published in part by "
                f"{manifest.producer}, after {ledger_id}:{entry_id}; the broker has forgotten that "
                f"producer and has deleted ledger {ledger_id}, so it is unknown which messages were published"
            )
        highest = -1
        try:
            start = MessageId(-1, ledger_id, entry_id) if ledger_id >= 0 else MessageId.earliest
            reader = await client.create_reader(topic, start)
            while await reader.has_message_available():
                metadata = (await reader.read_next_entry(_READ_MILLIS)).metadata
                if metadata.producer_name == manifest.producer and metadata.sequence_id >= base:
                    highest = max(highest, metadata.sequence_id, metadata.highest_sequence_id)
            await reader.close()
        except PulsarException as error:
            raise NotPublished(f"{topic}: the published part of the batch cannot be read: {error}") from error
        return highest


def _schemas(files: Sequence[StagedFile]) -> dict[str, Definition]:
    """Returns the declared schema of each topic.

    :raises NotPublished: two tasks have found different schemas of a topic, because the schema changed
        meanwhile
    """
    found: dict[str, Definition] = {}
    for each in files:
        for topic, definition in each.definitions().items():
            if found.setdefault(topic, definition) != definition:
                raise NotPublished(
                    f"the schema of {topic} changed while rows were written with it; run the query again"
                )
    return found


def _check_sizes(producers: dict[str, Producer], files: Sequence[StagedFile]) -> None:
    """Checks before the batch is fixed that brokers accept the size of its messages; a later attempt can then
    still replace the batch.
    """
    for each in files:
        for topic in each.topics:
            limit = producers[topic].max_message_size
            if each.largest > limit:
                raise NotPublished(
                    f"a message for {topic} may be as large as {each.largest} bytes; its broker accepts "
                    f"at most {limit}; raise maxMessageSize, or write smaller rows"
                )


def switch_on(admin: AdminClient, topic: str, mode: str) -> bool:
    """Ensures that deduplication is on for a loaded topic; returns True if it was off before.

    :param mode: ``auto``: enable deduplication if it is off; ``require``: raise an error if it is off
    :raises DeduplicationIsOff: deduplication is off, and enabling it is not permitted or failed
    """
    if _is_on(admin, topic):
        return False
    name = TopicName.parse(topic).base
    command = f"pulsar-admin topicPolicies set-deduplication --enable {name}"
    if mode == "require":
        raise DeduplicationIsOff(f"{topic} does not deduplicate; run: {command}")
    try:
        admin.set_topic_deduplication(str(name), True)
    except AdminError as error:
        raise DeduplicationIsOff(
            f"{topic} does not deduplicate, and deduplication cannot be enabled for it ({error}); run: "
            f"{command}, or: pulsar-admin namespaces set-deduplication --enable {name.namespace_name}"
        ) from error
    end = time.monotonic() + _WAIT_SECONDS
    while not _is_on(admin, topic):
        if time.monotonic() > end:
            raise DeduplicationIsOff(
                f"{topic} still does not deduplicate {_WAIT_SECONDS:g} s after deduplication was enabled"
            )
        time.sleep(_LOOK_AGAIN_SECONDS)
    return True


def _is_on(admin: AdminClient, topic: str) -> bool:
    stats: dict[str, object] = admin.topic_stats(topic)
    return stats.get("deduplicationStatus") == "Enabled"
