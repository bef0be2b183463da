"""A model of ZooKeeper's servers: their protocol, sessions and watches, in memory and in virtual time."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from model_zookeeper_replica import Replica
from model_zookeeper_tree import (
    DELETED,
    UNIMPLEMENTED,
    Change,
    ModelNode,
    Refused,
    Transaction,
    apply,
    found,
    put_stat,
    root,
)
from model_zookeeper_watches import Watches
from model_zookeeper_writes import (
    WRITES,
    answered,
    creation,
    deletion,
    planned,
    take_all_asked,
    take_asked,
    together,
)

from magnetar.io.interfaces import Loop, Transport
from magnetar.metadata.zookeeper.messages import (
    EVENT_XID,
    JuteReader,
    Operation,
    put_bytes,
    put_int,
    put_long,
    put_text,
)

_WATCH_STATE = 3
"""SyncConnected."""
LATE_SECONDS = (0.002, 0.05, 0.5)
"""By how much servers typically hear of a change late."""
LEADER_SERVES = 0.5
"""Of the ensembles have clients connect also with the server that all changes are made at."""
LATEST_SECONDS = 1.5
"""No server hears of a change later."""
_LOST = 0.4
"""Of the answers that come late, while answers get lost."""


@dataclass
class ModelSession:
    number: int
    timeout: float
    heard_at: float
    connection: ServerConnection | None = None

    @property
    def password(self) -> bytes:
        return b"password" + self.number.to_bytes(8, "big")


class ModelZooKeeper:
    """Where its connections meet: one server, or several after :meth:`spread`.

    ``nodes`` are as the last commit left them. ``min_timeout`` and ``max_timeout`` bound what
    sessions get, in seconds: as shipped, 2 and 20 ticks of 2 seconds.
    """

    def __init__(self, loop: Loop, min_timeout: float = 4.0, max_timeout: float = 40.0) -> None:
        self.loop = loop
        self.min_timeout, self.max_timeout = min_timeout, max_timeout
        self.nodes = root()
        self.sessions: dict[int, ModelSession] = {}
        self.expired: list[tuple[int, float]] = []
        """Sessions that ended by time, and when."""
        self.connections: list[ServerConnection] = []
        self.zxid = 0
        self.deleting: Callable[[str, ModelNode, int], None] | None = None
        """Told of each node that a session's client deletes: path, node, number of the session."""
        self.silent = False
        """Requests are read and not answered, as of a server that was stopped."""
        self.losing = 0
        """How many faults last by which connections end between a change and its answer."""
        self._lasting = loop
        """Servers hear of each other's changes though the process that :attr:`loop` is of has ended."""
        self._replicas = [Replica(loop, self.nodes, 0, self._applied)]
        self._serving = self._replicas
        self._random: Random | None = None
        self._made = 0x1000

    def spread(self, random: Random, others: int = 2) -> None:
        """From now on connections come to any of several servers; ``others`` of them hear of changes late."""
        self._random = random
        for _ in range(others):
            typical = random.choice(LATE_SECONDS)

            def lag(typical: float = typical) -> float:
                return min(LATEST_SECONDS, typical * random.expovariate(1.0))

            self._replicas.append(Replica(self._lasting, self.nodes, self.zxid, self._applied, lag))
        if random.random() >= LEADER_SERVES:
            self._serving = self._replicas[1:]

    @property
    def several(self) -> bool:
        return len(self._replicas) > 1

    def all_know(self, path: str, at: float) -> bool:
        """Whether every server knew of a node that is there at a time, in seconds."""
        return not self.several or at > self.nodes[path].created_ms / 1000 + LATEST_SECONDS

    def loses_answer(self) -> bool:
        """Whether the connection ends on which the next change should be answered."""
        return self._random is not None and self.losing > 0 and self._random.random() < _LOST

    def settle(self, loop: Loop) -> None:
        """All servers know everything, and go on in another loop."""
        self._lasting = loop
        for replica in self._replicas:
            replica.settle(loop)

    def replica(self) -> Replica:
        """Of the server that a new connection comes to."""
        return self._serving[0] if self._random is None else self._random.choice(self._serving)

    def speak(self) -> None:
        """Answers what was read while it was silent."""
        self.silent = False
        for connection in list(self.connections):
            connection.go_on()

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
        granted = max(self.min_timeout, min(timeout, self.max_timeout))
        session = ModelSession(self._made, granted, self.loop.time())
        self.sessions[session.number] = session
        self.commit()
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
        owned = [path for path, node in self.nodes.items() if node.owner == session.number]
        self.commit(*(Change(DELETED, path) for path in owned))
        if session.connection is not None:
            session.connection.drop()

    def drop_connections(self) -> None:
        for connection in list(self.connections):
            connection.drop()

    def commit(self, *changes: Change, now_ms: int = 0) -> None:
        """:param now_ms: when, where somebody has been told already; 0: now"""
        self.zxid += 1
        transaction = Transaction(self.zxid, now_ms or self.now_ms(), changes)
        apply(self.nodes, transaction)
        for replica in self._replicas:
            replica.hear(transaction)

    def _applied(self, replica: Replica, transaction: Transaction) -> None:
        for connection in list(self.connections):
            if connection.replica is replica:
                connection.on_applied(transaction)

    def create(self, path: str, value: bytes, flags: int, owner: int) -> None:
        """:raises Refused: it cannot be made"""
        self.commit(creation(self.nodes, path, value, flags, owner))

    def delete(self, path: str, version: int) -> None:
        """:raises Refused: it cannot be deleted"""
        self.commit(deletion(self.nodes, path, version))

    def write(self, operation: int, reader: JuteReader, session: int) -> bytes:
        """:raises Refused: the operation fails; that takes a number in the order of changes, too"""
        if operation == Operation.MULTI:
            steps, now_ms = take_all_asked(reader), self.now_ms()
            changes, answer = together(self.nodes, self.zxid + 1, now_ms, steps, session)
            self._commit_of(session, changes, now_ms)
            return answer
        asked = take_asked(operation, reader)
        try:
            change = planned(self.nodes, asked, session)
        except Refused:
            self.commit()
            raise
        assert change is not None
        self._commit_of(session, [change])
        return answered(self.nodes, asked, change)

    def _commit_of(self, session: int, changes: Sequence[Change], now_ms: int = 0) -> None:
        """What a session's client asked for."""
        gone = [(each.path, self.nodes.get(each.path)) for each in changes if each.kind == DELETED]
        self.commit(*changes, now_ms=now_ms)
        for path, node in gone:
            # None: it was made by the same request.
            if self.deleting is not None and node is not None:
                self.deleting(path, node, session)


