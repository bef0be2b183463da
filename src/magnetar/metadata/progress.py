"""The progress of the embedded metadata, and the changes of each transaction.

A transaction that changes a persistent node has a *generation*, a number that is one above the generation of
the previous such transaction. The database stores the newest generation together with a *tally* of all
persistent nodes, in the same transaction. So the opening of a database detects whether its rows are those
that were written.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple
from zlib import crc32

from magnetar.io.crc32c import crc32c
from magnetar.metadata.interface import Node

IDENTITY_BYTES = 16
_WORD = (1 << 64) - 1
_NUMBERS = struct.Struct("<qqq")
"""The numbers of a node: version, creation time, and time of the last change (in ms)."""


def node_checksum(node: Node) -> int:
    """Returns a 64-bit checksum over all fields of a persistent node."""
    numbers = _NUMBERS.pack(node.version, node.created_ms, node.modified_ms)
    data = b"".join((node.path.encode(), b"\0", numbers, node.value))
    return crc32(data) << 32 | int(crc32c(data))


class Tally(NamedTuple):
    """The number of persistent nodes, and the sum of their checksums modulo 2**64.

    The sum does not depend on the order of the nodes, so a change of one node costs the same in a
    small and in a large database.
    """

    nodes: int = 0
    checksum: int = 0

    def plus(self, node: Node) -> Tally:
        return Tally(self.nodes + 1, (self.checksum + node_checksum(node)) & _WORD)

    def minus(self, node: Node) -> Tally:
        return Tally(self.nodes - 1, (self.checksum - node_checksum(node)) & _WORD)


class Progress(NamedTuple):
    """The record of a database about itself: its identity, and its newest generation."""

    metadata_id: bytes
    """:data:`IDENTITY_BYTES` random bytes, generated when the database was created. Empty in a database of
    format 1, which has neither a generation nor a tally."""
    generation: int = 0
    tally: Tally = Tally()
    ledger_store: bytes = b""
    """The id of the ledger store to which the metadata belongs; empty until the ledger store and the metadata
    are first used together.
    """
    next_ledger_id: int = 1
    """A number above all ids that the ledger store had assigned when the last generation was written."""


class Numbered(NamedTuple):
    """Records that a parent node has assigned the number ``following - 1`` to a sequential child, so that
    the next child gets ``following``."""

    parent: str
    following: int


Edit = Node | str | Numbered
"""The new state of a node, the path of a deleted node, or a sequential number that was used."""


class Edits(NamedTuple):
    """The changes of one transaction, in order."""

    progress: Progress
    """The progress after the transaction."""
    edits: list[Edit]


class NodeRange(NamedTuple):
    """All persistent nodes in a range of paths, as one transaction sees them."""

    progress: Progress
    after: str
    """The range begins after this path."""
    upto: str
    """The last path of the range; empty: there are no further nodes, and the range has no end."""
    edits: list[Edit]


Verify = Callable[[Progress | None], None]
"""Called with the progress in the database before anything is written to it; None: a new database will be
created. Raises an error to abort the opening."""
