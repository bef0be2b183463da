"""A managed ledger that reads the ledgers of another managed ledger, its source; stores no entries.

The shadow's record contains only properties; the records of its cursors are below its record. The list of
ledgers is read from the record of the source, and again after changes. The replicator of the source reports
how far the last ledger may be read (:meth:`ShadowLedger.confirm`); when the shadow is opened, the ledger
store reports it. The idea comes from PIP-180.
"""

from __future__ import annotations

import logging
import weakref
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING

from magnetar.io.interfaces import Io, Task
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import finished
from magnetar.ledger.interface import LedgerStore, NoSuchLedger
from magnetar.managed_ledger.deletion_queue import DeletionQueue
from magnetar.managed_ledger.ending import State
from magnetar.managed_ledger.entry_cache import EntryCache
from magnetar.managed_ledger.entry_reader import LostData
from magnetar.managed_ledger.errors import ManagedLedgerError, NoOwnLedgers, ShadowReadOnly
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.owned_record import OwnedRecord
from magnetar.managed_ledger.position import Position
from magnetar.managed_ledger.records import ROOT, LedgerSummary, ManagedLedgerRecord, decode_managed_ledger
from magnetar.managed_ledger.settings import ManagedLedgerSettings, OffloadPolicy, RetentionSettings
from magnetar.metadata.interface import Change, MetadataError, MetadataStore, SessionEvent

if TYPE_CHECKING:
    from magnetar.managed_ledger.tiered_storage import TieredStorage


log = logging.getLogger(__name__)
_AGAIN_SECONDS = 1.0
"""The time in seconds until the record of the source is read again after an error."""


