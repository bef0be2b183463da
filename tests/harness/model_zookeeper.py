"""A model of one ZooKeeper server: its protocol, sessions and watches, in memory and in virtual time."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from magnetar.io.interfaces import Loop, Transport
from magnetar.metadata.zookeeper.jute import JuteReader, put_bytes, put_int, put_long, put_text

_WATCH_STATE = 3
"""SyncConnected."""
CREATED, DELETED, CHANGED = 1, 2, 3
NO_NODE, BAD_VERSION, NOT_EMPTY, NODE_EXISTS, UNIMPLEMENTED = -101, -103, -111, -110, -6


@dataclass
class ModelNode:
    value: bytes
    zxid: int
    now_ms: int
    owner: int = 0
    version: int = 0
    modified_ms: int = 0
    children: set[str] = field(default_factory=set)
    made_below: int = 0


@dataclass
class ModelSession:
    number: int
    timeout: float
    heard_at: float
    connection: ServerConnection | None = None


class Refused(Exception):
    """With the code of the answer."""


class ModelZooKeeper:
    """Where its connections meet. ``max_timeout`` bounds what sessions get, in seconds."""

    def __init__(self, loop: Loop, max_timeout: float = 40.0) -> None:
        self.loop = loop
        self.max_timeout = max_timeout
        self.nodes = {"/": ModelNode(b"", 0, 1)}
        self.sessions: dict[int, ModelSession] = {}
        self.expired: list[tuple[int, float]] = []
        """Sessions that ended by time, and when."""
        self.connections: list[ServerConnection] = []
        self.zxid = 0
        self.deleting: Callable[[str, ModelNode, int], None] | None = None
        """Told of each node that a session's client deletes: path, node, number of the session."""
        self.silent = False
        """Requests are read and not answered, as of a server that was stopped."""
        self._made = 0x1000

    def speak(self) -> None:
        """Answers what was read while it was silent."""
        self.silent = False
        for connection in list(self.connections):
            connection.data_received(b"")

    def factory(self) -> ServerConnection:
        return ServerConnection(self)

    def now_ms(self) -> int:
        return int(self.loop.time() * 1000) + 1

    def open_session(self, number: int, timeout: float) -> ModelSession | None:
        """None: it has expired."""
        self.expire()
        if number:
            return self.sessions.get(number)
        self._made += 1
        session = ModelSession(self._made, min(timeout, self.max_timeout), self.loop.time())
        self.sessions[session.number] = session
        self.watch_session(session)
        return session

    def watch_session(self, session: ModelSession) -> None:
        """Ends it when its time-out has passed."""
        self.expire()
        if session.number in self.sessions:
            left = session.heard_at + session.timeout - self.loop.time()
            self.loop.call_later(left, self.watch_session, session)

    def expire(self) -> None:
        now = self.loop.time()
        for session in list(self.sessions.values()):
            if session.heard_at + session.timeout <= now:
                self.expired.append((session.number, now))
                self.end_session(session)

    def end_session(self, session: ModelSession) -> None:
        self.sessions.pop(session.number, None)
        for path in [path for path, node in self.nodes.items() if node.owner == session.number]:
            self.delete(path, -1)
        if session.connection is not None:
            session.connection.drop()

    def drop_connections(self) -> None:
        for connection in list(self.connections):
            connection.drop()

    def _found(self, path: str) -> ModelNode:
        node = self.nodes.get(path)
        if node is None:
            raise Refused(NO_NODE)
        return node

    def _changed(self, kind: int, path: str) -> None:
        for connection in list(self.connections):
            connection.tell(kind, path)

    def create(self, path: str, value: bytes, flags: int, owner: int) -> str:
        parent = self._found(path.rpartition("/")[0] or "/")
        if flags & 2:
            path = f"{path}{parent.made_below:010d}"
        if path in self.nodes:
            raise Refused(NODE_EXISTS)
        self.zxid += 1
        now = self.now_ms()
        self.nodes[path] = ModelNode(value, self.zxid, now, owner if flags & 1 else 0, 0, now)
        parent.children.add(path)
        parent.made_below += 1
        self._changed(CREATED, path)
        return path

    def delete(self, path: str, version: int) -> None:
        node = self._found(path)
        if version not in (-1, node.version):
            raise Refused(BAD_VERSION)
        if node.children:
            raise Refused(NOT_EMPTY)
        self.zxid += 1
        del self.nodes[path]
        self.nodes[path.rpartition("/")[0] or "/"].children.discard(path)
        self._changed(DELETED, path)

    def set_data(self, path: str, value: bytes, version: int) -> None:
        node = self._found(path)
        if version not in (-1, node.version):
            raise Refused(BAD_VERSION)
        self.zxid += 1
        node.value, node.version, node.modified_ms = value, node.version + 1, self.now_ms()
        self._changed(CHANGED, path)

    def answer(self, operation: int, reader: JuteReader, connection: ServerConnection) -> bytes:
        """:raises Refused: the operation fails"""
        out = bytearray()
        path = reader.take_text()
        if operation == 15:
            value = reader.take_bytes()
            for _ in range(reader.take_int()):
                reader.take_int()
                reader.take_text()
                reader.take_text()
            assert connection.session is not None
            path = self.create(path, value, reader.take_int(), connection.session.number)
            put_text(out, path)
            self._put_stat(out, path)
        elif operation == 2:
            node, version = self._found(path), reader.take_int()
            assert connection.session is not None
            self.delete(path, version)
            if self.deleting is not None:
                self.deleting(path, node, connection.session.number)
        elif operation == 5:
            self.set_data(path, reader.take_bytes(), reader.take_int())
            self._put_stat(out, path)
        elif operation == 3:
            self._put_stat(out, path)
        elif operation == 4:
            put_bytes(out, self._found(path).value)
            self._put_stat(out, path)
        elif operation == 8:
            names = [child.rpartition("/")[2] for child in self._found(path).children]
            put_int(out, len(names))
            for name in names:
                put_text(out, name)
        elif operation == 106:
            connection.roots.add(path)
        else:
            raise Refused(UNIMPLEMENTED)
        return bytes(out)

    def _put_stat(self, out: bytearray, path: str) -> None:
        node = self._found(path)
        put_long(out, node.zxid)
        put_long(out, node.zxid)
        put_long(out, node.now_ms)
        put_long(out, node.modified_ms)
        for number in (node.version, node.made_below, 0):
            put_int(out, number)
        put_long(out, node.owner)
        put_int(out, len(node.value))
        put_int(out, len(node.children))
        put_long(out, node.zxid)


