"""Replicates one topic to one other cluster, in order, with a cursor at the last confirmed entry.

Entries in flight are not kept in memory: when the connection breaks, the cursor returns to the last confirmed
entry, and later entries are read and sent again. A remote broker that deduplicates recognizes them by
their position in this cluster; any other broker stores them twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.broker.flow.dispatch_rates import DispatchLimiter, LimitedBy, Throttle
from magnetar.broker.flow.loop_budget import READ_PRICE, RUN_PRICE
from magnetar.broker.flow.rates import Rate
from magnetar.broker.replication.clusters import Common, RemoteCluster
from magnetar.broker.replication.remote_producer import BaseReplicator, RemoteProducer
from magnetar.broker.topics.persistent import Topic
from magnetar.client.connection import Connection
from magnetar.client.timing import Backoff
from magnetar.io.interfaces import Cancellable
from magnetar.io.waiting import sleep
from magnetar.ledger.interface import EntryRun, LedgerError
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.entry_cache import lasting_run
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.managed_ledger.position import Position
from magnetar.protocol.errors import FrameError
from magnetar.protocol.hot_client_decode import ReceiptRun
from magnetar.protocol.hot_replication import (
    EXPIRED,
    TOO_LARGE,
    UNKNOWN_SCHEMA,
    InFlight,
    ReplicationRun,
    encode_replicated,
    first_dropped,
)

_MOST_ENTRIES = 1000
"""The maximum number of entries per read; :class:`ReplicationRun`, the encoder, has room for as many."""
_MOST_READ_BYTES = 1 << 20
_READ_AGAIN = (1.0, 60.0)
"""The first and the longest delay in seconds before a failed read is repeated."""
_READING = "reading"
_KEPT_SLOTS = 64
_NOTHING = InFlight()
"""An empty object that all replicators without entries in flight share; it is never modified."""
_GATHERING_SECONDS = 0.002
"""The minimum time in seconds between two runs if the first run had many messages.

