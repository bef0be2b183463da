"""A replicator's producer in the other cluster: connects, reconnects after a loss, and declares schemas.

The replicator that uses the producer decides which messages are sent, and handles receipts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

from magnetar.broker.replication.clusters import Common, RemoteCluster
from magnetar.broker.schemas.data import fill_wire, version_from_bytes
from magnetar.client.attachment import take_back_unanswered
from magnetar.client.connection import Connection
from magnetar.client.exceptions import NotConnected, PulsarException, TopicNotFound
from magnetar.client.lookup import Lookup
from magnetar.client.timing import Backoff
from magnetar.client.wire import Assigned
from magnetar.errors import BrokerError
from magnetar.io.interfaces import Future, Task
from magnetar.io.tasks import KeyedTasks, TaskScope
from magnetar.io.waiting import nobody_waits, sleep
from magnetar.ledger.interface import LedgerError
from magnetar.metadata.interface import MetadataError
from magnetar.naming.replicators import producer_name
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.hot_client_decode import ReceiptRun
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

if TYPE_CHECKING:
    from magnetar.broker.topics.any_topic import AnyTopic

log = logging.getLogger(__name__)

_CLOSE_SECONDS = 30.0
_EMPTY: dict[bytes, bytes] = {}
_CONNECTING = "connecting"
_DECLARING = "declaring a schema"


class Sender(Protocol):
    """The replicator to which a remote producer belongs."""

    def attached(self) -> None:
        """Reports that the producer has just been created, so that entries that were sent before will get no
        receipts."""
        ...

    def detached(self) -> None:
        """Reports that nothing can be sent until :meth:`attached` is called again."""
        ...

    def receipts(self, run: ReceiptRun) -> None:
        """Handles receipts, in the order of their arrival; called only while the producer is connected."""
        ...

    def go_on(self) -> None:
        """Continues sending after a reason not to send has ended."""
        ...


class RemoteProducer:
    """The producer of one topic in one other cluster. It tries to connect until :meth:`stop` or
    :meth:`rest`."""

    def __init__(self, common: Common, sender: Sender, topic: TopicName, remote: str, prefix: str) -> None:
        """:param remote: the name of the other cluster

        :param prefix: ``replicatorPrefix``
        """
        self.remote = remote
        self.hindrance = "the replicator is not connected yet"
        """The reason why nothing is sent, as a sentence; empty if sending is possible."""
        self.lasting = ""
        """A reason not to send that outlasts the connection, set and cleared by the sender; empty: no such
        reason.
        """
        self.connected_ms = 0
        """The time of the connection in milliseconds since 1970; 0: not connected."""
        self.cluster: RemoteCluster | None = None
        self.connection: Connection | None = None
        """The connection that can be used for sending; None while the producer is disconnected."""
        self.id = 0
        """The ``producer_id`` on the connection."""
        self.versions = _EMPTY
        """The schema versions in the other cluster by the local versions, as far as known on this
        connection."""
        self._settings = common.settings
        self.backoff = Backoff(common.io.randomness, *self._settings().backoff)
        self._io = common.io
        self._loop = common.io.loop
        self._sender = sender
        self._topic = topic
        self._full_name = str(topic)
        self._clusters = common.clusters()
        self._schemas = common.schemas
        self._partitions = common.partitions
        self._prefix = prefix
        self._epoch = 0
        self._moved: Lookup | None = None
        """The lookup in the cluster to which the remote cluster redirects its clients; None: no redirect."""
        self._asked: Future[BaseCommand] | None = None
        """The pending answer to a PRODUCER request; None: no answer is awaited."""
        self._scope = TaskScope(self._loop, self._full_name)
        self._tasks: KeyedTasks[str, None] = KeyedTasks(self._scope)
        """Tasks in progress, by name."""
        self._ended = False
        self._resting = False

    @property
    def name(self) -> str:
        """The producer's name in the other cluster."""
        return producer_name(self._prefix, self._settings().cluster, self.remote)

    @property
    def where(self) -> str:
        """The destination, for log entries and error texts."""
        return f"cluster {self.remote}"

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def declaring(self) -> bool:
        """Whether a schema is being declared; messages with that schema wait."""
        return _DECLARING in self._tasks

    def link(self) -> tuple[str, str] | None:
        """``host:port`` of both ends of the connection, this broker's first; None while it is
        disconnected."""
        return self.connection.ends() if self.connection is not None else None

    def hindered(self, reason: str) -> None:
        """Records the reason why nothing is sent."""
        if reason != self.hindrance:
            log.warning(
                "topic is not being replicated",
                extra={"topic": self._full_name, "cluster": self.remote, "reason": reason},
            )
        self.hindrance = reason

    def freed(self) -> None:
        """Clears the reason why nothing is sent, except :attr:`lasting`."""
        if self.hindrance and not self.lasting:
            log.info("topic is being replicated", extra={"topic": self._full_name, "cluster": self.remote})
        self.hindrance = self.lasting

    # Tasks besides the handling of the connection's events

    def under_way(self, kind: str) -> bool:
        return kind in self._tasks

    def start(self, kind: str, work: Callable[[], Coroutine[object, None, None]]) -> None:
        """Starts a task, unless a task of that kind is running; the sender continues when the task ends.

        An error in the task ends the connection. :meth:`stop` cancels all tasks.
        """
        if self._ended or kind in self._tasks:
            return
        task = self._tasks.answer(kind, work)
        task.add_done_callback(lambda done: self._task_ended(kind, done))

    def _task_ended(self, kind: str, task: Task[None]) -> None:
        if task.cancelled():
            if kind == _CONNECTING:
                self.connect()
            return
        if task.exception() is None:
            if kind == _CONNECTING and self.connection is None and not self._resting:
                # The other cluster closed the producer before this task could report the connection.
                self.start(_CONNECTING, self._connect_later)
            self._sender.go_on()
            return
        error = task.exception()
        log.error(
            "replicator failed",
            extra={"topic": self._full_name, "cluster": self.remote, "error": repr(error)},
            exc_info=error,
        )
        self.detach(f"{kind}: {type(error).__name__}: {error}")

    # Connecting

    def connect(self) -> None:
        """Tries to connect until a connection exists."""
        self._resting = False
        self.start(_CONNECTING, self._keep_connecting)

    def reconnect(self, reason: str) -> None:
        """Closes the connection, because the record of the cluster has changed, and connects again."""
        self.backoff.reset()
        self._moved = None
        if self.connection is not None:
            self.detach(reason)
        elif (connecting := self._tasks.get(_CONNECTING)) is not None:
            # The task may be in a wait of up to a minute before its next attempt.
            connecting.cancel()

    def rest(self) -> None:
        """Disconnects until :meth:`connect` is called."""
        self._resting = True
        self.detach("")

    @property
    def resting(self) -> bool:
        return self._resting

    def stop(self) -> None:
        """Disconnects for good."""
        self._ended = True
        self._scope.cancel()
        self.detach("the replicator was stopped")

    async def _keep_connecting(self) -> None:
        while not self._ended and self.connection is None:
            try:
                await self._connect()
                return
            except (PulsarException, BrokerError, MetadataError, OSError) as error:
                self.hindered(str(error) or type(error).__name__)
            await sleep(self._loop, self.backoff.next())

    async def _connect(self) -> None:
        cluster = await self._clusters.get(self.remote)
        self.cluster, services = cluster, cluster.client.services
        lookup = self._moved or services.lookup
        name = self._full_name
        await self._prepare_there(cluster, lookup)
        owner = await lookup.owner(name)
        connection = await services.pool.next(owner.broker, owner.through)
        wire, producer_id = connection.wire, services.new_id()
        wire.producers[producer_id] = self
        request_id = wire.new_request_id()
        asked = connection.ask(request_id, self._command(request_id, producer_id), services.operation_timeout)
        self._asked = asked
        take_back_unanswered(asked, lambda: self._close_producer(connection, producer_id))
        try:
            await asked
        except PulsarException:
            wire.producers.pop(producer_id, None)
            raise
        finally:
            # An idle topic does not keep the answer.
            self._asked = None
        if wire.producers.get(producer_id) is not self:
            raise NotConnected(
                f"{name}: the broker of {self.where} closed the producer as soon as it was opened"
            )
        if self._ended or cluster.ended:
            self._close_producer(connection, producer_id)
            raise NotConnected(f"the record of cluster {self.remote} has changed")
        self.connection, self.id = connection, producer_id
        self.versions = _EMPTY
        self.connected_ms = self._io.clock.wall_ms()
        self.freed()
        self._sender.attached()

    async def _prepare_there(self, cluster: RemoteCluster, lookup: Lookup) -> None:
        """Checks that the topic exists in the other cluster, or creates it there; adds missing partitions.

        :raises TopicNotFound: the topic does not exist there, and must not be created
        :raises BrokerError: the topic is partitioned only in the other cluster, or that cluster refuses a
            change
        """
        name = self._topic
        base, makes = name.base, self._settings().makes_topics
        wanted = await self._partitions(base) if name.partition_index >= 0 else 0
        try:
            count = await lookup.partitions(str(base), makes_topic=False)
        except TopicNotFound:
            if not makes:
                raise
            count = 0
            if wanted:
                # Otherwise the first client there would create it with another number of partitions.
                await self._ask_for_partitions(cluster, "PUT", "createLocalTopicOnly", wanted)
            return
        if bool(count) != bool(wanted) and name.partition_index < 0:
            raise BrokerError(
                f"{base} has no partitions here but {count} in cluster {self.remote}: delete one of the "
                "two topics, or give both the same number of partitions"
            )
        if makes and 0 < count < wanted:
            await self._ask_for_partitions(cluster, "POST", "updateLocalTopicOnly", wanted)

    async def _ask_for_partitions(
        self, cluster: RemoteCluster, method: str, local_only: str, partitions: int
    ) -> None:
        query = {local_only: "true"} | ({"force": "false"} if method == "POST" else {})
        path = f"{self._topic.base.admin_path}/partitions"
        try:
            await cluster.ask(method, path, query, str(partitions).encode())
        except BrokerError as error:
            # The replicator of another partition, or a client, created it first.
            if error.http_status != HTTPStatus.CONFLICT:
                raise

    def _command(self, request_id: int, producer_id: int) -> BaseCommand:
        command = BaseCommand(type=BaseCommand.PRODUCER)
        producer = command.producer
        producer.topic = self._full_name
        producer.producer_id = producer_id
        producer.request_id = request_id
        producer.producer_name = self.name
        producer.encrypted = False
        producer.epoch = self._epoch
        producer.user_provided_producer_name = True
        producer.txn_enabled = False
        self._epoch += 1
        return command

    def _close_producer(self, connection: Connection, producer_id: int) -> Future[BaseCommand]:
        """Closes the producer at the remote broker; returns a future of the answer, which need not be
        awaited."""
        wire = connection.wire
        wire.producers.pop(producer_id, None)
        request_id = wire.new_request_id()
        command = BaseCommand(type=BaseCommand.CLOSE_PRODUCER)
        command.close_producer.producer_id = producer_id
        command.close_producer.request_id = request_id
        answered = connection.ask(request_id, command, _CLOSE_SECONDS)
        answered.add_done_callback(nobody_waits)
        return answered

    def detach(self, reason: str) -> None:
        """Stops sending on this connection; connects again unless the producer rests or was stopped."""
        connection = self.connection
        if connection is not None and not connection.closed:
            self._close_producer(connection, self.id)
        self._disconnected(reason)

    def _disconnected(self, reason: str) -> None:
        self.connection = None
        self.connected_ms = 0
        self._sender.detached()
        if not self._ended and not self._resting:
            self.hindered(reason)
            self.start(_CONNECTING, self._connect_later)

    async def _connect_later(self) -> None:
        await sleep(self._loop, self.backoff.next())
        await self._keep_connecting()

    # Events of the connection

    def receipts(self, run: ReceiptRun) -> None:
        if self.connection is not None:
            self._sender.receipts(run)

    def send_failed(self, sequence_id: int, error: PulsarException) -> None:
        self.detach(f"{self.where} refused a message: {error}")

    def migrated(self, there: Assigned) -> None:
        """From now on, looks the topic up in the cluster to which the other cluster redirects, until the
        other cluster's record changes."""
        cluster = self.cluster
        found = cluster.client.services.lookup.of_cluster(there) if cluster is not None else None
        self._moved = found or self._moved
        if self._asked is not None and not self._asked.done():
            # No other answer will come.
            text = f"{self.where} has redirected its clients to {there.url or there.url_tls}"
            self._asked.set_exception(NotConnected(text))

    def closed_by_broker(self, assigned: Assigned | None) -> None:
        self._disconnected(f"{self.where} closed the producer")

    def connection_lost(self, error: PulsarException) -> None:
        self.detach(str(error))

    # Schemas

    def declare_schema(self, version: bytes) -> None:
        """Determines the remote version of a schema of the topic, after adding the schema there if it is new.

        The version is in :attr:`versions` when the sender continues.
        """
        self.start(_DECLARING, lambda: self._declare_schema(version))

    async def _declare_schema(self, version: bytes) -> None:
        while not self._ended:
            connection, cluster = self.connection, self.cluster
            if connection is None or cluster is None:
                return
            try:
                remote = await self._remote_version(connection, cluster, version)
            except (PulsarException, BrokerError, MetadataError, LedgerError) as error:
                if connection is not self.connection:
                    return
                self.hindered(f"{self.where} does not accept the schema of the messages: {error}")
                await sleep(self._loop, self.backoff.next())
                continue
            if connection is self.connection:
                self.versions = {**self.versions, version: remote}
                self.freed()
            return

    async def _remote_version(self, connection: Connection, cluster: RemoteCluster, version: bytes) -> bytes:
        schema_id = self._topic.schema_path
        stored = await self._schemas.get(schema_id, version_from_bytes(version))
        if stored is None:
            raise BrokerError(
                f"version {version.hex()} of the schema of {schema_id} does not exist in this cluster"
            )
        request_id = connection.wire.new_request_id()
        command = BaseCommand(type=BaseCommand.GET_OR_CREATE_SCHEMA)
        wanted = command.getOrCreateSchema
        wanted.request_id = request_id
        wanted.topic = self._full_name
        fill_wire(wanted.schema, schema_id, stored.data)
        seconds = cluster.client.services.operation_timeout
        answered: BaseCommand = await connection.ask(request_id, command, seconds)
        answer = answered.getOrCreateSchemaResponse
        if answer.HasField("error_code"):
            raise BrokerError(answer.error_message or "the schema was refused")
        return answer.schema_version


class BaseReplicator:
    """The base class of all replicators: gives access to the properties of a replicator's remote producer."""

    topic: AnyTopic
    _there: RemoteProducer

    @property
    def where(self) -> str:
        return self._there.where

    @property
    def hindrance(self) -> str:
        return self._there.hindrance

    @property
    def connected_ms(self) -> int:
        return self._there.connected_ms

    @property
    def connected(self) -> bool:
        return self._there.connection is not None

    def link(self) -> tuple[str, str] | None:
        """``host:port`` of both ends of the connection, this broker's first; None while it is
        disconnected."""
        return self._there.link()

    def reconnect(self, reason: str) -> None:
        """Connects again after a change of the cluster's record."""
        self._there.reconnect(reason)
