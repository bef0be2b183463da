"""Publishing on a connection: from a run of SENDs to the topic, entries in flight, and receipts.

SENDs of replicators take a separate path.
"""

from __future__ import annotations

import logging
from array import array
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from magnetar.broker.connections import answers
from magnetar.broker.connections.reading import CHECKSUM_MISMATCH
from magnetar.broker.connections.session import Session, SessionState
from magnetar.broker.consumers.consumer import DROPPED_ID, NON_PERSISTENT_ID
from magnetar.broker.flow.outgoing import Outgoing
from magnetar.broker.flow.rate_limits import PublishLimiter
from magnetar.broker.publishing.admission import JudgedPart, Verdict
from magnetar.broker.publishing.hindrances import Hindrance
from magnetar.broker.publishing.producer import Producer, Publish, PublishOutcomes
from magnetar.broker.publishing.replicated import (
    MARKER_RECEIPT,
    NamedPublish,
    PlacedPublish,
    ReplicatedPublish,
    ReplicatedRun,
    holds_back,
    is_marker,
)
from magnetar.broker.service import BrokerService
from magnetar.broker.topics.entries import Marker
from magnetar.broker.topics.persistent import Topic
from magnetar.errors import (
    AuthorizationFailure,
    BrokerError,
    NotAllowed,
    ServerErrorCode,
    ServiceNotReady,
    TopicTerminated,
)
from magnetar.invariants import BrokenInvariant, violated
from magnetar.managed_ledger.position import Position
from magnetar.protocol.errors import EntryError
from magnetar.protocol.frames import encode_command, signed
from magnetar.protocol.hot_codec import SendRun, encode_receipts
from magnetar.protocol.hot_origin import first_foreign
from magnetar.protocol.metadata import ChecksumMismatch, Entry, parse_entry
from magnetar.protocol.pulsar_api_pb2 import CommandSend

if TYPE_CHECKING:
    from magnetar.broker.connections.connection import Connection
    from magnetar.broker.transactions import TxnId


log = logging.getLogger(__name__)
_OPEN = SessionState.OPEN


