"""Exports one topic, with its partitions, from the source to the target.

First all data is copied and read back, while the topic is complete at the source and can be served there.
Then the records are written at the target, where brokers may not open the topic yet. The switch is the write
of one node at the source, the note that the topic has left: from then on, brokers may not open the topic at
the source, and soon they may open it at the target. The data at the source is deleted last. Notes record the
progress, and the next run continues after an interruption.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from magnetar.broker.schemas.storage import ROOT as SCHEMAS
from magnetar.broker.schemas.storage import decode_locator
from magnetar.exporting.noted import CursorLedgers, LedgerContents, NotedLedgers, Rewrite, contents_of, fill
from magnetar.exporting.rewriting import (
    Moved,
    MovedLedgers,
    compacted_message,
    compacted_metadata,
    ledgers_in_compacted,
    schema_entry,
    schema_locator,
)
from magnetar.exporting.stored_topics import (
    ExportedTopic,
    NotExported,
    OpenStores,
    StoredCursor,
    Unit,
    cursor_storage,
    managed_ledgers_of,
    mapped_properties,
    read_cursors,
    read_record,
    read_topic,
)
from magnetar.exporting.topic_policies import carry_policies, forget_policies
from magnetar.ledger.bookkeeper import ledger_record
from magnetar.ledger.interface import Quorums
from magnetar.managed_ledger.current_ledger import custom_metadata
from magnetar.managed_ledger.exports import ExportNote, ExportState, decode_note, encode_note, note_path
from magnetar.managed_ledger.records import (
    ROOT,
    LedgerSizes,
    LedgerSummary,
    ManagedLedgerRecord,
    decode_managed_ledger,
    encode_managed_ledger,
)
from magnetar.metadata.interface import MUST_NOT_EXIST, BadVersion, MetadataStore, NodeMissing
from magnetar.naming.topic_name import Domain, TopicName

PARTITIONED = "/admin/partitioned-topics"


class MappedLedger(NamedTuple):
    """A line of the mapping file."""

    topic: str
    """The full name of the topic or partition."""
    old: int
    new: int
    entries: int
    """The number of entries; -1: the ledger was deleted before the export."""


Keep = Callable[[Sequence[MappedLedger]], None]
"""Writes lines of the mapping file durably."""


class TopicExport:
    """Exports one topic: its ledgers, cursors, schemas and policies.

    :param keep: called with the mapped ledgers before the switch; possibly more than once
    """

    def __init__(self, source: OpenStores, target: OpenStores, unit: Unit, keep: Keep) -> None:
        self._source = source
        self._target = target
        self._unit = unit
        self._keep = keep
        names = {name.encode() for name in unit.managed_ledgers}
        names |= {str(TopicName.from_path(name)).encode() for name in unit.managed_ledgers}
        names.add(unit.name.schema_path.encode())
        note = ExportNote(ExportState.INCOMING, source.identity, source.name)
        self._noted = NotedLedgers(target, unit.path, note, frozenset(names))
        self._quorums = Quorums()
        self._wanted: set[int] = set()
        """The ids of source ledgers that were copied in this run or earlier."""
        self._anew = False
        """Whether a ledger was copied again, so that all later ledgers must be copied, too, to keep ids
        ascending.
        """

    async def run(self) -> None:
        """Exports the topic, or continues an interrupted export.

        :raises NotExported: the topic cannot be exported, or another process interfered
        :raises LedgerError: entries cannot be read or written
        :raises ManagedLedgerError: records cannot be read or written
        :raises MetadataError: a store refused the request, or does not answer
        """
        left = await self._note_at(self._source)
        arriving = await self._note_at(self._target)
        self._check_peers(left, arriving)
        if arriving is not None:
            self._noted.note = arriving
        if left is None and (arriving is None or arriving.state is ExportState.INCOMING):
            await self._copy(resumed=arriving is not None)
            await self._turn_round()
        else:
            await self._noted.read()
            self._keep(self._mapping())
        await self._clear_up()

    async def give_up(self) -> None:
        """Removes the data of an interrupted export from the target; the topic stays at the source.

        :raises NotExported: the topic has left the source, so that the export can only be finished
        :raises LedgerError: ledgers cannot be deleted
        :raises MetadataError: a store refused the request, or does not answer
        """
        left = await self._note_at(self._source)
        arriving = await self._note_at(self._target)
        self._check_peers(left, arriving)
        if left is not None or (arriving is not None and arriving.state is not ExportState.INCOMING):
            raise NotExported(
                f"{self._unit.name} has already left {self._source.name}: its export can only be "
                "finished, not abandoned"
            )
        if arriving is None:
            return
        noted = self._noted
        noted.note = arriving
        await noted.resume()
        await self._remove_records()
        await noted.drop_states()
        for old in sorted(noted.copies):
            await noted.drop(old)
        await forget_policies(self._target, self._unit.name)
        await noted.remove()

    async def _note_at(self, side: OpenStores) -> ExportNote | None:
        node = await side.metadata.get(note_path(self._unit.path))
        return None if node is None else decode_note(node)

    def _check_peers(self, left: ExportNote | None, arriving: ExportNote | None) -> None:
        for note, peer in ((left, self._target), (arriving, self._source)):
            if note is not None and note.peer != peer.identity:
                raise NotExported(
                    f"{self._unit.name} is already being exported from or to {note.peer_name}, not "
                    f"{peer.name}: finish that export first"
                )
        if left is not None and left.state is not ExportState.LEFT:
            raise NotExported(
                f"{self._unit.name} is still arriving from {left.peer_name}; finish that export first"
            )
        if arriving is not None and arriving.state is ExportState.LEFT:
            raise NotExported(
                f"{self._unit.name} is already being exported to {arriving.peer_name}: "
                "finish that export first"
            )
        if left is not None and arriving is None:
            raise NotExported(
                f"{self._unit.name} has left {self._source.name}, but the target has no record of it"
            )

    # Copying

    async def _copy(self, *, resumed: bool) -> None:
        noted = self._noted
        if resumed:
            await noted.resume()
            await self._remove_records()
            await noted.drop_states()
        else:
            await noted.begin()
        await carry_policies(self._source, self._target, self._unit.name)
        effective = await self._target.broker.policies.of_topic(self._unit.name)
        self._quorums = effective.quorums
        self._topics: list[ExportedTopic] = []
        for name in self._unit.managed_ledgers:
            topic = await read_topic(self._source, name)
            await self._copy_topic(topic)
            self._topics.append(topic)
        await self._copy_schema()
        await self._copy_node(f"{PARTITIONED}/{self._unit.path}")
        for old in sorted(noted.copies.keys() - self._wanted):
            await noted.drop(old)

    async def _copy_topic(self, topic: ExportedTopic) -> None:
        self._anew = False
        record = topic.record
        kept = {each.ledger_id: each for each in record.ledgers}
        moved = [
            await self._moved(topic.name, old, kept.get(old))
            for old in sorted(kept.keys() | await self._only_compacted(topic))
        ]
        places = MovedLedgers(moved)
        for cursor in topic.cursors:
            if (compacted := cursor.compacted_ledger) is not None:
                await self._copy_compacted(compacted, places)
        for cursor in topic.cursors:
            await self._put_cursor(topic.name, cursor, places)
        await self._put_record(topic, places, {each.old: each.new for each in moved})

    async def _only_compacted(self, topic: ExportedTopic) -> set[int]:
        """Returns the ids of those ledgers of a topic, existing or deleted, whose messages are in a compacted
        ledger.
        """
        found: set[int] = set()
        for cursor in topic.cursors:
            ledger_id = cursor.compacted_ledger
            if ledger_id is not None:
                reader = await self._source.ledgers.open(ledger_id, recover=True)
                found |= await ledgers_in_compacted(reader)
                reader.close()
        return found

    async def _moved(self, name: str, old: int, summary: LedgerSummary | None) -> Moved:
        if summary is None:
            return Moved(old, await self._id_for(old, name), -1)
        contents = await self._copy_ledger(old, name)
        if contents.entries != summary.entries:
            raise NotExported(
                f"{name}: its record has {summary.entries} entries for ledger {old}, but the ledger has "
                f"{contents.entries}"
            )
        return Moved(old, self._noted.copies[old].new, contents.entries)

    async def _id_for(self, old: int, name: str) -> int:
        """Returns an id in the target store for a deleted ledger to which other records refer."""
        noted = self._noted
        self._wanted.add(old)
        known = noted.copies.get(old)
        if known is None or self._anew:
            self._anew = True
            if known is not None:
                await noted.drop(old)
            await noted.create_placeholder(old, self._quorums, name)
        if not noted.copies[old].gone:
            await self._target.ledgers.delete(noted.copies[old].new)
            await noted.finish(old, None)
        return noted.copies[old].new

    async def _copy_ledger(
        self,
        old: int,
        topic: str = "",
        rewrite: Rewrite | None = None,
        describe: Callable[[dict[str, bytes]], dict[str, bytes]] = lambda custom: custom,
    ) -> LedgerContents:
        """Copies a ledger and reads the copy back, unless a complete copy exists.

        :param topic: the topic of the ledger's messages; empty: the ledger has no messages
        :param rewrite: returns an entry in its form for the target
        :param describe: returns the custom metadata of the copy
        """
        noted, target = self._noted, self._target
        self._wanted.add(old)
        known = noted.copies.get(old)
        if known is not None and not self._anew and await noted.is_there(known) and known.contents:
            return known.contents
        self._anew = True
        if known is not None:
            await noted.drop(old)
        reader = await self._source.ledgers.open(old, recover=True)
        custom = dict(reader.metadata.custom) or custom_metadata(topic)
        # The target's policies determine the bookies.
        custom.pop(ledger_record.CUSTOM, None)
        try:
            writer = await noted.create(old, self._quorums, describe(custom), topic)
            last = reader.metadata.last_entry_id
            contents = await fill(target.io.loop, reader, last, writer, rewrite)
        finally:
            reader.close()
        written = await target.ledgers.open(writer.ledger_id, recover=False)
        found = await contents_of(target.io.loop, written)
        written.close()
        if found != contents:
            raise NotExported(f"ledger {old} differs from its copy {writer.ledger_id} in {target.name}")
        await noted.finish(old, contents)
        return contents

    async def _copy_compacted(self, old: int, places: MovedLedgers) -> None:
        await self._copy_ledger(
            old,
            rewrite=lambda entry: compacted_message(entry, places),
            describe=lambda custom: compacted_metadata(custom, places),
        )

    async def _schema(self) -> tuple[str, bytes] | None:
        """Returns the path and the value of the topic's schema locator.

        Returns None if the topic has no schemas, or if the topic is non-persistent and a persistent topic of
        the same name exists, with which the schemas are exported.
        """
        name = self._unit.name
        path = f"{SCHEMAS}/{name.schema_path}"
        node = await self._source.metadata.get(path)
        if node is None or not node.value:
            return None
        if not name.persistent:
            # A persistent topic of that name has the same schemas, and they are exported with it.
            twin = TopicName(Domain.PERSISTENT, name.namespace_name, name.local)
            if await managed_ledgers_of(self._source, twin):
                return None
        return path, node.value

    async def _copy_schema(self) -> None:
        self._anew = False
        schema = await self._schema()
        if schema is None:
            return
        path, value = schema
        ledgers: dict[int, int] = {}
        for entry in decode_locator(value, path):
            await self._copy_ledger(entry.ledger_id, rewrite=lambda each: schema_entry(each, ledgers))
            ledgers[entry.ledger_id] = self._noted.copies[entry.ledger_id].new
        await _make(self._target.metadata, path, schema_locator(value, ledgers, path))

    async def _copy_node(self, path: str) -> None:
        node = await self._source.metadata.get(path)
        if node is not None and node.value:
            await _make(self._target.metadata, path, node.value)

    # Records

    async def _put_cursor(self, name: str, cursor: StoredCursor, places: MovedLedgers) -> None:
        target, settings = self._target, self._target.managed.settings
        state = places.state(cursor.state)
        properties = mapped_properties(
            cursor.storage.properties, {old: each.new for old, each in self._noted.copies.items()}
        )
        settings = replace(
            settings,
            quorums=self._quorums,
            holes_as_bits=settings.holes_as_bits
            or state.range_count() > settings.max_unacked_ranges_to_persist,
            max_batch_indexes_to_persist=max(settings.max_batch_indexes_to_persist, len(state.batches)),
        )
        store = CursorLedgers(target.ledgers, self._noted)
        storage = cursor_storage(target, store, settings, name, cursor.piece)
        await storage.take_over(state, properties, cursor.own_properties, cursor.storage)
        written = cursor_storage(target, target.ledgers, settings, name, cursor.piece)
        found = await written.recover(LedgerSizes())
        if (found.mark_delete, found.describe_ranges(), found.batches, written.properties) != (
            state.mark_delete,
            state.describe_ranges(),
            state.batches,
            properties,
        ):
            raise NotExported(
                f"{name}: the copy of cursor {cursor.piece} in {target.name} differs from the original"
            )

    async def _put_record(self, topic: ExportedTopic, places: MovedLedgers, ids: dict[int, int]) -> None:
        record = topic.record
        # Topics with offloaded ledgers are not exported: this offload is an upload that did not end.
        ledgers = [replace(each, ledger_id=ids[each.ledger_id], offload=None) for each in record.ledgers]
        terminated = record.terminated
        if terminated is not None:
            terminated = places.exactly(terminated) or places.mark(terminated)
        mapped = ManagedLedgerRecord(ledgers, terminated, record.properties, record.rest)
        path = f"{ROOT}/{topic.name}"
        value = encode_managed_ledger(mapped)
        decode_managed_ledger(value, path)
        await _make(self._target.metadata, path, value)

    async def _remove_records(self) -> None:
        """Removes the records of an interrupted attempt from the target."""
        metadata = self._target.metadata
        for name in await managed_ledgers_of(self._target, self._unit.name):
            for piece in await metadata.children(f"{ROOT}/{name}"):
                await _remove(metadata, f"{ROOT}/{name}/{piece}")
            await _remove(metadata, f"{ROOT}/{name}")
        if await self._schema() is not None:
            await _remove(metadata, f"{SCHEMAS}/{self._unit.name.schema_path}")
        await _remove(metadata, f"{PARTITIONED}/{self._unit.path}")

    # The switch, and the steps after it

    async def _turn_round(self) -> None:
        source, target = self._source, self._target
        self._keep(self._mapping())
        for topic in self._topics:
            now = await read_record(source, topic.name)
            if now is None or now.version != topic.version:
                raise NotExported(
                    f"{topic.name} changed while it was copied: stop every broker that serves it, "
                    "and export again"
                )
        source.still_alone()
        target.still_alone()
        left = ExportNote(ExportState.LEFT, target.identity, target.name)
        await source.metadata.put(note_path(self._unit.path), encode_note(left), MUST_NOT_EXIST)

    def _mapping(self) -> list[MappedLedger]:
        found = []
        for old, each in sorted(self._noted.copies.items()):
            if each.topic:
                entries = -1 if each.contents is None else each.contents.entries
                found.append(MappedLedger(str(TopicName.from_path(each.topic)), old, each.new, entries))
        return sorted(found)

    async def _clear_up(self) -> None:
        noted, source = self._noted, self._source
        if noted.note.state is ExportState.INCOMING:
            await noted.become(ExportState.ARRIVED)
        await self._remove_source()
        await _remove(source.metadata, note_path(self._unit.path))
        await noted.remove()

    async def _remove_source(self) -> None:
        """Deletes the topic's data at the source.

        Ledgers are deleted before the records that contain their ids, so that a later run finds the remaining
        ones.
        """
        source = self._source
        if await source.metadata.get(note_path(self._unit.path)) is None:
            # Everything was removed before; data that exists now was created since.
            return
        schema = await self._schema()
        if schema is not None:
            path, value = schema
            for entry in decode_locator(value, path):
                await source.ledgers.delete(entry.ledger_id)
            await _remove(source.metadata, path)
        await forget_policies(source, self._unit.name)
        await _remove(source.metadata, f"{PARTITIONED}/{self._unit.path}")
        for name in self._unit.managed_ledgers:
            await self._remove_managed_ledger(name)

    async def _remove_managed_ledger(self, name: str) -> None:
        source = self._source
        topic = await read_record(source, name)
        if topic is None:
            return
        for cursor in await read_cursors(source, name, LedgerSizes()):
            for ledger_id in cursor.ledgers():
                await source.ledgers.delete(ledger_id)
            await _remove(source.metadata, f"{ROOT}/{name}/{cursor.piece}")
        for each in topic.record.ledgers:
            await source.ledgers.delete(each.ledger_id)
        await _remove(source.metadata, f"{ROOT}/{name}")


async def _make(metadata: MetadataStore, path: str, value: bytes) -> None:
    """Writes a node that must not exist or must be empty.

    :raises NotExported: the node has a value
    """
    node = await metadata.get(path)
    try:
        if node is not None and node.value:
            raise BadVersion(path)
        await metadata.put(path, value, MUST_NOT_EXIST if node is None else node.version)
    except BadVersion as error:
        raise NotExported(
            f"another process created the metadata node {path} during the export; delete it and export again"
        ) from error


async def _remove(metadata: MetadataStore, path: str) -> None:
    try:
        await metadata.delete(path)
    except NodeMissing:
        return
