"""A producer that exists for the time of one request."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate

from magnetar.broker.consumers.non_persistent_run import DROPPED_ID, NON_PERSISTENT_ID
from magnetar.broker.publishing.admission import JudgedPart, Verdict
from magnetar.broker.publishing.hindrances import Hindrance
from magnetar.broker.publishing.producer import AccessMode, Producer, Publish
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.broker.topics.within import NoConnection
from magnetar.errors import BrokerError, EncryptionRequired, ServiceNotReady, TopicTerminated
from magnetar.io.interfaces import Future
from magnetar.io.waiting import settle
from magnetar.managed_ledger.position import Position
from magnetar.security.principal import Principal

Outcome = Position | BrokerError
"""The position of an entry, or the reason why it was not stored."""

STORED_ALREADY: Position = (-1, -1)
"""The position in the outcome of a duplicate."""


class RequestProducer(NoConnection):
    """Publishes once, and collects the outcome of each entry."""

    client_version = "http"

    def __init__(
        self,
        topic: AnyTopic,
        name: str,
        *,
        user_provided_name: bool,
        schema_version: bytes,
        principal: Principal,
        address: str,
    ) -> None:
        """:param address: ``host:port`` of the requester"""
        self._topic = topic
        self.address = address
        self.producer = Producer(
            topic,
            self,
            0,
            name,
            user_provided_name=user_provided_name,
            epoch=0,
            access_mode=AccessMode.Shared,
            topic_epoch=None,
            metadata={},
            connected_ms=topic.clock.wall_ms(),
            schema_version=schema_version,
            principal=principal,
        )
        self._outcomes: list[Outcome | None] = []
        self._under_way: dict[Publish, int] = {}
        """Publishes whose outcome is open, with the index of their first entry."""
        self._told: Future[None] | None = None
        """A future that is completed when all outcomes are known."""

    async def publish(self, entries: Sequence[bytes], sequence_ids: Sequence[int]) -> list[Outcome]:
        """Returns the outcome of each entry, once all are known.

        :param entries: from the magic number to the end of the payload, with one message each
        """
        ends = array("q", accumulate(map(len, entries)))
        starts = array("q", (0, *ends[:-1]))
        ids, buffer = array("q", sequence_ids), b"".join(entries)
        self._outcomes = [None] * len(entries)
        checks = self._topic.admission
        parts = None
        if checks is not None:
            none = array("q", (-1,)) * len(ids)
            parts = checks.judge(self.producer.name, ids, none, buffer, starts, ends, chunked=False)
        for part in parts if parts is not None else [JudgedPart(0, len(ids), Verdict.STORE)]:
            some = slice(part.first, part.end)
            self._publish_part(part, buffer, ids[some], starts[some], ends[some])
        if self._under_way:
            self._told = self._topic.loop.create_future()
            await self._told
        return [outcome for outcome in self._outcomes if outcome is not None]

    def _publish_part(
        self, part: JudgedPart, buffer: bytes, ids: array[int], starts: array[int], ends: array[int]
    ) -> None:
        count, size = len(ids), sum(ends) - sum(starts)
        if isinstance(part.verdict, BrokerError):
            encryption = isinstance(part.verdict, EncryptionRequired)
            kind = Hindrance.ENCRYPTION_REQUIRED if encryption else Hindrance.MESSAGE_REFUSED
            self._topic.hindered(kind, str(part.verdict))
            self._came_out(part.first, [part.verdict] * count)
        elif part.verdict is Verdict.DUPLICATE:
            self._came_out(part.first, [STORED_ALREADY] * count)
        else:
            publish = Publish(self.producer, ids, ids, count, self._topic.clock.monotonic())
            self._under_way[publish] = part.first
            self.producer.pending += count
            self.producer.submitted += count
            try:
                self._topic.publish(publish, buffer, starts, ends, size)
            except (ServiceNotReady, TopicTerminated) as error:
                self.on_failed(self.producer, publish, 0, count, size, error)
                return
            self.producer.rate_in.messages += publish.messages
            self.producer.rate_in.bytes += size

    def _came_out(self, first: int, outcomes: Sequence[Outcome]) -> None:
        self._outcomes[first : first + len(outcomes)] = outcomes

    def _settled(self, publish: Publish, first: int, outcomes: Sequence[Outcome]) -> None:
        self.producer.pending -= len(outcomes)
        base = self._under_way[publish]
        self._came_out(base + first, outcomes)
        if None not in self._outcomes[base : base + len(publish.sequence_ids)]:
            del self._under_way[publish]
        if self._told is not None and not self._under_way:
            settle(self._told)

    def on_durable(
        self,
        producer: Producer,
        publish: Publish,
        ledger_id: int,
        first_entry_id: int,
        first: int,
        count: int,
        size: int,
    ) -> None:
        self._settled(publish, first, [(ledger_id, first_entry_id + number) for number in range(count)])

    def on_failed(
        self, producer: Producer, publish: Publish, first: int, count: int, size: int, error: BrokerError
    ) -> None:
        self._settled(publish, first, [error] * count)

    def on_passed(self, producer: Producer, publish: Publish, taken: int, size: int) -> None:
        dropped = len(publish.sequence_ids) - taken
        self._settled(publish, 0, [NON_PERSISTENT_ID] * taken + [DROPPED_ID] * dropped)
