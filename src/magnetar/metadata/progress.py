"""How far the embedded metadata has come, and what each transaction changed.

A transaction that changes a persistent node has a *generation*, one more than the one before. The database
keeps the newest generation together with a *tally* of all persistent nodes, in the same transaction. Opening
a database therefore finds out whether its rows are those that were written.
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
"""Version, creation time, time of the last change."""


def node_checksum(node: Node) -> int:
    """64 bits over everything a persistent node has."""
    numbers = _NUMBERS.pack(node.version, node.created_ms, node.modified_ms)
    data = b"".join((node.path.encode(), b"\0", numbers, node.value))
    return crc32(data) << 32 | int(crc32c(data))


class Tally(NamedTuple):
    """How many persistent nodes there are, and the sum of their checksums modulo 2**64.

    A sum does not depend on the order of the nodes: a change costs the same however many there are.
    """

    nodes: int = 0
    checksum: int = 0

    def plus(self, node: Node) -> Tally:
        return Tally(self.nodes + 1, (self.checksum + node_checksum(node)) & _WORD)

    def minus(self, node: Node) -> Tally:
        return Tally(self.nodes - 1, (self.checksum - node_checksum(node)) & _WORD)


class Progress(NamedTuple):
    """What a database says about itself."""

    metadata_id: bytes
    """:data:`IDENTITY_BYTES` random bytes, drawn when the database was created. Empty in a database of
    format 1, which has neither a generation nor a tally."""
    generation: int = 0
    tally: Tally = Tally()
    ledger_store: bytes = b""
    """The id of the ledger store that the metadata belongs to; empty before they were first used together."""
    next_ledger_id: int = 1
    """The ledger store had given out the ids below this one when the last generation was written."""


class Numbered(NamedTuple):
    """A parent gave a sequential child the number before ``following``."""

    parent: str
    following: int


Edit = Node | str | Numbered
"""A node as it is from now on, the path of a node that was deleted, or a sequential number that was used."""


class Edits(NamedTuple):
    """What one transaction changed, in order."""

    progress: Progress
    """After the transaction."""
    edits: list[Edit]


class NodeRange(NamedTuple):
    """All persistent nodes in a range of paths, as one transaction sees them."""

    progress: Progress
    after: str
    """The range begins behind this path."""
    upto: str
    """The last path of the range; empty: there is nothing behind ``after``, and the range has no end."""
    edits: list[Edit]


Verify = Callable[[Progress | None], None]
"""Called with what the database says before anything is written to it; None: a new one is about to be made.
It raises what is to end the opening."""
