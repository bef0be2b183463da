"""A ledger store that fails on demand, in front of a real one: for tests of the layers above."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence

from magnetar.io.interfaces import Loop
from magnetar.ledger.interface import (
    EntryTooLarge,
    LedgerClosed,
    LedgerError,
    LedgerListener,
    LedgerReader,
    LedgerStore,
    LedgerWriter,
    Quorums,
)


class InjectedFault(LedgerError):
    """A failure that a test requested."""


class FaultyWriter:
    """Passes all calls on, unless a fault was injected."""

    def __init__(self, store: FaultyLedgerStore, inner: LedgerWriter) -> None:
        self.ledger_id = inner.ledger_id
        self._store = store
        self._inner = inner
        self._listener: LedgerListener | None = None
        self._told_at = 0.0
        self._last_told = -1
        self._ended: LedgerError | None = None
        self._waiting = 0
        inner.set_listener(self)

    def set_listener(self, listener: LedgerListener) -> None:
        self._listener = listener

    def append(self, buffer: bytes, starts: array[int], ends: array[int], first: int, count: int) -> int:
        if self._ended is not None:
            raise LedgerClosed(f"ledger {self.ledger_id} takes no more entries: {self._ended}")
        most = self._store.max_entry_bytes
        for index in range(first, first + count) if most else ():
            if ends[index] - starts[index] > most:
                raise EntryTooLarge(f"an entry of more than {most} bytes", index)
        fault = self._store.next_append_failure()
        if fault is not None:
            raise fault
        return self._inner.append(buffer, starts, ends, first, count)

    async def close(self) -> tuple[int, int]:
        if self._ended is not None:
            raise self._ended
        closed = await self._inner.close()
        while self._waiting and self._ended is None:
            passed = self._store.loop.create_future()
            self._store.loop.call_later(
                max(0.0, self._told_at - self._store.loop.time()), passed.set_result, None
            )
            await passed
        if self._ended is not None:
            raise self._ended
        return closed

    def forget_before(self, entry_id: int) -> None:
        self._inner.forget_before(entry_id)

    def on_durable(self, _ledger_id: int, last_entry_id: int) -> None:
        """Callback of the inner store."""
        self._tell_later(self._tell_durable, last_entry_id)

    def on_failed(self, _ledger_id: int, first_entry_id: int, reason: LedgerError) -> None:
        """Callback of the inner store."""
        self._tell_later(self._tell_failed, first_entry_id, reason)

    def _tell_later(self, tell: Callable[..., None], *args: object) -> None:
        delay = self._store.durability_delay
        now = self._store.loop.time()
        if delay <= 0 and not self._waiting:
            tell(*args)
            return
        # Keeps the order, also if the delay has become shorter meanwhile.
        self._told_at = max(self._told_at, now + delay)
        self._waiting += 1
        self._store.loop.call_at(self._told_at, self._tell_now, tell, args)

    def _tell_now(self, tell: Callable[..., None], args: tuple[object, ...]) -> None:
        self._waiting -= 1
        tell(*args)

    def _tell_durable(self, last_entry_id: int) -> None:
        if self._ended is not None or self._listener is None:
            return
        fault = self._store.failing_entry(self.ledger_id)
        if fault is None or fault > last_entry_id:
            self._last_told = last_entry_id
            self._listener.on_durable(self.ledger_id, last_entry_id)
            return
        if fault - 1 > self._last_told:
            self._last_told = fault - 1
            self._listener.on_durable(self.ledger_id, fault - 1)
        self._store.used_up(self.ledger_id)
        self._tell_failed(
            self._last_told + 1, InjectedFault(f"entry {fault} of ledger {self.ledger_id} is to fail")
        )

    def _tell_failed(self, first_entry_id: int, reason: LedgerError) -> None:
        if self._ended is None:
            self._ended = reason
            if self._listener is not None:
                self._listener.on_failed(self.ledger_id, max(first_entry_id, self._last_told + 1), reason)


class FaultyLedgerStore:
    """A ``LedgerStore`` in front of ``inner``. Without injected faults it has no effect."""

    def __init__(self, inner: LedgerStore, loop: Loop) -> None:
        self.inner = inner
        self.loop = loop
        self.cursor_write_interval = inner.cursor_write_interval
        self.read_plans = inner.read_plans
        self.durability_delay = 0.0
        """The delay of every acknowledgement, in seconds."""
        self.max_entry_bytes = 0
        """The largest entry that writers accept; 0: no limit."""
        self._failing_entries: dict[int | None, int] = {}
        self._failing_appends: list[Exception] = []
        self._failing_calls: dict[str, list[LedgerError]] = {}

    def fail_append(self, entry_id: int, ledger_id: int | None = None) -> None:
        """Makes the append of ``entry_id`` fail, in one ledger or in the first that gets that far.

        The entry may be stored nevertheless, as in a store that crashed before it answered.
        """
        self._failing_entries[ledger_id] = entry_id

    def fail_next(self, call: str, error: LedgerError | None = None) -> None:
        """Makes the next ``create``, ``open`` or ``delete`` fail that has no failure pending yet."""
        self._failing_calls.setdefault(call, []).append(error or InjectedFault(f"{call} is to fail"))

    def fail_next_append(self, error: Exception) -> None:
        """Makes the next ``append`` without a pending failure raise this error, without appending
        anything."""
        self._failing_appends.append(error)

    def next_append_failure(self) -> Exception | None:
        return self._failing_appends.pop(0) if self._failing_appends else None

    def failing_entry(self, ledger_id: int) -> int | None:
        return self._failing_entries.get(ledger_id, self._failing_entries.get(None))

    def used_up(self, ledger_id: int) -> None:
        """Records that a ledger's failing entry has failed."""
        if self._failing_entries.pop(ledger_id, None) is None:
            self._failing_entries.pop(None, None)

    async def create(
        self, quorums: Quorums, custom: Mapping[str, bytes], *, high_priority: bool = False
    ) -> FaultyWriter:
        self._maybe_fail("create")
        return FaultyWriter(self, await self.inner.create(quorums, custom, high_priority=high_priority))

    async def open(self, ledger_id: int, *, recover: bool) -> LedgerReader:
        self._maybe_fail("open")
        return await self.inner.open(ledger_id, recover=recover)

    def may_be_written(self, ledger_id: int) -> bool:
        return self.inner.may_be_written(ledger_id)

    async def delete(self, ledger_id: int) -> None:
        self._maybe_fail("delete")
        await self.inner.delete(ledger_id)

    async def ledger_ids(self) -> Sequence[int]:
        return await self.inner.ledger_ids()

    async def close(self) -> None:
        await self.inner.close()

    def _maybe_fail(self, call: str) -> None:
        waiting = self._failing_calls.get(call)
        if waiting:
            raise waiting.pop(0)
