"""Lets people browse the messages of a topic by position, time or key, decoded with their schemas.

Reading is bounded: an answer has at most :data:`MOST_MESSAGES` messages, comes from a limited number of
entries, and shows only the beginning of long payloads. The answer contains the position for the next request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from magnetar.broker.admin.topics import TopicAdmin
from magnetar.broker.service import BrokerService
from magnetar.broker.topics.entries import first_published_at
from magnetar.broker.topics.persistent import Topic
from magnetar.errors import InvalidSchemaData, NotAllowed
from magnetar.io.slices import Slice
from magnetar.ledger.interface import EntryRun
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import Position
from magnetar.protocol.errors import ProtocolError
from magnetar.protocol.hot_codec import transaction_of
from magnetar.protocol.pulsar_api_pb2 import CompressionType

if TYPE_CHECKING:
    from magnetar.client.message import Message
    from magnetar.client.readable import DecodeMessage
    from magnetar.protocol.metadata import Entry

MOST_MESSAGES = 100
_MOST_ENTRIES = 2000
"""The maximum number of entries that one request reads."""
_MOST_READ_BYTES = 8 << 20
_RUN_ENTRIES = 100
_RUN_BYTES = 1 << 20
_SHOWN = 16 << 10
"""The maximum number of characters of a payload that are shown."""
_LARGE = 1 << 20
"""The uncompressed size in bytes above which an entry is not decompressed and a message not decoded."""


class BrowsingAdmin:
    """Lets people browse the messages of topics. Topics are given by their full names."""

    def __init__(self, broker: BrokerService, topics: TopicAdmin) -> None:
        self._broker = broker
        self._topics = topics

    async def browse(
        self,
        topic: str,
        *,
        count: int,
        position: Position | None = None,
        time_ms: int | None = None,
        key: str | None = None,
    ) -> Mapping[str, object]:
        """Returns messages in topic order, and in ``next`` the position after them, or None at the end of the
        topic.

        If consumers do not get a message because of a transaction, ``hidden`` of the message is the reason.

        Without ``position`` and ``time_ms``, reads the last entries of the topic or, with ``key``, reads from
        the first entry on.

        :param count: the maximum number of messages, 1 to :data:`MOST_MESSAGES`; the last entry may add the
            rest of its batch
        :param position: the first entry to read; if that entry is not stored, the next stored entry
        :param time_ms: read messages published at or after this time, in ms since 1970
        :param key: return only messages with this key
        :raises TopicNotFound: no such topic
        :raises NotAllowed: the topic is partitioned; each partition is a topic and can be read
        :raises LedgerError: the entries cannot be read
        """
        if await self._broker.namespaces.partitions(self._broker.parse_topic(topic)):
            raise NotAllowed(f"{topic} is partitioned: look at the messages of one partition")
        found = await self._topics.persistent(topic)
        ledger = found.managed_ledger
        if time_ms is not None:
            start = await first_published_at(ledger, time_ms)
        elif position is not None:
            start = ledger.ledgers.first_at_or_after(position)
        else:
            start = _beginning(ledger, None if key is not None else count)
        browsed = _Browsed(self._broker, found, key)
        end = await browsed.read(start, count)
        return {
            "messages": browsed.messages,
            "next": None if end > ledger.last_confirmed else f"{end[0]}:{end[1]}",
            "first": _text(_beginning(ledger, None)),
            "last": _text(ledger.last_confirmed),
            "entriesRead": browsed.entries,
        }


def _beginning(ledger: ManagedLedger, last: int | None) -> Position:
    """Returns the first stored position or, with ``last``, the position ``last`` entries before the end."""
    ledgers = ledger.ledgers
    before = (ledgers.first_id(), -1)
    skipped = max(0, ledgers.entries_after(before) - last) if last is not None else 0
    return ledgers.after(ledgers.nth_after(before, skipped) if skipped else before)


def _unopened(entry: Entry) -> Mapping[str, object]:
    """Returns fields that describe the payload of a large entry that is not decoded; empty if the payload is
    neither compressed nor a batch.

    ``compression`` is the name of the compression; ``batchSize`` the number of messages, each with its own
    metadata; ``uncompressedBytes`` the size without compression.
    """
    metadata = entry.metadata
    found: dict[str, object] = {}
    if metadata.compression:
        found["compression"] = CompressionType.Name(metadata.compression)
    if entry.batch_size is not None:
        found["batchSize"] = entry.batch_size
    return {"unopened": True, **found, "uncompressedBytes": metadata.uncompressed_size} if found else {}


def _text(position: Position) -> str:
    return f"{position[0]}:{position[1]}"


class _Browsed:
    """The messages that one request returns."""

    def __init__(self, broker: BrokerService, topic: Topic, key: str | None) -> None:
        self.messages: list[Mapping[str, object]] = []
        self.entries = 0
        self._broker = broker
        self._topic = topic
        self._key = key
        self._decoders: dict[bytes, tuple[str, DecodeMessage] | None] = {}

    async def read(self, start: Position, count: int) -> Position:
        """Reads until ``count`` messages are found; returns the position after the last entry that was
        read."""
        ledger, left = self._topic.managed_ledger, _MOST_READ_BYTES
        time_slice = Slice(self._broker.io, "browsing")
        while start <= ledger.last_confirmed and self.entries < _MOST_ENTRIES and left > 0:
            run = await ledger.reader.read(start, ledger.last_confirmed, _RUN_ENTRIES, _RUN_BYTES)
            for index in range(run.count):
                self.entries += 1
                left -= run.ends[index] - run.starts[index]
                await self._take(run, index)
                start = ledger.ledgers.after((run.ledger_id, run.first_entry_id + index))
                if len(self.messages) >= count:
                    return start
                await time_slice.rest()
        return start

    async def _take(self, run: EntryRun, index: int) -> None:
        hidden = self._hidden(run, index)
        for message, unopened in self._messages(run, index):
            if self._key is not None and not (
                message.has_partition_key() and message.partition_key() == self._key
            ):
                continue
            decoded = None if unopened else await self._decoded(message)
            self.messages.append({**self._shown(message, decoded), **unopened, **hidden})

    def _hidden(self, run: EntryRun, index: int) -> Mapping[str, object]:
        """Returns the transaction of an entry, and the reason why consumers do not get the entry, if any."""
        txn = transaction_of(run.buffer, run.starts[index], run.ends[index])
        known, position = self._topic.transactions, (run.ledger_id, run.first_entry_id + index)
        found: dict[str, object] = {} if txn is None else {"transaction": "({},{})".format(*txn)}
        if txn is not None and known is not None and txn in known.aborted:
            found["hidden"] = "its transaction was aborted"
        elif position > self._topic.managed_ledger.max_read_position:
            hides = (
                "its transaction is open"
                if known is not None and txn in known.open
                else "behind an open transaction"
            )
            found["hidden"] = hides
        return found

    def _messages(self, run: EntryRun, index: int) -> Iterator[tuple[Message, Mapping[str, object]]]:
        """Yields the messages of an entry. An encrypted or very large entry is one message; a marker yields
        no message.

        The message of a very large entry comes with fields that describe its undecoded payload; the fields of
        other messages are empty.
        """
        # Imported when an operator looks, so that a start does without the client.
        from magnetar.client.exceptions import InvalidMessage
        from magnetar.client.message import RawEntry
        from magnetar.protocol.metadata import parse_entry

        entry, entry_id = run.entry(index), run.first_entry_id + index
        try:
            parsed = parse_entry(entry, verify_checksum=False)
        except ProtocolError as error:
            self._add_damaged(run.ledger_id, entry_id, error)
            return
        if parsed.metadata.HasField("marker_type"):
            return
        partition = self._topic.name.partition_index
        raw = RawEntry(run.ledger_id, entry_id, partition, 0, parsed.batch_size or 0, entry)
        if raw.is_encrypted:
            yield raw.whole(self._topic.full_name), {}
            return
        if parsed.metadata.uncompressed_size > _LARGE:
            yield raw.whole(self._topic.full_name), _unopened(parsed)
            return
        try:
            for message in raw.messages(self._topic.full_name):
                yield message, {}
        except InvalidMessage as error:
            self._add_damaged(run.ledger_id, entry_id, error)

    def _add_damaged(self, ledger_id: int, entry_id: int, error: Exception) -> None:
        if self._key is None:
            self.messages.append({"id": f"{ledger_id}:{entry_id}", "damaged": str(error)})

    def _shown(self, message: Message, decoded: tuple[str, object] | None) -> Mapping[str, object]:
        from magnetar.client.readable import described

        found = described(message, decoded)
        found["producerName"] = message.producer_name()
        found["sequenceId"] = message.sequence_id()
        data = message.data()
        found["bytes"] = len(data)
        if message.replicated_from():
            found["replicatedFrom"] = message.replicated_from()
        for name in ("content", "hex"):
            text = found.get(name)
            if isinstance(text, str) and len(text) > _SHOWN:
                found[name] = text[:_SHOWN]
                found["truncated"] = True
        if found.get("truncated"):
            # The decoded value would be as long as the whole text.
            found.pop("value", None)
        return found

    async def _decoded(self, message: Message) -> tuple[str, object] | None:
        from magnetar.client.readable import value_of

        if message.has_null_value() or message.encryption() is not None or len(message.data()) > _LARGE:
            return None
        version = message.schema_version()
        if version not in self._decoders:
            self._decoders[version] = await self._decoder(version)
        return value_of(message, self._decoders[version])

    async def _decoder(self, version: bytes) -> tuple[str, DecodeMessage] | None:
        from magnetar.broker.schemas.data import version_from_bytes
        from magnetar.client.readable import UNREADABLE, decode_message
        from magnetar.client.schema import TopicSchema

        try:
            number = version_from_bytes(version) if version else None
        except InvalidSchemaData:
            return None
        stored = await self._broker.schemas.get(self._topic.name.schema_path, number)
        if stored is None:
            return None
        kind = stored.data.type.name
        try:
            decode = decode_message(TopicSchema(kind, stored.data.data, stored.data.properties))
        except UNREADABLE:
            return None
        return None if decode is None else (kind, decode)
