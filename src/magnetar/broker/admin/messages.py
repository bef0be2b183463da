"""Administration of single messages: peeking, reading by position, and read plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from magnetar.broker.admin.topics import TopicAdmin
from magnetar.broker.service import BrokerService
from magnetar.broker.topics.entries import iso_time
from magnetar.broker.topics.persistent import Topic
from magnetar.errors import (
    InvalidRequest,
    NotAllowed,
    NotFound,
    NotSupported,
    PreconditionFailed,
    SubscriptionNotFound,
    TooManyRequests,
)
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.interface import NoSuchReadPlan, PlannedRange, TooManyReadPlans
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import Position
from magnetar.metadata.interface import Node
from magnetar.naming.topic_name import TopicName, encode_path_piece

if TYPE_CHECKING:
    from magnetar.ledger.embedded.ledger_reader import EmbeddedReadPlans


Json = Mapping[str, object]
_DEFAULT_SECONDS = 600


@dataclass(frozen=True, slots=True)
class ExaminedEntry:
    """An entry as stored, and whether transactions hide it from consumers."""

    position: Position
    entry: bytes
    uncommitted: bool = False
    """Whether an open transaction hides the entry: the entry's transaction, or one that began before the
    entry.
    """
    aborted: bool = False
    """Whether the message belongs to an aborted transaction."""


class MessageAdmin:
    """Reads single messages of topics. Topics are given by their full names. Entries are returned as
    stored.
    """

    def __init__(self, broker: BrokerService, topics: TopicAdmin) -> None:
        self._broker = broker
        self._topics = topics
        self._metadata = broker.metadata

    async def _topic(self, topic: str, what: str) -> Topic:
        if await self._broker.namespaces.partitions(self._broker.parse_topic(topic)):
            raise NotAllowed(f"{what} on a partitioned topic is not allowed")
        return await self._topics.persistent(topic)

    async def peek(self, topic: str, subscription: str, number: int) -> ExaminedEntry:
        """Returns the ``number``-th entry (1, 2, …) that a subscription has not acknowledged.

        :raises SubscriptionNotFound: no such subscription
        :raises NotFound: fewer entries are unacknowledged
        :raises NotAllowed: the topic is partitioned
        """
        found = await self._topic(topic, "Peek messages")
        cursor = found.subscriptions.get(subscription)
        if cursor is None:
            raise SubscriptionNotFound(f"Subscription {subscription} not found for topic {topic}")
        if not 0 < number <= cursor.cursor.backlog():
            raise NotFound("Message not found")
        return await _read(found, cursor.cursor.nth_unconsumed(number))

    async def by_id(self, topic: str, position: Position) -> ExaminedEntry:
        """Returns the entry at a position of a topic.

        :raises NotFound: no entry is stored at the position
        :raises NotAllowed: the topic is partitioned
        """
        found = await self._topic(topic, "Get message by id")
        ledger = found.managed_ledger
        if not ledger.ledgers.exists(position) or position > ledger.last_confirmed:
            raise NotFound("Message id not found")
        return await _read(found, position)

    async def examine(self, topic: str, number: int, *, earliest: bool) -> ExaminedEntry:
        """Returns the ``number``-th entry (1, 2, …), counted from the first or back from the last entry of a
        topic.

        :param earliest: count from the first entry
        :raises PreconditionFailed: the topic is empty
        :raises InvalidRequest: the topic has fewer entries
        :raises NotAllowed: the topic is partitioned
        """
        found = await self._topic(topic, "Examine messages")
        ledger = found.managed_ledger
        before = (ledger.ledgers.first_id(), -1)
        count = ledger.ledgers.entries_after(before)
        if not count:
            raise PreconditionFailed("Could not examine messages due to the total message is zero")
        if not 0 < number <= count:
            raise InvalidRequest(f"Message {number} does not exist: use a number from 1 to {count}")
        return await _read(
            found, ledger.ledgers.nth_after(before, number if earliest else count - number + 1)
        )

    async def stored(self, topic: str) -> Json:
        """Returns ``PartitionedManagedLedgerInfo``: the stored metadata of a topic, or of each partition.

        :raises TopicNotFound: no such topic
        """
        found, _ = await self._topics.of_each(topic, self._stored, "/internal-info")
        own = found.get(str(self._broker.parse_topic(topic)))
        return {"version": 0, "partitions": found} if own is None else own

    async def _stored(self, name: TopicName) -> Json:
        ledger = (await self._broker.topics.persistent_topic(name)).managed_ledger
        ledgers = []
        for summary in ledger.ledgers:
            line: dict[str, object] = {"ledgerId": summary.ledger_id}
            if summary.closed_ms:
                line.update(entries=summary.entries, size=summary.size, timestamp=summary.closed_ms)
            offload = summary.offload
            line["isOffloaded"] = offload is not None and offload.complete
            if offload is not None:
                line["offloadedContextUuid"] = str(offload.uuid)
            ledgers.append(line)
        info: dict[str, object] = {**_times(await self._metadata.get(ledger.path)), "ledgers": ledgers}
        if ledger.terminated is not None:
            info["terminatedPosition"] = _position(ledger.terminated)
        info["cursors"] = {
            name: await self._cursor(ledger, cursor)
            for name, cursor in ledger.cursors.items()
            if cursor.durable
        }
        if ledger.properties:
            info["properties"] = dict(ledger.properties)
        return info

    async def _cursor(self, ledger: ManagedLedger, cursor: Cursor) -> Json:
        node = await self._metadata.get(f"{ledger.path}/{encode_path_piece(cursor.name)}")
        return {
            **_times(node),
            "cursorsLedgerId": cursor.storage.ledger_id if cursor.storage is not None else -1,
            "markDelete": _position(cursor.mark_delete),
        }


async def _read(topic: Topic, position: Position) -> ExaminedEntry:
    ledger, known = topic.managed_ledger, topic.transactions
    entry = (await ledger.reader.read_one(position)).entry(0)
    aborted = known is not None and known.hides(entry)
    return ExaminedEntry(position, entry, position > ledger.max_read_position, aborted)


def _position(position: Position) -> Json:
    return {"ledgerId": position[0], "entryId": position[1]}


def _times(node: Node | None) -> Json:
    if node is None:
        return {"version": 0}
    return {
        "version": node.version,
        "creationDate": iso_time(node.created_ms),
        "modificationDate": iso_time(node.modified_ms),
    }


class ReadPlanAdmin:
    """Read plans: which files hold a topic, for readers on the same machine or on a shared file system.

    A plan's id cannot be guessed. A client that knows the id may extend and release the plan.
    """

    def __init__(self, broker: BrokerService, topics: TopicAdmin) -> None:
        self._broker = broker
        self._topics = topics

    async def make(self, topic: str, start: Position, end: Position | None, seconds: int | None) -> Json:
        """Makes a plan: the files with the entries from ``start`` up to but not including ``end``.

        ``abortedTransactions``, if present, are transactions whose entries readers must leave out.

        :param end: the position after the last entry; None: the end of the readable entries
        :param seconds: how long the files are kept; None: the default time
        :raises TopicNotFound: no such topic
        :raises NotAllowed: the topic is partitioned; each partition is a topic and has plans
        :raises NotSupported: the ledger store has no files to read, or the settings forbid read plans
        :raises InvalidRequest: ``seconds`` is out of range
        :raises TooManyRequests: too many plans are held
        """
        plans, held = self._plans(), self._seconds(seconds)
        if await self._broker.namespaces.partitions(self._broker.parse_topic(topic)):
            raise NotAllowed(f"{topic} is partitioned: make a read plan for each partition")
        found = await self._topics.persistent(topic)
        ledger, known = found.managed_ledger, found.transactions
        try:
            plan = plans.make(_ranges(ledger, start, end), held)
        except TooManyReadPlans as error:
            raise TooManyRequests(str(error)) from error
        told: dict[str, object] = {"id": plan.plan_id, "seconds": held}
        told["ranges"] = [_range(part) for part in plan.ranges]
        if known is not None and known.aborted:
            told["abortedTransactions"] = list(known.aborted)
        return told

    def prolong(self, plan_id: str, seconds: int | None) -> Json:
        """Keeps the plan's files for ``seconds`` from now on; returns the plan's id and the seconds.

        :param seconds: how long the files are kept; None: the default time
        :raises NotFound: the plan was released or has expired
        :raises InvalidRequest: ``seconds`` is out of range
        """
        held = self._seconds(seconds)
        try:
            self._plans().prolong(plan_id, held)
        except NoSuchReadPlan as error:
            raise NotFound(str(error)) from error
        return {"id": plan_id, "seconds": held}

    def release(self, plan_id: str) -> None:
        """Releases a plan; does nothing if it no longer exists."""
        self._plans().release(plan_id)

    def _plans(self) -> EmbeddedReadPlans:
        plans = self._broker.managed_ledgers.store.read_plans
        if plans is None:
            raise NotSupported(
                "Read plans are not available: the files of this ledger store cannot be read by other "
                "programs"
            )
        if not self._broker.settings.max_read_plan_seconds:
            raise NotSupported("Read plans are disabled: magnetarReadPlanMaxSeconds is 0")
        return plans

    def _seconds(self, seconds: int | None) -> int:
        most = self._broker.settings.max_read_plan_seconds
        if seconds is None:
            return min(_DEFAULT_SECONDS, most)
        if not 0 < seconds <= most:
            raise InvalidRequest(
                f"seconds must be from 1 to {most} (magnetarReadPlanMaxSeconds), not {seconds}"
            )
        return seconds


def _ranges(ledger: ManagedLedger, start: Position, end: Position | None) -> list[tuple[int, int, int]]:
    """Returns the readable entries from ``start`` up to but not including ``end``, as ranges (ledger id,
    first entry, last entry)."""
    after = ledger.max_read_position
    after = (after[0], after[1] + 1)
    after = after if end is None else min(after, end)
    found = []
    for summary in ledger.ledgers:
        first = max(start[1], 0) if summary.ledger_id == start[0] else 0
        last = min(summary.entries, after[1]) - 1 if summary.ledger_id == after[0] else summary.entries - 1
        if start[0] <= summary.ledger_id <= after[0] and first <= last:
            found.append((summary.ledger_id, first, last))
    return found


def _range(part: PlannedRange) -> Json:
    return {
        "ledgerId": part.ledger_id,
        "firstEntryId": part.first_entry_id,
        "lastEntryId": part.last_entry_id,
        "segmentId": part.segment_id,
        "segmentFile": part.segment_file,
        "indexFile": part.index_file,
    }