class Publishing(PublishOutcomes):
    """Publishes for one connection, and pauses its reading while too many entries are in flight.

    Topics report the outcome of entries while they also notify other producers, so the methods that handle
    outcomes only queue receipts and update counts.
    """

    __slots__ = ("_broker", "_connection", "_outgoing", "_session", "paused", "pending", "slowed")

    def __init__(
        self, connection: Connection, broker: BrokerService, session: Session, outgoing: Outgoing
    ) -> None:
        self._connection = connection
        self._broker = broker
        self._session = session
        self._outgoing = outgoing
        self.pending = 0
        """The number of entries in flight."""
        self.paused = False
        """Whether reading is paused because of the entries in flight."""
        self.slowed = 0
        """The number of rate limits that pause reading."""

    # Publishing

    def publish(self, buffer: bytes, sends: SendRun, transaction: TxnId | None = None) -> None:
        """Passes a run of SENDs to its producer's topic, if the checks of the topic accept the run.

        :param transaction: the transaction of the run, which the caller has found to be permitted; None: no
            transaction
        """
        count = sends.count
        producer = self._session.producers.get(sends.producer_id)
        if sends.transactional and transaction is None:
            from magnetar.broker.connections.transactional import publish_in_transaction

            publish_in_transaction(self, producer, buffer, sends)
            return
        if producer is None or (producer.apart and not self._is_ordinary(producer, buffer, sends)):
            self._publish_apart(producer, buffer, sends)
            return
        ids, highest = sends.sequence_ids[:count], sends.highest_sequence_ids[:count]
        starts, ends = sends.starts[:count], sends.ends[:count]
        producer.chunks.messages += sends.chunks
        now = self._broker.io.clock.monotonic()
        checks = producer.topic.admission
        if checks is not None:
            chunked = sends.chunks > 0
            parts = checks.judge(
                producer.name,
                ids,
                highest,
                buffer,
                starts,
                ends,
                chunked=chunked,
                in_transaction=transaction is not None,
            )
            if parts is not None:
                self._publish_parts(producer, parts, buffer, sends, now, transaction)
                return
        messages = sends.num_messages[0] if count == 1 else sum(sends.num_messages[:count])
        self.submit(
            producer, Publish(producer, ids, highest, messages, now, transaction), buffer, starts, ends
        )

    def _is_ordinary(self, producer: Producer, buffer: bytes, sends: SendRun) -> bool:
        """Whether a run can be published normally although :attr:`Producer.apart` is true for its
        producer."""
        if producer.closed or producer.replicates:
            return False
        return first_foreign(buffer, sends.starts, sends.ends, sends.count) < 0

    def _publish_apart(self, producer: Producer | None, buffer: bytes, sends: SendRun) -> None:
        """Handles SENDs of a replicator or of a producer that is not open, and SENDs of forbidden entries."""
        if producer is None or producer.closed:
            self.unknown_producer(sends.producer_id, producer)
        elif producer.replicates:
            producer.chunks.messages += sends.chunks
            publish_replicated(self, producer, buffer, sends, self._broker.io.clock.monotonic())
        else:
            self._publish_around_foreign(producer, buffer, sends)

    def _publish_around_foreign(self, producer: Producer, buffer: bytes, sends: SendRun) -> None:
        """Refuses each entry that only brokers may send, and publishes the other entries normally."""
        error = AuthorizationFailure(producer.guarded)
        rest = sends
        while (first := first_foreign(buffer, rest.starts, rest.ends, rest.count)) >= 0:
            if first:
                self.publish(buffer, part_of(rest, 0, first))
            producer.topic.hindered(Hindrance.MESSAGE_REFUSED, producer.guarded)
            self.refuse(producer.producer_id, rest.sequence_ids[first], error)
            if first + 1 == rest.count:
                return
            rest = part_of(rest, first + 1, rest.count)
        self.publish(buffer, rest)

    def publish_marker(self, producer: Producer, sequence_id: int, raw: bytes) -> None:
        """Passes a marker of a replicator to the topic."""
        entry = self._parsed(producer, sequence_id, raw)
        if entry is not None:
            publish_marker(self, producer, entry, raw, sequence_id, self._broker.io.clock.monotonic())

    def publish_placed(self, producer: Producer, send: CommandSend, position: Position, raw: bytes) -> None:
        """Announces to a shadow topic an entry that its source has stored at a position."""
        sequence_id = signed(send.sequence_id)
        if self._parsed(producer, sequence_id, raw) is not None:
            now = self._broker.io.clock.monotonic()
            publish = PlacedPublish(producer, sequence_id, position, max(send.num_messages, 1), now)
            self.submit(producer, publish, raw, array("q", (0,)), array("q", (len(raw),)))

    def _parsed(self, producer: Producer, sequence_id: int, raw: bytes) -> Entry | None:
        """Parses a single entry; returns None if it is damaged and was refused."""
        try:
            return parse_entry(raw)
        except ChecksumMismatch:
            text = "Checksum failed on the broker"
            self._refuse(producer.producer_id, sequence_id, ServerErrorCode.CHECKSUM, text)
        except EntryError:
            text = "The entry has no readable metadata"
            self._refuse(producer.producer_id, sequence_id, ServerErrorCode.UNKNOWN, text)
        return None

    def _publish_parts(
        self,
        producer: Producer,
        parts: list[JudgedPart],
        buffer: bytes,
        sends: SendRun,
        now: float,
        transaction: TxnId | None,
    ) -> None:
        """Carries out the topic's verdict on each part of a run, in order, so that receipts are in order,
        too.

        If the topic closes or is fenced, the first entry that it does not accept, and all later entries, get
        no answer.
        """
        if producer.topic.closing or producer.topic.fenced:
            return
        for part in parts:
            some = slice(part.first, part.end)
            ids, highest = sends.sequence_ids[some], sends.highest_sequence_ids[some]
            if isinstance(part.verdict, BrokerError):
                refuse_each(self, producer, ids, part.verdict)
            elif part.verdict is Verdict.DUPLICATE:
                for sequence_id, high in zip(ids, highest, strict=True):
                    self.send_duplicate_receipt(producer, sequence_id, high)
            else:
                publish = Publish(producer, ids, highest, sum(sends.num_messages[some]), now, transaction)
                publish.completes = part.verdict is Verdict.STORE
                if not self.submit(producer, publish, buffer, sends.starts[some], sends.ends[some]):
                    return

    def submit(
        self, producer: Producer, publish: Publish, buffer: bytes, starts: array[int], ends: array[int]
    ) -> bool:
        """Passes entries to the topic, and reports refused entries to the client; returns False if the topic
        closes or is fenced.
        """
        count = len(starts)
        size = ends[0] - starts[0] if count == 1 else sum(ends) - sum(starts)
        try:
            producer.topic.publish(publish, buffer, starts, ends, size)
        except ServiceNotReady:
            # The topic's producers are being closed, and their clients will send again.
            return False
        except TopicTerminated as error:
            for sequence_id in publish.sent_ids:
                self.refuse(producer.producer_id, sequence_id, error)
            return True
        producer.rate_in.messages += publish.messages
        producer.rate_in.bytes += size
        producer.pending += count
        producer.submitted += count
        self.pending += count
        broker = self._broker
        if not self.paused and self.pending >= broker.limits.max_pending_publishes:
            self.paused = True
            self._connection.input.pause()
        broker.limits.publish_buffer.grew(self._connection, size)
        if producer.topic.publish_limiter is not None:
            self._slow_down(producer.topic.publish_limiter, publish.messages, size)
        if broker.limits.publish_limiter is not None:
            self._slow_down(broker.limits.publish_limiter, publish.messages, size)
        if producer.topic.group is not None:
            self._slow_down(producer.topic.group.publish, publish.messages, size)
        return True

    def _slow_down(self, limiter: PublishLimiter, messages: int, size: int) -> None:
        """Pauses reading until the published messages are within the rate limit again."""
        wait = limiter.take(messages, size, self._broker.io.clock.monotonic())
        if wait > 0:
            self.slowed += 1
            self._connection.input.pause()
            self._broker.wheel.schedule(wait, self._go_on)

    def _go_on(self) -> None:
        self.slowed -= 1
        if self.slowed < 0:
            violated(self._connection.fail, "rate limits that pause reading", "at least 0", self.slowed)
        self._connection.input.resume()

    def close(self) -> None:
        """Closes the connection, because a message cannot be answered."""
        self._connection.close()

    def publish_later(self, topic: Topic, buffer: bytes, sends: SendRun) -> None:
        """Publishes a run of a transaction when the topic is ready for it; until then reading is paused."""
        self._connection.input.pause()
        self._connection.start(
            self._publish_when_ready(topic, buffer, sends), "preparing a topic for transactions"
        )

    async def _publish_when_ready(self, topic: Topic, buffer: bytes, sends: SendRun) -> None:
        try:
            await topic.use_transactions()
        except BrokerError as error:
            producer = self._session.producers.get(sends.producer_id)
            if producer is not None and not producer.closed:
                refuse_each(self, producer, sends.sequence_ids[: sends.count], error)
        else:
            self.publish(buffer, sends)
        finally:
            self._connection.input.resume()

    def close_in_order(self, producer: Producer) -> None:
        """Accepts no more SENDs of a producer, and closes it once all earlier SENDs have receipts."""
        self._session.stop_producer(producer)
        self._connection.start(self._close_drained(producer), "closing a producer")

    async def _close_drained(self, producer: Producer) -> None:
        await producer.topic.producers.drained((producer,))
        if not producer.closed:
            producer.topic.producers.remove(producer)
            producer.connection.close_producer(producer)

    def unknown_producer(self, producer_id: int, producer: Producer | None) -> None:
        """Handles a SEND for a producer that is not open; ignored if the producer was closed recently."""
        peer = self._session.address
        if producer is not None and producer.fenced:
            log.info(
                "closing the connection of a fenced producer", extra={"peer": peer, "producer": producer.name}
            )
            self._connection.close()
        elif producer is None and not self._session.was_closed(producer_id):
            log.warning(
                "closing the connection: the client sent a message for an unknown producer",
                extra={"peer": peer, "id": producer_id},
            )
            self._connection.close()

    def refuse_damaged(self, sends: SendRun) -> None:
        """Reports to the client that an entry is damaged."""
        producer = self._session.producers.get(sends.producer_id)
        if producer is None or producer.closed:
            self.unknown_producer(sends.producer_id, producer)
        elif sends.error == CHECKSUM_MISMATCH:
            text = "Checksum failed on the broker"
            self._refuse(sends.producer_id, sends.error_sequence_id, ServerErrorCode.CHECKSUM, text)
        else:
            text = "The entry has no readable metadata"
            self._refuse(sends.producer_id, sends.error_sequence_id, ServerErrorCode.UNKNOWN, text)

    def refuse(self, producer_id: int, sequence_id: int, error: BrokerError) -> None:
        """Reports to the client that an entry will not be stored, with the reason."""
        self._refuse(producer_id, sequence_id, error.code, str(error))

    def _refuse(self, producer_id: int, sequence_id: int, code: ServerErrorCode, text: str) -> None:
        if not self._session.ended:
            self._outgoing.queue(encode_command(answers.send_error(producer_id, sequence_id, code, text)))

    # Outcomes

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
        """Reports that entries [first, first + count) of a publish are stored from ``first_entry_id`` on."""
        if self._session.state is _OPEN and not producer.closed:
            self._outgoing.queue(
                encode_receipts(
                    producer.producer_id,
                    ledger_id,
                    first_entry_id,
                    publish.sequence_ids,
                    publish.highest_sequence_ids,
                    first,
                    count,
                )
            )
        self._settled(producer, count, size)

    def on_passed(self, producer: Producer, publish: Publish, taken: int, size: int) -> None:
        """Reports that the first ``taken`` entries were passed to consumers without being stored, and that
        the other entries were dropped.
        """
        count = len(publish.sequence_ids)
        if self._session.state is _OPEN and not producer.closed:
            ids, highest = publish.sequence_ids, publish.highest_sequence_ids
            number, queue = producer.producer_id, self._outgoing.queue
            if taken:
                queue(encode_receipts(number, *NON_PERSISTENT_ID, ids, highest, 0, taken, 0))
            if taken < count:
                queue(encode_receipts(number, *DROPPED_ID, ids, highest, taken, count - taken, 0))
        self._settled(producer, count, size)

    def on_failed(
        self, producer: Producer, publish: Publish, first: int, count: int, size: int, error: BrokerError
    ) -> None:
        """Reports that the entries are not stored; the client sends them again if its producer was closed."""
        if not producer.closed:
            for sequence_id in publish.sent_ids[first : first + count]:
                self.refuse(producer.producer_id, sequence_id, error)
        self._settled(producer, count, size)

    def _settled(self, producer: Producer, count: int, size: int) -> None:
        """Subtracts publishes that are no longer in flight."""
        producer.pending = of_producer = producer.pending - count
        if producer.held_receipts:
            self._release_receipts(producer, producer.held_receipts)
        self.pending = pending = self.pending - count
        if self._broker.limits.publish_buffer.shrank(size) < 0 or of_producer < 0 or pending < 0:
            self._violated(producer)
        if self.paused and pending <= self._broker.limits.max_pending_publishes // 2:
            self.paused = False
            self._connection.input.resume()

    def _violated(self, producer: Producer) -> None:
        """Closes the connection after a count of entries in flight fell below 0.

        Does not raise, because other connections get their receipts from the caller.
        """
        counts = producer.pending, self.pending, self._broker.limits.publish_buffer.used
        producer.pending, self.pending = max(0, producer.pending), max(0, self.pending)
        self._broker.limits.publish_buffer.used = max(0, counts[2])
        what = f"entries in flight of producer {producer.name}, of the connection, and bytes of all publishes"
        self._connection.fail(BrokenInvariant(what, "at least 0", counts))

    def send_duplicate_receipt(self, producer: Producer, sequence_id: int, highest: int) -> None:
        """Reports that an entry is stored already, after the receipts of all earlier entries."""
        ids, highest_ids = array("q", (sequence_id,)), array("q", (highest,))
        receipt = encode_receipts(producer.producer_id, -1, -1, ids, highest_ids, 0, 1)
        if producer.pending:
            # Clients accept receipts in order only.
            if producer.held_receipts is None:
                producer.held_receipts = deque()
            producer.held_receipts.append((producer.submitted, bytes(receipt)))
        elif self._session.state is _OPEN:
            self._outgoing.queue(receipt)

    def _release_receipts(self, producer: Producer, held: deque[tuple[int, bytes]]) -> None:
        settled = producer.submitted - producer.pending
        while held and held[0][0] <= settled:
            receipt = held.popleft()[1]
            if self._session.state is _OPEN and not producer.closed:
                self._outgoing.queue(receipt)


