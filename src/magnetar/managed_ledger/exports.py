"""Exports of topics from one pair of stores (ledgers and metadata) to another.

Both metadata stores record an export as a note. Topics with a note cannot be opened, because they are
incomplete in these stores or were moved away.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum

from magnetar.lazy_dataclass import dataclass
from magnetar.managed_ledger.errors import ManagedLedgerMoving, MetadataDamaged
from magnetar.metadata.interface import MetadataStore, Node
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.topic_name import TopicName, decode_path_piece, encode_path_piece

ROOT = "/magnetar/exports"
"""The parent of one node for each topic (with all its partitions); the node's name is the topic's path,
URL-encoded once more."""

EXPORTER = "/magnetar/exporter"
"""An ephemeral node that exists while an export uses this metadata; meanwhile brokers must not serve."""


class ExportState(Enum):
    INCOMING = "incoming"
    """The topic is incomplete: it is being copied to these stores."""
    LEFT = "left"
    """The topic was moved away; the remaining data is no longer valid."""
    ARRIVED = "arrived"
    """The topic is complete and can be served; only the clean-up is not finished."""


@dataclass(frozen=True)
class ExportNote:
    state: ExportState
    peer: str
    """The identity of the stores from or to which the topic is exported."""
    peer_name: str
    """The name under which users see the ``peer`` stores."""
    after: int = -1
    """Ledgers that the stores with this note create for the topic have ids above this id; -1: any id."""


def note_path(unit: str) -> str:
    """Returns the path of the node that records an export.

    :param unit: the path of a topic, without the number of a partition
    """
    return f"{ROOT}/{encode_path_piece(unit)}"


def encode_note(note: ExportNote) -> bytes:
    record = {"state": note.state.value, "peer": note.peer, "name": note.peer_name, "after": note.after}
    return json.dumps(record, separators=(",", ":")).encode()


def decode_note(node: Node) -> ExportNote:
    """Returns the record of an export.

    :raises MetadataDamaged: the value is not a valid record of an export
    """
    try:
        found = json.loads(node.value)
        return ExportNote(
            ExportState(found["state"]), str(found["peer"]), str(found["name"]), int(found["after"])
        )
    except (ValueError, KeyError, TypeError) as error:
        raise MetadataDamaged(f"{node.path} is not the record of an export: {error}") from error


async def notes(metadata: MetadataStore) -> dict[str, ExportNote]:
    """Returns all notes, by the paths of their topics.

    :raises MetadataDamaged: a note cannot be parsed
    """
    found = {}
    for piece in await metadata.children(ROOT):
        node = await metadata.get(f"{ROOT}/{piece}")
        if node is not None:
            found[decode_path_piece(piece)] = decode_note(node)
    return found


class Exports:
    """The topics that must not be opened; reads the notes once, and again after changes."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._blocked: Mapping[str, str] | None = None
        self._changes = 0
        metadata.listen(ROOT, lambda _change: self._forget())
        metadata.listen_session(lambda _event: self._forget())

    def _forget(self) -> None:
        self._changes += 1
        self._blocked = None

    async def check(self, name: str) -> None:
        """Checks that a managed ledger may be opened.

        :param name: the name of the managed ledger
        :raises ManagedLedgerMoving: its topic is being copied to these stores, or was moved away
        """
        blocked = self._blocked
        if blocked is None:
            changes = self._changes
            blocked = await self._read()
            if changes == self._changes:
                self._blocked = blocked
        if blocked and (why := blocked.get(unit_of(name))):
            raise ManagedLedgerMoving(why)

    async def _read(self) -> Mapping[str, str]:
        blocked = {}
        for unit, note in (await notes(self._metadata)).items():
            if note.state is ExportState.INCOMING:
                blocked[unit] = f"{unit} is being copied from {note.peer_name}, and the copy is incomplete"
            elif note.state is ExportState.LEFT:
                blocked[unit] = f"{unit} was exported to {note.peer_name}"
        return {
            unit: f"{why}: resume with magnetar export-ledgers and the same stores"
            for unit, why in blocked.items()
        }


def unit_of(name: str) -> str:
    """Returns the path of a managed ledger's topic, without the partition index.

    If ``name`` is not the path of a topic, it is returned unchanged.
    """
    try:
        return TopicName.from_path(name).base.path
    except InvalidName:
        return name
