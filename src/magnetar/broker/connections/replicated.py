"""Publishing of SENDs from replicators."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Protocol

from magnetar.broker.publishing.admission import JudgedPart, Verdict
from magnetar.broker.publishing.hindrances import Hindrance
from magnetar.broker.publishing.producer import Producer, Publish
from magnetar.broker.publishing.replicated import (
    MARKER_RECEIPT,
    NamedPublish,
    ReplicatedPublish,
    ReplicatedRun,
    holds_back,
    is_marker,
)
from magnetar.broker.topics.entries import Marker
from magnetar.broker.topics.persistent import Topic
from magnetar.errors import BrokerError, EncryptionRequired, NotAllowed
from magnetar.protocol.hot_codec import SendRun
from magnetar.protocol.metadata import Entry


class ReplicatedPublishing(Protocol):
    """The part of a connection that publishes, in a layer above this one."""

    def submit(
        self, producer: Producer, publish: Publish, buffer: bytes, starts: array[int], ends: array[int]
    ) -> bool: ...
    def refuse(self, producer_id: int, sequence_id: int, error: BrokerError) -> None: ...
    def send_duplicate_receipt(self, producer: Producer, sequence_id: int, highest: int) -> None: ...
    def close_in_order(self, producer: Producer) -> None: ...


def publish_replicated(
    publishing: ReplicatedPublishing, producer: Producer, buffer: bytes, sends: SendRun, started: float
) -> None:
    """Hands a run of a replicator's SENDs to its topic, if the checks of the topic admit it.

    When a topic is moving, the entries behind the first one that it does not accept get no answer.
    """
    if producer.topic.closing or producer.topic.fenced:
        return
    count = sends.count
    run = ReplicatedRun(producer, buffer, sends.starts[:count], sends.ends[:count])
    if producer.by_position:
        _publish_positions(publishing, run, sends, started)
    else:
        _publish_names(publishing, run, sends, started)


def _publish_positions(
    publishing: ReplicatedPublishing, run: ReplicatedRun, sends: SendRun, started: float
) -> None:
    producer, count = run.producer, sends.count
    sent_ids = sends.sequence_ids[:count]
    parts = run.judge_positions()
    if parts is None:
        parts = [JudgedPart(0, count, Verdict.STORE)]
    for part in parts:
        some = slice(part.first, part.end)
        ledger_ids, entry_ids = run.ledger_ids[some], run.entry_ids[some]
        if isinstance(part.verdict, BrokerError):
            _refuse(publishing, producer, sent_ids[some], part.verdict)
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


def _publish_names(
    publishing: ReplicatedPublishing, run: ReplicatedRun, sends: SendRun, started: float
) -> None:
    producer = run.producer
    parts, marks = run.judge_names()
    for part in parts:
        some = slice(part.first, part.end)
        ids, highest = sends.sequence_ids[some], sends.highest_sequence_ids[some]
        if isinstance(part.verdict, BrokerError):
            _refuse(publishing, producer, ids, part.verdict)
        elif part.verdict is Verdict.DUPLICATE:
            for sequence_id, high in zip(ids, highest, strict=True):
                publishing.send_duplicate_receipt(producer, sequence_id, high)
        else:
            messages = sum(sends.num_messages[some])
            publish = NamedPublish(producer, ids, highest, marks[some], messages, started)
            if not publishing.submit(producer, publish, run.buffer, run.starts[some], run.ends[some]):
                return


def part_of(sends: SendRun, first: int, end: int) -> SendRun:
    """Returns SENDs [first, end) of a run, at least one; its number of chunks is that of the whole run."""
    some, count = slice(first, end), end - first
    part = SendRun(count)
    part.producer_id, part.count = sends.producer_id, count
    part.chunks = min(sends.chunks, count)
    part.sequence_ids[:count] = sends.sequence_ids[some]
    part.highest_sequence_ids[:count] = sends.highest_sequence_ids[some]
    part.num_messages[:count] = sends.num_messages[some]
    part.starts[:count] = sends.starts[some]
    part.ends[:count] = sends.ends[some]
    return part


def publish_marker(
    publishing: ReplicatedPublishing,
    producer: Producer,
    entry: Entry,
    raw: bytes,
    sequence_id: int,
    started: float,
) -> None:
    """Hands a SEND with ``marker`` to the topic, without deduplication.

    :param raw: the entry as it is stored
    """
    topic = producer.topic
    if topic.closing or topic.fenced:
        return
    ids = array("q", (sequence_id,))
    if not isinstance(topic, Topic):
        _refuse(publishing, producer, ids, NotAllowed("Markers are stored, and this topic stores nothing"))
        return
    if not is_marker(entry.metadata.marker_type):
        error = NotAllowed(f"A marker of type {entry.metadata.marker_type} is not one that replicators send")
        _refuse(publishing, producer, ids, error)
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


def _refuse(
    publishing: ReplicatedPublishing, producer: Producer, sequence_ids: Sequence[int], error: BrokerError
) -> None:
    encryption = isinstance(error, EncryptionRequired)
    kind = Hindrance.ENCRYPTION_REQUIRED if encryption else Hindrance.MESSAGE_REFUSED
    producer.topic.hindered(kind, str(error))
    for sequence_id in sequence_ids:
        publishing.refuse(producer.producer_id, sequence_id, error)
