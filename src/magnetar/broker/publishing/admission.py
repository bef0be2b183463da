"""The checks of each entry before a topic stores it. Topics without checks skip this module."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from enum import Enum
from itertools import groupby

from magnetar.broker.publishing.deduplication import DUPLICATE, FRESH, Deduplication
from magnetar.errors import BrokerError, EncryptionRequired, InternalError, NotAllowed
from magnetar.lazy_dataclass import dataclass
from magnetar.protocol.errors import EntryError
from magnetar.protocol.hot_codec import (
    MARKED,
    TRANSACTIONAL,
    batch_sizes,
    deliver_at,
    publish_time,
    transaction_of,
)
from magnetar.protocol.metadata import chunks_follow, parse_entry


class Verdict(Enum):
    """The verdict on an entry that is not refused."""

    STORE = 0
    STORE_CHUNK = 1
    """The entry is stored, but is not the last chunk of its message: its sequence id does not count yet."""
    DUPLICATE = 2
    """The entry is not stored: the topic has it already."""


@dataclass(frozen=True, slots=True)
class JudgedPart:
    """Entries [first, end) of a run, which have the same verdict; if the verdict is an error, it answers the
    SEND of each of these entries."""

    first: int
    end: int
    verdict: Verdict | BrokerError


class Admission:
    """The checks of one topic.

    :param deduplication: the sequence ids of producers; None: the topic does not deduplicate
    :param encrypted: whether unencrypted messages are refused
    :param max_size: the largest entry in bytes; 0 for no limit
    :param max_delay_ms: the maximum time between publish and delivery time of an entry; 0: no limit
    :param transactions: whether the topic has transactions, so that the ids of transactions in entries are
        checked
    """

    def __init__(
        self,
        deduplication: Deduplication | None,
        *,
        encrypted: bool,
        max_size: int,
        max_delay_ms: int = 0,
        transactions: bool = False,
    ) -> None:
        self.deduplication = deduplication
        self.encrypted = encrypted
        self._max_size = max_size
        self._max_delay_ms = max_delay_ms
        self._transactions = transactions

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
    ) -> list[JudgedPart] | None:
        """Returns the verdicts on a run of entries, in their order; None if all are stored unchanged.

        From this call on, entries that are to be stored count as pending: they must be published before the
        next run is judged.

        :param name: the name of the producer
        :param first: the sequence id of each entry; of a batch, its lowest sequence id
        :param highest: the highest sequence id of each batch; -1 for an entry without a highest sequence id
        :param chunked: whether there are chunks among the entries
        :param in_transaction: whether the entries are published in a transaction
        """
        known, count = self.deduplication, len(first)
        claiming = self._transactions and not in_transaction and _may_claim(buffer, starts, ends)
        plain = not (self.encrypted or self._max_size or self._max_delay_ms or chunked or claiming)
        if plain and (known is None or known.admit_all(name, first, highest, count)):
            return None
        verdicts: list[Verdict | BrokerError] = [
            self._compare(name, first[i], highest[i]) if looked is None else looked
            for i in range(count)
            for looked in (
                (claiming and _claim(buffer, starts[i], ends[i]))
                or self._look(buffer, starts[i], ends[i], chunked=chunked),
            )
        ]
        return parts_of(verdicts)

    @property
    def measures(self) -> bool:
        """Whether the topic limits the size or the delivery time of entries."""
        return self._max_size > 0 or self._max_delay_ms > 0

    def refusal(self, buffer: bytes, start: int, end: int, *, encrypted: bool) -> BrokerError | None:
        """Returns the error for an entry that is refused for its content, regardless of its producer; None if
        the entry is accepted.

        :param encrypted: whether the entry is encrypted; True also for an entry that need not be encrypted
        """
        if self._max_size and end - start > self._max_size:
            return NotAllowed("Exceed maximum message size")
        longest = self._max_delay_ms
        due = deliver_at(buffer, start, end) if longest else 0
        if due > 0 and due - publish_time(buffer, start, end) > longest:
            return NotAllowed(f"Exceeds max allowed delivery delay of {longest} milliseconds")
        if self.encrypted and not encrypted:
            return EncryptionRequired("Messages must be encrypted")
        return None

    def _look(self, buffer: bytes, start: int, end: int, *, chunked: bool) -> Verdict | BrokerError | None:
        """Returns the verdict on an entry by its content; None if the verdict depends on its sequence ids."""
        refusal = self.refusal(buffer, start, end, encrypted=True)
        if refusal is not None:
            return refusal
        if not (self.encrypted or chunked):
            return None
        try:
            metadata = parse_entry(buffer[start:end], verify_checksum=False).metadata
        except EntryError as error:
            return InternalError(f"The metadata of the entry cannot be read: {error}")
        if self.encrypted and not metadata.encryption_keys:
            return EncryptionRequired("Messages must be encrypted")
        return Verdict.STORE_CHUNK if chunked and chunks_follow(metadata) else None

    def _compare(self, name: str, first: int, highest: int) -> Verdict | BrokerError:
        """Returns the verdict on an entry by its sequence ids."""
        if self.deduplication is None:
            return Verdict.STORE
        found = self.deduplication.admit(name, first, highest)
        if found == FRESH:
            return Verdict.STORE
        if found == DUPLICATE:
            return Verdict.DUPLICATE
        return InternalError("Cannot determine whether the message is a duplicate at this time")


def _may_claim(buffer: bytes, starts: array[int], ends: array[int]) -> bool:
    """Whether entries may have ids of transactions in their metadata."""
    sizes = array("i", bytes(4 * len(starts)))
    return batch_sizes(buffer, starts, ends, 0, len(starts), sizes) & (TRANSACTIONAL | MARKED) != 0


def _claim(buffer: bytes, start: int, end: int) -> BrokerError | None:
    """Returns the error for an entry that names a transaction in its metadata, but not in its SEND.

    If such an entry were stored, the next load of the topic would believe the metadata, and hide later
    messages.
    """
    txn = transaction_of(buffer, start, end)
    if txn is None:
        return None
    return NotAllowed(f"The metadata of the entry names transaction ({txn[0]},{txn[1]}), but SEND names none")


def parts_of(verdicts: Sequence[Verdict | BrokerError]) -> list[JudgedPart]:
    """Returns the verdicts as parts, one for each series of adjacent entries with the same verdict."""
    parts, at = [], 0
    for verdict, group in groupby(verdicts):
        end = at + len(list(group))
        parts.append(JudgedPart(at, end, verdict))
        at = end
    return parts
