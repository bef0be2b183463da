"""The markers of replicated subscriptions: message types 10 to 13, and their payloads."""

from __future__ import annotations

from collections.abc import Mapping

from magnetar.broker.replication.subscriptions.markers_pb2 import (
    ClusterPosition,
    MessageId,
    Snapshot,
    SnapshotRequest,
    SnapshotResponse,
    SubscriptionUpdate,
)
from magnetar.lazy_dataclass import dataclass
from magnetar.managed_ledger.position import Position
from magnetar.protocol.metadata import build_entry, parse_message
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata

REQUEST = 10
"""A cluster requests the positions of all other clusters."""
RESPONSE = 11
"""The answer of another cluster, which only the requesting cluster gets."""
SNAPSHOT = 12
"""The resulting snapshot, which stays in the cluster that took it."""
UPDATE = 13
"""A subscription has passed a snapshot."""

_PRODUCER = "pulsar.marker"
_MOST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class TakenSnapshot:
    """Positions that correspond to each other, one in each cluster."""

    snapshot_id: str
    local: Position
    remote: Mapping[str, Position]
    """The positions in the other clusters, by the name of the cluster."""


def marker_entry(kind: int, payload: bytes, publish_time: int, to: str | None) -> bytes:
    """Returns the entry of a marker, as it is stored.

    :param publish_time: in milliseconds since 1970
    :param to: the only cluster that gets the marker; None: all clusters
    """
    metadata = MessageMetadata(producer_name=_PRODUCER, sequence_id=0, publish_time=publish_time)
    metadata.marker_type = kind
    if to is not None:
        metadata.replicate_to.append(to)
    return build_entry(metadata, payload)


def encode_request(snapshot_id: str, cluster: str) -> bytes:
    return SnapshotRequest(snapshot_id=snapshot_id, source_cluster=cluster).SerializeToString()


def decode_request(payload: bytes) -> tuple[str, str]:
    """Decodes a request; returns the id of the snapshot, and the cluster that sent the request.

    :raises EntryError: the payload is not a request
    """
    found = parse_message(SnapshotRequest(), payload, "snapshot request")
    return found.snapshot_id, found.source_cluster


def encode_response(snapshot_id: str, cluster: str, position: Position) -> bytes:
    answer = SnapshotResponse(snapshot_id=snapshot_id, cluster=_wire(cluster, position))
    return answer.SerializeToString()


def decode_response(payload: bytes) -> tuple[str, str, Position]:
    """Decodes a response; returns the id of the snapshot, the cluster that answers, and the position there.

    :raises EntryError: the payload is not a response
    """
    found = parse_message(SnapshotResponse(), payload, "snapshot response")
    return found.snapshot_id, found.cluster.cluster, _position(found.cluster.message_id)


def encode_snapshot(snapshot: TakenSnapshot) -> bytes:
    local = MessageId(ledger_id=snapshot.local[0], entry_id=snapshot.local[1])
    clusters = [_wire(cluster, snapshot.remote[cluster]) for cluster in sorted(snapshot.remote)]
    taken = Snapshot(snapshot_id=snapshot.snapshot_id, local_message_id=local, clusters=clusters)
    return taken.SerializeToString()


def decode_snapshot(payload: bytes) -> TakenSnapshot:
    """Decodes the snapshot in the payload of a marker.

    :raises EntryError: the payload is not a snapshot
    """
    found = parse_message(Snapshot(), payload, "snapshot")
    remote = {each.cluster: _position(each.message_id) for each in found.clusters}
    return TakenSnapshot(found.snapshot_id, _position(found.local_message_id), remote)


def encode_update(subscription: str, positions: Mapping[str, Position]) -> bytes:
    clusters = [_wire(cluster, positions[cluster]) for cluster in sorted(positions)]
    return SubscriptionUpdate(subscription_name=subscription, clusters=clusters).SerializeToString()


def decode_update(payload: bytes) -> tuple[str, dict[str, Position]]:
    """Decodes an update; returns the name of the subscription, and positions by the names of clusters.

    :raises EntryError: the payload is not an update
    """
    found = parse_message(SubscriptionUpdate(), payload, "subscription update")
    return found.subscription_name, {each.cluster: _position(each.message_id) for each in found.clusters}


def _wire(cluster: str, position: Position) -> ClusterPosition:
    return ClusterPosition(
        cluster=cluster, message_id=MessageId(ledger_id=position[0], entry_id=position[1] & (1 << 64) - 1)
    )


def _position(found: MessageId) -> Position:
    return _signed(found.ledger_id), _signed(found.entry_id)


def _signed(value: int) -> int:
    return value if value <= _MOST else value - (1 << 64)