class ShadowLedger(ManagedLedger):
    """A shadow, opened by :class:`magnetar.managed_ledger.factory.ManagedLedgerFactory`."""

    _owns_ledgers = False

    def __init__(
        self,
        name: str,
        source: str,
        io: Io,
        store: LedgerStore,
        metadata: MetadataStore,
        settings: ManagedLedgerSettings,
        cache: EntryCache,
        record: ManagedLedgerRecord,
        stored: OwnedRecord,
        retention: RetentionSettings,
        deletions: DeletionQueue,
        lost_data: LostData,
        tiered: Callable[[], TieredStorage],
    ) -> None:
        """:param source: the name of the managed ledger whose ledgers the shadow reads
        :param record: the record of the shadow itself
        """
        own = ManagedLedgerRecord(properties=dict(record.properties), rest=record.rest)
        super().__init__(
            name, io, store, metadata, settings, cache, own, stored, retention, deletions, lost_data, tiered
        )
        self.source = source
        """The name of the managed ledger whose ledgers the shadow reads."""
        self.source_path = f"{ROOT}/{source}"
        self.source_missing = False
        """Whether the source no longer exists."""
        self.changed: Callable[[], None] = lambda: None
        """Called when the source has other ledgers than before, or was terminated."""
        self._store = store
        self._metadata = metadata
        self._io_loop = io.loop
        follower: ShadowLedger = weakref.proxy(self)
        self._tasks = TaskScope(io.loop, name, lambda _work, error: follower.fail(error))
        self._following: Task[None] | None = None
        self._again = False

    # Following the source

    async def open_source(self) -> None:
        """Reads the list of ledgers of the source, and how far the last ledger may be read.

        :raises LedgerError: the last ledger of the source cannot be read
        :raises MetadataError: the record of the source cannot be read
        """
        await self._read_source()
        last = self.ledgers.last()
        if last is not None and not last.closed_ms:
            await self._ask_store(last)
        self.last_confirmed = self.ledgers.last_stored()

    async def _ask_store(self, last: LedgerSummary) -> None:
        try:
            reader = await self._store.open(last.ledger_id, recover=False)
        except NoSuchLedger:
            # The source has started a new ledger meanwhile: its record has changed, and is read again.
            return
        try:
            last.entries = await reader.last_add_confirmed() + 1
            last.size = reader.metadata.length
        finally:
            reader.close()

    def source_changed(self) -> None:
        """Reads the record of the source again, because it may have changed."""
        if self._following is not None:
            self._again = True
        elif not self.lost:
            self._following = self._tasks.start(self._follow(), "reading the source's record")

    async def _follow(self) -> None:
        try:
            while not self.lost:
                self._again = False
                try:
                    await self._read_source()
                except (ManagedLedgerError, MetadataError) as error:
                    log.warning(
                        "cannot read the source of a shadow topic; trying again",
                        extra={"managed_ledger": self.name, "source": self.source, "error": str(error)},
                    )
                    self._io_loop.call_later(_AGAIN_SECONDS, self.source_changed)
                if not self._again:
                    break
        finally:
            self._following = None
        if not self.lost:
            self.changed()

    async def followed(self) -> None:
        """Waits until no read of the source's record is in progress."""
        while self._following is not None:
            await finished(self._io_loop, self._following)

    async def refresh_ledgers(self) -> None:
        """Reads the record of the source again, because the notification of a change may not have arrived
        yet."""
        self.source_changed()
        await self.followed()

    async def _read_source(self) -> None:
        node = await self._metadata.get(self.source_path)
        self.source_missing = node is None
        if node is None:
            self._take(ManagedLedgerRecord())
        else:
            self._take(decode_managed_ledger(node.value, self.source_path))

    def _take(self, source: ManagedLedgerRecord) -> None:
        """Adopts the ledgers, their offloads and the termination in the current record of the source."""
        listed = {each.ledger_id: each for each in source.ledgers}
        gone = [each.ledger_id for each in self.ledgers if each.ledger_id not in listed]
        for ledger_id in gone:
            self.ledgers.remove(ledger_id)
            self.reader.forget(ledger_id)
        for each in source.ledgers:
            known = self.ledgers.get(each.ledger_id)
            if known is None:
                self.ledgers.put_back([each])
            elif each.closed_ms and not known.closed_ms:
                known.entries, known.size, known.closed_ms = each.entries, each.size, each.closed_ms
                self.reader.confirmed[each.ledger_id] = each.entries - 1
            if known is not None:
                known.offload = each.offload
        self.last_confirmed = max(self.last_confirmed, self.ledgers.last_stored())
        if source.terminated != self._record.terminated:
            # A source that was deleted and created again is not terminated any more.
            self._record.terminated = source.terminated
            if not self.lost:
                self.enter(State.NEEDS_LEDGER if source.terminated is None else State.TERMINATED)
        if gone:
            self._skip_gone()

    def _skip_gone(self) -> None:
        """Moves cursors past trimmed ledgers, because trimming at the source does not wait for them."""
        for cursor in list(self.cursors.values()):
            cursor.skip_trimmed()

    def learn(self, position: Position) -> bool:
        """Records that all entries up to a position are confirmed; returns whether the ledger of the position
        is known.

        A position that the source has trimmed in the meantime counts as known.
        """
        ledger_id, entry_id = position
        summary = self.ledgers.get(ledger_id)
        if summary is None:
            return ledger_id < self.ledgers.first_id() or position <= self.last_confirmed
        if not summary.closed_ms and entry_id >= summary.entries:
            summary.entries = entry_id + 1
            self.reader.confirmed[ledger_id] = entry_id
        if summary.entries:
            self.last_confirmed = max(self.last_confirmed, (ledger_id, min(entry_id, summary.entries - 1)))
        return True

    def confirm(self, position: Position, size: int) -> bool:
        """Records the position of an entry that the source has stored, so that entries up to it can be
        dispatched.

        :param size: the size of the entry in bytes
        :return: False if the ledger of ``position`` is not known yet; the record of the source is then read
            again
        """
        before = self.last_confirmed
        if not self.learn(position):
            self.source_changed()
            return False
        if self.last_confirmed > before:
            self.entries_added += 1
            self.bytes_added += size
            summary = self.ledgers.get(position[0])
            if summary is not None and not summary.closed_ms:
                summary.size += size
        return True

    # Operations that a shadow does not have

    def append(
        self, buffer: bytes, starts: array[int], ends: array[int], count: int, size: int, context: object
    ) -> None:
        """Refuses to append, because a shadow is read-only.

        :raises ShadowReadOnly: always
        """
        raise ShadowReadOnly(f"{self.name} is a shadow of {self.source}: append to the source instead")

    async def roll(self) -> None:
        """Writes the shadow's record, which makes this broker the owner of the shadow; creates no ledger."""
        await self._record.put()

    def start_roll(self) -> None:
        """Does nothing, because only the source starts new ledgers."""

    def check_rollover(self) -> None:
        """Does nothing, because only the source starts new ledgers."""

    def start_over(self) -> None:
        """Does nothing, because only the source starts new ledgers."""

    def use_offload(self, policy: OffloadPolicy | None) -> None:
        """Sets the policy for reading ledgers that the source offloaded; the shadow offloads nothing."""
        self.reader.offload_policy = policy

    def offload_before(self, position: Position) -> None:
        """Refuses to offload, because the ledgers belong to the source.

        :raises NoOwnLedgers: always
        """
        raise NoOwnLedgers(
            f"{self.name} is a shadow, whose ledgers belong to its source: offload the source instead"
        )

    async def terminate(self) -> Position:
        """Refuses to terminate, because a shadow is read-only.

        :raises ShadowReadOnly: always
        """
        raise ShadowReadOnly(f"{self.name} is a shadow of {self.source}: terminate its source instead")

    async def close(self) -> None:
        """Closes the shadow; see :meth:`ManagedLedger.close`."""
        await super().close()
        await self.followed()

    async def delete(self) -> None:
        """Deletes the shadow's record and cursors, but not the ledgers, which belong to the source."""
        await super().delete()
        await self.followed()


class Shadows:
    """The open shadows of one broker, by the path of the source's record. Changes of a source's record are
    passed to its shadows.

    All shadows share one metadata listener, because a listener cannot be removed.
    """

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._by_source: dict[str, dict[ShadowLedger, None]] = {}
        self._listens = False

    def opened(self, shadow: ShadowLedger) -> None:
        """Notifies the shadow of changes of its source until :meth:`over`, including changes since the
        shadow was opened."""
        if not self._listens:
            self._listens = True
            self._metadata.listen(ROOT, self._changed)
            self._metadata.listen_session(self._session)
        self._by_source.setdefault(shadow.source_path, {})[shadow] = None
        shadow.source_changed()

    def over(self, ledger: ManagedLedger) -> None:
        """Removes a managed ledger that is closed or deleted; does nothing if it is not a shadow."""
        if isinstance(ledger, ShadowLedger):
            known = self._by_source.get(ledger.source_path, {})
            known.pop(ledger, None)
            if not known:
                self._by_source.pop(ledger.source_path, None)

    def _changed(self, change: Change) -> None:
        for shadow in list(self._by_source.get(change.path, ())):
            shadow.source_changed()

    def _session(self, event: SessionEvent) -> None:
        if event is SessionEvent.RECONNECTED:
            for shadows in list(self._by_source.values()):
                for shadow in list(shadows):
                    shadow.source_changed()
