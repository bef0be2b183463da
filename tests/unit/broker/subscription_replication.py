"""A topic of a simulated broker that is in another cluster ``east``, too, which a test plays."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from peers import Brokers, Peer, frame
from replicating import Replicator, the_topic

from magnetar.broker.replication.clusters import SnapshotFigures, SubscriptionSettings
from magnetar.broker.replication.subscriptions.markers import (
    REQUEST,
    RESPONSE,
    SNAPSHOT,
    UPDATE,
    decode_request,
    decode_response,
    decode_snapshot,
    decode_update,
    encode_response,
)
from magnetar.broker.replication.subscriptions.topic import ReplicatedSubscriptions
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.broker.topics.persistent import Topic
from magnetar.managed_ledger.position import EARLIEST, Position
from magnetar.naming.replicators import SOURCE_POSITION, producer_name
from magnetar.protocol.frames import encode_command, encode_with_payload
from magnetar.protocol.metadata import build_entry, parse_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata

if TYPE_CHECKING:
    from magnetar.broker.replication.replicator import Replicator


OWN = "standalone"
_DECODERS = {
    REQUEST: decode_request,
    RESPONSE: decode_response,
    SNAPSHOT: decode_snapshot,
    UPDATE: decode_update,
}


class Sites(Brokers):
    """:param others: the other clusters

    :param own: the name of the cluster that is simulated
    """

    def __init__(
        self, *others: str, settings: SubscriptionSettings | None = None, own: str = OWN, **options: Any
    ) -> None:
        super().__init__(**options)
        self.own = own
        self.others = others or ("east",)
        self.senders = {
            other: Replicator(self, name=producer_name("pulsar.repl", other, OWN)) for other in self.others
        }
        self.figures = SnapshotFigures()
        self.settings = settings or SubscriptionSettings()
        self.replicators = {
            other: SimpleNamespace(connected=True, policies_changed=lambda: None) for other in self.others
        }
        self.begin()

    def begin(self) -> None:
        """As when the topic was loaded."""
        self.topic: Topic = the_topic(self)
        self.topic.replicators.update(cast(dict[str, Replicator], self.replicators))
        self.replicated = ReplicatedSubscriptions(
            self.broker.io, self.topic, self.own, lambda: self.others, self.settings, self.figures
        )

    def reload(self) -> None:
        self.replicated.end()
        self.topic.replicators.clear()
        self.world.run(self.broker.topics.unload_topic(self.topic))
        self.world.run(self.broker.topics.load(self.topic.name, create=False))
        self.begin()

    def subscription(self, name: str = "s", *, replicated: bool = True) -> Subscription:
        """Makes it where it is missing."""
        made = self.world.run(
            self.topic.subscriptions.subscribe(name, EARLIEST, {}, durable=True, create=True)
        )
        assert isinstance(made, Subscription)
        made.replicate(replicated)
        return made

    def send(self, count: int = 1) -> list[Position]:
        """Publishes messages; where they are."""
        first = self.topic.managed_ledger.last_confirmed[1] + 1
        self.publish(self.publisher(), count)
        ledger_id = self.topic.managed_ledger.last_confirmed[0]
        return [(ledger_id, entry_id) for entry_id in range(first, first + count)]

    def marker(self, kind: int, payload: bytes, cluster: str = "east") -> Position:
        """One comes from another cluster; where it is stored."""
        metadata = MessageMetadata(producer_name="pulsar.marker", sequence_id=0, publish_time=1)
        metadata.marker_type = kind
        return self.arrives(metadata, payload, cluster)

    def arrives(self, metadata: MessageMetadata, payload: bytes, cluster: str) -> Position:
        """An entry comes from another cluster; where it is stored."""
        sender = self.senders[cluster]
        before = self.topic.managed_ledger.last_confirmed
        command = BaseCommand(type=BaseCommand.SEND)
        command.send.producer_id, command.send.sequence_id = 1, 0
        if metadata.HasField("marker_type"):
            command.send.marker = True
        metadata.replicated_from = cluster
        metadata.properties.add(key=SOURCE_POSITION, value="7:1")
        sender.connection.data_received(encode_with_payload(command, build_entry(metadata, payload)))
        self.until(lambda: self.topic.managed_ledger.last_confirmed > before)
        return before[0], before[1] + 1

    def entry(self, position: Position) -> tuple[int, list[str], Any]:
        """The kind of a marker, whom it is for, and what it says; the kind of what is none is 0."""
        run = self.world.run(self.topic.managed_ledger.reader.read_one(position))
        found = parse_entry(run.entry(0))
        kind = found.metadata.marker_type
        if not kind:
            return 0, [], found.payload
        return kind, list(found.metadata.replicate_to), _DECODERS[kind](bytes(found.payload))

    def entries(self, first: int = 0) -> list[tuple[int, list[str], Any]]:
        """All that is stored from an entry id on."""
        ledger_id, last = self.topic.managed_ledger.last_confirmed
        return [self.entry((ledger_id, entry_id)) for entry_id in range(first, last + 1)]

    def kinds(self, first: int = 0) -> list[int]:
        return [kind for kind, _to, _says in self.entries(first)]

    def wait(self, seconds: float = 2.0) -> None:
        self.world.wait(seconds)

    def requested(self) -> str:
        """The id of the newest request that is stored here."""
        [*_, found] = [says[0] for kind, _to, says in self.entries() if kind == REQUEST]
        return str(found)

    def answer(self, there: Position, cluster: str = "east") -> Position:
        """A cluster answers the newest request."""
        return self.marker(RESPONSE, encode_response(self.requested(), cluster, there), cluster)

    def snapshot(self, there: Position) -> None:
        """Waits for a request, and has it answered."""
        self.wait()
        self.answer(there)
        self.wait(0.1)


def receive(world: Sites, kind: int, permits: int = 100) -> Peer:
    """A consumer of the subscription ``s``."""
    peer = world.subscribed("s", kind)
    peer.forget()
    peer.connection.data_received(frame(BaseCommand.FLOW, "flow", consumer_id=1, messagePermits=permits))
    world.wait(0.1)
    return peer


def acknowledge(world: Sites, peer: Peer, *positions: Position) -> None:
    command = BaseCommand(type=BaseCommand.ACK)
    command.ack.consumer_id, command.ack.ack_type = 1, 0  # type: ignore[assignment]
    for ledger_id, entry_id in positions:
        command.ack.message_id.add(ledgerId=ledger_id, entryId=entry_id)
    peer.connection.data_received(encode_command(command))
    world.wait(0.1)
