"""The requests and answers of ZooKeeper 3.6 and later that a metadata store needs, without their length.

https://github.com/apache/zookeeper/blob/branch-3.9/zookeeper-jute/src/main/resources/zookeeper.jute has the
names of the records, ``ZooDefs`` the numbers of operations, ``KeeperException.Code`` those of errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from magnetar.lazy_dataclass import dataclass
from magnetar.metadata.interface import (
    BadVersion,
    ChangeKind,
    MetadataError,
    MetadataUnavailable,
    Node,
    NodeMissing,
    NodeNotEmpty,
    NodeTooLarge,
)
from magnetar.metadata.zookeeper.jute import (
    JuteError,
    JuteReader,
    put_bool,
    put_bytes,
    put_int,
    put_long,
    put_text,
)

MAX_PACKET_BYTES = 0xFFFFF
"""The default of servers' ``jute.maxbuffer``: a longer request ends the connection."""


class Operation(IntEnum):
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_CHILDREN = 8
    PING = 11
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    AUTH = 100
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    CLOSE_SESSION = -11


EVENT_XID = -1
PING_XID = -2
AUTH_XID = -4
SET_WATCHES_XID = -8

_PERSISTENT_RECURSIVE = 1
_EPHEMERAL, _SEQUENTIAL = 1, 2
_ALL_PERMISSIONS = 31

OK = 0
SESSION_EXPIRED = -112
NODE_EXISTS = -110
NO_NODE = -101
_NO_AUTH = -102
_EPHEMERAL_PARENT = -108
_ERRORS: dict[int, type[MetadataError]] = {
    NO_NODE: NodeMissing,
    -103: BadVersion,
    NODE_EXISTS: BadVersion,
    -111: NodeNotEmpty,
}
_NAMES = {
    -1: "system error",
    -2: "runtime inconsistency",
    -5: "the request cannot be read",
    -6: "the operation is not known",
    -8: "bad arguments",
    _NO_AUTH: "not allowed",
    -113: "a bad list of permissions",
    -114: "a bad list of permissions",
    -115: "authentication failed",
    -118: "the session has moved to another server",
    -119: "the server only reads",
    -124: "the request timed out",
    -127: "the server is busy",
}

_CHANGES = {1: ChangeKind.CREATED, 2: ChangeKind.DELETED, 3: ChangeKind.CHANGED, 4: ChangeKind.CHILDREN}


class NotAllowed(MetadataError):
    """The node's ACL does not permit this client's request."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """A server's first answer; ``session_id`` 0: the session has expired."""

    timeout_ms: int
    session_id: int
    password: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    xid: int
    zxid: int
    error: int


@dataclass(frozen=True, slots=True)
class Stat:
    created_ms: int
    modified_ms: int
    version: int
    owner: int
    """The session of an ephemeral node, otherwise 0."""

    def node(self, path: str, value: bytes, session_id: int) -> Node:
        return Node(
            path,
            value,
            self.version,
            self.created_ms,
            self.modified_ms,
            self.owner != 0,
            self.owner != 0 and self.owner == session_id,
        )


def connect(last_zxid: int, timeout_ms: int, session_id: int, password: bytes) -> bytes:
    """Returns the first request of a connection; it has no header."""
    into = bytearray()
    put_int(into, 0)
    put_long(into, last_zxid)
    put_int(into, timeout_ms)
    put_long(into, session_id)
    put_bytes(into, password)
    put_bool(into, False)
    return bytes(into)


def greeting(data: bytes) -> Greeting:
    """:raises JuteError: it is another record"""
    reader = JuteReader(data)
    reader.take_int()
    timeout_ms, session_id, password = reader.take_int(), reader.take_long(), reader.take_bytes()
    return Greeting(timeout_ms, session_id if timeout_ms > 0 else 0, password)


def create(path: str, value: bytes, *, ephemeral: bool = False, sequential: bool = False) -> bytes:
    into = bytearray()
    put_text(into, path)
    put_bytes(into, value)
    put_int(into, 1)
    put_int(into, _ALL_PERMISSIONS)
    put_text(into, "world")
    put_text(into, "anyone")
    put_int(into, _EPHEMERAL * ephemeral | _SEQUENTIAL * sequential)
    return bytes(into)


def delete(path: str, version: int) -> bytes:
    """For DELETE, and for CHECK, which only occurs in a MULTI.

    :param version: -1: any
    """
    into = bytearray()
    put_text(into, path)
    put_int(into, version)
    return bytes(into)


def set_data(path: str, value: bytes, version: int) -> bytes:
    """:param version: -1: any"""
    into = bytearray()
    put_text(into, path)
    put_bytes(into, value)
    put_int(into, version)
    return bytes(into)


def read(path: str) -> bytes:
    """For EXISTS, GET_DATA and GET_CHILDREN, without a watch."""
    into = bytearray()
    put_text(into, path)
    put_bool(into, False)
    return bytes(into)


def add_watch(path: str) -> bytes:
    """Watches everything at ``path`` and below it, for the life of the session."""
    into = bytearray()
    put_text(into, path)
    put_int(into, _PERSISTENT_RECURSIVE)
    return bytes(into)


def set_watches(last_zxid: int, recursive: Sequence[str]) -> bytes:
    """Sets the watches of a session on a new connection."""
    into = bytearray()
    put_long(into, last_zxid)
    for paths in ((), (), (), (), recursive):
        put_int(into, len(paths))
        for path in paths:
            put_text(into, path)
    return bytes(into)


def auth(scheme: str, credentials: bytes) -> bytes:
    into = bytearray()
    put_int(into, 0)
    put_text(into, scheme)
    put_bytes(into, credentials)
    return bytes(into)


def header(xid: int, operation: Operation) -> bytes:
    into = bytearray()
    put_int(into, xid)
    put_int(into, operation)
    return bytes(into)


def take_reply(reader: JuteReader) -> Reply:
    return Reply(reader.take_int(), reader.take_long(), reader.take_int())


def take_stat(reader: JuteReader) -> Stat:
    reader.take_long()
    reader.take_long()
    created_ms, modified_ms, version = reader.take_long(), reader.take_long(), reader.take_int()
    reader.take_int()
    reader.take_int()
    owner = reader.take_long()
    reader.take_int()
    reader.take_int()
    reader.take_long()
    return Stat(created_ms, modified_ms, version, owner)


def take_event(reader: JuteReader) -> tuple[ChangeKind, str] | None:
    """None: the event is about the session."""
    kind, _state, path = reader.take_int(), reader.take_int(), reader.take_text()
    if kind == -1:
        return None
    if kind not in _CHANGES:
        raise JuteError(f"an event of kind {kind}")
    return _CHANGES[kind], path


def error_of(code: int, path: str) -> MetadataError:
    """Returns the error to raise for the caller of an operation."""
    if code == _NO_AUTH:
        return NotAllowed(f"{path}: ZooKeeper does not allow it")
    if code == _EPHEMERAL_PARENT:
        return NotAllowed(f"{path}: an ephemeral node has no children")
    if code in _ERRORS:
        return _ERRORS[code](path)
    return MetadataUnavailable(f"{path}: ZooKeeper answered {code} ({_NAMES.get(code, 'unknown')})")


def check_packet(path: str, packet: bytes) -> None:
    """:raises NodeTooLarge: servers would not read it"""
    # The header of a request takes 8 bytes.
    if len(packet) + 8 > MAX_PACKET_BYTES:
        raise NodeTooLarge(
            f"{path}: a request of {len(packet) + 8} bytes; ZooKeeper takes {MAX_PACKET_BYTES}"
        )
