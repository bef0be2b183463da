"""Sends one topic to one other cluster, in order, from a cursor that says what has arrived there.

Nothing that was sent is kept: when the connection breaks, the cursor goes back to the last entry that was
confirmed, and what follows is read and sent again. A remote broker that deduplicates knows it by its position
in this cluster; another one stores it twice.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from magnetar.broker.flow.dispatch_rates import DispatchLimiter, LimitedBy, Throttle
from magnetar.broker.flow.loop_budget import READ_PRICE, RUN_PRICE
from magnetar.broker.flow.rates import Rate
from magnetar.broker.replication.clusters import RemoteCluster, RemoteClusters
from magnetar.broker.replication.settings import InFlightBytes, ReplicationSettings
from magnetar.broker.schemas.data import fill_wire, version_from_bytes
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.broker.topics.persistent import Topic
from magnetar.client.attachment import take_back_unanswered
from magnetar.client.backoff import Backoff
from magnetar.client.connection import Connection
from magnetar.client.exceptions import NotConnected, PulsarException, TopicNotFound
from magnetar.client.wire import Assigned
from magnetar.errors import BrokerError
from magnetar.io.interfaces import Io
from magnetar.io.waiting import nobody_waits, sleep
from magnetar.ledger.entry_run import EntryRun
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.cursor import Cursor
from magnetar.managed_ledger.entry_cache import lasting_run
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.managed_ledger.position import Position
from magnetar.metadata.interface import MetadataError
from magnetar.naming.replicators import producer_name
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.errors import FrameError
from magnetar.protocol.hot_client_decode import ReceiptRun
from magnetar.protocol.hot_replication import (
    EXPIRED,
    TOO_LARGE,
    UNKNOWN_SCHEMA,
    InFlight,
    encode_replicated,
)
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

log = logging.getLogger(__name__)

_MOST_ENTRIES = 1000
"""The most that a replicator reads at a time; a replication run has room for that many."""
_MOST_READ_BYTES = 1 << 20
_READ_AGAIN = (1.0, 60.0)
"""Seconds after a read that failed, and at most."""
_LOOK_AGAIN_SECONDS = 1.0
"""Between two looks whether an operator has skipped the entry that is too large."""
_CLOSE_SECONDS = 30.0
_KEPT_SLOTS = 64
_SAMPLE_SECONDS = 0.1
_MOST_SAMPLES = 32
_EMPTY: dict[bytes, bytes] = {}


class Replicator:
    """Of one loaded topic and one remote cluster; what keeps it from sending is in :attr:`hindrance`."""

    def __init__(
        self,
        io: Io,
        topic: Topic,
        remote: str,
        cursor: Cursor,
        clusters: RemoteClusters,
        schemas: SchemaRegistry,
        partitions: Callable[[TopicName], Awaitable[int]],
        settings: Callable[[], ReplicationSettings],
        in_flight_bytes: InFlightBytes,
    ) -> None:
        """:param partitions: how many a topic has here; 0: it has none"""
        self.topic = topic
        self.remote = remote
        self.cursor = cursor
        self.hindrance = "it is not connected yet"
        """Why nothing is sent, in words; empty: nothing keeps it from sending."""
        self.connected_ms = 0
        """When it was connected, in milliseconds since 1970; 0: it is not."""
        self.sent = Rate()
        """Messages and bytes that were sent, those that were sent again among them."""
        self.expired = Rate()
        self.skipped = 0
        self.expiring = False
        self.last_expire_ms = 0
        self._io = io
        self._loop = io.loop
        self._clusters = clusters
        self._schemas = schemas
        self._partitions = partitions
        self._settings = settings
        self._bytes = in_flight_bytes
        self._cluster: RemoteCluster | None = None
        self._connection: Connection | None = None
        self._producer_id = 0
        self._epoch = 0
        self._in_flight = InFlight()
        self._processed: Position = cursor.mark_delete
        """The last entry that was sent or skipped."""
        self._left: tuple[EntryRun, int, int] | None = None
        """Read and not sent: the run, and the first and the last index."""
        self._versions = _EMPTY
        self._oldest_sent = 0.0
        self._stored_at: list[tuple[Position, float]] = []
        """Some positions that are not confirmed, and when each was the last one of the topic."""
        self._tasks: dict[str, Any] = {}
        """What is under way: connecting, reading, declaring a schema."""
        self._backoff = Backoff(io.randomness, *settings().backoff)
        self._read_backoff = Backoff(io.randomness, *_READ_AGAIN)
        self._blocked_at: Position | None = None
        self._timer: Any = None
        self._limiter: DispatchLimiter | None = None
        self._throttle: Throttle | None = None
        self._ended = False
        self._resting = False
        """Disconnected until something is published."""
        if cursor.has_more():
            self._stored_at.append((topic.max_read_position, self._loop.time()))
        self.policies_changed()
        topic.follow(self._stored)
        self._start("connecting", self._keep_connecting)

    @property
    def name(self) -> str:
        """That of its cursor, as operators call it."""
        return self.cursor.name

    @property
    def closing(self) -> bool:
        return self._ended

    def backlog(self) -> int:
        """Entries that the other cluster has not confirmed."""
        return self.cursor.backlog()

    def skip_to(self, position: Position) -> int:
        """Has everything up to a position never be sent; returns how many entries that were."""
        count = self.cursor.mark_delete_to(position)
        self.skipped += count
        self.go_on()
        return count

    @property
    def producer(self) -> str:
        """The name of its producer in the other cluster."""
        return producer_name(self.topic.settings.replicator_prefix, self._settings().cluster, self.remote)

    @property
    def connected(self) -> bool:
        return self._connection is not None

    def link(self) -> tuple[str, str] | None:
        """``host:port`` of both ends of its connection, its own end first; None while it is disconnected."""
        return self._connection.ends() if self._connection is not None else None

    def lag_seconds(self) -> float:
        """Age of the oldest entry that is not confirmed, at most since the topic was loaded; else 0."""
        mark_delete = self.cursor.mark_delete
        for position, stored in self._stored_at:
            if position > mark_delete:
                return self._loop.time() - stored
        return 0.0

    def delay_seconds(self) -> float:
        """How long the oldest entry without a receipt has been on its way; 0: there is none."""
        return self._loop.time() - self._oldest_sent if self._in_flight.count else 0.0

    # Connecting

    def _start(self, kind: str, work: Callable[[], Any]) -> None:
        if self._ended or kind in self._tasks:
            return
        task = self._tasks[kind] = self._loop.create_task(work())
        task.add_done_callback(lambda done: self._task_ended(kind, done))

    def _task_ended(self, kind: str, task: Any) -> None:
        self._tasks.pop(kind, None)
        if task.cancelled():
            if kind == "connecting":
                self._start(kind, self._keep_connecting)
            return
        if task.exception() is None:
            self.go_on()
            return
        error = task.exception()
        log.error(
            "replicator failed",
            extra={"topic": self.topic.full_name, "cluster": self.remote, "error": repr(error)},
            exc_info=error,
        )
        self._detach(f"{kind}: {type(error).__name__}: {error}")

    async def _keep_connecting(self) -> None:
        while not self._ended and self._connection is None:
            try:
                await self._connect()
                return
            except (PulsarException, BrokerError, MetadataError, OSError) as error:
                self._hindered(str(error) or type(error).__name__)
            await sleep(self._loop, self._backoff.next())

    def _hindered(self, reason: str) -> None:
        if reason != self.hindrance:
            log.warning(
                "topic is not being replicated",
                extra={"topic": self.topic.full_name, "cluster": self.remote, "reason": reason},
            )
        self.hindrance = reason

    async def _connect(self) -> None:
        cluster = await self._clusters.get(self.remote)
        services = cluster.client.services
        name = self.topic.full_name
        await self._prepare_there(cluster)
        owner = await services.lookup.owner(name)
        connection = await services.pool.next(owner.broker, owner.through)
        wire, producer_id = connection.wire, services.new_id()
        wire.producers[producer_id] = self
        request_id = wire.new_request_id()
        asked = connection.ask(request_id, self._command(request_id, producer_id), services.operation_timeout)
        take_back_unanswered(asked, lambda: self._close_producer(connection, producer_id))
        try:
            await asked
        except PulsarException:
            wire.producers.pop(producer_id, None)
            raise
        if wire.producers.get(producer_id) is not self:
            raise NotConnected(f"{name}: closed again by the broker of {self.remote}")
        if self._ended or cluster.ended:
            self._close_producer(connection, producer_id)
            raise NotConnected(f"the record of cluster {self.remote} has changed")
        self._cluster, self._connection, self._producer_id = cluster, connection, producer_id
        self._versions = _EMPTY
        self._rewind()
        self.connected_ms = self._io.clock.wall_ms()
        if self.hindrance:
            log.info("topic is being replicated", extra={"topic": name, "cluster": self.remote})
        self.hindrance = ""
        self.topic.managed_ledger.cursors.set_active(self.cursor, True)
        if not self.cursor.has_more():
            self._backoff.reset()

    async def _prepare_there(self, cluster: RemoteCluster) -> None:
        """Sees to it that the topic can be in the other cluster.

        :raises BrokerError: it has partitions in one of the clusters only, or must not be made
        """
        name = self.topic.name
        base, makes = name.base, self._settings().makes_topics
        wanted = await self._partitions(base) if name.partition_index >= 0 else 0
        try:
            count = await cluster.client.services.lookup.partitions(str(base), makes_topic=False)
        except TopicNotFound:
            if not makes:
                raise
            count = 0
            if wanted:
                # Clients that use it first would make it with another number of partitions.
                await self._ask_for_partitions(cluster, "PUT", "createLocalTopicOnly", wanted)
            return
        if bool(count) != bool(wanted) and name.partition_index < 0:
            raise BrokerError(
                f"{base} has no partitions here and {count} in cluster {self.remote}: delete one of the two "
                "topics, or make them alike"
            )
        if makes and 0 < count < wanted:
            await self._ask_for_partitions(cluster, "POST", "updateLocalTopicOnly", wanted)

    async def _ask_for_partitions(
        self, cluster: RemoteCluster, method: str, local_only: str, partitions: int
    ) -> None:
        query = {local_only: "true"} | ({"force": "false"} if method == "POST" else {})
        path = f"{self.topic.name.base.admin_path}/partitions"
        try:
            await cluster.ask(method, path, query, str(partitions).encode())
        except BrokerError as error:
            # Another partition's replicator, or a client, was first.
            if error.http_status != HTTPStatus.CONFLICT:
                raise

    def _command(self, request_id: int, producer_id: int) -> BaseCommand:
        command = BaseCommand(type=BaseCommand.PRODUCER)
        producer = command.producer
        producer.topic = self.topic.full_name
        producer.producer_id = producer_id
        producer.request_id = request_id
        producer.producer_name = self.producer
        producer.encrypted = False
        producer.epoch = self._epoch
        producer.user_provided_producer_name = True
        producer.txn_enabled = False
        self._epoch += 1
        return command

    def _close_producer(self, connection: Connection, producer_id: int) -> Any:
        """Tells the remote broker; returns a future of its answer, for which nobody has to wait."""
        wire = connection.wire
        wire.producers.pop(producer_id, None)
        request_id = wire.new_request_id()
        command = BaseCommand(type=BaseCommand.CLOSE_PRODUCER)
        command.close_producer.producer_id = producer_id
        command.close_producer.request_id = request_id
        answered = connection.ask(request_id, command, _CLOSE_SECONDS)
        answered.add_done_callback(nobody_waits)
        return answered

    def _rewind(self) -> None:
        self._in_flight_cleared()
        self._left = None
        self._blocked_at = None
        self.cursor.rewind()
        self._processed = self.cursor.mark_delete

    def _in_flight_cleared(self) -> None:
        size = self._in_flight.size
        self._in_flight.clear()
        self._bytes.release(size)

    def _detach(self, reason: str) -> None:
        """Sends nothing more on this connection, and looks for another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self.connected_ms = 0
            if not connection.closed:
                self._close_producer(connection, self._producer_id)
            self.topic.managed_ledger.cursors.set_active(self.cursor, False)
        self._in_flight_cleared()
        self._left = None
        if not self._ended and not self._resting:
            self._hindered(reason)
            self._start("connecting", self._reconnect)

    async def _reconnect(self) -> None:
        await sleep(self._loop, self._backoff.next())
        await self._keep_connecting()

    # What the connection tells

    def receipts(self, run: ReceiptRun) -> None:
        connection = self._connection
        if connection is None:
            return
        in_flight = self._in_flight
        before = in_flight.size
        confirmed = in_flight.confirm(
            run.sequence_ids, run.highest_sequence_ids, run.count, connection.wire.confirms_positions
        )
        if not confirmed:
            raise FrameError(f"a receipt of {self.remote} for {self.producer} is not for the oldest entry")
        self._bytes.release(before - in_flight.size)
        self._backoff.reset()
        self._oldest_sent = self._loop.time()
        self._settle()
        self.go_on()

    def _settle(self) -> None:
        """Has the cursor go by what is confirmed or was skipped; in order, so that it never has holes."""
        in_flight = self._in_flight
        if in_flight.count:
            ledger_id, entry_id = in_flight.head()
            self.cursor.mark_delete_to((ledger_id, entry_id - 1))
        else:
            self.cursor.mark_delete_to(self._processed)
            if in_flight.capacity > _KEPT_SLOTS:
                in_flight.clear()
        known = self._stored_at
        while known and known[0][0] <= self.cursor.mark_delete:
            del known[0]

    def send_failed(self, sequence_id: int, error: PulsarException) -> None:
        self._detach(f"cluster {self.remote} refused a message: {error}")

    def closed_by_broker(self, assigned: Assigned | None) -> None:
        if self._connection is not None:
            self._connection = None
            self.connected_ms = 0
            self.topic.managed_ledger.cursors.set_active(self.cursor, False)
        self._detach(f"cluster {self.remote} closed the producer")

    def connection_lost(self, error: PulsarException) -> None:
        self._detach(str(error))

    # Sending

    def rest(self) -> None:
        """Disconnects until something is published: the topic is not used."""
        if self._connection is not None and not self.backlog():
            self._resting = True
            self._detach("")

    def _stored(self) -> None:
        """Something was published."""
        if self._resting:
            self._resting = False
            self._start("connecting", self._keep_connecting)
        known, now = self._stored_at, self._loop.time()
        if not known or now - known[-1][1] >= _SAMPLE_SECONDS:
            if len(known) >= _MOST_SAMPLES:
                del known[1::2]
            known.append((self.topic.max_read_position, now))
        self.go_on()

    def go_on(self) -> None:
        """Sends what can be sent now."""
        topic = self.topic
        while self._connection is not None and not self._ended and "reading" not in self._tasks:
            if topic.fenced or topic.closing or self._blocked():
                return
            room = self._settings().queue_size - self._in_flight.count
            if room <= 0 or (self._left is None and not self.cursor.has_more()):
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
                    self._start("reading", self._read)
                    return
                left = (run, 0, run.count)
            self._send(*left, room)

    def _admitted(self) -> bool:
        """Whether its dispatch rate admits anything now."""
        return self._throttle is None or self._throttle.admits()

    def policies_changed(self) -> None:
        """Goes by the policies of its topic as they are now."""
        rate = self.topic.policies.replicator_dispatch_rate
        if self._limiter is not None:
            self._limiter.use(rate)
        elif rate.limited:
            clock = self._io.clock
            self._limiter = DispatchLimiter(self.topic.wheel, clock, LimitedBy.REPLICATOR, rate)
            self._throttle = Throttle(clock, self.go_on, lambda: False)
            self._throttle.use((self._limiter,))

    def _blocked(self) -> bool:
        if "declaring a schema" in self._tasks:
            return True
        at = self._blocked_at
        if at is not None and self.cursor.mark_delete < at:
            return True
        if at is not None:
            # An operator has skipped it: what is left of the run goes on behind it.
            self._blocked_at = None
            self.hindrance = ""
        return False

    async def _read(self) -> None:
        room = min(self._settings().queue_size - self._in_flight.count, _MOST_ENTRIES)
        try:
            run = await self.cursor.read(max(room, 1), _MOST_READ_BYTES)
        except (LedgerError, ManagedLedgerError) as error:
            self._hindered(f"the topic cannot be read: {error}")
            await sleep(self._loop, self._read_backoff.next())
            run = None
        else:
            self._read_backoff.reset()
            if self._connection is not None:
                self.hindrance = ""
        if run is not None:
            run = lasting_run(run)
            self._left = (run, 0, run.count)

    def _send(self, run: EntryRun, first: int, end: int, room: int) -> None:
        """Sends at most ``room`` of the entries ``first`` … ``end - 1`` of a run; the rest is left."""
        last = min(end, first + room)
        for start, stop in self.cursor.unconsumed_parts(run):
            start, stop = max(start, first), min(stop, last)
            if start >= stop:
                continue
            stopped_at = self._send_part(run, start, stop)
            if stopped_at < stop:
                self._left = (run, stopped_at, end)
                self._settle()
                self._stopped_at((run.ledger_id, run.first_entry_id + stopped_at))
                return
        if last < end:
            self._left = (run, last, end)
        self._processed = (run.ledger_id, run.first_entry_id + last - 1)
        self._settle()

    def _stopped_at(self, position: Position) -> None:
        """The entry there cannot be sent now."""
        cluster = self._cluster
        assert cluster is not None
        if cluster.run.stopped == UNKNOWN_SCHEMA:
            version = cluster.run.version
            self._start("declaring a schema", lambda: self._declare_schema(version))
        elif cluster.run.stopped == TOO_LARGE:
            self._too_large(position)

    def _send_part(self, run: EntryRun, first: int, end: int) -> int:
        """Sends entries ``first`` … ``end - 1``; returns the first that cannot be sent now, or ``end``."""
        cluster, connection = self._cluster, self._connection
        assert cluster is not None
        assert connection is not None
        encoding = cluster.run
        encoding.max_frame = connection.wire.max_frame
        encoding.versions = self._versions
        encoding.local_version = encoding.remote_version = b""
        stopped_at = encode_replicated(
            encoding,
            self._producer_id,
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
            before = in_flight.size
            in_flight.add(encoding, first, stopped_at, run.ledger_id, run.first_entry_id)
            self._bytes.take(in_flight.size - before)
            connection.send(frames)
            if self._throttle is not None:
                self._throttle.take(encoding.sent, encoding.messages, len(frames))
            self.sent.messages += encoding.messages
            self.sent.bytes += len(frames)
            self.topic.busy()
        self.topic.budget.spend(RUN_PRICE + len(frames))
        if encoding.sent < stopped_at - first:
            self._count_expired(encoding.kinds, first, stopped_at)
        if stopped_at > first:
            self._processed = (run.ledger_id, run.first_entry_id + stopped_at - 1)
        return stopped_at

    def _oldest_ms(self) -> int:
        seconds = self.topic.policies.message_ttl_seconds
        return self._io.clock.wall_ms() - seconds * 1000 if seconds > 0 else 0

    def _count_expired(self, kinds: Any, first: int, end: int) -> None:
        count = sum(kinds[index] == EXPIRED for index in range(first, end))
        if count:
            self.expired.messages += count

    def _too_large(self, position: Position) -> None:
        self._blocked_at = position
        ledger_id, entry_id = position
        self._hindered(
            f"entry {ledger_id}:{entry_id} is larger than cluster {self.remote} takes: raise maxMessageSize "
            f"there, or skip the entry (pulsar-admin topics skip --count 1 -s {self.cursor.name})"
        )
        self._look_again_later()

    def _look_again_later(self) -> None:
        if self._timer is None and not self._ended:
            self._timer = self.topic.wheel.schedule(_LOOK_AGAIN_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        if self._blocked_at is not None:
            self.go_on()
        if self._blocked_at is not None:
            self._look_again_later()

    async def _declare_schema(self, version: bytes) -> None:
        """Finds the remote version of a schema of the topic, which is added there when it is new."""
        while not self._ended:
            connection, cluster = self._connection, self._cluster
            if connection is None or cluster is None:
                return
            try:
                remote = await self._remote_version(connection, cluster, version)
            except (PulsarException, BrokerError, MetadataError, LedgerError) as error:
                if connection is not self._connection:
                    return
                self._hindered(f"cluster {self.remote} does not take the schema of the messages: {error}")
                await sleep(self._loop, self._backoff.next())
                continue
            if connection is self._connection:
                self._versions = {**self._versions, version: remote}
                self.hindrance = ""
            return

    async def _remote_version(self, connection: Connection, cluster: RemoteCluster, version: bytes) -> bytes:
        schema_id = self.topic.name.schema_path
        stored = await self._schemas.get(schema_id, version_from_bytes(version))
        if stored is None:
            raise BrokerError(
                f"version {version.hex()} of the schema of {schema_id} is not known here either"
            )
        request_id = connection.wire.new_request_id()
        command = BaseCommand(type=BaseCommand.GET_OR_CREATE_SCHEMA)
        wanted = command.getOrCreateSchema
        wanted.request_id = request_id
        wanted.topic = self.topic.full_name
        fill_wire(wanted.schema, schema_id, stored.data)
        seconds = cluster.client.services.operation_timeout
        answered: BaseCommand = await connection.ask(request_id, command, seconds)
        answer = answered.getOrCreateSchemaResponse
        if answer.HasField("error_code"):
            raise BrokerError(answer.error_message or "the schema was refused")
        return answer.schema_version

    # Ending

    def reconnect(self, reason: str) -> None:
        """The record of the cluster has changed: what it says now counts."""
        self._backoff.reset()
        if self._connection is not None:
            self._detach(reason)
        elif (connecting := self._tasks.get("connecting")) is not None:
            # It may wait for a minute before it tries again.
            connecting.cancel()

    def tick(self, seconds: float) -> bool:
        """Works out rates over the last window; returns whether anything still moves."""
        self.sent.tick(seconds)
        self.expired.tick(seconds)
        return self.sent.per_second > 0 or self.expired.per_second > 0

    def stop(self) -> None:
        """Sends nothing more; the cursor stays where it is."""
        if self._ended:
            return
        self._ended = True
        self.topic.unfollow(self._stored)
        for task in list(self._tasks.values()):
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._detach("it has been stopped")
        self._bytes.leave(self)
        if self._throttle is not None:
            self._throttle.close()
