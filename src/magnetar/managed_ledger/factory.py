"""Opens managed ledgers, with recovery of the last ledger and of all cursors."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from magnetar.io.interfaces import Io
from magnetar.io.slices import each
from magnetar.io.waiting import together
from magnetar.io.wheel import TimerWheel
from magnetar.ledger.interface import LedgerError, LedgerStore, NoSuchLedger, Quorums
from magnetar.managed_ledger.acknowledged import AcknowledgedState
from magnetar.managed_ledger.current_ledger import custom_metadata
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.cursor_storage import CursorStorage
from magnetar.managed_ledger.cursors import AT_ONCE
from magnetar.managed_ledger.deletion_queue import DeletionQueue
from magnetar.managed_ledger.entry_cache import EntryCache
from magnetar.managed_ledger.entry_reader import LostData
from magnetar.managed_ledger.errors import (
    ManagedLedgerError,
    ManagedLedgerFenced,
    ManagedLedgerNotFound,
    MetadataDamaged,
)
from magnetar.managed_ledger.exports import Exports
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.orphans import OrphanedLedgers
from magnetar.managed_ledger.owned_record import OwnedRecord, Tenure
from magnetar.managed_ledger.position import EARLIEST, LATEST, Position
from magnetar.managed_ledger.records import (
    OFFLOADS_TO_DELETE,
    ROOT,
    LedgerSizes,
    ManagedLedgerRecord,
    decode_managed_ledger,
    encode_managed_ledger,
)
from magnetar.managed_ledger.settings import EntryCacheSettings, ManagedLedgerSettings, RetentionSettings
from magnetar.managed_ledger.shadow_ledger import ShadowLedger, Shadows
from magnetar.metadata.interface import MUST_NOT_EXIST, MetadataError, MetadataStore
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.replicators import SHADOW_SOURCE, shadow_source
from magnetar.naming.topic_name import TopicName, decode_path_piece, encode_path_piece

if TYPE_CHECKING:
    from magnetar.managed_ledger.offload_deletions import DeletionCounts
    from magnetar.managed_ledger.tiered_storage import OpenDriver, StorageOf, TieredStorage


log = logging.getLogger(__name__)


class ManagedLedgerFactory:
    """Opens managed ledgers by name (``tenant/namespace/persistent/topic``, the topic URL-encoded)."""

    def __init__(
        self,
        io: Io,
        wheel: TimerWheel,
        store: LedgerStore,
        metadata: MetadataStore,
        settings: ManagedLedgerSettings,
        cache_settings: EntryCacheSettings,
        open_driver: OpenDriver | None = None,
    ) -> None:
        """:param open_driver: opens offload drivers; None: tiered storage is not accessed"""
        self._io = io
        self._wheel = wheel
        self.store = store
        self._metadata = metadata
        self.settings = settings
        self.cache = EntryCache(io.loop, io.clock, cache_settings)
        self.deletions = DeletionQueue(io.loop, store, metadata)
        self._open_driver = open_driver
        self._tiered: TieredStorage | None = None
        self.storage_of: StorageOf | None = None
        """Returns the tiered storage in the policies of a managed ledger; None: there are no policies."""
        self.note_offloading: Callable[[], Awaitable[None]] | None = None
        """Records durably that metadata refers to tiered storage, so that older releases refuse the metadata.
        None: all brokers that use the metadata support tiered storage."""
        self._exports = Exports(metadata)
        self.lost_data = LostData(skip=settings.skip_lost_data)
        self._shadows = Shadows(metadata)
        self.opened: dict[str, ManagedLedger] = {}

    def use(self, cache_settings: EntryCacheSettings, *, skip_lost_data: bool) -> None:
        """Applies changed settings; ``skip_lost_data`` as in :class:`ManagedLedgerSettings`."""
        self.cache.use(cache_settings)
        self.lost_data.skip = skip_lost_data

    def tiered(self) -> TieredStorage:
        """Returns the access to tiered storage, which is created on first use."""
        if self._tiered is None:
            from magnetar.managed_ledger.tiered_storage import TieredStorage, no_driver, no_storage

            self._tiered = TieredStorage(
                self._io,
                self.store,
                self._metadata,
                self._open_driver or no_driver,
                self.storage_of or no_storage,
                self.note_offloading,
            )
        return self._tiered

    def offload_deletions(self) -> Mapping[str, DeletionCounts]:
        """Returns the recent deletions of offloaded ledgers, by managed ledger."""
        return {} if self._tiered is None else self._tiered.deletions.counts()

    async def resume_deletions(self) -> None:
        """Continues with deletions that were not finished before the last restart.

        :raises MetadataError: the records cannot be read
        """
        await self.deletions.resume()
        if await self._metadata.children(OFFLOADS_TO_DELETE):
            self.tiered().deletions.start()

    def stop_deletions(self) -> None:
        """Stops all attempts to delete ledgers; the remaining ledgers are recorded."""
        self.deletions.stop()
        if self._tiered is not None:
            self._tiered.deletions.stop()

    async def release(self) -> None:
        """Ends the threads for tiered storage; called after all managed ledgers are closed."""
        if self._tiered is not None:
            await self._tiered.close()

    async def exists(self, name: str) -> bool:
        return await self._metadata.exists(f"{ROOT}/{name}")

    async def properties(self, name: str) -> Mapping[str, str] | None:
        """Returns the properties of a managed ledger, whichever broker owns it; None if it does not exist.

        :raises MetadataDamaged: its record cannot be parsed
        """
        path = f"{ROOT}/{name}"
        node = await self._metadata.get(path)
        return None if node is None else decode_managed_ledger(node.value, path).properties

    async def names(self, below: str) -> Sequence[str]:
        """Returns the names of managed ledgers below a path such as ``tenant/namespace/persistent``, without
        this path and URL-encoded, sorted."""
        return await self._metadata.children(f"{ROOT}/{below}")

    async def open(
        self,
        name: str,
        *,
        create: bool,
        retention: RetentionSettings | None = None,
        quorums: Quorums | None = None,
        trims: bool = True,
        tenure: Tenure | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> ManagedLedger:
        """Recovers a managed ledger, or creates it.

        :param create: whether a missing managed ledger is created
        :param retention: the retention; None: the retention in the settings
        :param quorums: the quorums; None: the quorums in the settings
        :param trims: whether ledgers may be trimmed immediately; otherwise only after ``trimmer.begin`` was
            called
        :param tenure: the ownership of this broker, which may end at any time; None: there are no other
            brokers
        :param properties: the properties of a new managed ledger, which is a shadow if they contain
            ``PULSAR.SHADOW_SOURCE``
        :raises ManagedLedgerNotFound: the managed ledger does not exist and ``create`` is false
        :raises ManagedLedgerFenced: another broker opened it at the same time
        :raises ManagedLedgerMoving: its topic is being copied to these stores, or was moved away
        :raises MetadataDamaged: its record cannot be parsed, or is the record of a shadow but lists ledgers
        """
        await self._exports.check(name)
        path = f"{ROOT}/{name}"
        tenure = tenure or Tenure(self._io.loop)
        node = await self._metadata.get(path)
        version = MUST_NOT_EXIST if node is None else node.version
        stored = OwnedRecord(self._io.loop, self._metadata, path, version, tenure)
        if node is None:
            if not create:
                raise ManagedLedgerNotFound(f"managed ledger {name} does not exist")
            record = ManagedLedgerRecord(properties=dict(properties or {}))
            await stored.put(lambda: encode_managed_ledger(record))
        else:
            record = decode_managed_ledger(node.value, path)
            if any(each.offload is not None for each in record.ledgers):
                # Metadata that was recovered from the journal does not have the note.
                await self.tiered().note_use()
            last = record.ledgers[-1] if record.ledgers else None
            if last is not None and not last.closed_ms and self.store.may_be_written(last.ledger_id):
                await _claim(stored, node.value)
        parts = (
            self._io,
            self.store,
            self._metadata,
            self.settings if quorums is None else replace(self.settings, quorums=quorums),
            self.cache,
            record,
            stored,
            retention or self.settings.retention,
            self.deletions,
            self.lost_data,
            self.tiered,
        )
        source = _shadow_source(record, name)
        if source is not None and record.ledgers:
            # The record of a shadow is written without ledgers.
            raise MetadataDamaged(
                f"{ROOT}/{name} has {SHADOW_SOURCE} and also {len(record.ledgers)} ledgers of its own: "
                "remove either the property or the ledgers"
            )
        empty = await self._recover_last(name, record) if source is None else None
        ledger: ManagedLedger
        if source is None:
            ledger = ManagedLedger(name, *parts)
        else:
            ledger = ShadowLedger(name, source.path, *parts)
            await ledger.open_source()
        if empty is not None:
            ledger.rolling.listed(empty)
        if record.terminated is None or source is not None:
            await ledger.roll()
        if empty is not None:
            await self.deletions.delete(empty)
        try:
            children = await self._metadata.children(path)
            sizes = LedgerSizes(ledger.ledgers)
            cursors = await together(
                self._io.loop, children, lambda child: self._recover_cursor(ledger, child, sizes), AT_ONCE
            )
            await each(self._io, "loading", cursors, ledger.cursors.add)
        except (LedgerError, ManagedLedgerError, MetadataError):
            # The next opening recovers its new ledger.
            ledger.disown()
            raise
        if isinstance(ledger, ShadowLedger):
            self._shadows.opened(ledger)
        elif trims:
            ledger.trimmer.begin()
        self.opened[name] = ledger
        return ledger

    async def _recover_last(self, name: str, record: ManagedLedgerRecord) -> int | None:
        """Fences and closes the last ledger. If this ledger is empty and the managed ledger is not
        terminated, the ledger is removed from the list, and its id is returned; otherwise None is returned.

        The caller deletes the empty ledger once the record no longer names it. A lost ledger is also removed
        from the list, if the settings permit it.
        """
        if not record.ledgers or record.ledgers[-1].closed_ms:
            return None
        last = record.ledgers[-1]
        try:
            reader = await self.store.open(last.ledger_id, recover=True)
        except NoSuchLedger as error:
            if not self.lost_data.skip:
                raise
            self.lost_data.ledgers += 1
            log.error(
                "last ledger is lost; continuing without it (autoSkipNonRecoverableData)",
                extra={"managed_ledger": name, "ledger": last.ledger_id, "reason": str(error)},
            )
            record.ledgers.pop()
            return None
        last.entries = reader.metadata.last_entry_id + 1
        last.size = reader.metadata.length
        last.closed_ms = max(self._io.clock.wall_ms(), 1)
        reader.close()
        if last.entries or record.terminated is not None:
            return None
        record.ledgers.pop()
        return last.ledger_id

    def _storage(self, ledger: ManagedLedger, name: str, piece: str) -> CursorStorage:
        """Returns the storage of a cursor.

        :param piece: the cursor's name as encoded in the path
        """
        return CursorStorage(
            self._io,
            self._wheel,
            self.store,
            self._metadata,
            ledger.settings,
            f"{ledger.path}/{piece}",
            custom_metadata(ledger.name, name),
            self.deletions,
            ledger.stored_record,
        )

    async def _recover_cursor(self, ledger: ManagedLedger, piece: str, sizes: LedgerSizes) -> Cursor:
        name = decode_path_piece(piece)
        # The path is used as found: another program may have encoded other characters.
        storage = self._storage(ledger, name, piece)
        state = await storage.recover(sizes)
        if isinstance(ledger, ShadowLedger) and not ledger.source_missing:
            # What was acknowledged is stored at the source, even if the store does not report it yet.
            ledger.learn(state.mark_delete)
        state.forget_behind(ledger.last_confirmed)
        last = ledger.last_confirmed
        if state.mark_delete > last and (state.mark_delete[1] >= 0 or last[1] >= 0):
            # The crash lost entries that the cursor has passed and whose producer got no receipt. Or it lost
            # the removal of trimmed ledgers: the cursor was at the beginning of the empty ledger after them.
            state.move_mark_delete(last)
        return Cursor(name, ledger, state, storage, self._io.clock.wall_ms())

    async def open_cursor(
        self, ledger: ManagedLedger, name: str, start: Position, properties: dict[str, str]
    ) -> Cursor:
        """Returns the durable cursor of that name; if it is missing, creates it at ``start`` (EARLIEST,
        LATEST or the first entry to read).

        :raises ManagedLedgerFenced: another broker owns the managed ledger
        """
        cursor = ledger.cursors.get(name)
        if cursor is not None:
            return cursor
        storage = self._storage(ledger, name, encode_path_piece(name))
        state = AcknowledgedState(start_position(ledger, start))
        try:
            await storage.create(state, properties)
        except ManagedLedgerFenced:
            ledger.fenced()
            raise
        cursor = Cursor(name, ledger, state, storage, self._io.clock.wall_ms())
        ledger.cursors.add(cursor)
        return cursor

    def open_reader_cursor(self, ledger: ManagedLedger, name: str, start: Position) -> Cursor:
        """Returns a non-durable cursor, which exists while it is referenced, and does not prevent
        trimming."""
        state = AcknowledgedState(start_position(ledger, start))
        cursor = Cursor(name, ledger, state, None, self._io.clock.wall_ms())
        ledger.cursors.add(cursor)
        return cursor

    async def write_cursors(self) -> None:
        """Writes the states of all cursors that have changed since they were last written.

        :raises LedgerError: the ledger of a cursor failed
        :raises ManagedLedgerError: a cursor cannot be written
        """
        due: list[tuple[ManagedLedger, Cursor]] = []

        def look(ledger: ManagedLedger) -> None:
            due.extend((ledger, cursor) for cursor in ledger.cursors.values() if cursor.storage is not None)

        async def write(found: tuple[ManagedLedger, Cursor]) -> None:
            ledger, cursor = found
            if cursor.storage is None:
                return
            try:
                await cursor.storage.write_changes()
            except (LedgerError, ManagedLedgerError):
                # It may have been deleted meanwhile, alone or with its topic.
                if ledger.cursors.get(cursor.name) is cursor:
                    raise

        await each(self._io, "snapshot", list(self.opened.values()), look)
        await together(self._io.loop, due, write, AT_ONCE)

    async def close(self, ledger: ManagedLedger) -> None:
        if self.opened.get(ledger.name) is ledger:
            del self.opened[ledger.name]
        self._shadows.over(ledger)
        await ledger.close()

    async def delete(self, ledger: ManagedLedger) -> None:
        if self.opened.get(ledger.name) is ledger:
            del self.opened[ledger.name]
        self._shadows.over(ledger)
        await ledger.delete()

    def orphaned_ledgers(self, retention_ms: int) -> OrphanedLedgers:
        """Returns the object that finds and deletes orphaned ledgers.

        :param retention_ms: how long orphaned ledgers are kept
        """
        return OrphanedLedgers(self._io.clock, self.store, self._metadata, retention_ms)


def _shadow_source(record: ManagedLedgerRecord, name: str) -> TopicName | None:
    """Returns the source of a shadow topic; None if the record is not a shadow's.

    :raises MetadataDamaged: the property for the source does not contain the name of a topic
    """
    if not record.properties:
        return None
    try:
        return shadow_source(record.properties, TopicName.from_path(name))
    except InvalidName as error:
        raise MetadataDamaged(f"{ROOT}/{name}: {error}") from error


async def _claim(stored: OwnedRecord, value: bytes) -> None:
    """Writes the record again, so that a former owner whose ledger is fenced notices that it lost the
    record."""
    await stored.put(lambda: value)


def start_position(ledger: ManagedLedger, start: Position) -> Position:
    """Returns the mark-delete position of a cursor whose first entry to read is ``start``."""
    if start == LATEST or not len(ledger.ledgers):
        # A shadow whose source was deleted has no ledgers.
        return ledger.last_confirmed
    if start == EARLIEST:
        return ledger.ledgers.before(ledger.ledgers.first_at_or_after((0, 0)))
    target = ledger.ledgers.first_at_or_after(start)
    if target > ledger.last_confirmed:
        return ledger.last_confirmed
    return ledger.ledgers.before(target)