def publish_replicated(
    publishing: Publishing, producer: Producer, buffer: bytes, sends: SendRun, started: float
) -> None:
    """Passes a run of a replicator's SENDs to its topic, if the checks of the topic accept the run.

    If the topic closes or is fenced, the first entry that it does not accept, and all later entries, get no
    answer.
    """
    if producer.topic.closing or producer.topic.fenced:
        return
    count = sends.count
    run = ReplicatedRun(producer, buffer, sends.starts[:count], sends.ends[:count])
    if producer.by_position:
        _publish_positions(publishing, run, sends, started)
    else:
        _publish_names(publishing, run, sends, started)


def _publish_positions(publishing: Publishing, run: ReplicatedRun, sends: SendRun, started: float) -> None:
    producer, count = run.producer, sends.count
    sent_ids = sends.sequence_ids[:count]
    parts = run.judge_positions()
    if parts is None:
        parts = [JudgedPart(0, count, Verdict.STORE)]
    for part in parts:
        some = slice(part.first, part.end)
        ledger_ids, entry_ids = run.ledger_ids[some], run.entry_ids[some]
        if isinstance(part.verdict, BrokerError):
            refuse_each(publishing, producer, sent_ids[some], part.verdict)
            if holds_back(part.verdict):
                publishing.close_in_order(producer)
                return
        elif part.verdict is Verdict.DUPLICATE:
            for ledger_id, entry_id in zip(ledger_ids, entry_ids, strict=True):
                publishing.send_duplicate_receipt(producer, ledger_id, entry_id)
        else:
            messages = sum(sends.num_messages[some])
            publish = ReplicatedPublish(producer, sent_ids[some], ledger_ids, entry_ids, messages, started)
            if not publishing.submit(producer, publish, run.buffer, run.starts[some], run.ends[some]):
                return


