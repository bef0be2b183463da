"""Storage of a durable cursor's state: entries of a ledger of its own, or its metadata record.

Recovery uses the newest entry of the cursor's ledger. A clean close writes the state to the metadata record
and deletes the ledger. A changed cursor is written once per interval, in the same commit of the ledger store
as other writes; a crash loses at most the acknowledgements since then.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from magnetar.invariants import Fail
from magnetar.io.interfaces import Cancellable, Future, Io, Task
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import finished, settle
from magnetar.io.wheel import TimerWheel
from magnetar.ledger.interface import EntryTooLarge, LedgerClosed, LedgerError, LedgerStore, Quorums
from magnetar.managed_ledger.acknowledged import AcknowledgedState
from magnetar.managed_ledger.deletion_queue import DeletionQueue
from magnetar.managed_ledger.entry_reader import GONE
from magnetar.managed_ledger.errors import ManagedLedgerError, ManagedLedgerFenced
from magnetar.managed_ledger.owned_record import OwnedRecord, perhaps_written
from magnetar.managed_ledger.records import (
    CursorRecord,
    LedgerSizes,
    decode_cursor,
    decode_newest,
    encode_cursor,
    encode_large,
    encode_position,
    is_large,
)
from magnetar.managed_ledger.settings import ManagedLedgerSettings
from magnetar.managed_ledger.side_ledgers import SideLedgers, brokers_own, owned_ledgers, users_own
from magnetar.managed_ledger.single_entry import CursorLedger
from magnetar.metadata.interface import MetadataError, MetadataStore, NodeMissing

log = logging.getLogger(__name__)

_NO_LEDGER = -1
_MOVES = "magnetar.moves"
_RETRY_SECONDS = 1.0
_COST_TO_PAUSE = 50
"""The pause after a write is at least this many times as long as the encoding of the state took, up to
:data:`_LONGEST_PAUSE`."""
_LONGEST_PAUSE = 1.0
"""The maximum pause in seconds that the cost of writes causes; a crash loses the acknowledgements since the
last write."""


class CursorStorage:
    """Writes and recovers the state of one cursor.

    :param custom: custom metadata of the cursor's ledgers
    """

    def __init__(
        self,
        io: Io,
        wheel: TimerWheel,
        store: LedgerStore,
        metadata: MetadataStore,
        settings: ManagedLedgerSettings,
        path: str,
        custom: dict[str, bytes],
        deletions: DeletionQueue,
        above: OwnedRecord | None = None,
    ) -> None:
        self._io = io
        self._wheel = wheel
        self._store = store
        self._metadata = metadata
        self._settings = settings
        self.path = path
        """The path of the cursor's metadata record."""
        self._record = OwnedRecord(io.loop, metadata, path, tenure=above.tenure if above else None)
        self._above = above
        self._custom = custom
        self._deletions = deletions
        self._state = AcknowledgedState((-1, -1))
        self.properties: dict[str, int] = {}
        self.cursor_properties: dict[str, str] = {}
        own: CursorStorage = weakref.proxy(self)
        # The proxy is valid whenever this is called: a caller holds the object, or it has ended.
        self.side = SideLedgers(io, store, settings, custom, deletions, lambda named: own._put(None, named))
        """The cursor's side ledgers, and the cursor properties that contain the ids of these ledgers."""
        self._rest = b""
        """Unknown fields of the record, which are kept."""
        self._ledger: CursorLedger | None = None
        self._ledger_id = _NO_LEDGER
        self._perhaps_named: set[int] = set()
        """Ledgers that the record may name, because the outcome of a write is unknown."""
        self._timer: Cancellable | None = None
        self._last_write = -1e9
        self._tasks = TaskScope(io.loop, path, lambda _work, error: own._failed(error))
        self.on_failure: Fail | None = None
        """Closes the managed ledger after an internal error; None: only this storage is closed."""
        self._switch: Task[None] | None = None
        self._changed_meanwhile = False
        """Whether a write became due while the ledger was being replaced."""
        self._told = False
        """Whether a warning was logged that the state cannot be written now."""
        self._went_back = False
        """Whether the cursor was reset, possibly while its state was being encoded."""
        self._closed = False
        self._deletion: Future[None] | None = None
        """Completes when a deletion of the cursor alone has ended; None: no such deletion is in progress."""
        self._abandoned = False
        self._interval = self._pause = 0.0
        self.use_rate(None)

    def use_quorums(self, quorums: Quorums) -> None:
        """Sets the quorums of ledgers created from now on."""
        self._settings = replace(self._settings, quorums=quorums)
        self.side.use_quorums(quorums)

    def use_rate(self, rate: float | None) -> None:
        """Sets how often the state is written.

        :param rate: the maximum number of writes per second; 0 or below: after every change. None: the
            interval of the ledger store if it has one, otherwise the rate in the settings
        """
        own = self._store.cursor_write_interval
        if rate is None and own is not None:
            interval = own
        else:
            wanted = self._settings.mark_delete_rate if rate is None else rate
            interval = 1.0 / wanted if wanted > 0 else 0.0
        self._interval = self._pause = min(interval, self._settings.cursor_flush_seconds)

    @property
    def keeps_all(self) -> bool:
        """Whether a write of the state includes all acknowledgements."""
        settings, state = self._settings, self._state
        if len(state.batches) > settings.max_batch_indexes_to_persist:
            return False
        return self._keeps_all_holes or state.range_count() <= settings.max_unacked_ranges_to_persist

    @property
    def _keeps_all_holes(self) -> bool:
        """Whether even a large number of individually deleted entries is written in full, as bits."""
        return self._settings.holes_as_bits or self._store.cursor_write_interval is not None

    @property
    def ledger_id(self) -> int:
        """The ledger with the state; -1 if the state is in the metadata record."""
        return self._ledger_id

    async def create(self, state: AcknowledgedState, cursor_properties: dict[str, str]) -> None:
        """Creates the cursor's record; durable when this returns.

        :raises BadVersion: a cursor of that name exists
        :raises ManagedLedgerFenced: another broker owns the managed ledger
        """
        self._state = state
        self.cursor_properties = users_own(cursor_properties)
        await self._put(_NO_LEDGER, above=self._above)

    async def take_over(
        self,
        state: AcknowledgedState,
        properties: dict[str, int],
        cursor_properties: dict[str, str],
        other: CursorStorage,
    ) -> None:
        """Creates the cursor's record from a state that ``other`` has recovered; then closes this storage
        (``other`` stays open).

        :param state: the state, with positions of this managed ledger
        :param properties: the broker's own properties, which are stored with the state
        :param cursor_properties: the properties that users have set
        :param other: the storage from which the record's unknown fields are copied
        :raises BadVersion: a cursor of that name exists
        :raises ManagedLedgerFenced: another broker owns the managed ledger
        :raises LedgerError: the state cannot be written
        """
        self.properties = properties
        self._rest = other._rest
        await self.create(state, cursor_properties)
        await self.close()

    async def recover(self, sizes: LedgerSizes) -> AcknowledgedState:
        """Returns the last written state.

        :param sizes: the numbers of entries in the managed ledger's ledgers
        :raises ManagedLedgerError: the record is missing or damaged
        """
        node = await self._metadata.get(self.path)
        if node is None:
            raise ManagedLedgerError(f"{self.path}: the record of the cursor was deleted")
        record = decode_cursor(node.value, self.path, sizes)
        self._record.version = node.version
        self._state = record.state
        self.properties = record.properties
        self.cursor_properties = users_own(record.cursor_properties)
        self.side.properties = brokers_own(record.cursor_properties)
        self._rest = record.rest
        self._ledger_id = record.ledger_id
        if record.ledger_id != _NO_LEDGER:
            try:
                await self._recover_from_ledger(record.ledger_id, sizes)
            except GONE as error:
                log.warning(
                    "cursor ledger is lost; continuing from the metadata record",
                    extra={"path": self.path, "ledger": record.ledger_id, "reason": str(error)},
                )
        return self._state

    async def _recover_from_ledger(self, ledger_id: int, sizes: LedgerSizes) -> None:
        reader = await self._store.open(ledger_id, recover=True)

        async def read(entry_id: int) -> bytes:
            runs = await reader.read(entry_id, entry_id, 1)
            return runs[0].entry(0)

        try:
            last = await reader.last_add_confirmed()
            if last >= 0:
                path = f"{self.path} ledger {ledger_id}"
                self._state, self.properties = await decode_newest(self._io, read, last, path, sizes)
        finally:
            reader.close()

    def changed(self) -> None:
        """Schedules a write of the state within the interval."""
        if self._timer is not None or self._closed:
            return
        delay = self._last_write + self._pause - self._io.clock.monotonic()
        if delay <= 0:
            self._timer = self._io.loop.call_soon(self._write)
        else:
            self._timer = self._wheel.schedule(delay, self._write)

    def _write(self) -> None:
        self._timer = None
        if self._closed:
            return
        if self._switch is not None:
            self._changed_meanwhile = True
            return
        self._last_write = self._io.clock.monotonic()
        ledger = self._ledger
        if ledger is None or self._is_full(ledger):
            self._switch = self._tasks.start(self._switch_ledger(), "the switch to another ledger")
            return
        if self._is_large():
            self._switch = self._tasks.start(self._write_large(ledger), "a write of the state in parts")
            return
        try:
            ledger.append(self._encode())
        except LedgerClosed:
            self._ledger_failed(ledger)
        except EntryTooLarge as error:
            self._not_written(error)

    async def _write_large(self, ledger: CursorLedger) -> None:
        try:
            state = await self._encode_all()
            if not self._abandoned:
                ledger.append(*state)
        except LedgerClosed:
            self._ledger_failed(ledger)
        except EntryTooLarge as error:
            self._not_written(error)
        finally:
            self._switched()

    def _not_written(self, error: EntryTooLarge) -> None:
        """Logs that the state is too large; the stored state stays valid until the current state is small
        enough.
        """
        log.error(
            "cannot write the cursor: its state is too large", extra={"path": self.path, "error": str(error)}
        )

    def _switched(self) -> None:
        self._switch = None
        if self._changed_meanwhile:
            self._changed_meanwhile = False
            self.changed()

    def _is_large(self) -> bool:
        """Whether the state is too large for ranges, and the settings permit writing it as bits."""
        most = 0 if self._settings.holes_as_bits else self._settings.max_unacked_ranges_to_persist
        return self._keeps_all_holes and is_large(self._state, most)

    async def _encode_all(self) -> list[bytes]:
        """Encodes the state as one or more entries that belong together; returns the entries."""
        while self._is_large():
            self._went_back = False
            entries, cost = await encode_large(
                self._io, self._state, lambda: self.properties, self._settings.max_batch_indexes_to_persist
            )
            if not self._went_back:
                self._took(cost)
                return entries
        return [self._encode()]

    def _is_full(self, ledger: CursorLedger) -> bool:
        age = self._io.clock.wall_ms() - ledger.made_ms
        return (
            ledger.entries >= self._settings.cursor_max_entries_per_ledger
            or age >= self._settings.cursor_rollover_ms
        )

    def _ledger_failed(self, ledger: CursorLedger) -> None:
        if self._ledger is ledger:
            self._ledger = None
            self.changed()

    @property
    def entries_in_ledger(self) -> int:
        return self._ledger.entries if self._ledger is not None else 0

    def _encode(self) -> bytes:
        """Encodes the state as one entry. A costly state is written less often, but at least every second."""
        began = self._io.clock.monotonic()
        entry = encode_position(
            self._state,
            self.properties,
            self._settings.max_unacked_ranges_to_persist,
            self._settings.max_batch_indexes_to_persist,
        )
        self._took(self._io.clock.monotonic() - began)
        return entry

    def _took(self, cost: float) -> None:
        self._pause = max(self._interval, min(cost * _COST_TO_PAUSE, _LONGEST_PAUSE))

    async def _switch_ledger(self) -> None:
        """Replaces the ledger: writes a new ledger, names it in the record, then deletes the old ledger."""
        try:
            await self._begin_ledger()
        except ManagedLedgerFenced as error:
            # A cursor that was abandoned meanwhile ends like this too, and that needs no log line.
            if not self._abandoned:
                log.error("cursor lost to another owner", extra={"path": self.path, "error": str(error)})
                self.abandon()
        except (LedgerError, MetadataError) as error:
            if not self._closed:
                if not self._told:
                    log.warning(
                        "cannot write the cursor; trying again",
                        extra={"path": self.path, "error": str(error)},
                    )
                self._told = True
                if self._timer is None:
                    self._timer = self._wheel.schedule(_RETRY_SECONDS, self._write)
        finally:
            self._switched()

    async def _begin_ledger(self) -> None:
        writer = await self._store.create(self._settings.quorums, self._custom, high_priority=True)
        ledger = CursorLedger(self._io.loop, writer, self._io.clock.wall_ms(), self._ledger_failed)
        try:
            await ledger.append_durably(*await self._encode_all())
            self._perhaps_named |= {self._ledger_id, ledger.ledger_id}
            await self._put(ledger.ledger_id)
        except (LedgerError, ManagedLedgerError, MetadataError) as error:
            if not perhaps_written(error):
                self._perhaps_named.discard(ledger.ledger_id)
                await self._let_go(ledger.ledger_id)
            raise
        self._ledger = ledger
        self._told = False
        await self._let_go_of_others(ledger.ledger_id)

    async def _let_go_of_others(self, named: int) -> None:
        """Deletes ledgers that the record may have named before the last confirmed write."""
        others, self._perhaps_named = self._perhaps_named - {named, _NO_LEDGER}, set()
        for ledger_id in sorted(others):
            await self._let_go(ledger_id)

    async def _let_go(self, ledger_id: int) -> None:
        """Deletes a ledger that the record does not name and will not name."""
        if ledger_id != _NO_LEDGER:
            await self._deletions.delete(ledger_id)

    def _failed(self, error: BaseException) -> None:
        """Stops writing, because a write failed in a way that may have left the state wrong."""
        self.abandon()
        if self.on_failure is not None:
            self.on_failure(error)

    def abandon(self) -> None:
        """Stops all writes, because the cursor belongs to another broker."""
        self._closed = self._abandoned = self.side.ended = True
        self._record.abandon()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _put(
        self, ledger_id: int | None, own: dict[str, str] | None = None, above: OwnedRecord | None = None
    ) -> None:
        """Writes the record.

        :param ledger_id: the ledger that the record will name; None: the ledger that the record names when
            the write begins
        :param own: the broker's own properties; None: unchanged
        :param above: a record whose owner must not have changed; None: only this record is checked
        """

        def encode() -> bytes:
            named = self._ledger_id if ledger_id is None else ledger_id
            texts = self.cursor_properties | (self.side.properties if own is None else own)
            record = CursorRecord(named, self._state, self.properties, texts, self._rest)
            settings = self._settings
            return encode_cursor(
                record, settings.max_unacked_ranges_in_metadata, settings.max_batch_indexes_to_persist
            )

        def written() -> None:
            if ledger_id is not None:
                self._ledger_id = ledger_id
            if own is not None:
                self.side.properties = own

        await self._record.put(encode, written, above)

    async def set_cursor_properties(self, properties: dict[str, str]) -> None:
        """Replaces the user's properties; durable when this returns."""
        self.cursor_properties = users_own(properties)
        await self._put(None)

    async def flush(self) -> None:
        """Writes the state now; durable when this returns.

        :raises LedgerError: the cursor's ledger failed
        :raises ManagedLedgerError: no ledger can be written, or another broker owns the cursor
        """
        await self._settle()
        if self._abandoned:
            raise ManagedLedgerFenced(f"{self.path} is owned by another broker")
        if self._closed:
            return
        if self._ledger is None:
            if self._timer is not None:
                self._timer.cancel()
            self._write()
            await self._settle()
            if self._ledger is None:
                raise ManagedLedgerError(f"{self.path}: the cursor cannot be written at present")
            return
        ledger = self._ledger
        await ledger.append_durably(*await self._encode_all())

    async def write_changes(self) -> None:
        """Writes the state now if a write is due. If no write is due, the state is already durable, or being
        written.

        :raises LedgerError: the cursor's ledger failed
        :raises ManagedLedgerError: no ledger can be written, or another broker owns the cursor
        """
        if self._timer is not None or self._switch is not None or self._changed_meanwhile:
            await self.flush()

    async def _settle(self) -> None:
        while self._switch is not None:
            await finished(self._io.loop, self._switch)

    async def close(self) -> None:
        """Writes the state and releases all resources. Idempotent.

        Waits for a deletion in progress, which needs an open managed ledger. If the deletion fails, the state
        is written.
        """
        if self._deletion is not None:
            await finished(self._io.loop, self._deletion)
        if self._closed:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.side.ended = True
        await self._settle()
        self._closed = True
        ledger = self._ledger
        few = self._state.range_count() <= self._settings.max_unacked_ranges_in_metadata
        # Apache Pulsar also writes batches to the metadata, but reads them from ledgers only.
        if few and not self._state.batches:
            self._perhaps_named.add(self._ledger_id)
            await self._put(_NO_LEDGER)
            await self._let_go_of_others(_NO_LEDGER)
        else:
            await self._write_last(ledger)
        self._ledger = None

    async def _write_last(self, ledger: CursorLedger | None) -> None:
        """Writes the state as the last entry of a ledger, and closes the ledger."""
        if ledger is not None:
            try:
                ledger.append(*await self._encode_all())
                await ledger.close()
                return
            except LedgerError as error:
                log.warning("cursor ledger failed", extra={"path": self.path, "error": str(error)})
        await self._begin_ledger()
        if self._ledger is not None:
            await self._ledger.close()

    async def delete(self) -> None:
        """Deletes the record, then the ledger.

        :raises ManagedLedgerFenced: another broker owns the managed ledger or the cursor
        """
        was_closed = self._closed
        deletion = self._deletion = self._io.loop.create_future()
        try:
            async with self.deleting() as record:
                try:
                    await record.delete(self._above)
                except NodeMissing:
                    log.info("cursor record already deleted", extra={"path": self.path})
        except (ManagedLedgerError, MetadataError):
            # The record exists, or may exist: acknowledgements are written on, unless another broker has
            # taken the managed ledger meanwhile.
            ended = was_closed or self._abandoned
            self._closed = self.side.ended = ended
            if not ended:
                self.changed()
            raise
        finally:
            self._deletion = None
            settle(deletion)

    async def stop(self) -> None:
        """Stops all writes before a deletion."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # Immediately: its managed ledger may be closing, and would write what is being deleted.
        self._closed = self.side.ended = True
        await self._settle()

    @asynccontextmanager
    async def deleting(self) -> AsyncIterator[OwnedRecord]:
        """Stops writes and yields the record for deletion; then deletes the ledgers that it named."""
        await self.stop()
        named = {self._ledger_id, *self.side.all}
        yield self._record
        self._perhaps_named |= named | owned_ledgers(self.properties)
        await self._let_go_of_others(_NO_LEDGER)

    @property
    def moves(self) -> int:
        """Returns how often the cursor was reset while it had side ledgers."""
        return self.properties.get(_MOVES, 0)

    def moved(self) -> None:
        """Counts a reset of the cursor; the count is stored with the cursor's state, and tells which side
        ledgers are outdated."""
        self._went_back = True
        if self.side.properties:
            self.properties = {**self.properties, _MOVES: self.moves + 1}

    def use(self, state: AcknowledgedState) -> None:
        """Sets the state object that each later write encodes."""
        self._state = state
