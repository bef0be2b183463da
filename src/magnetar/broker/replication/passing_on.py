"""Replicates one non-persistent topic to one other cluster: messages are sent at once or dropped.

No message waits for the other cluster. A message that cannot be sent now is dropped and counted, like a
message for which local consumers have no permits.
"""

from __future__ import annotations

from array import array

from magnetar.broker.flow.rates import Rate
from magnetar.broker.replication.clusters import Common
from magnetar.broker.replication.remote_producer import BaseReplicator, RemoteProducer
from magnetar.broker.topics.non_persistent import NonPersistentTopic
from magnetar.client.connection import Connection
from magnetar.protocol.errors import FrameError
from magnetar.protocol.hot_client_decode import ReceiptRun
from magnetar.protocol.hot_replication import (
    NO_POSITION,
    UNKNOWN_SCHEMA,
    ReplicationRun,
    count_replicated,
    encode_replicated,
)


class PassingReplicator(BaseReplicator):
    """The replicator of one loaded non-persistent topic to one other cluster."""

    def __init__(self, common: Common, topic: NonPersistentTopic, remote: str) -> None:
        self.topic: NonPersistentTopic = topic
        self.remote = remote
        self.sent = Rate()
        self.dropped = Rate()
        self._loop = common.io.loop
        self._encoding = common.clusters().run(remote)
        self._settings = common.settings
        self._bytes = common.in_flight
        self._in_flight = 0
        """The number of entries without a receipt; ``_in_flight_size`` is the size of their frames in
        bytes."""
        self._in_flight_size = 0
        self._last_receipt = 0.0
        """The time of the last receipt, or of the oldest pending send if no receipt has come since; in
        seconds, on the loop's clock."""
        self._there = RemoteProducer(common, self, topic.name, remote, topic.settings.replicator_prefix)
        self._there.connect()

    def delay_seconds(self) -> float:
        return self._loop.time() - self._last_receipt if self._in_flight else 0.0

    # Its producer in the other cluster

    def attached(self) -> None:
        self._there.backoff.reset()

    def detached(self) -> None:
        self._bytes.release(self, self._in_flight_size)
        self._in_flight = self._in_flight_size = 0

    def receipts(self, run: ReceiptRun) -> None:
        if run.count > self._in_flight:
            raise FrameError(
                f"cluster {self.remote} confirmed more messages than {self._there.name} has sent"
            )
        share = self._in_flight_size * run.count // self._in_flight
        self._in_flight -= run.count
        self._in_flight_size -= share
        self._bytes.release(self, share)
        self._last_receipt = self._loop.time()

    def go_on(self) -> None:
        """Does nothing, because no messages wait."""

    # Sending

    def pass_on(self, buffer: bytes, starts: array[int], ends: array[int], count: int) -> None:
        """Sends the first ``count`` of the entries ``buffer[starts[i]:ends[i]]``, or drops them."""
        most = self._encoding.capacity
        if count <= most:
            self._pass_on(buffer, starts, ends, count)
            return
        for first in range(0, count, most):
            some = slice(first, min(first + most, count))
            self._pass_on(buffer, starts[some], ends[some], some.stop - first)

    def _pass_on(self, buffer: bytes, starts: array[int], ends: array[int], count: int) -> None:
        there, encoding = self._there, self._encoding
        connection = there.connection
        if connection is None or self._bytes.used_up:
            self._drop(buffer, starts, ends, 0, count)
            return
        room = min(count, max(0, self._settings().queue_size - self._in_flight))
        encoding.max_frame = connection.wire.max_frame
        encoding.versions = there.versions
        encoding.local_version = encoding.remote_version = b""
        at, end = 0, room
        while at < room:
            stopped_at = encode_replicated(
                encoding, there.id, buffer, starts, ends, at, end, NO_POSITION, 0, 0
            )
            if encoding.sent:
                self._send(connection, encoding)
            at = stopped_at
            if stopped_at < end:
                if encoding.stopped == UNKNOWN_SCHEMA:
                    there.declare_schema(encoding.version)
                self._drop(buffer, starts, ends, stopped_at, stopped_at + 1)
                at += 1
            # After an entry that cannot be sent, the others are sent one by one: many may be of the same
            # kind.
            end = min(at + 1, room)
        if room < count:
            self._drop(buffer, starts, ends, room, count)

    def _send(self, connection: Connection, encoding: ReplicationRun) -> None:
        frames = encoding.frames
        if not self._in_flight:
            self._last_receipt = self._loop.time()
        self._in_flight += encoding.sent
        self._in_flight_size += len(frames)
        self._bytes.take(self, len(frames))
        self.sent.messages += encoding.messages
        self.sent.bytes += len(frames)
        connection.send(frames)

    def _drop(self, buffer: bytes, starts: array[int], ends: array[int], first: int, end: int) -> None:
        self.dropped.messages += count_replicated(self._encoding, buffer, starts, ends, first, end)

    def wake(self) -> None:
        if self._there.resting:
            self._there.connect()

    # Ending

    def rest(self) -> None:
        if self.connected:
            self._there.rest()

    def tick(self, seconds: float) -> bool:
        self.sent.tick(seconds)
        self.dropped.tick(seconds)
        return self.sent.per_second > 0 or self.dropped.per_second > 0

    def stop(self) -> None:
        """Stops sending."""
        if not self._there.ended:
            self._there.stop()
