"""What a topic looks at in each entry before it stores it; topics without such checks have none of this."""

from __future__ import annotations

from array import array
from itertools import groupby

from magnetar.broker.publishing.deduplication import DUPLICATE, FRESH, Deduplication
from magnetar.broker.publishing.producer import Publish, PublishDesk
from magnetar.errors import BrokerError, EncryptionRequired, InternalError, NotAllowed
from magnetar.protocol.errors import EntryError
from magnetar.protocol.metadata import chunks_follow, parse_entry

_STORE = 0
_STORE_CHUNK = 1
"""Not the last chunk of its message: its sequence id does not count yet."""
_ALREADY_STORED = 2


class Admission:
    """:param deduplication: None: messages are not compared

    :param encrypted: whether what is not encrypted is refused
    :param max_size: bytes of an entry; 0 for any
    """

    def __init__(self, deduplication: Deduplication | None, *, encrypted: bool, max_size: int) -> None:
        self._deduplication = deduplication
        self._encrypted = encrypted
        self._max_size = max_size

    def publish(
        self,
        desk: PublishDesk,
        publish: Publish,
        numbers: array[int],
        buffer: bytes,
        starts: array[int],
        ends: array[int],
        *,
        chunked: bool,
    ) -> None:
        """Submits what may be stored and tells the client of the rest.

        :param numbers: messages of each entry
        :param chunked: whether there are chunks among the entries
        """
        known, producer = self._deduplication, publish.producer
        plain = not (self._encrypted or self._max_size or chunked)
        first, highest = publish.sequence_ids, publish.highest_sequence_ids
        if plain and known is not None and known.admit_all(producer.name, first, highest, len(first)):
            desk.submit(producer, publish, buffer, starts, ends)
            return
        verdicts = [
            self._compare(producer.name, first[i], highest[i]) if looked is None else looked
            for i in range(len(first))
            for looked in (self._look(buffer, starts[i], ends[i], chunked=chunked),)
        ]
        at = 0
        for verdict, group in groupby(verdicts):
            end = at + len(list(group))
            if verdict in (_STORE, _STORE_CHUNK):
                part = Publish(
                    producer, first[at:end], highest[at:end], sum(numbers[at:end]), publish.started
                )
                part.completes = verdict == _STORE
                desk.submit(producer, part, buffer, starts[at:end], ends[at:end])
            for index in range(at, end):
                if verdict == _ALREADY_STORED:
                    desk.send_duplicate_receipt(producer, first[index], highest[index])
                elif isinstance(verdict, BrokerError):
                    desk.send_send_error(producer.producer_id, first[index], verdict)
            at = end

    def _look(self, buffer: bytes, start: int, end: int, *, chunked: bool) -> int | BrokerError | None:
        """What is to be done with an entry for what it is; None: that is up to its sequence id."""
        if self._max_size and end - start > self._max_size:
            return NotAllowed("Exceed maximum message size")
        if not (self._encrypted or chunked):
            return None
        try:
            metadata = parse_entry(buffer[start:end], verify_checksum=False).metadata
        except EntryError as error:
            return InternalError(f"The entry has no readable metadata: {error}")
        if self._encrypted and not metadata.encryption_keys:
            return EncryptionRequired("Messages must be encrypted")
        return _STORE_CHUNK if chunked and chunks_follow(metadata) else None

    def _compare(self, name: str, first: int, highest: int) -> int | BrokerError:
        """What is to be done with an entry for its sequence ids."""
        if self._deduplication is None:
            return _STORE
        found = self._deduplication.admit(name, first, highest)
        if found == FRESH:
            return _STORE
        if found == DUPLICATE:
            return _ALREADY_STORED
        return InternalError("Cannot determine whether the message is a duplicate at this time")
