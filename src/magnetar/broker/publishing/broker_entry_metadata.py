"""Broker entry metadata: a time and an index that the broker writes in front of each entry if enabled
(PIP-70).

The format is Apache Pulsar's: ``0x0e02``, the size of a ``BrokerEntryMetadata``, the metadata, and the entry
as its producer sent it. Consumers get the metadata only if they ask for it and the broker exposes it; all
other readers skip it.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping

from magnetar.lazy_dataclass import dataclass
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.protocol.errors import EntryError
from magnetar.protocol.hot_codec import batch_sizes
from magnetar.protocol.metadata import broker_metadata_of, broker_metadata_size, with_broker_metadata
from magnetar.protocol.pulsar_api_pb2 import BrokerEntryMetadata

INDEX = "index"
"""The property of a managed ledger that stores the last index; it is written together with the list of
ledgers, as in Apache Pulsar."""


@dataclass(frozen=True)
class BrokerEntryMetadataSettings:
    timestamp: bool = False
    """Whether to write the time when the broker received an entry."""
    index: bool = False
    """Whether to write the index of an entry's last message among all messages of the topic."""

    @property
    def wanted(self) -> bool:
        return self.timestamp or self.index


class BrokerEntryMetadataWriter:
    """Writes the metadata for one topic."""

    def __init__(self, settings: BrokerEntryMetadataSettings, last: int) -> None:
        """:param last: the last assigned index; -1 for a new topic"""
        self._settings = settings
        self.last = last
        self._sizes = array("i", bytes(4 * 256))

    def prepend(
        self, buffer: bytes, starts: array[int], ends: array[int], now_ms: int
    ) -> tuple[bytes, array[int], array[int]]:
        """Returns the entries ``buffer[starts[i]:ends[i]]`` with their metadata in front.

        :return: a new buffer, and the starts and ends of the entries in it
        """
        count = len(starts)
        if len(self._sizes) < count:
            self._sizes = array("i", bytes(4 * count))
        batch_sizes(buffer, starts, ends, 0, count, self._sizes)
        pieces, new_starts, new_ends, place = [], array("q"), array("q"), 0
        for index in range(count):
            metadata = BrokerEntryMetadata()
            if self._settings.timestamp:
                metadata.broker_timestamp = now_ms
            if self._settings.index:
                self.last += self._sizes[index]
                metadata.index = self.last
            entry = with_broker_metadata(metadata, buffer[starts[index] : ends[index]])
            pieces.append(entry)
            new_starts.append(place)
            place += len(entry)
            new_ends.append(place)
        return b"".join(pieces), new_starts, new_ends

    def properties(self) -> Mapping[str, str]:
        """Returns the property with the last index, for the list of ledgers; empty if there is no index."""
        return {INDEX: str(self.last)} if self._settings.index and self.last >= 0 else {}


async def recovered_writer(
    ledger: ManagedLedger, settings: BrokerEntryMetadataSettings
) -> BrokerEntryMetadataWriter:
    """Returns a writer that continues after the last stored index; this index is durable when the function
    returns.

    :raises LedgerError: the last entry cannot be read
    """
    text = ledger.properties.get(INDEX, "")
    last = int(text) if text.isdigit() else -1
    writer = BrokerEntryMetadataWriter(settings, last)
    if settings.index:
        position = ledger.last_confirmed
        # An entry that only tiered storage has is not read: the store may be away, and the property was
        # written when the ledger of the entry was followed by another one, long before it was offloaded.
        if ledger.ledgers.exists(position) and ledger.reader.tiered_place(position) is None:
            writer.last = max(last, _index_of((await ledger.reader.read_one(position)).entry(0)))
        if writer.last != last:
            # The last entry may be trimmed before anything else is written.
            await ledger.set_properties(dict(writer.properties()))
        ledger.properties_with_ledgers = writer.properties
    return writer


def _index_of(entry: bytes) -> int:
    try:
        found = broker_metadata_of(entry)
    except EntryError:
        # The entry is stored as it was sent, without metadata in front.
        return -1
    return found.index if found is not None and found.HasField("index") else -1


def bytes_in_front(buffer: bytes, starts: array[int], first: int, count: int) -> int:
    """Returns the total size of the broker entry metadata in front of entries [first, first + count)."""
    return sum(broker_metadata_size(buffer, starts[index]) for index in range(first, first + count))
