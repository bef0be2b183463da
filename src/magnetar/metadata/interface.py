"""The contract of metadata: ZooKeeper's, whatever stores it.

Paths are ``/``-separated, absolute and without a trailing slash. A node has a value and a version, 0 when
made, one more with every put. Parents are made when missing. A put or delete is answered only when durable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class MetadataError(Exception):
    """An operation on the metadata failed; subclasses say how."""


class BadVersion(MetadataError):
    """The node's version is not the expected one (also: it exists and must not, or the other way round)."""


class NodeMissing(MetadataError):
    """No node at that path."""


class NodeNotEmpty(MetadataError):
    """A node with children cannot be deleted."""


class MetadataUnavailable(MetadataError):
    """The store cannot answer now, or is closed; the operation may or may not have happened."""


@dataclass(frozen=True, slots=True)
class Node:
    path: str
    value: bytes
    version: int
    created_ms: int
    modified_ms: int
    ephemeral: bool


class ChangeKind(Enum):
    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    CHILDREN = "children"


@dataclass(frozen=True, slots=True)
class Change:
    kind: ChangeKind
    path: str


class NodeDamaged(MetadataError):
    """What is stored for a node is not what a broker writes."""


class SessionEvent(Enum):
    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    RECONNECTED = "reconnected"
    LOST = "lost"
    """Ephemeral nodes of this session are gone."""


MUST_NOT_EXIST = -1
"""As ``expected_version`` of a put: the node must be made by this put."""


class MetadataStore(Protocol):
    async def get(self, path: str) -> Node | None: ...

    async def put(
        self,
        path: str,
        value: bytes,
        expected_version: int | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Node:
        """Writes a node; ``sequential`` appends a ten-digit number, unique below its parent, to the path.

        :param expected_version: None writes in any case; :data:`MUST_NOT_EXIST` only makes; any other
            replaces that version
        :raises BadVersion: the condition does not hold
        """
        ...

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        """:raises NodeMissing: nothing there

        :raises BadVersion: another version is there
        :raises NodeNotEmpty: it has children
        """
        ...

    async def exists(self, path: str) -> bool: ...

    async def children(self, path: str) -> Sequence[str]:
        """Names (not paths) of the direct children, sorted; empty when there is no such node."""
        ...

    def listen(self, listener: Callable[[Change], None]) -> None:
        """Calls ``listener`` in the loop after each change, also those made here."""
        ...

    def listen_session(self, listener: Callable[[SessionEvent], None]) -> None: ...

    async def close(self) -> None:
        """Ends the session: its ephemeral nodes go. Idempotent."""
        ...
