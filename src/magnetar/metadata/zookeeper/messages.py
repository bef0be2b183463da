"""The requests and answers of ZooKeeper 3.6 and later that a metadata store needs, without the length field.

https://github.com/apache/zookeeper/blob/branch-3.9/zookeeper-jute/src/main/resources/zookeeper.jute contains
the names of the records; ``ZooDefs`` contains the numbers of operations, and ``KeeperException.Code`` the
numbers of errors.
"""

from __future__ import annotations

import struct
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

MAX_PACKET_BYTES = 0xFFFFF
"""The default of servers' ``jute.maxbuffer``; a longer request ends the connection."""
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_FAILED = -1
"""The operation number of a MULTI header that an error follows instead of a result."""
_NOT_TRIED = -2
"""The error code of each operation of a MULTI after the failed operation (RUNTIMEINCONSISTENCY)."""


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
    -119: "the server is read-only",
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
    """The id of the session that owns an ephemeral node; 0 for other nodes."""

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
    """Parses a server's answer to the first request of a connection.

    :raises JuteError: the data is another record
    """
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
    """Returns a request DELETE or CHECK, which have the same form; CHECK only occurs in a MULTI.

    :param version: the version that the node must have; -1: any version
    """
    into = bytearray()
    put_text(into, path)
    put_int(into, version)
    return bytes(into)


def set_data(path: str, value: bytes, version: int) -> bytes:
    """Returns the request SET_DATA.

    :param version: the version that the node must have; -1: any version
    """
    into = bytearray()
    put_text(into, path)
    put_bytes(into, value)
    put_int(into, version)
    return bytes(into)


def read(path: str) -> bytes:
    """Returns a request EXISTS, GET_DATA or GET_CHILDREN, which have the same form, without a watch."""
    into = bytearray()
    put_text(into, path)
    put_bool(into, False)
    return bytes(into)


def add_watch(path: str) -> bytes:
    """Returns the request to watch all changes at and below ``path``, for the life of the session."""
    into = bytearray()
    put_text(into, path)
    put_int(into, _PERSISTENT_RECURSIVE)
    return bytes(into)


def set_watches(last_zxid: int, recursive: Sequence[str]) -> bytes:
    """Returns the request that sets the watches of a session on a new connection.

    :param last_zxid: the id of the last transaction that the session has seen
    :param recursive: the paths that are watched together with all paths below them
    """
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
    """Returns the kind and the path of a change; None if the event is about the session."""
    kind, _state, path = reader.take_int(), reader.take_int(), reader.take_text()
    if kind == -1:
        return None
    if kind not in _CHANGES:
        raise JuteError(f"unknown type {kind} of a watch event")
    return _CHANGES[kind], path


def error_of(code: int, path: str) -> MetadataError:
    """Returns the exception for an operation that a server answered with an error code."""
    if code == _NO_AUTH:
        return NotAllowed(f"{path}: ZooKeeper does not allow it")
    if code == _EPHEMERAL_PARENT:
        return NotAllowed(f"{path}: an ephemeral node cannot have children")
    if code in _ERRORS:
        return _ERRORS[code](path)
    return MetadataUnavailable(f"{path}: ZooKeeper answered {code} ({_NAMES.get(code, 'unknown')})")


def check_packet(path: str, packet: bytes) -> None:
    """Checks the size of a request before it is sent.

    :raises NodeTooLarge: servers would not read the request
    """
    # The header of a request takes 8 bytes.
    if len(packet) + 8 > MAX_PACKET_BYTES:
        raise NodeTooLarge(
            f"{path}: the request has {len(packet) + 8} bytes; ZooKeeper accepts at most {MAX_PACKET_BYTES}"
        )


class JuteError(Exception):
    """The bytes are not the expected record in Jute, ZooKeeper's serialization format.

    A length of -1 means null (https://zookeeper.apache.org/doc/r3.9.4/zookeeperInternals.html).
    """


def put_int(into: bytearray, value: int) -> None:
    into += _INT.pack(value)


def put_long(into: bytearray, value: int) -> None:
    into += _LONG.pack(value)


