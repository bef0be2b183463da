"""The log: queues appends and commits them, with one write and one sync at a time. The module is also
compiled (:mod:`magnetar.hot`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from magnetar.invariants import must, violated
from magnetar.io.interfaces import Cancellable, Future, Io, Worker
from magnetar.io.waiting import report
from magnetar.ledger.embedded.group import (
    ENTRIES,
    GROUP_HEADER_BYTES,
    LEDGER_CLOSED,
    LEDGER_CREATED,
    LEDGER_DELETED,
    RUN_HEADER_BYTES,
    Run,
    build_group,
)
from magnetar.ledger.embedded.ledger_table import LedgerRow, LedgerTable, decode_closed
from magnetar.ledger.embedded.log_end import NOTED_SECONDS, LogEnd, StoreFailure
from magnetar.ledger.embedded.segment_files import SegmentRoom
from magnetar.ledger.embedded.segment_header import SEGMENT_HEADER_BYTES
from magnetar.ledger.embedded.segment_supply import LogSegment, SegmentSupply
from magnetar.ledger.embedded.settings import EmbeddedSettings
from magnetar.ledger.interface import LedgerError, StoreClosed, StoreFull

Part = tuple[int, bytes, bytes]
"""Number of entries, their lengths, their bytes: an append, or a piece of one."""


class LogQueue:
    """The appends of one writer that are not in a group yet."""

    __slots__ = ("ended", "first", "high_priority", "on_durable", "parts", "refused", "row", "waiting")

    def __init__(
        self,
        row: LedgerRow,
        on_durable: Callable[[int], None],
        refused: Callable[[LedgerError], None],
        *,
        high_priority: bool,
    ) -> None:
        self.row = row
        self.high_priority = high_priority
        """Whether the writer's entries may use the reserve for a full device."""
        self.refused = refused
        """Called to end the writer if its queued entries cannot be stored."""
        self.parts: deque[Part] = deque()
        self.first = row.last_entry_id + 1
        """The id of the first entry in ``parts``."""
        self.waiting = False
        """Whether the queue is registered with the log."""
        self.on_durable = on_durable
        """Called with the last durable entry, once per commit."""
        self.ended = False
        """Whether the writer gets no more calls."""


class _Control:
    """A run that changes a ledger instead of adding entries to it."""

    __slots__ = ("body", "durable", "kind", "ledger_id")

    def __init__(self, kind: int, ledger_id: int, body: bytes, durable: Future[None]) -> None:
        self.kind = kind
        self.ledger_id = ledger_id
        self.body = body
        self.durable = durable


class _Commit:
    """One write to the log: groups that are written and synced together."""

    __slots__ = ("groups", "offset", "places", "runs", "segment", "sources")

    def __init__(self, segment: LogSegment) -> None:
        self.segment = segment
        self.offset = segment.end
        self.groups: list[bytes] = []
        self.runs: list[Run] = []
        self.sources: list[LogQueue | _Control] = []
        self.places: list[int] = []


