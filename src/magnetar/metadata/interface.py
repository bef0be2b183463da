"""The contract of metadata: ZooKeeper's, whatever stores it.

Paths are ``/``-separated, absolute and without a trailing slash. A node has a value and a version, 0 when
made, one more with every put. Parents are made when missing. A put or delete is answered only when durable.
No piece of a path is empty, ``.`` or ``..``; every operation raises ValueError for what is no path.
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


class NodeTooLarge(MetadataError):
    """A value is larger than a node's may be; nothing was written."""


class SessionEvent(Enum):
    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    RECONNECTED = "reconnected"
    LOST = "lost"
    """Ephemeral nodes of this session are gone."""


MUST_NOT_EXIST = -1
"""As ``expected_version`` of a put: the node must be made by this put."""


MAX_VALUE_BYTES = 1024 * 1024
"""Of a node's value, as ZooKeeper has it."""


def check_path(path: str) -> None:
    """:raises ValueError: it is relative, ends in a slash, has an empty piece, ``.`` or ``..``, or no text"""
    pieces = path.split("/")[1:]
    absolute = path.startswith("/") and "\0" not in path
    if not absolute or (path != "/" and any(piece in ("", ".", "..") for piece in pieces)):
        raise ValueError(f"not a path of a node: {path[:1000]!r}")
    # SQLite refuses lone surrogates only in the middle of a transaction, which would end the process.
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"not a path of a node: {path[:1000]!r}") from error


def check_value(path: str, value: bytes) -> None:
    """:raises NodeTooLarge: it is more than :data:`MAX_VALUE_BYTES`"""
    if len(value) > MAX_VALUE_BYTES:
        raise NodeTooLarge(f"{path}: {len(value)} bytes, at most {MAX_VALUE_BYTES} are allowed in a node")


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
        :raises NodeTooLarge: the value has more than :data:`MAX_VALUE_BYTES`
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
        """Calls ``listener`` in the loop after each change, also those made here.

        What it raises is logged, and keeps nobody else from hearing.
        """
        ...

    def listen_session(self, listener: Callable[[SessionEvent], None]) -> None: ...

    async def close(self) -> None:
        """Ends the session: its ephemeral nodes go. Idempotent."""
        ...