def _publish_names(publishing: Publishing, run: ReplicatedRun, sends: SendRun, started: float) -> None:
    producer = run.producer
    parts, marks = run.judge_names()
    for part in parts:
        some = slice(part.first, part.end)
        ids, highest = sends.sequence_ids[some], sends.highest_sequence_ids[some]
        if isinstance(part.verdict, BrokerError):
            refuse_each(publishing, producer, ids, part.verdict)
        elif part.verdict is Verdict.DUPLICATE:
            for sequence_id, high in zip(ids, highest, strict=True):
                publishing.send_duplicate_receipt(producer, sequence_id, high)
        else:
            messages = sum(sends.num_messages[some])
            publish = NamedPublish(producer, ids, highest, marks[some], messages, started)
            if not publishing.submit(producer, publish, run.buffer, run.starts[some], run.ends[some]):
                return


def part_of(sends: SendRun, first: int, end: int) -> SendRun:
    """Returns SENDs [first, end) of a run, at least one. The result has the number of chunks of the whole
    run, but at most the number of returned SENDs.
    """
    some, count = slice(first, end), end - first
    part = SendRun(count)
    part.producer_id, part.count = sends.producer_id, count
    part.chunks = min(sends.chunks, count)
    part.transactional = sends.transactional
    part.most_bits, part.least_bits = sends.most_bits, sends.least_bits
    part.sequence_ids[:count] = sends.sequence_ids[some]
    part.highest_sequence_ids[:count] = sends.highest_sequence_ids[some]
    part.num_messages[:count] = sends.num_messages[some]
    part.starts[:count] = sends.starts[some]
    part.ends[:count] = sends.ends[some]
    return part