class CommitLog:
    """The log of a store. Appends are queued; at the end of the loop's turn, a commit takes them.

    At most one commit is in flight. Later appends wait for the next commit, which starts before the results
    of the last one are reported.
    """

    def __init__(
        self,
        io: Io,
        worker: Worker,
        settings: EmbeddedSettings,
        table: LedgerTable,
        supply: SegmentSupply,
        begun: Callable[[LogSegment], None],
        filled: Callable[[LogSegment, int], None],
        sequence: int,
        failure: StoreFailure,
        note_end: Callable[[LogEnd], None],
    ) -> None:
        """:param begun: called with each segment before the first group is written to it
        :param filled: called with each segment that takes no more groups, and with the first sequence number
            of the segment after it
        :param note_end: called with a durable position, once a second while the log grows
        :param sequence: the sequence number of the first group
        """
        self.segment = supply.first()
        self.segment.first_sequence = sequence
        self.sequence = sequence
        """The sequence number of the next group."""
        failure.before_stopping(self._fail_what_waits)
        self._io = io
        self._worker = worker
        self._settings = settings
        self._table = table
        self._supply = supply
        self._begun = begun
        self._filled = filled
        self._failure = failure
        begun(self.segment)
        self._durable_sequence = sequence - 1
        self._waiting: deque[LogQueue | _Control] = deque()
        self._in_flight: _Commit | None = None
        self._scheduled = False
        self._starved = False
        self._confirmed = True
        self._last_commit = 0.0
        self._idle_timer: Cancellable | None = None
        self._note_end = note_end
        self._end_timer: Cancellable | None = None
        self._waiters: list[Future[None]] = []

    def append(self, queue: LogQueue) -> None:
        """Registers a queue that has parts."""
        if not queue.waiting:
            queue.waiting = True
            self._waiting.append(queue)
            self._schedule()

    def control(self, kind: int, ledger_id: int, body: bytes = b"") -> Future[None]:
        """Queues a change of a ledger; the future is completed when the change is durable and in
        the table."""
        row = self._table.rows.get(ledger_id)
        if kind == LEDGER_CREATED and row is not None:
            violated(
                self.fail, f"id of ledger {ledger_id}, which is being created", "a new one", "a known one"
            )
        if (
            kind == LEDGER_CLOSED
            and row is not None
            and decode_closed(body) != (row.last_entry_id, row.length)
        ):
            what = f"last entry and length of ledger {ledger_id}, which is being closed"
            violated(self.fail, what, (row.last_entry_id, row.length), decode_closed(body))
        durable = self._io.loop.create_future()
        self._waiting.append(_Control(kind, ledger_id, body, durable))
        self._schedule()
        return durable

    def check(self) -> None:
        """Checks invariants.

        :raises BrokenInvariant: queued entries do not follow the stored ones
        """
        segment, commit = self.segment, self._in_flight
        must(segment.end <= segment.size, "segment", segment.segment_id, "is longer than its file")
        must(self._durable_sequence < self.sequence, "group", self._durable_sequence, "is not written yet")
        if commit is not None:
            must(len(commit.runs) == len(commit.sources), "runs are written without their sources")
            must(len(commit.places) == 3 * len(commit.runs), "runs are written without their places")
        waiting = {source for source in self._waiting if isinstance(source, LogQueue)}
        for queue in waiting:
            name = f"ledger {queue.row.ledger_id}"
            must(queue.waiting, name, "is queued for a commit and not marked so")
            must(queue.first > queue.row.last_entry_id, name, "stores entry", queue.first, "again")

    def fail(self, error: BaseException) -> None:
        """Stops the process after an internal error, so that nothing wrong is written behind the acknowledged
        entries, which are durable."""
        if not self.failed:
            self._failure("the log of the ledger store met an internal error", error)

    async def settle(self) -> None:
        """Waits for the commit that is in flight at the time of the call."""
        commit = self._in_flight
        while commit is not None and self._in_flight is commit:
            await self.next_completion()

    async def flush(self) -> None:
        """Waits until all entries that are queued or in flight at the time of the call are durable or
        refused; changes of ledgers that are only queued do not count.

        :raises StoreClosed: the log has failed
        """
        ends = []
        for source in self._waiting:
            if isinstance(source, LogQueue):
                ends.append((source, source.first + sum(part[0] for part in source.parts)))
        for queue, end in ends:
            while queue.waiting and queue.first < end:
                await self.next_completion()
        # What was taken from the queues may be in flight.
        await self.settle()

    @property
    def durable_end(self) -> int:
        """The end of the last durable group in :attr:`segment`."""
        return self.segment.end if self._in_flight is None else self._in_flight.offset

    async def drain(self) -> None:
        """Waits until nothing is queued or in flight, or the log has failed; then stops the timers."""
        while (self._waiting or self._in_flight is not None) and not self.failed:
            await self.next_completion()
        for timer in (self._idle_timer, self._end_timer):
            if timer is not None:
                timer.cancel()
        self._idle_timer = self._end_timer = None

    @property
    def failed(self) -> bool:
        """Whether the log has failed, so that nothing is written any more."""
        return self._failure.happened

    def _fail_what_waits(self, what: str) -> None:
        in_flight = [] if self._in_flight is None else self._in_flight.sources
        for source in (*in_flight, *self._waiting):
            if isinstance(source, _Control) and not source.durable.done():
                source.durable.set_exception(StoreClosed(what))
        self._complete()

    async def next_completion(self) -> None:
        """Waits for the end of a commit.

        :raises StoreClosed: the log has failed, so there will be no further commit
        """
        if self.failed:
            raise StoreClosed("the log of the ledger store has failed")
        # A future for each caller: cancelling one must not cancel the others.
        waiter = self._io.loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def _complete(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _schedule(self) -> None:
        if self._in_flight is None and not self._scheduled and not self._starved:
            self._scheduled = True
            self._io.loop.call_soon(self._start)

    def _segment_is_ready(self) -> None:
        self._starved = False
        self._schedule()

    def _start(self) -> None:
        self._scheduled = False
        if self._in_flight is not None or self.failed:
            return
        try:
            if self.segment.reserved and self._waiting and not self._leave_reserve():
                return
            while self._waiting:
                if self.segment.index.run_count < self._settings.segment_runs:
                    commit = self._take()
                    if commit.groups:
                        self._write(commit)
                        return
                if self._waiting and not self._roll():
                    return
        except Exception as error:
            # Entries may be neither queued nor in a commit.
            self.fail(error)
            raise
        self._complete()

    def _write(self, commit: _Commit) -> None:
        data = commit.groups[0] if len(commit.groups) == 1 else b"".join(commit.groups)
        commit.groups.clear()
        end = commit.segment.end + len(data)
        if end > commit.segment.size:
            violated(self.fail, f"end of log segment {commit.segment.segment_id}", commit.segment.size, end)
        self._in_flight = commit
        commit.segment.end = end
        file, offset = commit.segment.file, commit.offset
        if self._end_timer is None:
            self._end_timer = self._io.loop.call_later(NOTED_SECONDS, self._tell_end)
        if not file.begin_durably(data, offset, self._written):
            self._worker.submit(lambda: file.write_durably(data, offset), self._written)

    def _take(self) -> _Commit:
        """Builds groups from the queues, as far as they fit into the segment and one commit."""
        settings = self._settings
        commit = _Commit(self.segment)
        offset = commit.offset
        # Leaves room for the empty group that confirms an idle log.
        end = self.segment.size - GROUP_HEADER_BYTES
        while self._waiting and offset - commit.offset < settings.commit_bytes:
            before = len(commit.runs)
            self._take_runs(commit, end - offset - GROUP_HEADER_BYTES)
            if len(commit.runs) == before:
                break
            offset += self._add_group(commit, offset, commit.runs[before:])
        return commit

    def _add_group(self, commit: _Commit, offset: int, runs: list[Run]) -> int:
        data, places = build_group(
            commit.segment.segment_id, offset, self.sequence, self._durable_sequence, runs
        )
        self.sequence += 1
        self._confirmed = not runs
        commit.groups.append(data)
        commit.places.extend(places)
        return len(data)

    def _take_runs(self, commit: _Commit, room: int) -> None:
        """Moves runs for one group from the queues to ``commit``."""
        limit = min(room, self._settings.group_bytes)
        used = 0
        waiting = self._waiting
        while waiting:
            source = waiting[0]
            if isinstance(source, _Control):
                size = RUN_HEADER_BYTES + len(source.body)
                if used + size > limit and (used or size > room):
                    return
                commit.runs.append((source.kind, 0, source.ledger_id, -1, -1, [source.body]))
            elif source.parts:
                size = self._take_run(commit, source, limit - used, 0 if used else room)
                if not size:
                    return
                if source.parts:
                    commit.sources.append(source)
                    used += size
                    continue
                source.waiting = False
            else:
                source.waiting = False
                waiting.popleft()
                continue
            commit.sources.append(source)
            used += size
            waiting.popleft()

    def _take_run(self, commit: _Commit, queue: LogQueue, limit: int, first_limit: int) -> int:
        """Moves one run to ``commit``; returns its size, 0 if it does not fit.

        :param first_limit: the limit in bytes for the first part, in place of ``limit``
        """
        parts = queue.parts
        count, lengths, payload = parts[0]
        size = RUN_HEADER_BYTES + len(lengths) + len(payload)
        if size > limit and size > first_limit:
            return 0
        if queue.first <= queue.row.last_entry_id or queue.row.closed:
            what = f"first entry of the next run of ledger {queue.row.ledger_id}"
            expected = "none, as it is closed" if queue.row.closed else queue.row.last_entry_id + 1
            violated(self.fail, what, expected, queue.first)
        parts.popleft()
        limit = min(limit, self._settings.run_bytes)
        all_lengths, payloads = [lengths], [payload]
        while parts:
            more, lengths, payload = parts[0]
            size += len(lengths) + len(payload)
            if size > limit:
                size -= len(lengths) + len(payload)
                break
            parts.popleft()
            count += more
            all_lengths.append(lengths)
            payloads.append(payload)
        body = all_lengths + payloads
        commit.runs.append((ENTRIES, count, queue.row.ledger_id, queue.first, queue.row.last_entry_id, body))
        queue.first += count
        return size

    def _written(self, _: None, error: BaseException | None) -> None:
        commit = self._in_flight
        if error is not None or commit is None:
            self._failure(
                "cannot write or sync the log",
                error or RuntimeError("a write ended that was not in progress"),
            )
            return
        self._in_flight = None
        self._durable_sequence = self.sequence - 1
        try:
            durable = self._apply(commit)
        except Exception as raised:
            # Nothing of the commit is acknowledged, and the next start reads it back.
            self.fail(raised)
            raise
        self._start()
        for queue, last in durable.items():
            if not queue.ended:
                try:
                    queue.on_durable(last)
                except Exception as raised:  # noqa: BLE001 - reported
                    report(self._io.loop, queue.on_durable, raised)
        self._complete()
        if self._in_flight is None:
            self._watch_for_idleness()

    def _apply(self, commit: _Commit) -> dict[LogQueue, int]:
        """Updates table and index for a durable commit; returns the last durable entry of each queue."""
        durable: dict[LogQueue, int] = {}
        segment, places, table = commit.segment, commit.places, self._table
        at = 0
        for run, source in zip(commit.runs, commit.sources, strict=True):
            if isinstance(source, _Control):
                self._apply_control(source)
            else:
                count, first, length = run[1], run[3], places[at + 1]
                row = source.row
                if first != row.last_entry_id + 1:
                    what = f"first entry of a durable run of ledger {row.ledger_id}"
                    violated(self.fail, what, row.last_entry_id + 1, first)
                table.add_run(row, segment.segment_id, first, count, length, length - 4 * count)
                segment.index.add(run[2], first, count, places[at], length, places[at + 2])
                durable[source] = first + count - 1
            at += 3
        return durable

    def _apply_control(self, control: _Control) -> None:
        if control.kind == LEDGER_CREATED:
            self._table.create(control.ledger_id, control.body)
        elif control.kind == LEDGER_CLOSED:
            self._table.close(control.ledger_id, *decode_closed(control.body))
        elif control.kind == LEDGER_DELETED:
            self._table.delete(control.ledger_id)
        if not control.durable.done():
            control.durable.set_result(None)

    def _needed(self) -> int:
        """Returns the size of the smallest segment that fits the first queued item."""
        source = self._waiting[0]
        if isinstance(source, _Control):
            size = len(source.body)
        elif source.parts:
            size = len(source.parts[0][1]) + len(source.parts[0][2])
        else:
            size = 0
        return SEGMENT_HEADER_BYTES + 2 * GROUP_HEADER_BYTES + RUN_HEADER_BYTES + size

    def _leave_reserve(self) -> bool:
        """Continues in a segment with room for entries, or refuses the entries if there is no such segment;
        returns False if the segment is not ready yet.
        """
        if self._supply.has_room:
            return self._roll()
        self._refuse(self.segment.room)
        return True

    @property
    def takes_changes_only(self) -> bool:
        """Whether only the last segment of the reserve is left, which accepts changes of ledgers only."""
        ready = self._supply.reserved
        if ready is None:
            return self.segment.room is SegmentRoom.LAST and not self._supply.has_room
        return ready is SegmentRoom.LAST

    def _refuse(self, room: SegmentRoom | None) -> None:
        """Refuses queued appends and changes. None of them has been written, so all can be reported as not
        stored.

        :param room: the kind of room that is left, which decides which items may keep waiting; None: no room
            is left
        """
        kept: deque[LogQueue | _Control] = deque()
        refused: list[LogQueue | _Control] = []
        for source in self._waiting:
            if isinstance(source, LogQueue):
                takes = room is SegmentRoom.RESERVED and source.high_priority
                source.waiting = takes
            else:
                takes = room is not None
            (kept if takes else refused).append(source)
        self._waiting = kept
        full = StoreFull(self._supply.shortage)
        for source in refused:
            if isinstance(source, LogQueue):
                source.refused(full)
            elif not source.durable.done():
                source.durable.set_exception(full)

    def _nothing_left(self) -> None:
        """Refuses all queued appends and changes, because even the reserve has no room for a segment."""
        self._starved = False
        self._refuse(None)
        self._complete()

    def _roll(self) -> bool:
        """Continues in the next segment; returns False if that segment is not ready yet."""
        if self._supply.reserved is not None:
            self._refuse(self._supply.reserved)
            if not self._waiting:
                return True
        following = self._supply.take(self._needed(), self._segment_is_ready, self._nothing_left)
        if following is None:
            self._starved = True
            return False
        last, self.segment = self.segment, following
        following.first_sequence = self.sequence
        self._begun(following)
        self._supply.prefetch(following, last)
        self._filled(last, self.sequence)
        return True

    def _tell_end(self) -> None:
        self._end_timer = None
        # The last group may be the empty one, whose loss nothing would reveal.
        known = self._in_flight is None and not self._confirmed
        sequence = self._durable_sequence - (not known)
        if sequence >= self.segment.first_sequence:
            self._note_end(LogEnd(self.segment.segment_id, sequence))

    def _watch_for_idleness(self) -> None:
        self._last_commit = self._io.loop.time()
        if self._idle_timer is None and not self._confirmed:
            self._idle_timer = self._io.loop.call_later(self._settings.idle_seconds, self._maybe_idle)

    def _maybe_idle(self) -> None:
        """After an idle time, writes the empty group that declares the last group durable."""
        self._idle_timer = None
        if self._in_flight is not None or self._waiting or self._confirmed or self.failed:
            return
        idle_at = self._last_commit + self._settings.idle_seconds
        if self._io.loop.time() < idle_at - 0.001:
            self._idle_timer = self._io.loop.call_at(idle_at, self._maybe_idle)
            return
        commit = _Commit(self.segment)
        self._add_group(commit, commit.offset, [])
        self._write(commit)
