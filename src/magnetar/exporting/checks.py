"""Checks whether a topic can be exported, before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import partial
from typing import Any

from magnetar.broker.policies.records import decode
from magnetar.broker.schemas.storage import ROOT as SCHEMAS
from magnetar.broker.system_topics.transaction_records import INDEXES, SNAPSHOTS, records_of
from magnetar.exporting.stored_topics import OpenStores, Unit, read_record
from magnetar.exporting.topic_export import PARTITIONED
from magnetar.exporting.topic_policies import read_records
from magnetar.lazy_dataclass import dataclass
from magnetar.managed_ledger import records_pb2 as pb
from magnetar.managed_ledger.exports import ExportNote, ExportState
from magnetar.managed_ledger.records import ROOT, LedgerSummary
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.replicators import SHADOW_SOURCE, cluster_of_cursor
from magnetar.naming.topic_name import Domain, TopicName, decode_path_piece
from magnetar.protocol.errors import ProtocolError

_MOST_BYTES = 64 << 20
"""The maximum uncompressed size in bytes of an entry with snapshots of transaction buffers."""
_PENDING_ACKS = "__transaction_pending_ack"
_BUFFER_SNAPSHOTS = "__transaction_buffer_snapshot"


@dataclass
class Known:
    """Facts that are read once for all topics of a namespace."""

    there: set[TopicName] = field(default_factory=set)
    """The topics of the namespace that exist at the target, named without partition indexes."""
    pending_acks: list[str] = field(default_factory=list)
    """The local names of the source's topics that contain the transaction state of a subscription."""
    transactional: set[str] = field(default_factory=set)
    """The full names of the source's topics and partitions that have had transactions."""


async def known_of(source: OpenStores, target: OpenStores, namespace: NamespaceName) -> Known:
    known = Known()
    for domain in Domain:
        below = f"{namespace.path}/{domain.value}"
        for root in (PARTITIONED, ROOT):
            for piece in await target.metadata.children(f"{root}/{below}"):
                known.there.add(TopicName(domain, namespace, decode_path_piece(piece)).base)
    for piece in await source.metadata.children(f"{ROOT}/{namespace.path}/{Domain.PERSISTENT.value}"):
        if (local := decode_path_piece(piece)).endswith(_PENDING_ACKS):
            known.pending_acks.append(local)
    for kind in (SNAPSHOTS, INDEXES):
        found: set[str] = set()
        await read_records(source, namespace, kind, partial(_note_topics, found))
        known.transactional |= found
    return known


def _note_topics(topics: set[str], entry: bytes) -> None:
    """Adds to ``topics`` the name of each topic of which ``entry`` contains a snapshot; removes the name of
    each topic whose snapshot ``entry`` deletes.
    """
    try:
        for name, payload in records_of(entry, _MOST_BYTES):
            if payload:
                topics.add(name)
            else:
                topics.discard(name)
    except ProtocolError:
        # Clients with permission to publish to the topic can write anything: ignore other messages.
        return


async def refusals(
    source: OpenStores,
    target: OpenStores,
    unit: Unit,
    notes: tuple[ExportNote | None, ExportNote | None],
    known: Known,
) -> list[str]:
    """Returns the reasons why a topic cannot be exported, one sentence each.

    :param unit: the topic, with all its partitions
    :param notes: the notes of an interrupted export of the topic, at the source and at the target; None: no
        note
    :param known: facts about the topic's namespace
    """
    left, arriving = notes
    found = [
        f"{unit.name} is already being exported from or to {note.peer_name}, not {peer.name}: finish that "
        "export first"
        for note, peer in ((left, target), (arriving, source))
        if note is not None and note.peer != peer.identity
    ]
    if found or left is not None or (arriving is not None and arriving.state is ExportState.ARRIVED):
        return found
    if arriving is None:
        found += await _there(target, unit, known)
    node = await source.metadata.get(f"{PARTITIONED}/{unit.path}")
    if node is not None and decode(node).get("deleted"):
        found.append(f"{unit.name} is being deleted")
    for name in unit.managed_ledgers:
        found += await _of_managed_ledger(source, name)
        full = TopicName.from_path(name)
        local = full.local
        if str(full) in known.transactional:
            found.append(
                f"{name} has had transactions: the target would not know which of its messages were aborted, "
                "so it cannot be exported"
            )
        found += [
            f"{name} has a subscription that is used in transactions ({other}), which cannot be exported"
            for other in known.pending_acks
            if other.startswith(f"{local}-")
        ]
    return found


async def _there(target: OpenStores, unit: Unit, known: Known) -> list[str]:
    if unit.name in known.there:
        return [f"{unit.name} already exists in {target.name}"]
    schema = await target.metadata.get(f"{SCHEMAS}/{unit.name.schema_path}")
    if schema is not None and schema.value:
        return [f"{unit.name} already has a schema in {target.name}"]
    return []


async def _of_managed_ledger(source: OpenStores, name: str) -> list[str]:
    topic = await read_record(source, name)
    if topic is None:
        return []
    found = [
        (
            f"{name}: ledger {each.ledger_id} is offloaded to tiered storage under its id, so it "
            "cannot be exported"
        )
        for each in topic.record.ledgers
        if _is_offloaded(each)
    ]
    if SHADOW_SOURCE in topic.record.properties:
        found.append(
            f"{name} is a shadow topic: its ledgers belong to {topic.record.properties[SHADOW_SOURCE]}"
        )
    cursors = [decode_path_piece(piece) for piece in await source.metadata.children(f"{ROOT}/{name}")]
    prefix = source.broker.settings.topic.replicator_prefix
    found += [
        (
            f"{name}: the cursor {cursor} belongs to a replicator to another cluster, so the topic "
            "cannot be exported"
        )
        for cursor in cursors
        if cluster_of_cursor(prefix, cursor) is not None
    ]
    return found


def _is_offloaded(summary: LedgerSummary) -> bool:
    if summary.offload is not None:
        return summary.offload.complete
    info = pb.ManagedLedgerInfo.LedgerInfo()
    info.MergeFromString(summary.rest)
    return info.offloadContext.complete or len(info.offloadContext.offloadSegment) > 0


def of_transactions(local: str) -> bool:
    """Whether the topic with the local name ``local`` contains transaction state, and is therefore not
    exported.
    """
    return local.startswith(_BUFFER_SNAPSHOTS) or local.endswith(_PENDING_ACKS)


def too_many_copies(topic: str, policies: Mapping[str, Any]) -> str | None:
    """Returns the reason why a store with one copy cannot honour a topic's policies; None: the store can
    honour them.
    """
    copies = (policies.get("persistence") or {}).get("bookkeeperEnsemble", 1)
    if copies <= 1:
        return None
    return f"{topic} requires {copies} copies of its entries (persistence), but the target keeps one copy"