def publish_marker(
    publishing: Publishing,
    producer: Producer,
    entry: Entry,
    raw: bytes,
    sequence_id: int,
    started: float,
) -> None:
    """Passes a SEND with ``marker`` to the topic, without deduplication.

    :param raw: the entry as it is stored
    """
    topic = producer.topic
    if topic.closing or topic.fenced:
        return
    ids = array("q", (sequence_id,))
    if not isinstance(topic, Topic):
        refuse_each(
            publishing, producer, ids, NotAllowed("Markers must be stored, but this topic is non-persistent")
        )
        return
    if not is_marker(entry.metadata.marker_type):
        error = NotAllowed(f"Replicators do not send markers of type {entry.metadata.marker_type}")
        refuse_each(publishing, producer, ids, error)
        return
    highest = array("q", (MARKER_RECEIPT if producer.by_position else -1,))
    publish = Publish(producer, ids, highest, 1, started)
    publish.completes = False
    on_their_way = topic.markers.on_their_way
    on_their_way[publish] = Marker(entry.metadata.marker_type, bytes(entry.payload), producer.remote_cluster)
    if (
        not publishing.submit(producer, publish, raw, array("q", (0,)), array("q", (len(raw),)))
        or topic.terminated
    ):
        on_their_way.pop(publish, None)


def refuse_each(
    publishing: Publishing, producer: Producer, sequence_ids: Sequence[int], error: BrokerError
) -> None:
    producer.topic.hindered(Hindrance.of_refusal(error), str(error))
    for sequence_id in sequence_ids:
        publishing.refuse(producer.producer_id, sequence_id, error)
