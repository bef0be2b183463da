"""The contract of metadata: ZooKeeper's, whatever stores it.

Paths are ``/``-separated, absolute and without a trailing slash. A node has a value and a version, 0 when
made, one more with every put. Parents are made when missing. A put or delete is answered only when durable.
What is asked for in one turn of the loop happens in that order, but for puts that need no version and have to
make what they find missing.
No piece of a path is empty, ``.`` or ``..``; every operation raises ValueError for what is no path.

What is kept in memory of nodes is told of changes by :meth:`MetadataStore.listen`, before or after whoever
made a change has its answer: nobody may rely on the order. Between DISCONNECTED and RECONNECTED changes are
not told; on RECONNECTED everything may have changed. :class:`magnetar.metadata.cache.MetadataCache` does so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol

from magnetar.lazy_dataclass import dataclass


class MetadataError(Exception):
    """An operation on the metadata failed; subclasses say how."""

    step: int | None = None
    """Of :meth:`MetadataStore.change_together`: which of the steps, from 0 on, cannot be done."""


class BadVersion(MetadataError):
    """The node's version is not the expected one (also: it exists and must not, or the other way round)."""


class Overtaken(BadVersion):
    """Likewise; and the answer to a first try of this change was lost: it may have been made, and somebody
    else have gone on from there."""


class NodeMissing(MetadataError):
    """No node at that path."""


class NodeNotEmpty(MetadataError):
    """A node with children cannot be deleted."""


class MetadataUnavailable(MetadataError):
    """The store cannot answer now; the operation may or may not have happened.

    When the store answers again it either has happened or never will. Who writes through
    :class:`magnetar.metadata.resolving.ResolvingStore` gets this only when nothing could be found out.
    """


class MetadataRefused(MetadataUnavailable):
    """The store is closed, or has no room: the operation has certainly not happened."""


def may_have_happened(error: BaseException) -> bool:
    """Whether a change that ended in ``error`` may have been made all the same."""
    if isinstance(error, MetadataRefused):
        return False
    return isinstance(error, MetadataUnavailable | Overtaken)


@dataclass(frozen=True, slots=True)
class Put:
    """Makes a node, or replaces one version of it."""

    path: str
    value: bytes
    expected_version: int
    """:data:`MUST_NOT_EXIST`, or the version that is replaced."""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    expected_version: int | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """Changes nothing: the node has to have this version."""

    path: str
    expected_version: int


Step = Put | Delete | Check


@dataclass(frozen=True, slots=True)
class Node:
    path: str
    value: bytes
    version: int
    created_ms: int
    modified_ms: int
    ephemeral: bool
    own: bool = False
    """Ephemeral, and made by the session that asks: it goes with this session and no other."""


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
    """Of the same session, or of a new one after LOST. Everything may have changed meanwhile."""
    LOST = "lost"
    """Ephemeral nodes of this session are gone, and with them all that it owned."""


MUST_NOT_EXIST = -1
"""As ``expected_version`` of a put: the node must be made by this put."""


MAX_VALUE_BYTES = 1024 * 1024 - 8192
"""Of a node's value: ZooKeeper takes requests of 1 MiB less one byte, with path and permissions in them."""


MAX_STEPS_BYTES = MAX_VALUE_BYTES
"""Of steps that are done together, as :func:`step_bytes` counts them: they are one request to ZooKeeper."""
_STEP_BYTES = 64
"""What a step takes besides path and value at most, and a chroot."""


def step_bytes(step: Step) -> int:
    """What a step counts in a request."""
    return len(step.path.encode()) + (len(step.value) if isinstance(step, Put) else 0) + _STEP_BYTES


def named(steps: Sequence[Step]) -> str:
    """What they are about, for people; there is one at least."""
    return steps[0].path if len(steps) == 1 else f"{steps[0].path} and {len(steps) - 1} more"


def check_steps(steps: Sequence[Step]) -> None:
    """:raises ValueError: a path is none, stands twice, or is put below one that is deleted

    :raises NodeTooLarge: one value is, or all steps are more than :data:`MAX_STEPS_BYTES`
    """
    paths: set[str] = set()
    deleted = {step.path for step in steps if isinstance(step, Delete)}
    for step in steps:
        check_path(step.path)
        if step.path in paths:
            raise ValueError(f"two steps of one change are about {step.path!r}")
        paths.add(step.path)
        if isinstance(step, Put):
            check_value(step.path, step.value)
            pieces = step.path.split("/")
            above = deleted.intersection("/".join(pieces[:count]) for count in range(2, len(pieces)))
            if above:
                raise ValueError(f"{step.path!r} is put below {above.pop()!r}, which is deleted")
    size = sum(step_bytes(step) for step in steps)
    if size > MAX_STEPS_BYTES:
        raise NodeTooLarge(f"{named(steps)}: {size} bytes, at most {MAX_STEPS_BYTES} are changed together")


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


def lies_in(root: str, path: str) -> bool:
    """Whether ``path`` is ``root`` or below it."""
    return path.startswith(root) and (len(path) == len(root) or root == "/" or path[len(root)] == "/")


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
        """Writes a node; ``sequential`` appends a ten-digit number, unique below its parent for as long as
        that stands, to the path.

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

    async def change_together(self, steps: Sequence[Step]) -> Sequence[Node | None]:
        """Does all steps in their order, or none of them; answers a node for each put, None for the others.

        No two are about one path, and none puts below what another one deletes.

        :raises BadVersion: the condition of a put, a deletion or a check does not hold; a node that is to be
            checked or replaced and is missing is one of another version
        :raises NodeMissing: what is to be deleted is not there
        :raises NodeNotEmpty: it has children by then
        :raises NodeTooLarge: there are more than :data:`MAX_STEPS_BYTES` of them

        The error's ``step`` says which it was.
        """
        ...

    async def exists(self, path: str) -> bool: ...

    async def children(self, path: str) -> Sequence[str]:
        """Names (not paths) of the direct children, sorted; empty when there is no such node."""
        ...

    def listen(self, root: str, listener: Callable[[Change], None]) -> None:
        """Calls ``listener`` in the loop after each change of ``root`` or below it, also those made here.

        A change may be told before its own operation is answered, or after. What the listener raises is
        logged, and keeps nobody else from hearing.
        """
        ...

    def listen_session(self, listener: Callable[[SessionEvent], None]) -> None:
        """Calls ``listener`` in the loop with what happens to the session; at first with what it is."""
        ...

    async def close(self) -> None:
        """Ends the session: its ephemeral nodes go. Idempotent."""
        ...
