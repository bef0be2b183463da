"""A cache of entries between publish and delivery, and between cursors that read the same entries.

A cache slot is a run of entries in one buffer: the bytes that came from the socket or from one read. The
cache counts whole buffers, because a buffer lives as long as a run in it. To free large buffers early,
:meth:`LedgerCache.insert` copies a run that makes up less than a quarter of its buffer.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from typing import NoReturn

from magnetar.invariants import Fail, must, violated
from magnetar.io.interfaces import Cancellable, Clock, Loop
from magnetar.ledger.interface import EntryRun
from magnetar.managed_ledger.position import Position
from magnetar.managed_ledger.settings import EntryCacheSettings


class _Slot:
    __slots__ = ("inserted", "last_entry_id", "owner", "run", "size")

    def __init__(self, owner: LedgerCache, run: EntryRun, size: int, inserted: float) -> None:
        self.owner = owner
        self.run: EntryRun | None = run
        self.last_entry_id = run.last_entry_id
        self.size = size
        self.inserted = inserted


def compact_run(run: EntryRun) -> EntryRun:
    """Returns the entries of a run in a buffer that contains nothing else."""
    parts = [run.buffer[run.starts[i] : run.ends[i]] for i in range(run.count)]
    starts, ends = array("q"), array("q")
    offset = 0
    for part in parts:
        starts.append(offset)
        offset += len(part)
        ends.append(offset)
    return EntryRun(run.ledger_id, run.first_entry_id, run.count, b"".join(parts), starts, ends)


def lasting_run(run: EntryRun) -> EntryRun:
    """Returns the same entries, copied to a smaller buffer if they use less than a quarter of their
    buffer.
    """
    span = run.ends[run.count - 1] - run.starts[0]
    return compact_run(run) if 4 * span < len(run.buffer) else run


class EntryCache:
    """All cached entries of a process, with limits on their bytes and age."""

    def __init__(self, loop: Loop, clock: Clock, settings: EntryCacheSettings) -> None:
        self._loop = loop
        self._clock = clock
        self.settings = settings
        self._slots: deque[_Slot] = deque()
        self._buffers: dict[int, list[int]] = {}
        self.used_bytes = 0
        self.entries = 0
        self.hits = 0
        self.hit_bytes = 0
        self.misses = 0
        self.missed_bytes = 0
        self.inserted_entries = 0
        self.evicted_entries = 0
        self.evictions = 0
        self._timer: Cancellable | None = None

    def use(self, settings: EntryCacheSettings) -> None:
        """Changes the limits, and applies them to the cached entries."""
        if settings == self.settings:
            return
        self.settings = settings
        if self._timer is not None:
            self._timer.cancel()
            self._tick()

    def _hold(self, buffer: bytes) -> None:
        lease = self._buffers.get(id(buffer))
        if lease is None:
            self._buffers[id(buffer)] = [1, len(buffer)]
            self.used_bytes += len(buffer)
        else:
            lease[0] += 1

    def _let_go(self, buffer: bytes) -> None:
        lease = self._buffers[id(buffer)]
        lease[0] -= 1
        if not lease[0]:
            del self._buffers[id(buffer)]
            self.used_bytes -= lease[1]
            if self.used_bytes < 0:
                self._violated("bytes", self.used_bytes)

    def add(self, owner: LedgerCache, run: EntryRun, size: int) -> _Slot:
        slot = _Slot(owner, run, size, self._clock.monotonic())
        self._slots.append(slot)
        self._hold(run.buffer)
        self.entries += run.count
        self.inserted_entries += run.count
        if self.used_bytes > self.settings.max_bytes:
            self.evict()
        elif self._timer is None:
            self._timer = self._loop.call_later(self.settings.interval_seconds, self._tick)
        return slot

    def remove(self, slot: _Slot) -> None:
        """Removes a slot; its element of the age queue is skipped when it comes to the front."""
        run = slot.run
        if run is None:
            return
        slot.run = None
        self._let_go(run.buffer)
        self.entries -= run.count
        self.evicted_entries += run.count
        if self.entries < 0:
            self._violated("entries", self.entries)

    def _tick(self) -> None:
        self._timer = None
        self.evict()
        if self._slots:
            # Nothing expires before the oldest slot: sleep until then, not tick by tick.
            oldest = self._slots[0].inserted + self.settings.max_age_seconds - self._clock.monotonic()
            self._timer = self._loop.call_later(max(self.settings.interval_seconds, oldest), self._tick)

    def evict(self) -> None:
        """Drops expired slots; if the cache is too large, also the oldest slots down to the watermark."""
        slots = self._slots
        limit = self._clock.monotonic() - self.settings.max_age_seconds
        target = self.settings.max_bytes
        if self.used_bytes > target:
            target = int(target * self.settings.watermark)
            self.evictions += 1
        while slots:
            slot = slots[0]
            if slot.run is None:
                slots.popleft()
            elif slot.inserted <= limit or self.used_bytes > target:
                slots.popleft()
                slot.owner.drop(slot)
            else:
                break

    def _violated(self, what: str, found: int) -> NoReturn:
        """Counts the cached entries again, so that other topics can continue, and raises an error for the
        broken invariant."""
        self.used_bytes, self.entries = self._counted()
        violated(None, f"{what} in the entry cache", "at least 0", found)

    def _counted(self) -> tuple[int, int]:
        """Returns the number of cached bytes and entries."""
        runs = [slot.run for slot in self._slots if slot.run is not None]
        return sum(size for _, size in self._buffers.values()), sum(run.count for run in runs)

    def check(self) -> None:
        """Checks invariants.

        :raises BrokenInvariant: the counts differ from the cached entries, or an unused buffer is kept
        """
        now, found = (self.used_bytes, self.entries), self._counted()
        must(now == found, "the entry cache counts (bytes, entries)", now, "and keeps", found)
        leases: dict[int, int] = {}
        for slot in self._slots:
            if slot.run is not None:
                key = id(slot.run.buffer)
                leases[key] = leases.get(key, 0) + 1
        held = {key: count for key, (count, _) in self._buffers.items()}
        must(held == leases, "the entry cache holds buffers", held, "and its runs use", leases)


class LedgerCache:
    """The cached runs of one managed ledger, per ledger in ascending order.

    :param name: the name of the managed ledger
    :param fail: closes the managed ledger after an internal error
    """

    __slots__ = ("_cache", "_fail", "_firsts", "_name", "_slots")

    def __init__(self, cache: EntryCache, name: str, fail: Fail) -> None:
        self._cache = cache
        self._name = name
        self._fail = fail
        self._slots: dict[int, list[_Slot]] = {}
        self._firsts: dict[int, list[int]] = {}

    def insert(self, run: EntryRun) -> None:
        """Adds a run, unless it is larger than the cache or one of its entries is cached already."""
        cache = self._cache
        size = run.size()
        if size > cache.settings.max_bytes:
            return
        if size * 4 < len(run.buffer):
            run = compact_run(run)
        slots = self._slots.get(run.ledger_id)
        if slots is None:
            slots = self._slots[run.ledger_id] = []
            firsts = self._firsts[run.ledger_id] = []
        else:
            firsts = self._firsts[run.ledger_id]
        index = bisect_right(firsts, run.first_entry_id)
        if index and slots[index - 1].last_entry_id >= run.first_entry_id:
            return
        if index < len(firsts) and firsts[index] <= run.last_entry_id:
            return
        evicted = cache.evicted_entries
        slot = cache.add(self, run, size)
        if slot.run is None:
            return
        if cache.evicted_entries != evicted:
            # These lists may have lost slots, or be no longer in use.
            slots = self._slots.setdefault(run.ledger_id, [])
            firsts = self._firsts.setdefault(run.ledger_id, [])
            index = bisect_right(firsts, run.first_entry_id)
        slots.insert(index, slot)
        firsts.insert(index, run.first_entry_id)

    def find(self, ledger_id: int, entry_id: int) -> EntryRun | None:
        """Returns the cached run that contains an entry; None if the entry is not cached."""
        firsts = self._firsts.get(ledger_id)
        if not firsts:
            return None
        index = bisect_right(firsts, entry_id) - 1
        if index < 0:
            return None
        slot = self._slots[ledger_id][index]
        run = slot.run
        if run is None or slot.last_entry_id < entry_id:
            return None
        if run.first_entry_id > entry_id or run.ledger_id != ledger_id:
            what = f"managed ledger {self._name}: first entry of the cached run with {ledger_id}:{entry_id}"
            violated(self._fail, what, "that one or an earlier one", f"{run.ledger_id}:{run.first_entry_id}")
        return run

    def hit(self, entries: int, size: int) -> None:
        self._cache.hits += entries
        self._cache.hit_bytes += size

    def missed(self, entries: int, size: int) -> None:
        self._cache.misses += entries
        self._cache.missed_bytes += size

    def drop(self, slot: _Slot) -> None:
        """Removes one slot (called by the process-wide eviction)."""
        run = slot.run
        if run is None:
            return
        slots = self._slots.get(run.ledger_id)
        if slots is not None:
            index = bisect_right(self._firsts[run.ledger_id], run.first_entry_id) - 1
            if index >= 0 and slots[index] is slot:
                self._delete(run.ledger_id, index, index + 1)
        self._cache.remove(slot)

    def _delete(self, ledger_id: int, first: int, end: int) -> None:
        slots, firsts = self._slots[ledger_id], self._firsts[ledger_id]
        del slots[first:end]
        del firsts[first:end]
        if not slots:
            del self._slots[ledger_id], self._firsts[ledger_id]

    def drop_before(self, position: Position) -> None:
        """Removes the runs that end before ``position``."""
        ledger_id, entry_id = position
        slots = self._slots.get(ledger_id)
        if slots is None or len(self._slots) > 1:
            for other in [i for i in self._slots if i < ledger_id]:
                self.drop_ledger(other)
        if not slots:
            return
        end = 0
        while end < len(slots) and slots[end].last_entry_id < entry_id:
            self._cache.remove(slots[end])
            end += 1
        if end:
            self._delete(ledger_id, 0, end)

    def drop_ledger(self, ledger_id: int) -> None:
        for slot in self._slots.pop(ledger_id, []):
            self._cache.remove(slot)
        self._firsts.pop(ledger_id, None)

    def clear(self) -> None:
        for ledger_id in list(self._slots):
            self.drop_ledger(ledger_id)

    def check(self) -> None:
        """Checks invariants.

        :raises BrokenInvariant: a run cannot be found by its first entry, or an entry is cached twice
        """
        for ledger_id, slots in self._slots.items():
            next_id = 0
            for first, slot in zip(self._firsts[ledger_id], slots, strict=True):
                must(slot.run is not None, "the cache of ledger", ledger_id, "keeps what was dropped")
                if slot.run is not None:
                    at = (slot.run.ledger_id, slot.run.first_entry_id)
                    must(at == (ledger_id, first) and first >= next_id, "a run is cached at", first, "of", at)
                    next_id = slot.run.last_entry_id + 1
