"""A replicator of a simulated broker, and the other cluster, which a test plays."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any

from peers import Brokers, send_frame
from replicating import the_topic

from magnetar.broker.replication.clusters import (
    Common,
    InFlightBytes,
    RemoteCluster,
    ReplicationSettings,
    Way,
)
from magnetar.broker.replication.replicator import Replicator
from magnetar.client.exceptions import ConnectError, PulsarException
from magnetar.managed_ledger.position import EARLIEST, Position
from magnetar.managed_ledger.settings import EntryCacheSettings
from magnetar.naming.replicators import SOURCE_POSITION
from magnetar.protocol.frames import split
from magnetar.protocol.hot_client_decode import ReceiptRun
from magnetar.protocol.hot_codec import command_bounds
from magnetar.protocol.hot_replication import ReplicationRun
from magnetar.protocol.metadata import parse_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

DUPLICATE: Position = (-1, -1)


class Link:
    """A connection to the other cluster, which answers every request at once."""

    def __init__(self, loop: Any) -> None:
        self.closed = False
        self.sent: list[Position] = []
        """Where what was sent is in its source topic."""
        self._loop = loop
        self._ids = count(1)
        self.wire = SimpleNamespace(
            max_frame=5 << 20, confirms_positions=True, producers={}, new_request_id=lambda: next(self._ids)
        )

    def ask(self, _request_id: int, _command: BaseCommand, _seconds: float) -> Any:
        answered = self._loop.create_future()
        answered.set_result(BaseCommand(type=BaseCommand.PRODUCER_SUCCESS))
        return answered

    def send(self, frames: bytearray) -> None:
        data = bytes(frames)
        for _kind, begin, end in split(data, self.wire.max_frame):
            metadata = parse_entry(data[command_bounds(data, begin)[1] : end]).metadata
            [position] = [each.value for each in metadata.properties if each.key == SOURCE_POSITION]
            ledger_id, _, entry_id = position.partition(":")
            self.sent.append((int(ledger_id), int(entry_id)))

    def ends(self) -> tuple[str, str]:
        return "here:1", "there:2"


class Source(Brokers):
    """A topic with entries that are in no cache, and its replicator to the cluster ``west``."""

    def __init__(self, entries: int, queue_size: int = 1000) -> None:
        super().__init__()
        self.world.managed.use(EntryCacheSettings(max_bytes=0), skip_lost_data=False)
        self.producer = self.publisher()
        self.topic = the_topic(self)
        self.positions: list[Position] = []
        self.links: list[Link] = []
        self.store(entries)
        services = SimpleNamespace(
            lookup=SimpleNamespace(partitions=self._partitions, owner=self._owner),
            pool=SimpleNamespace(next=self._connect),
            new_id=lambda: 7,
            operation_timeout=30.0,
        )
        way: Any = Way(SimpleNamespace(services=services), None)  # type: ignore[arg-type]
        self._cluster = RemoteCluster("west", {}, way, ReplicationRun(b"standalone", b"west"))
        clusters: Any = SimpleNamespace(get=self._get)
        settings = ReplicationSettings("standalone", queue_size)
        io = self.broker.io
        cursor = self.world.run(
            self.world.managed.open_cursor(self.topic.managed_ledger, "pulsar.repl.west", EARLIEST, {})
        )
        common = Common(
            io,
            lambda: clusters,
            self.broker.schemas,
            self._partitions,
            lambda: settings,
            InFlightBytes(io.loop, lambda: 64 << 20),
        )
        self.replicator = Replicator(common, self.topic, "west", cursor)
        self.wait_for_links(1)

    async def _get(self, _name: str) -> RemoteCluster:
        return self._cluster

    async def _partitions(self, *_topic: object, **_options: object) -> int:
        return 0

    async def _owner(self, _topic: str) -> Any:
        return SimpleNamespace(broker="there", through="")

    async def _connect(self, _broker: str, _through: str) -> Link:
        self.links.append(Link(self.loop))
        return self.links[-1]

    @property
    def link(self) -> Link:
        """The connection that counts."""
        return self.links[-1]

    def store(self, entries: int) -> list[Position]:
        """Publishes so many; where they are."""
        before = len(self.positions)
        for _ in range(entries):
            self.producer.connection.data_received(send_frame(len(self.positions)))
            ledger_id, entry_id = self.topic.managed_ledger.last_confirmed
            self.until(lambda last=(ledger_id, entry_id): self.topic.managed_ledger.last_confirmed > last)
            self.positions.append(self.topic.managed_ledger.last_confirmed)
        return self.positions[before:]

    def wait_for_links(self, number: int) -> None:
        """Until so many connections have been made, and whatever follows at once has happened."""
        for _ in range(2000):
            if len(self.links) >= number and self.replicator.connected:
                break
            self.world.wait(0.1)
        assert len(self.links) == number
        self.settle()

    def settle(self) -> None:
        self.world.wait(0.01)

    def confirm(self, *stored: Position) -> None:
        """Receipts for the oldest entries without one.

        :param stored: where each is stored in the other cluster, or DUPLICATE
        """
        first = self.confirmed()
        run = ReceiptRun()
        run.count = len(stored)
        for index, place in enumerate(stored):
            source = self.positions[first + index]
            run.sequence_ids[index], run.highest_sequence_ids[index] = source
            run.ledger_ids[index], run.entry_ids[index] = place
        self.link.wire.producers[7].receipts(run)
        self.settle()

    def confirmed(self) -> int:
        """How many entries the cursor has passed."""
        mark_delete = self.replicator.cursor.mark_delete
        return sum(each <= mark_delete for each in self.positions)

    def refuse(self) -> None:
        """The other cluster answers a message with an error."""
        self.link.wire.producers[7].send_failed(0, PulsarException("it cannot be stored"))

    def cut(self) -> None:
        [producer] = self.link.wire.producers.values()
        self.link.closed = True
        producer.connection_lost(ConnectError("cut"))