class ServerConnection:
    """A ``StreamProtocol``: the server's end of one connection."""

    def __init__(self, server: ModelZooKeeper) -> None:
        self._server = server
        self._received = bytearray()
        self._transport: Any = None
        self.session: ModelSession | None = None
        self.roots: set[str] = set()

    def connection_made(self, transport: Transport) -> None:
        self._transport = transport
        self._server.connections.append(self)

    def drop(self) -> None:
        if self in self._server.connections:
            self._server.connections.remove(self)
            self._transport.abort()

    def tell(self, kind: int, path: str) -> None:
        if not any(path == root or path.startswith(root.rstrip("/") + "/") for root in self.roots):
            return
        out = bytearray()
        self._put_header(out, -1, -1, 0)
        put_int(out, kind)
        put_int(out, _WATCH_STATE)
        put_text(out, path)
        self._send(out)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            (length,) = struct.unpack_from(">i", self._received)
            if len(self._received) < 4 + length:
                return
            if self._server.silent or self not in self._server.connections:
                return
            packet = bytes(self._received[4 : 4 + length])
            del self._received[: 4 + length]
            self._take(JuteReader(packet))

    def _take(self, reader: JuteReader) -> None:
        server = self._server
        if self.session is None:
            self._greet(reader)
            return
        xid, operation = reader.take_int(), reader.take_int()
        self.session.heard_at = server.loop.time()
        out, error, body = bytearray(), 0, b""
        if operation == -11:
            self._put_header(out, xid, server.zxid, 0)
            self._send(out)
            self.session.connection = None
            server.end_session(self.session)
            return
        if operation == 105:
            reader.take_long()
            for _ in range(4):
                reader.take_texts()
            self.roots.update(reader.take_texts())
        elif operation != 11:
            try:
                body = server.answer(operation, reader, self)
            except Refused as refused:
                error = refused.args[0]
        self._put_header(out, xid, server.zxid, error)
        self._send(out + body)

    def _greet(self, reader: JuteReader) -> None:
        reader.take_int()
        reader.take_long()
        timeout, number = reader.take_int() / 1000, reader.take_long()
        session = self._server.open_session(number, timeout)
        out = bytearray()
        put_int(out, 0)
        put_int(out, int(session.timeout * 1000) if session else 0)
        put_long(out, session.number if session else 0)
        put_bytes(out, bytes(16))
        out.append(0)
        self._send(out)
        if session is None:
            self._transport.close()
            return
        if session.connection is not None:
            session.connection.drop()
        session.heard_at = self._server.loop.time()
        self.session = session
        session.connection = self

    def _put_header(self, out: bytearray, xid: int, zxid: int, error: int) -> None:
        put_int(out, xid)
        put_long(out, zxid)
        put_int(out, error)

    def _send(self, packet: bytes | bytearray) -> None:
        self._transport.write(struct.pack(">i", len(packet)) + bytes(packet))

    def eof_received(self) -> bool | None:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self._server.connections:
            self._server.connections.remove(self)

    def pause_writing(self) -> None:
        """What is said is small."""

    def resume_writing(self) -> None:
        """See :meth:`pause_writing`."""