def put_bool(into: bytearray, value: bool) -> None:
    into.append(value)


def put_bytes(into: bytearray, value: bytes) -> None:
    into += _INT.pack(len(value))
    into += value


def put_text(into: bytearray, value: str) -> None:
    put_bytes(into, value.encode())


class JuteReader:
    """Reads one value after another.

    :raises JuteError: raised by every method: there are too few bytes, or they are not a value of that type
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take_int(self) -> int:
        return int(_INT.unpack(self._take(4))[0])

    def take_long(self) -> int:
        return int(_LONG.unpack(self._take(8))[0])

    def take_bool(self) -> bool:
        return self._take(1) != b"\0"

    def take_bytes(self) -> bytes:
        """Returns bytes; empty for null."""
        length = self.take_int()
        if length == -1:
            return b""
        return self._take(length)

    def take_text(self) -> str:
        try:
            return self.take_bytes().decode()
        except UnicodeDecodeError as error:
            raise JuteError(f"a string is not UTF-8: {error}") from error

    def take_texts(self) -> list[str]:
        count = self.take_int()
        # Each element takes at least four bytes: a larger count is invalid, and must not allocate a list.
        if count > (len(self._data) - self._at) // 4:
            raise JuteError(f"a list of {count} strings does not fit into {len(self._data)} bytes")
        return [self.take_text() for _ in range(count)]

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise JuteError(
                f"a field of {length} bytes at offset {self._at} does not fit into {len(self._data)} bytes"
            )
        taken = self._data[self._at : end]
        self._at = end
        return taken


@dataclass(frozen=True, slots=True)
class OperationResult:
    """The result of one operation of a MULTI.

    ``zookeeper.jute`` has no record for the request MULTI and its answer (``MultiOperationRecord``,
    ``MultiResponse``): a ``MultiHeader`` precedes each operation, and a last header ends the list. The answer
    to a failed request has no error of its own, but an error for each operation.
    """

    error: int = OK
    """The error of the operation; OK also for operations before the one that failed."""
    path: str = ""
    """The path that CREATE2 created, with the number of a sequential node."""
    stat: Stat | None = None
    """The new state of the node, after CREATE2 and SET_DATA only."""


def multi(operations: Sequence[tuple[Operation, bytes]]) -> bytes:
    """Returns the request MULTI.

    :param operations: CREATE2, DELETE, SET_DATA and CHECK, each with its packet
    """
    into = bytearray()
    for operation, packet in operations:
        _put_header(into, operation, end=False)
        into += packet
    _put_header(into, _FAILED, end=True)
    return bytes(into)


def take_results(reader: JuteReader, asked: Sequence[Operation]) -> list[OperationResult]:
    """Returns one result for each operation, in their order.

    :raises JuteError: the data is another record
    """
    results: list[OperationResult] = []
    while True:
        kind, end, error = reader.take_int(), reader.take_bool(), reader.take_int()
        if end:
            if len(results) != len(asked):
                raise JuteError(f"the answer has {len(results)} results for {len(asked)} operations")
            return results
        if kind != _FAILED and kind not in asked[len(results) : len(results) + 1]:
            raise JuteError(f"the result of an operation of type {kind} is out of order")
        results.append(_take_result(reader, kind, error))


def failed(results: Sequence[OperationResult]) -> int | None:
    """Returns the index of the operation that failed; None if all have taken effect."""
    errors = [(at, result.error) for at, result in enumerate(results) if result.error != OK]
    reasons = [at for at, error in errors if error != _NOT_TRIED]
    return reasons[0] if reasons else errors[0][0] if errors else None


def _put_header(into: bytearray, kind: int, *, end: bool) -> None:
    put_int(into, kind)
    put_bool(into, end)
    put_int(into, -1)


def _take_result(reader: JuteReader, kind: int, error: int) -> OperationResult:
    if kind == _FAILED:
        # The header contains it too.
        return OperationResult(reader.take_int())
    if kind == Operation.CREATE2:
        return OperationResult(error, reader.take_text(), take_stat(reader))
    return OperationResult(error, stat=take_stat(reader) if kind == Operation.SET_DATA else None)