class ServerConnection:
    """A ``StreamProtocol``: the server's end of one connection."""

    def __init__(self, ensemble: ModelZooKeeper) -> None:
        self._ensemble = ensemble
        self._received = bytearray()
        self._transport: Any = None
        self._answers: deque[tuple[int, Callable[[], bytes]]] = deque()
        """In the order they were asked for; each is made when its server knows of that transaction."""
        self._ends = False
        """With the last of them."""
        self.replica = ensemble.replica()
        self.session: ModelSession | None = None
        self.watches = Watches()

    def connection_made(self, transport: Transport) -> None:
        self._transport = transport
        self._ensemble.connections.append(self)

    def drop(self) -> None:
        if self in self._ensemble.connections:
            self._ensemble.connections.remove(self)
            self._transport.abort()

    def on_applied(self, transaction: Transaction) -> None:
        """Its server has heard of a transaction."""
        for change in transaction.changes:
            for kind, path in self.watches.events(change):
                self._tell(transaction.zxid, kind, path)
        self._answer()

    def _tell(self, zxid: int, kind: int, path: str) -> None:
        out = bytearray()
        put_int(out, kind)
        put_int(out, _WATCH_STATE)
        put_text(out, path)
        self._send(_packet(EVENT_XID, zxid, 0, out))

    def data_received(self, data: bytes) -> None:
        self._received += data
        self.go_on()

    def go_on(self) -> None:
        """Changes what it was asked to, and answers what it can by now."""
        ensemble = self._ensemble
        while not ensemble.silent and not self._ends and self in ensemble.connections:
            packet = self._next()
            if packet is None:
                break
            self._take(JuteReader(packet))
            self._answer()
        self._answer()

    def _next(self) -> bytes | None:
        if len(self._received) < 4:
            return None
        (length,) = struct.unpack_from(">i", self._received)
        if len(self._received) < 4 + length:
            return None
        packet = bytes(self._received[4 : 4 + length])
        del self._received[: 4 + length]
        return packet

    def _answer(self) -> None:
        ensemble = self._ensemble
        while self._answers and not ensemble.silent and self in ensemble.connections:
            zxid, make = self._answers[0]
            if zxid > self.replica.zxid:
                return
            self._answers.popleft()
            self._send(make())
            if self._ends and not self._answers:
                self._transport.close()

    def _take(self, reader: JuteReader) -> None:
        ensemble, session = self._ensemble, self.session
        if session is None:
            self._greet(reader)
            return
        xid, operation = reader.take_int(), reader.take_int()
        session.heard_at = ensemble.loop.time()
        if operation == Operation.CLOSE_SESSION:
            session.connection = None
            ensemble.end_session(session)
            self._ends = True
            self._say(ensemble.zxid, _packet(xid, ensemble.zxid))
        elif operation not in WRITES:
            self._answers.append((0, partial(self._read_packet, xid, operation, reader)))
        else:
            # It is done where all changes are, whatever this server knows.
            error, body = 0, b""
            try:
                body = ensemble.write(operation, reader, session.number)
            except Refused as refused:
                error = refused.args[0]
            self._say(ensemble.zxid, _packet(xid, ensemble.zxid, error, body))

    def _read_packet(self, xid: int, operation: int, reader: JuteReader) -> bytes:
        zxid = 0 if operation == Operation.AUTH else self.replica.zxid
        try:
            return _packet(xid, zxid, 0, self._read(operation, reader))
        except Refused as refused:
            return _packet(xid, zxid, refused.args[0])

    def _read(self, operation: int, reader: JuteReader) -> bytes:
        """:raises Refused: the operation fails"""
        out = bytearray()
        nodes = self.replica.nodes
        if operation in (Operation.PING, Operation.AUTH):
            return b""
        if operation == Operation.SET_WATCHES2:
            last_zxid = reader.take_long()
            data, absent, children, persistent, recursive = (reader.take_texts() for _ in range(5))
            for event in self.watches.resume(nodes, last_zxid, data, absent, children):
                self._tell(-1, *event)
            self.watches.persistent.update(persistent)
            self.watches.recursive.update(recursive)
            return b""
        path = reader.take_text()
        if operation == Operation.ADD_WATCH:
            self.watches.add(path, reader.take_int())
            put_int(out, 0)
            return bytes(out)
        watches = reader.take_bool()
        if operation == Operation.EXISTS and watches:
            self.watches.data.add(path)
        node = found(nodes, path)
        if operation == Operation.GET_CHILDREN:
            put_int(out, len(node.children))
            for child in node.children:
                put_text(out, child.rpartition("/")[2])
            if watches:
                self.watches.children.add(path)
            return bytes(out)
        if operation == Operation.GET_DATA:
            put_bytes(out, node.value)
            if watches:
                self.watches.data.add(path)
        elif operation != Operation.EXISTS:
            raise Refused(UNIMPLEMENTED)
        put_stat(out, node)
        return bytes(out)

    def _greet(self, reader: JuteReader) -> None:
        ensemble = self._ensemble
        reader.take_int()
        if reader.take_long() > self.replica.zxid:
            # It has seen what this server has not: it should ask another one.
            self.drop()
            return
        timeout, number, password = reader.take_int() / 1000, reader.take_long(), reader.take_bytes()
        session = ensemble.open_session(number, timeout)
        if session is not None and session.connection is not None:
            session.connection.drop()
        if session is not None and number and password != session.password:
            session = None
        out = bytearray()
        put_int(out, 0)
        put_int(out, int(session.timeout * 1000) if session else 0)
        put_long(out, session.number if session else 0)
        put_bytes(out, session.password if session else bytes(16))
        out.append(0)
        if session is None:
            self._ends = True
            self._say(self.replica.zxid, out)
            return
        session.heard_at = ensemble.loop.time()
        self.session = session
        session.connection = self
        self._say(self.replica.zxid if number else ensemble.zxid, out)

    def _say(self, zxid: int, packet: bytes | bytearray) -> None:
        """When its server knows of that transaction."""
        if zxid > self.replica.zxid and self._ensemble.loses_answer():
            self.drop()
        else:
            self._answers.append((zxid, lambda: bytes(packet)))

    def _send(self, packet: bytes | bytearray) -> None:
        self._transport.write(struct.pack(">i", len(packet)) + bytes(packet))

    def eof_received(self) -> bool | None:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self._ensemble.connections:
            self._ensemble.connections.remove(self)

    def pause_writing(self) -> None:
        """What is said is small."""

    def resume_writing(self) -> None:
        """See :meth:`pause_writing`."""


def _packet(xid: int, zxid: int, error: int = 0, body: bytes | bytearray = b"") -> bytes:
    out = bytearray()
    put_int(out, xid)
    put_long(out, zxid)
    put_int(out, error)
    return bytes(out + body)