At 20,000 messages a second, a topic makes 1,500 commits a second. If each commit were sent as a run of its
own, the receiver would use twice as much CPU time as with 500 runs a second.
"""
_MANY_MESSAGES = 8
"""A run with fewer messages is followed by the next run without a pause, so that a slow topic keeps its low
lag.
"""
_MANY_ENTRIES = 256
"""If at least this many entries can be read, they are sent without a pause, so that a backlog is sent as fast
as the receiver accepts it."""
_SAMPLE_SECONDS = 0.1
_MOST_SAMPLES = 32


class Replicator(BaseReplicator):
    """The replicator of one loaded topic to one other cluster; :attr:`hindrance` is the reason why it does
    not send."""

    def __init__(self, common: Common, topic: Topic, remote: str, cursor: Cursor) -> None:
        self.topic: Topic = topic
        self.remote = remote
        self.cursor = cursor
        self.sent = Rate()
        """Messages and bytes that were sent, including messages that were sent again."""
        self.expired = Rate()
        self.skipped = 0
        self.expiring = False
        self.last_expire_ms = 0
        self._io = common.io
        self._loop = common.io.loop
        self._settings = common.settings
        self._bytes = common.in_flight
        self._in_flight = _NOTHING
        self._processed: Position = cursor.mark_delete
        """The last entry that was sent or skipped."""
        self._left: tuple[EntryRun, int, int] | None = None
        """Entries that were read but not sent: the run, their first index, and the index after the last;
        None: no entries.
        """
        self._oldest_sent = 0.0
        self._next_run = 0.0
        """The time on the loop's clock from which a run of few entries may be sent."""
        self._gathering: Cancellable | None = None
        """The timer that calls :meth:`go_on` at ``_next_run``; None: no run is delayed."""
        self._stored_at: list[tuple[Position, float]] = []
        """Samples of unconfirmed positions, each with a time when it was the last position of the topic."""
        self._read_backoff = Backoff(common.io.randomness, *_READ_AGAIN)
        self._unreadable = False
        """Whether the last read failed; :attr:`hindrance` then gives the reason."""
        self._blocked_at: Position | None = None
        self._known: Position = topic.managed_ledger.last_confirmed
        """The last entry that the other cluster may have: entries up to it were stored before the topic was
        loaded, or sent before a disconnection."""
        self._dropping = False
        """Whether the other cluster drops entries, as duplicates, that it never received.

        Entries are then sent one by one, until the other cluster accepts an entry.
        """
        self._limiter: DispatchLimiter | None = None
        self._throttle: Throttle | None = None
        self._there = self._producer(common)
        if cursor.has_more():
            self._stored_at.append((topic.max_read_position, self._loop.time()))
        self.policies_changed()
        topic.followers.add(self._stored)
        self._there.connect()

    def _producer(self, common: Common) -> RemoteProducer:
        topic = self.topic
        return RemoteProducer(common, self, topic.name, self.remote, topic.settings.replicator_prefix)

    def _encoding(self, cluster: RemoteCluster) -> ReplicationRun:
        return cluster.run

    def _confirms_positions(self, connection: Connection) -> bool:
        return connection.wire.confirms_positions

    @property
    def name(self) -> str:
        """The name of the replicator's cursor, as operators see it."""
        return self.cursor.name

    @property
    def closing(self) -> bool:
        return self._there.ended

    def backlog(self) -> int:
        """Returns the number of entries that the other cluster has not confirmed."""
        return self.cursor.backlog()

    def skip_to(self, position: Position) -> int:
        """Skips all entries up to a position, so that these entries are never sent; returns their number."""
        count = self.cursor.mark_delete_to(position)
        self.skipped += count
        self.go_on()
        return count

    def lag_seconds(self) -> float:
        """Returns the age of the oldest unconfirmed entry in seconds, at most the time since the topic was
        loaded; 0 if all entries are confirmed.
        """
        mark_delete = self.cursor.mark_delete
        for position, stored in self._stored_at:
            if position > mark_delete:
                return self._loop.time() - stored
        return 0.0

    def delay_seconds(self) -> float:
        """Returns how many seconds the oldest entry without a receipt has been in flight; 0 if no entry is in
        flight.
        """
        return self._loop.time() - self._oldest_sent if self._in_flight.count else 0.0

    # Its producer in the other cluster

    def attached(self) -> None:
        self._rewind()
        self.topic.managed_ledger.cursors.set_active(self.cursor, True)
        if not self.cursor.has_more():
            self._there.backoff.reset()

    def detached(self) -> None:
        self.topic.managed_ledger.cursors.set_active(self.cursor, False)
        if not self._dropping:
            self._known = max(self._known, self._processed)
        self._in_flight_cleared()
        self._left = None

    def _rewind(self) -> None:
        self._in_flight_cleared()
        self._left = None
        self._blocked_at = None
        self.cursor.rewind()
        self._processed = self.cursor.mark_delete

    def _in_flight_cleared(self) -> None:
        size = self._in_flight.size
        self._in_flight = _NOTHING
        self._bytes.release(self, size)

    def receipts(self, run: ReceiptRun) -> None:
        connection, in_flight = self._there.connection, self._in_flight
        assert connection is not None
        ledger_ids, entry_ids, count = run.sequence_ids, run.highest_sequence_ids, run.count
        by_position = self._confirms_positions(connection)
        if by_position:
            count = first_dropped(run.ledger_ids, ledger_ids, entry_ids, count, *self._known)
        before = in_flight.size
        if not in_flight.confirm(ledger_ids, entry_ids, count, by_position):
            raise FrameError(
                f"{self.remote} confirmed an entry for {self._there.name} that is not the oldest "
                "unconfirmed one"
            )
        self._bytes.release(self, before - in_flight.size)
        if count:
            self._there.backoff.reset()
            self._oldest_sent = self._loop.time()
            self._settle()
        if count < run.count:
            self._dropped((ledger_ids[count], entry_ids[count]))
            return
        if self._dropping and entry_ids[0] >= 0:
            self._dropping = False
            self._there.lasting = ""
            self._there.freed()
        self.go_on()

    def _dropped(self, position: Position) -> None:
        """Handles an entry that the other cluster never received but drops as a duplicate, because that
        cluster knows higher positions from an earlier topic of the same name.

        The drop does not confirm the entry, which is sent again from time to time, until it is stored.
        """
        ledger_id, entry_id = position
        self._dropping = True
        self._there.lasting = (
            f"{self._there.where} drops entry {ledger_id}:{entry_id}, which it has never received, as a "
            "duplicate: it has stored a higher position from before the topic was created again or "
            "restored here. To clear that position, run pulsar-admin topicPolicies set-deduplication "
            f"--disable {self.topic.full_name} there, and then the same command with --enable"
        )
        self._there.detach(self._there.lasting)

    def _settle(self) -> None:
        """Moves the cursor past confirmed and skipped entries, in order, so that no entry is deleted
        individually.
        """
        in_flight = self._in_flight
        if in_flight.count:
            ledger_id, entry_id = in_flight.head()
            self.cursor.mark_delete_to((ledger_id, entry_id - 1))
        else:
            self.cursor.mark_delete_to(self._processed)
            if in_flight.capacity > _KEPT_SLOTS:
                self._in_flight = _NOTHING
        known = self._stored_at
        while known and known[0][0] <= self.cursor.mark_delete:
            del known[0]

    # Sending

    def rest(self) -> None:
        """Disconnects an idle topic until messages are published."""
        if self.connected and not self.backlog():
            self._there.rest()

    def _stored(self) -> None:
        """Continues sending after messages were published to the topic."""
        if self._there.resting:
            self._there.connect()
        known, now = self._stored_at, self._loop.time()
        if not known or now - known[-1][1] >= _SAMPLE_SECONDS:
            if len(known) >= _MOST_SAMPLES:
                del known[1::2]
            known.append((self.topic.max_read_position, now))
        self.go_on()

    def go_on(self) -> None:
        """Sends entries as far as possible now."""
        topic, there = self.topic, self._there
        while there.connection is not None and not there.ended and not there.under_way(_READING):
            if topic.fenced or topic.closing or self._blocked():
                return
            most = 1 if self._dropping else self._settings().queue_size
            room = most - self._in_flight.count
            if room <= 0:
                return
            if self._left is None and not self.cursor.has_more():
                if self._unreadable:
                    # An operator has skipped the entries, or they were trimmed.
                    self._read_succeeded()
                return
            if self._left is None and self._gathers():
                return
            if not self._bytes.admits(self) or not self._admitted() or not topic.budget.admits(self):
                return
            if self._throttle is not None:
                room = min(room, self._throttle.messages)
            left, self._left = self._left, None
            if left is None:
                most = min(room, _MOST_ENTRIES)
                run = self.cursor.read_cached(most, min(topic.budget.step_bytes, _MOST_READ_BYTES))
                if run is None:
                    topic.budget.spend(READ_PRICE)
                    there.start(_READING, self._read)
                    return
                if self._unreadable:
                    self._read_succeeded()
                left = (run, 0, run.count)
            self._send(*left, room)

    def _gathers(self) -> bool:
        """Whether to wait for more entries, because many messages were just sent and few entries are left."""
        if self._gathering is not None:
            return not self._has_many()
        if self._loop.time() >= self._next_run or self._has_many():
            return False
        self._gathering = self._loop.call_at(self._next_run, self._gathered)
        return True

    def _has_many(self) -> bool:
        """Whether so many entries can be read that waiting for more would save nothing."""
        next_ledger, next_entry = self.cursor.next_position()
        ledger, entry = self.topic.max_read_position
        return ledger != next_ledger or entry - next_entry >= _MANY_ENTRIES - 1

    def _gathered(self) -> None:
        self._gathering = None
        # The timer may fire a little early.
        self._next_run = 0.0
        self.go_on()

    def _admitted(self) -> bool:
        """Whether the dispatch rate allows a message now."""
        return self._throttle is None or self._throttle.admits()

    def policies_changed(self) -> None:
        """Applies the current policies of the topic."""
        rate = self.topic.policies.replicator_dispatch_rate
        if self._limiter is not None:
            self._limiter.use(rate)
        elif rate.limited:
            clock = self._io.clock
            self._limiter = DispatchLimiter(self.topic.wheel, clock, LimitedBy.REPLICATOR, rate)
            self._throttle = Throttle(clock, self.go_on, lambda: False, self.topic.fail)
            self._throttle.use((self._limiter,))

    def _blocked(self) -> bool:
        if self._there.declaring:
            return True
        at = self._blocked_at
        if at is not None and self.cursor.mark_delete < at:
            return True
        if at is not None:
            # An operator has skipped the entry: sending continues after it.
            self._blocked_at = None
            self._there.freed()
        return False

    async def _read(self) -> None:
        room = min(self._settings().queue_size - self._in_flight.count, _MOST_ENTRIES)
        try:
            run = await self.cursor.read(max(room, 1), _MOST_READ_BYTES)
        except (LedgerError, ManagedLedgerError) as error:
            self._unreadable = True
            self._there.hindered(f"the topic cannot be read: {error}")
            await sleep(self._loop, self._read_backoff.next())
            run = None
        else:
            self._read_succeeded()
        if run is not None:
            run = lasting_run(run)
            self._left = (run, 0, run.count)

    def _read_succeeded(self) -> None:
        self._unreadable = False
        self._read_backoff.reset()
        if self.connected:
            self._there.freed()

    def _send(self, run: EntryRun, first: int, end: int, room: int) -> None:
        """Sends at most ``room`` of the entries ``first`` … ``end - 1`` of a run, and keeps the other entries
        for later.
        """
        last = min(end, first + room)
        for start, stop in self.cursor.unconsumed_parts(run):
            start, stop = max(start, first), min(stop, last)
            if start >= stop:
                continue
            stopped_at = self._send_part(self._sendable(run), start, stop)
            if stopped_at < stop:
                self._left = (run, stopped_at, end)
                self._settle()
                self._stopped_at((run.ledger_id, run.first_entry_id + stopped_at))
                return
        if last < end:
            self._left = (run, last, end)
        self._processed = (run.ledger_id, run.first_entry_id + last - 1)
        self._settle()

    def _sendable(self, run: EntryRun) -> EntryRun:
        """Returns the run without transaction ids, and with markers in place of aborted messages."""
        transactions = self.topic.transactions
        return run if transactions is None else transactions.for_replication(run)

    def _stopped_at(self, position: Position) -> None:
        """Handles an entry that cannot be sent now, because its schema must be declared or it is too
        large."""
        cluster = self._there.cluster
        assert cluster is not None
        encoding = self._encoding(cluster)
        if encoding.stopped == UNKNOWN_SCHEMA:
            self._there.declare_schema(encoding.version)
        elif encoding.stopped == TOO_LARGE:
            self._too_large(position)

    def _send_part(self, run: EntryRun, first: int, end: int) -> int:
        """Sends entries ``first`` … ``end - 1``; returns the index of the first entry that cannot be sent
        now, or ``end``.
        """
        there = self._there
        cluster, connection = there.cluster, there.connection
        assert cluster is not None
        assert connection is not None
        encoding = self._encoding(cluster)
        encoding.max_frame = connection.wire.max_frame
        encoding.versions = there.versions
        encoding.local_version = encoding.remote_version = b""
        stopped_at = encode_replicated(
            encoding,
            there.id,
            run.buffer,
            run.starts,
            run.ends,
            first,
            end,
            run.ledger_id,
            run.first_entry_id,
            self._oldest_ms(),
        )
        frames, in_flight = encoding.frames, self._in_flight
        if encoding.sent:
            if not in_flight.count:
                self._oldest_sent = self._loop.time()
                if in_flight is _NOTHING:
                    in_flight = self._in_flight = InFlight()
            before = in_flight.size
            in_flight.add(encoding, first, stopped_at, run.ledger_id, run.first_entry_id)
            self._bytes.take(self, in_flight.size - before)
            connection.send(frames)
            if self._throttle is not None:
                self._throttle.take(encoding.sent, encoding.messages, len(frames))
            self.sent.messages += encoding.messages
            self.sent.bytes += len(frames)
            self.topic.busy()
        self.topic.budget.spend(RUN_PRICE + len(frames))
        if encoding.messages >= _MANY_MESSAGES:
            self._next_run = self._loop.time() + _GATHERING_SECONDS
        if encoding.sent < stopped_at - first:
            self._count_expired(encoding.kinds, first, stopped_at)
        if stopped_at > first:
            self._processed = (run.ledger_id, run.first_entry_id + stopped_at - 1)
        return stopped_at

    def _oldest_ms(self) -> int:
        seconds = self.topic.policies.message_ttl_seconds
        return self._io.clock.wall_ms() - seconds * 1000 if seconds > 0 else 0

    def _count_expired(self, kinds: Sequence[int], first: int, end: int) -> None:
        count = sum(kinds[index] == EXPIRED for index in range(first, end))
        if count:
            self.expired.messages += count

    def _too_large(self, position: Position) -> None:
        self._blocked_at = position
        ledger_id, entry_id = position
        self._there.hindered(
            f"entry {ledger_id}:{entry_id} is larger than {self._there.where} accepts: raise "
            "maxMessageSize there, or skip the entry (pulsar-admin topics skip --count 1 -s "
            f"{self.cursor.name})"
        )

    # Ending

    def tick(self, seconds: float) -> bool:
        """Updates the rates over the last ``seconds``; returns whether there is still traffic."""
        self.sent.tick(seconds)
        self.expired.tick(seconds)
        if not self._in_flight.count:
            self._in_flight = _NOTHING
        return self.sent.per_second > 0 or self.expired.per_second > 0

    def stop(self) -> None:
        """Stops sending; the cursor keeps its position."""
        if self._there.ended:
            return
        self.topic.followers.remove(self._stored)
        self._there.stop()
        self._bytes.leave(self)
        if self._gathering is not None:
            self._gathering.cancel()
        if self._throttle is not None:
            self._throttle.close()
