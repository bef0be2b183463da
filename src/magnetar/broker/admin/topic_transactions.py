"""The transactions of single topics and subscriptions, for operators."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import quote

from magnetar.broker.admin.topics import TopicAdmin
from magnetar.broker.ownership.contract import Asked
from magnetar.broker.ownership.peers import PeerRefused, ask_object
from magnetar.broker.service import BrokerService
from magnetar.broker.stats.topic_stats import ledger_stats
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.broker.topics.persistent import Topic
from magnetar.errors import (
    BrokerError,
    FeatureDisabled,
    NamespaceNotFound,
    NotFound,
    SubscriptionNotFound,
    TopicNotFound,
)
from magnetar.io.slices import gone_through
from magnetar.managed_ledger.acknowledged import WHOLE
from magnetar.managed_ledger.position import format_position
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar.broker.coordination.transaction import CoordinatedTransaction
    from magnetar.broker.transactions.pending_acks import Acked, PendingAcks
    from magnetar.io.interfaces import Io
    from magnetar.managed_ledger.managed_ledger import ManagedLedger

Json = dict[str, object]
REST = "/admin/v3/transactions"
_NEVER = {"recoverStartTime": 0, "recoverEndTime": 0}


class TopicTransactionAdmin:
    """Shows the transactions of topics; each partition is a topic. Topics are given by their full names.

    The methods with a parameter ``topic`` raise FeatureDisabled if transactions are disabled.
    """

    def __init__(self, broker: BrokerService, topics: TopicAdmin) -> None:
        self._broker = broker
        self._topics = topics

    # Messages

    async def buffer(self, topic: str, *, low_water: bool, segments: bool, aborted: bool) -> Json:
        """Returns ``TransactionBufferStats``: the state of the transactions that have published to a topic.

        :param low_water: add for each coordinator the sequence number up to which all transactions ended
        :param segments: add the segments of a segmented snapshot
        :param aborted: add both parts of the id of each aborted transaction (not in Apache Pulsar)
        :raises TopicNotFound: no such topic
        """
        found, snapshots = await self._topic(topic), self._broker.topics.snapshots
        known = found.transactions
        last = format_position(found.managed_ledger.max_read_position)
        stats: Json = {"state": "NoSnapshot" if known is None or not known.ready else "Ready"}
        stats["maxReadPosition"] = last
        stats["lastSnapshotTimestamps"] = 0 if known is None else known.snapshot_ms
        if low_water:
            stats["lowWaterMarks"] = {} if known is None else _texts(known.low_water)
        stats["ongoingTxnSize"] = 0 if known is None else len(known.open)
        stats |= _NEVER if known is None else _recovery(known.recovery_ms)
        stats["totalAbortedTransactions"] = 0 if known is None else len(known.aborted)
        if aborted:
            stats["abortedTransactions"] = [] if known is None else list(known.aborted)
        of_segments = None
        if snapshots is not None:
            ids = () if known is None else known.aborted
            of_segments = snapshots.segments(found.name, ids, each=segments)
        stats["snapshotType"] = "Single" if of_segments is None else "Segment"
        if of_segments is not None:
            stats["segmentsStats"] = of_segments
        return stats

    async def buffer_internal(self, topic: str, *, metadata: bool) -> Json:
        """Returns ``TransactionBufferInternalStats``: the system topics with the snapshots of a topic.

        :param metadata: add the metadata of each ledger
        :raises NotFound: transactions are disabled, or no topic of the namespace has had transactions
        :raises TopicNotFound: no such topic
        """
        snapshots = self._broker.topics.snapshots
        if snapshots is None:
            raise NotFound("Transaction buffer Snapshot for the topic does not exist")
        name = (await self._topic(topic)).name
        kinds = snapshots.system_topics(name.namespace_name)
        found: Json = {"snapshotType": "Single" if len(kinds) == 1 else "Segment"}
        for field, system in kinds.items():
            found[field] = await self._snapshot_topic(system, metadata=metadata)
        return found

    async def _snapshot_topic(self, name: TopicName, *, metadata: bool) -> Json:
        async def here() -> Json:
            return dict(await self._topics.internal_stats(str(name), metadata=metadata))

        try:
            path = f"{name.admin_path}/internalStats"
            found = await self._at_owner(name, here, path, {"metadata": "true"} if metadata else {})
        except TopicNotFound as error:
            raise NotFound("Transaction buffer Snapshot for the topic does not exist") from error
        return {"managedLedgerName": name.local, "managedLedgerInternalStats": found}

    async def in_buffer(self, topic: str, most: int, least: int) -> Json:
        """Returns ``TransactionInBufferStats``: the position of a transaction's first message in a topic.

        A transaction without messages in the topic is shown as not aborted.

        :param most: the most significant 64 bits of the transaction's id: the number of the coordinator
        :param least: the least significant 64 bits: the coordinator's sequence number

        :raises TopicNotFound: no such topic
        """
        known, txn = (await self._topic(topic)).transactions, (most, least)
        found: Json = {}
        if known is not None and txn in known.open:
            found["startPosition"] = format_position(known.open[txn])
        found["aborted"] = known is not None and txn in known.aborted
        return found

    # Acknowledgements

    async def pending_acks(self, topic: str, subscription: str, *, low_water: bool) -> Json:
        """Returns ``TransactionPendingAckStats``: the state of a subscription's pending acknowledgements.

        :param low_water: add for each coordinator the sequence number up to which all transactions ended
        :raises TopicNotFound: no such topic
        :raises SubscriptionNotFound: no such subscription
        """
        known = await self._pending(topic, subscription)
        stats: Json = {"state": "None" if known is None else "Ready"}
        if low_water:
            stats["lowWaterMarks"] = {} if known is None else _texts(known.low_water)
        stats["ongoingTxnSize"] = 0 if known is None else len(known.open())
        stats |= _NEVER if known is None else _recovery(known.recovery_ms)
        return stats

    async def pending_acks_internal(self, topic: str, subscription: str, *, metadata: bool) -> Json:
        """Returns ``TransactionPendingAckInternalStats``: the log of a subscription's pending
        acknowledgements.

        :param metadata: add the metadata of each ledger
        :raises TopicNotFound: no such topic
        :raises SubscriptionNotFound: no such subscription
        :raises NotFound: no transaction has acknowledged messages of the subscription
        """
        known = await self._pending(topic, subscription)
        if known is None:
            raise NotFound(
                f"No transaction has acknowledged messages of {subscription}, so it has no pending-ack log"
            )
        return {
            "pendingAckLogStats": await log_stats(
                self._broker.io, known.log.managed_ledger, metadata=metadata
            )
        }

    async def in_pending_acks(self, topic: str, subscription: str, most: int, least: int) -> Json:
        """Returns ``TransactionInPendingAckStats``: the position up to which a transaction acknowledges
        cumulatively.

        :param most: as for :meth:`in_buffer`, like ``least``

        :raises TopicNotFound: no such topic
        :raises SubscriptionNotFound: no such subscription
        """
        known = await self._pending(topic, subscription)
        if known is None or known.cumulative is None or known.cumulative[0] != (most, least):
            return {}
        return {"cumulativeAckPosition": _reached(known.cumulative[1])}

    async def position(
        self, topic: str, subscription: str, ledger_id: int, entry_id: int, batch_index: int | None
    ) -> Json:
        """Returns ``PositionInPendingAckStats``: whether a transaction acknowledges a message.

        :param batch_index: the index of the message in its batch; None: the whole entry
        :raises TopicNotFound: no such topic
        :raises SubscriptionNotFound: no such subscription
        """
        found = await self._subscription(topic, subscription)
        known = await found.topic.pending_acks.of(found, create=False)
        return {"state": _state(found, known, (ledger_id, entry_id), batch_index)}

    # Requests to the owners of topics

    async def ends(self, transaction: CoordinatedTransaction) -> Json:
        """Returns ``TransactionMetadata``, with the state of the transaction in its topics and subscriptions.

        Topics and subscriptions that no longer exist are left out. If a topic or subscription does not
        answer, ``error`` gives the reason (not in Apache Pulsar).
        """
        most, least = transaction.id
        produced: dict[str, Json] = {}
        for topic in list(transaction.partitions):
            here = partial(self.in_buffer, topic, most, least)
            produced[topic] = await self._told(topic, here, "transactionInBufferStats", f"{most}/{least}")
        acked: dict[str, dict[str, Json]] = {}
        for topic, name in list(transaction.subscriptions):
            here = partial(self.in_pending_acks, topic, name, most, least)
            rest = f"{quote(name, '')}/{most}/{least}"
            told = await self._told(topic, here, "transactionInPendingAckStats", rest)
            acked.setdefault(topic, {})[name] = told
        return {**transaction.described(), "producedPartitions": produced, "ackedPartitions": acked}

    async def _told(self, topic: str, here: Callable[[], Awaitable[Json]], what: str, rest: str) -> Json:
        try:
            name = TopicName.parse(topic)
            path = f"{REST}/{what}/{name.namespace_name}/{quote(name.local, '')}/{rest}"
            return await self._at_owner(name, here, path, {})
        except InvalidName:
            return {}
        except BrokerError as error:
            if error.http_status == HTTPStatus.NOT_FOUND:
                return {}
            return {"error": str(error)}

    async def _at_owner(
        self, name: TopicName, here: Callable[[], Awaitable[Json]], path: str, query: Mapping[str, str]
    ) -> Json:
        """Requests a topic's JSON at the topic's owner.

        :param here: makes the JSON if this broker is the owner
        :raises TopicNotFound: no such topic
        :raises ServiceNotReady: the owner cannot be determined or asked now
        """
        owner = await self._broker.lookups.owner_of(name, Asked.PLACE)
        if owner.here:
            return await here()
        try:
            return await ask_object(self._broker.beside, owner, path, query)
        except PeerRefused as error:
            if error.status == HTTPStatus.NOT_FOUND:
                raise TopicNotFound(str(error)) from error
            raise

    async def _topic(self, topic: str) -> Topic:
        """Returns a loaded topic.

        :raises TopicNotFound: no such topic, or a partitioned topic, which has no messages of its own
        :raises FeatureDisabled: transactions are disabled
        """
        if self._broker.settings.topic.transactions is None:
            raise transactions_disabled()
        try:
            return await self._topics.persistent(topic)
        except (NamespaceNotFound, TopicNotFound):
            raise TopicNotFound(f"Topic not found {topic}") from None

    async def _subscription(self, topic: str, name: str) -> Subscription:
        found = (await self._topic(topic)).subscriptions.get(name)
        if found is None:
            raise SubscriptionNotFound(f"Subscription {name} not found for topic {topic}")
        return found

    async def _pending(self, topic: str, name: str) -> PendingAcks | None:
        found = await self._subscription(topic, name)
        return await found.topic.pending_acks.of(found, create=False)


async def log_stats(io: Io, log: ManagedLedger, *, metadata: bool) -> Json:
    """Returns the name and the internal statistics of a log of transactions or pending acknowledgements.

    :param metadata: add the metadata of each ledger
    """
    stats = await gone_through(io, "statistics", ledger_stats(log, {}, metadata=metadata))
    return {"managedLedgerName": log.name, "managedLedgerInternalStats": stats}


def transactions_disabled() -> FeatureDisabled:
    return FeatureDisabled("This Broker is not configured with transactionCoordinatorEnabled=true.")


def _texts(numbers: Mapping[int, int]) -> Mapping[str, int]:
    return {str(number): least for number, least in numbers.items()}


def _recovery(times: tuple[int, int]) -> Mapping[str, int]:
    return {"recoverStartTime": times[0], "recoverEndTime": times[1]}


def _reached(acked: Acked) -> str:
    """Returns the position of a cumulative acknowledgement.

    For a batch that is acknowledged only in part, the index of the last acknowledged message is appended.
    """
    text = format_position(acked.position)
    if not acked.remaining:
        return text
    first_left = (acked.remaining & -acked.remaining).bit_length() - 1
    return f"{text}:{first_left - 1}"


def _state(
    subscription: Subscription, known: PendingAcks | None, position: tuple[int, int], index: int | None
) -> str:
    """Returns Pulsar's word for the state of a message: acknowledged, pending in a transaction, or
    neither."""
    if position <= subscription.cursor.mark_delete:
        return "MarkDelete"
    bits = 0 if known is None else known.bits_of(*position)
    if not bits:
        return "NotInPendingAck"
    if index is None:
        return "PendingAck"
    sizes = (
        [own[position].batch_size for own in known.individual.values() if position in own] if known else []
    )
    if bits == WHOLE or not 0 <= index < max(sizes, default=index + 1):
        return "InvalidPosition"
    return "PendingAck" if bits >> index & 1 else "NotInPendingAck"
