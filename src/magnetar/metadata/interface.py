"""The contract of a metadata store, which is ZooKeeper's, for every implementation.

Paths are ``/``-separated, absolute and without a trailing slash. A node has a value and a version, 0 when it
is created and incremented by every put. Missing parents are created. A put or delete is answered only when it
is durable. Calls of one turn of the loop take effect in their order, except for puts without an expected
version that must create a missing node. No piece of a path is empty, ``.`` or ``..``; every operation raises
ValueError for an invalid path.

Listeners of :meth:`MetadataStore.listen` are told of a change before or after the caller that made the change
gets its answer: the order is not defined. Changes between DISCONNECTED and RECONNECTED are not reported; on
RECONNECTED anything may have changed. :class:`magnetar.metadata.following.MetadataCache` follows these rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol

from magnetar.lazy_dataclass import dataclass


class MetadataError(Exception):
    """An operation on the metadata failed; subclasses give the reason."""

    step: int | None = None
    """The index of the failed step of :meth:`MetadataStore.change_together`; None for other operations."""


class BadVersion(MetadataError):
    """The node does not have the expected version, is missing, or exists although it must not."""


class Overtaken(BadVersion):
    """The node does not have the expected version, and the answer to a first attempt of this change was lost.

    The first attempt may have taken effect, and another process may have changed the node since."""


class NodeMissing(MetadataError):
    """The node does not exist."""


class NodeNotEmpty(MetadataError):
    """A node with children cannot be deleted."""


class MetadataUnavailable(MetadataError):
    """The store cannot answer now; the operation may or may not have taken effect.

    Once the store answers again, the operation has taken effect or never will. A caller of
    :class:`magnetar.metadata.passing_on.ResolvingStore` gets this error only if the outcome could not be
    determined.
    """


class MetadataRefused(MetadataUnavailable):
    """The store is closed or has no space: the operation has certainly not taken effect."""


def may_have_happened(error: BaseException) -> bool:
    """Whether a change that ended in ``error`` may have taken effect."""
    if isinstance(error, MetadataRefused):
        return False
    return isinstance(error, MetadataUnavailable | Overtaken)


@dataclass(frozen=True, slots=True)
class Put:
    """Creates a node, or replaces one version of a node."""

    path: str
    value: bytes
    expected_version: int
    """:data:`MUST_NOT_EXIST`, or the version to replace."""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    expected_version: int | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """Changes nothing, but requires that the node has this version; otherwise all steps fail."""

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
    """Whether the node is ephemeral and was created by this session, whose end deletes it."""


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
    """The stored content of a node is not in the form that brokers write."""


class NodeTooLarge(MetadataError):
    """A value exceeds the limit of a node; nothing was written."""


class SessionEvent(Enum):
    CONNECTED = "connected"
    DISCONNECTED = "disconnected"
    RECONNECTED = "reconnected"
    """The session is connected again, or a new session has replaced a lost session. Any node may have changed
    in between.
    """
    LOST = "lost"
    """The session is lost: its ephemeral nodes are deleted, and the ownership that depends on them has
    ended."""


MUST_NOT_EXIST = -1
"""``expected_version`` of a put that must create the node."""


MAX_VALUE_BYTES = 1024 * 1024 - 8192
"""The maximum size of a node's value: ZooKeeper accepts requests of 1 MiB less one byte, including path and
permissions."""


MAX_STEPS_BYTES = MAX_VALUE_BYTES
"""The maximum size of steps done together, as :func:`step_bytes` counts them, because they are one ZooKeeper
request."""
_STEP_BYTES = 64
"""The maximum number of bytes that a step needs besides its path and value: other fields, and a chroot."""


def step_bytes(step: Step) -> int:
    """Returns the number of bytes that a step adds to a request."""
    return len(step.path.encode()) + (len(step.value) if isinstance(step, Put) else 0) + _STEP_BYTES


def named(steps: Sequence[Step]) -> str:
    """Returns a description of the steps for messages; there must be at least one."""
    return steps[0].path if len(steps) == 1 else f"{steps[0].path} and {len(steps) - 1} more"


def check_steps(steps: Sequence[Step]) -> None:
    """Checks the steps of a transaction.

    :raises ValueError: a path is invalid, or occurs twice, or a step puts a node below a node that another
        step deletes
    :raises NodeTooLarge: one value is too large, or the steps together exceed :data:`MAX_STEPS_BYTES`
    """
    paths: set[str] = set()
    deleted = {step.path for step in steps if isinstance(step, Delete)}
    for step in steps:
        check_path(step.path)
        if step.path in paths:
            raise ValueError(f"two steps of one change have the same path {step.path!r}")
        paths.add(step.path)
        if isinstance(step, Put):
            check_value(step.path, step.value)
            pieces = step.path.split("/")
            above = deleted.intersection("/".join(pieces[:count]) for count in range(2, len(pieces)))
            if above:
                raise ValueError(f"{step.path!r} is below {above.pop()!r}, which the same change deletes")
    size = sum(step_bytes(step) for step in steps)
    if size > MAX_STEPS_BYTES:
        raise NodeTooLarge(
            f"{named(steps)}: the change has {size} bytes; at most {MAX_STEPS_BYTES} are allowed"
        )


def check_path(path: str) -> None:
    """Checks the path of a node.

    :raises ValueError: the path is relative, ends in a slash, has a piece that is empty, ``.`` or ``..``,
        contains the character NUL, or is not valid Unicode
    """
    pieces = path.split("/")[1:]
    absolute = path.startswith("/") and "\0" not in path
    if not absolute or (path != "/" and any(piece in ("", ".", "..") for piece in pieces)):
        raise ValueError(
            f"invalid metadata path {path[:1000]!r}: it must begin with /, must not end with / and must not "
            "contain empty pieces, . or .., or the character NUL"
        )
    # SQLite refuses lone surrogates only in the middle of a transaction, which would end the process.
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"invalid metadata path {path[:1000]!r}: it contains a surrogate character, which Unicode forbids"
        ) from error


def check_value(path: str, value: bytes) -> None:
    """Checks the value of a node.

    :raises NodeTooLarge: the value exceeds :data:`MAX_VALUE_BYTES`
    """
    if len(value) > MAX_VALUE_BYTES:
        raise NodeTooLarge(f"{path}: the value has {len(value)} bytes; at most {MAX_VALUE_BYTES} are allowed")


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
        """Writes a node.

        :param ephemeral: whether the end of this session deletes the node
        :param sequential: whether a ten-digit number is appended to the path; the number is unique among the
            children of the parent as long as the parent exists
        :param expected_version: the condition of the write. None: no condition, the node may exist or not;
            :data:`MUST_NOT_EXIST`: the node must be created; any other value: this version must be replaced
        :raises BadVersion: the condition is not met
        :raises NodeTooLarge: the value exceeds :data:`MAX_VALUE_BYTES`
        """
        ...

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        """Deletes a node.

        :param expected_version: the version that the node must have; None: any version
        :raises NodeMissing: the node does not exist
        :raises BadVersion: the node has another version
        :raises NodeNotEmpty: the node has children
        """
        ...

    async def change_together(self, steps: Sequence[Step]) -> Sequence[Node | None]:
        """Carries out all steps in their order, or none of them; returns the new node for each put, and None
        for every other step.

        No two steps may have the same path, and none may put a node below a node that another step deletes.

        :raises BadVersion: the condition of a put, a deletion or a check is not met; a missing node that
            is to be checked or replaced counts as having another version
        :raises NodeMissing: a node to delete does not exist
        :raises NodeNotEmpty: a node to delete has children at that point
        :raises NodeTooLarge: the steps exceed :data:`MAX_STEPS_BYTES`

        The error's ``step`` is the index of the failed step.
        """
        ...

    async def exists(self, path: str) -> bool: ...

    async def children(self, path: str) -> Sequence[str]:
        """Returns the names (not paths) of the direct children, sorted; empty if the node does not exist."""
        ...

    def listen(self, root: str, listener: Callable[[Change], None]) -> None:
        """Calls ``listener`` on the loop after each change at or below ``root``, including changes by this
        process.

        A change may be reported before its own operation is answered, or after. Errors of the listener are
        logged, and do not affect other listeners.
        """
        ...

    def listen_session(self, listener: Callable[[SessionEvent], None]) -> None:
        """Calls ``listener`` on the loop with the current state of the session, then with each change."""
        ...

    async def close(self) -> None:
        """Ends the session, which deletes its ephemeral nodes. Idempotent."""
        ...
