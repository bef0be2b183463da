"""Publishing by replicators: by replicators of other clusters, whose entries are judged one by one, and by
replicators that announce entries to shadow topics."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from magnetar.broker.publishing.admission import Admission, JudgedPart, Verdict, parts_of
from magnetar.broker.publishing.deduplication import DUPLICATE, FRESH, Deduplication
from magnetar.broker.publishing.producer import Producer, Publish
from magnetar.errors import BrokerError, InternalError, NotAllowed, PersistenceFailure
from magnetar.managed_ledger.position import Position
from magnetar.protocol.errors import EntryError
from magnetar.protocol.frames import signed
from magnetar.protocol.hot_origin import ENCRYPTED, LACKING, MARKER, POSITION, read_origins
from magnetar.protocol.metadata import chunks_follow, metadata_of

MARKER_RECEIPT = -(2**63)
"""Replaces ``highest_sequence_id`` in the receipt of a marker."""
_MARKERS = range(10, 14)
"""Marker types of replicated subscriptions (PIP-33)."""
_NOT_DECIDED = "Cannot determine whether the message is a duplicate at this time"
_NO_POSITION = (
    "Message can not determine whether the message is duplicated due to the acquired messages props were are "
    "invalid"
)
"""The error text of Apache Pulsar 4.0, which replicators may recognize."""
SHADOW_REFUSES = "Cannot send messages to a shadow topic"
"""The error text of Apache Pulsar 4.0."""


def is_marker(marker_type: int) -> bool:
    """Whether ``marker_type`` is a type of marker for replicated subscriptions."""
    return marker_type in _MARKERS


def holds_back(verdict: Verdict | BrokerError) -> bool:
    """Whether this verdict on an entry prevents the storing of later entries, so that the replicator sends
    them again.

    An entry that is refused for its content may be accepted later, after a change of policies.
    """
    return isinstance(verdict, BrokerError) and not isinstance(verdict, PersistenceFailure)


class ReplicatedPublish(Publish):
    """Entries with source positions; their receipts carry the positions instead of sequence ids."""

    __slots__ = ("_sent_ids",)

    def __init__(
        self,
        producer: Producer,
        sent_ids: array[int],
        ledger_ids: array[int],
        entry_ids: array[int],
        messages: int,
        started: float,
    ) -> None:
        """:param sent_ids: the sequence ids of the SENDs"""
        super().__init__(producer, ledger_ids, entry_ids, messages, started)
        self._sent_ids = sent_ids

    @property
    def sent_ids(self) -> array[int]:
        return self._sent_ids

    def positions(self, first: int, count: int) -> list[Position]:
        some = slice(first, first + count)
        return list(zip(self.sequence_ids[some], self.highest_sequence_ids[some], strict=True))

    def note_stored(self, known: Deduplication, first: int, count: int) -> None:
        some = slice(first, first + count)
        name = self.producer.name
        known.sources.stored(name, self.sequence_ids[some], self.highest_sequence_ids[some])
        known.counted(count)

    def note_failed(self, known: Deduplication, first: int, count: int) -> None:
        known.sources.refused(self.producer.name, self.positions(first, count))

    def source_marks(self, first: int, count: int) -> Sequence[tuple[str, Position]]:
        return [(self.producer.name, max(self.positions(first, count)))]

    def sequence_marks(self, first: int, count: int) -> Sequence[tuple[str, int]]:
        return ()


class NamedPublish(Publish):
    """Entries of a replicator without source positions; deduplication counts each entry for its original
    producer.
    """

    __slots__ = ("marks",)

    def __init__(
        self,
        producer: Producer,
        sequence_ids: array[int],
        highest_sequence_ids: array[int],
        marks: list[tuple[str, int]],
        messages: int,
        started: float,
    ) -> None:
        """:param marks: the original producer of each entry, and the entry's highest sequence id; -1: the
        entry does not count for its producer
        """
        super().__init__(producer, sequence_ids, highest_sequence_ids, messages, started)
        self.marks = marks

    def note_stored(self, known: Deduplication, first: int, count: int) -> None:
        for name, mark in self.sequence_marks(first, count):
            known.stored(name, mark, mark, 0)
        known.counted(count)

    def sequence_marks(self, first: int, count: int) -> Sequence[tuple[str, int]]:
        return [each for each in self.marks[first : first + count] if each[1] >= 0]


class ReplicatedRun:
    """SENDs of one replicator, with the origin of each entry from its metadata."""

    def __init__(self, producer: Producer, buffer: bytes, starts: array[int], ends: array[int]) -> None:
        self.producer = producer
        self.buffer = buffer
        self.starts = starts
        self.ends = ends
        count = len(starts)
        self.ledger_ids = array("q", bytes(8 * count))
        self.entry_ids = array("q", bytes(8 * count))
        self.marks = array("i", bytes(4 * count))
        self._all = read_origins(buffer, starts, ends, 0, count, self.ledger_ids, self.entry_ids, self.marks)

    def judge_positions(self) -> list[JudgedPart] | None:
        """Returns the verdict on each entry by its source position.

        Entries to be stored count as pending from now on, as for :meth:`Admission.judge`.

        :returns: the parts of the run, each with its verdict; None if all entries are stored unchanged. If a
            verdict prevents the storing of later entries, its part is the last one
        """
        topic, name = self.producer.topic, self.producer.name
        checks = topic.admission
        known = checks.deduplication if checks is not None else None
        sound = not self._all & (POSITION << LACKING) and (checks is None or self._meets(checks))
        if sound and (
            known is None or known.sources.admit_all(name, self.ledger_ids, self.entry_ids, len(self.starts))
        ):
            return None
        verdicts = []
        for index in range(len(self.starts)):
            verdicts.append(self._judge_position(index, checks))
            if holds_back(verdicts[-1]):
                break
        return parts_of(verdicts)

    def _meets(self, checks: Admission) -> bool:
        """Whether it is certain, without a look at single entries, that all entries pass the checks of their
        content."""
        encrypted = not checks.encrypted or not self._all & (ENCRYPTED << LACKING)
        return encrypted and not checks.measures

    def _judge_position(self, index: int, checks: Admission | None) -> Verdict | BrokerError:
        producer = self.producer
        known = checks.deduplication if checks is not None else None
        if not self.marks[index] & POSITION:
            return PersistenceFailure(self._not_decided() if known is not None else _NO_POSITION)
        position = self.ledger_ids[index], self.entry_ids[index]
        refusal = self._refusal(index, checks)
        if refusal is not None:
            if known is not None:
                known.sources.refused(producer.name, [position])
            return refusal
        found = FRESH if known is None else known.sources.admit(producer.name, position)
        if found == FRESH:
            return Verdict.STORE
        return Verdict.DUPLICATE if found == DUPLICATE else PersistenceFailure(self._not_decided())

    def judge_names(self) -> tuple[list[JudgedPart], list[tuple[str, int]]]:
        """Returns verdicts on the entries by the names and sequence ids of their original producers, and for
        each entry the producer's name with the highest sequence id.

        The highest sequence id is -1 for an entry that does not count for a producer, such as a chunk that is
        not the last one of its message, or a refused entry.
        """
        checks = self.producer.topic.admission
        verdicts: list[Verdict | BrokerError] = []
        marks: list[tuple[str, int]] = []
        for index in range(len(self.starts)):
            mark, verdict = self._judge_name(index, checks)
            marks.append(mark)
            verdicts.append(verdict)
        return parts_of(verdicts), marks

    def _judge_name(
        self, index: int, checks: Admission | None
    ) -> tuple[tuple[str, int], Verdict | BrokerError]:
        nothing = "", -1
        refusal = self._refusal(index, checks)
        if refusal is not None:
            return nothing, refusal
        known = checks.deduplication if checks is not None else None
        if known is None:
            return nothing, Verdict.STORE
        try:
            metadata = metadata_of(self.buffer, self.starts[index], self.ends[index])
        except EntryError as error:
            return nothing, InternalError(f"The metadata of the entry cannot be read: {error}")
        if chunks_follow(metadata) or metadata.HasField("marker_type"):
            return nothing, Verdict.STORE
        first = signed(metadata.sequence_id)
        highest = max(first, signed(metadata.highest_sequence_id))
        found = known.admit(metadata.producer_name, first, highest)
        if found == FRESH:
            return (metadata.producer_name, highest), Verdict.STORE
        if found == DUPLICATE:
            return nothing, Verdict.DUPLICATE
        return nothing, PersistenceFailure(self._not_decided())

    def _refusal(self, index: int, checks: Admission | None) -> BrokerError | None:
        """Returns the error for an entry that is refused for its content; markers need not be encrypted."""
        if checks is None:
            return None
        encrypted = bool(self.marks[index] & (ENCRYPTED | MARKER))
        return checks.refusal(self.buffer, self.starts[index], self.ends[index], encrypted=encrypted)

    def _not_decided(self) -> str:
        return f"[{self.producer.topic.name}][{self.producer.name}]{_NOT_DECIDED}"


class PlacedPublish(Publish):
    """An entry of a shadow topic, with the position at which the source topic has stored it."""

    __slots__ = ("position",)

    def __init__(
        self, producer: Producer, sequence_id: int, position: Position, messages: int, started: float
    ) -> None:
        super().__init__(producer, array("q", (sequence_id,)), array("q", (-1,)), messages, started)
        self.position = position
        self.completes = False


class ShadowAdmission(Admission):
    """Refuses entries without a position, because messages must be published to the source topic."""

    def __init__(self) -> None:
        super().__init__(None, encrypted=False, max_size=0)

    def judge(
        self,
        name: str,
        first: array[int],
        highest: array[int],
        buffer: bytes,
        starts: array[int],
        ends: array[int],
        *,
        chunked: bool,
        in_transaction: bool = False,
    ) -> list[JudgedPart]:
        """Refuses all entries; an entry with a position (:class:`PlacedPublish`) is published without this
        call."""
        return [JudgedPart(0, len(first), NotAllowed(SHADOW_REFUSES))]

    @property
    def measures(self) -> bool:
        return True

    def refusal(self, buffer: bytes, start: int, end: int, *, encrypted: bool) -> BrokerError:
        """Returns the same error for each entry; see :meth:`Admission.refusal`."""
        return NotAllowed(SHADOW_REFUSES)
