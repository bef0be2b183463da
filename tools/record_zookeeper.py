"""Records answers of Apache ZooKeeper for the test of its model: `python tools/record_zookeeper.py FILE`.

Each line of the file belongs to one connection: ``connect NAME``, ``cut NAME``, ``wait MILLISECONDS``,
``ask NAME what packet``, and ``told NAME packet`` or ``ended NAME`` for the results. Packets are hexadecimal,
without their length. When a session is resumed, its number and password are those from the server.
"""

from __future__ import annotations

import select
import socket
import struct
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests" / "harness"))
from zookeeper_server import ZooKeeperServer

from magnetar.metadata.zookeeper import messages
from magnetar.metadata.zookeeper.messages import Operation, multi, put_bool, put_int, put_long, put_text

_ANSWER_SECONDS = 30.0
_QUIET_SECONDS = 0.1
"""Time after an answer in which its events on other connections arrive."""
_TICK_MS = 2000
_SESSION_MS = 30_000
_PERSISTENT, _RECURSIVE = 0, 1


class Recorder:
    """Records named connections to one server."""

    def __init__(self, port: int) -> None:
        self.lines: list[str] = []
        self._port = port
        self._sockets: dict[str, socket.socket] = {}
        self._received: dict[str, bytes] = {}
        self._xid = 0

    def connect(self, name: str, greeting: bytes, what: str) -> messages.Greeting | None:
        """Connects; None: the server closed the connection without an answer."""
        self.lines.append(f"connect\t{name}")
        self._sockets[name] = socket.create_connection(("127.0.0.1", self._port))
        self._received[name] = b""
        packets = self._send(name, what, greeting)
        return messages.greeting(packets[0]) if packets else None

    def ask(self, name: str, what: str, operation: Operation, packet: bytes, xid: int = 0) -> None:
        self._xid += 1
        self._send(name, what, messages.header(xid or self._xid, operation) + packet)

    def cut(self, name: str) -> None:
        self.lines.append(f"cut\t{name}")
        self._sockets.pop(name).close()
        self._listen()

    def wait(self, seconds: float) -> None:
        self.lines.append(f"wait\t{seconds * 1000:.0f}")
        time.sleep(seconds)
        self._listen()

    def _send(self, name: str, what: str, packet: bytes) -> list[bytes]:
        self.lines.append(f"ask\t{name}\t{what}\t{packet.hex()}")
        self._sockets[name].sendall(struct.pack(">i", len(packet)) + packet)
        select.select([self._sockets[name]], [], [], _ANSWER_SECONDS)
        return self._listen().get(name, [])

    def _listen(self) -> dict[str, list[bytes]]:
        """Returns the packets of each connection until no more arrive."""
        ended = set()
        while ready := select.select(list(self._sockets.values()), [], [], _QUIET_SECONDS)[0]:
            for name in [name for name, each in self._sockets.items() if each in ready]:
                piece = self._sockets[name].recv(65536)
                self._received[name] += piece
                if not piece:
                    self._sockets.pop(name).close()
                    ended.add(name)
        told = {name: self._packets(name) for name in sorted(self._received)}
        for name, packets in told.items():
            self.lines += [f"told\t{name}\t{packet.hex()}" for packet in packets]
            if name in ended:
                self.lines.append(f"ended\t{name}")
        return told

    def _packets(self, name: str) -> list[bytes]:
        found = []
        while len(self._received[name]) >= 4:
            (length,) = struct.unpack_from(">i", self._received[name])
            if len(self._received[name]) < 4 + length:
                break
            found.append(self._received[name][4 : 4 + length])
            self._received[name] = self._received[name][4 + length :]
        return found


def watching(path: str) -> bytes:
    """Returns a read with a one-time watch."""
    into = bytearray()
    put_text(into, path)
    put_bool(into, True)
    return bytes(into)


def add_watch(path: str, mode: int) -> bytes:
    into = bytearray()
    put_text(into, path)
    put_int(into, mode)
    return bytes(into)


def set_watches(last_zxid: int, *kinds: list[str]) -> bytes:
    """Returns a request that sets watches: of data, missing nodes, children, persistent, recursive."""
    into = bytearray()
    put_long(into, last_zxid)
    for paths in kinds:
        put_int(into, len(paths))
        for path in paths:
            put_text(into, path)
    return bytes(into)


def conversation(recorder: Recorder) -> None:
    first = recorder.connect("a", messages.connect(0, _SESSION_MS, 0, bytes(16)), "a session")
    assert first is not None
    changes(recorder)
    watches(recorder)
    several_at_once(recorder)
    sessions(recorder, first)


def changes(recorder: Recorder) -> None:
    def create(what: str, path: str, value: bytes = b"", **kind: bool) -> None:
        recorder.ask("a", what, Operation.CREATE2, messages.create(path, value, **kind))

    def read(what: str, path: str) -> None:
        for operation in (Operation.EXISTS, Operation.GET_DATA, Operation.GET_CHILDREN):
            recorder.ask("a", f"{operation.name.lower()} {what}", operation, messages.read(path))

    def put(what: str, path: str, value: bytes, version: int) -> None:
        recorder.ask("a", what, Operation.SET_DATA, messages.set_data(path, value, version))

    def delete(what: str, path: str, version: int) -> None:
        recorder.ask("a", what, Operation.DELETE, messages.delete(path, version))

    create("a node", "/t", b"one")
    create("the same again", "/t", b"two")
    create("below one that is missing", "/x/y")
    create("an ephemeral one", "/t/ephemeral", b"e", ephemeral=True)
    create("below an ephemeral one", "/t/ephemeral/x")
    create("with a number", "/t/n-", sequential=True)
    create("with the next number", "/t/n-", sequential=True, ephemeral=True)
    read("of one with children", "/t")
    read("of an ephemeral one", "/t/ephemeral")
    read("of one that is missing", "/t/none")
    put("of its version", "/t", b"three", 0)
    put("of a version before", "/t", b"four", 0)
    put("of any version", "/t", b"five!", -1)
    put("of one that is missing", "/t/none", b"", -1)
    delete("one with children", "/t", -1)
    delete("of another version", "/t/n-0000000001", 5)
    delete("of its version", "/t/n-0000000001", 0)
    delete("one that is missing", "/t/n-0000000001", -1)
    delete("the root", "/", -1)
    create("with a number after a deletion", "/t/n-", sequential=True)
    read("after all that", "/t")
    recorder.ask("a", "ping", Operation.PING, b"", xid=messages.PING_XID)
    digest = messages.auth("digest", b"user:password")
    recorder.ask("a", "a name and a password", Operation.AUTH, digest, xid=messages.AUTH_XID)


def watches(recorder: Recorder) -> None:
    recorder.connect("b", messages.connect(0, _SESSION_MS, 0, bytes(16)), "another session")
    for what, operation, path in (
        ("data", Operation.GET_DATA, "/t"),
        ("one that is missing", Operation.EXISTS, "/t/new"),
        ("data that is missing", Operation.GET_DATA, "/t/newer"),
        ("children", Operation.GET_CHILDREN, "/t"),
    ):
        recorder.ask("b", f"watch {what}", operation, watching(path))
    every = add_watch("/t", _RECURSIVE)
    recorder.connect("c", messages.connect(0, _SESSION_MS, 0, bytes(16)), "a third session")
    recorder.ask("c", "watch all below", Operation.ADD_WATCH, every)
    recorder.connect("d", messages.connect(0, _SESSION_MS, 0, bytes(16)), "a fourth session")
    recorder.ask("d", "watch for good", Operation.ADD_WATCH, add_watch("/t", _PERSISTENT))
    for value in (b"1", b"2"):
        recorder.ask("a", "change it", Operation.SET_DATA, messages.set_data("/t", value, -1))
    for path in ("/t/new", "/t/newer", "/t/new/below"):
        recorder.ask("a", "make one", Operation.CREATE2, messages.create(path, b""))
    recorder.ask("b", "watch the children of another", Operation.GET_CHILDREN, watching("/t/new/below"))
    recorder.ask("b", "watch it, too", Operation.GET_DATA, watching("/t/new/below"))
    for path in ("/t/new/below", "/t/new"):
        recorder.ask("a", "delete one", Operation.DELETE, messages.delete(path, -1))
    recorder.ask("c", "change it", Operation.SET_DATA, messages.set_data("/t", b"3", -1))


def several_at_once(recorder: Recorder) -> None:
    def create(path: str, value: bytes = b"", **kind: bool) -> tuple[Operation, bytes]:
        return Operation.CREATE2, messages.create(path, value, **kind)

    def put(path: str, value: bytes, version: int) -> tuple[Operation, bytes]:
        return Operation.SET_DATA, messages.set_data(path, value, version)

    def delete(path: str, version: int) -> tuple[Operation, bytes]:
        return Operation.DELETE, messages.delete(path, version)

    def check(path: str, version: int) -> tuple[Operation, bytes]:
        return Operation.CHECK, messages.delete(path, version)

    def ask(what: str, *operations: tuple[Operation, bytes]) -> None:
        recorder.ask("a", what, Operation.MULTI, multi(operations))

    ask("nothing at all")
    ask("a node and two below it", create("/m", b"1"), create("/m/a"), create("/m/b", b"2", ephemeral=True))
    ask("one of each", check("/m", 0), put("/m", b"3", 0), delete("/m/a", 0), create("/m/c", b"4"))
    ask("one twice", put("/m", b"5", 1), put("/m", b"6", 2), check("/m", 3))
    ask("numbers", create("/m/n-", sequential=True), create("/m/n-", sequential=True, ephemeral=True))
    ask("one deleted and made again", delete("/m/c", -1), create("/m/c", b"7"))
    ask("a child made and deleted", create("/m/c/d"), delete("/m/c/d", 0))
    ask("the first of another version", check("/m", 9), delete("/m/c", -1))
    ask("the middle one missing", put("/m", b"8", 3), delete("/m/none", -1), create("/m/e"))
    ask("the last one there", create("/m/e"), delete("/m/c", -1), create("/m/b"))
    ask("one with children", delete("/m/c", -1), delete("/m", -1))
    ask("below one that is missing", create("/m/x/y"))
    ask("below an ephemeral one", delete("/m/c", -1), create("/m/b/x"), create("/m/b/y"))
    ask("a node that is not there, of a version", put("/m/none", b"", 3), check("/m/none", -1))
    ask("checked and missing", check("/m/none", 0))
    ask("any version", check("/m", -1), put("/m", b"9", -1))
    ask("the root", delete("/m/c", 0), delete("/", -1))
    recorder.ask("a", "the children after all that", Operation.GET_CHILDREN, messages.read("/m"))
    recorder.ask("a", "the node after all that", Operation.GET_DATA, messages.read("/m"))


def sessions(recorder: Recorder, first: messages.Greeting) -> None:
    again = messages.connect(1, _SESSION_MS, first.session_id, first.password)
    recorder.cut("a")
    recorder.connect("e", again, "the first session again")
    kinds = ["/t", "/t/none"], ["/t/none", "/t/newer"], ["/t", "/t/newer"], ["/t"], ["/t/ephemeral"]
    packet = set_watches(1, *kinds)
    recorder.ask("e", "watches of before", Operation.SET_WATCHES2, packet, xid=messages.SET_WATCHES_XID)
    recorder.ask("e", "change it", Operation.SET_DATA, messages.set_data("/t", b"4", -1))
    recorder.ask("e", "make one", Operation.CREATE2, messages.create("/t/none", b""))
    wrong = messages.connect(0, _SESSION_MS, first.session_id, b"?" * 16)
    recorder.connect("f", wrong, "the first session with another password")
    ahead = messages.connect(1 << 40, _SESSION_MS, first.session_id, first.password)
    recorder.connect("g", ahead, "a session that has seen more than the server")
    recorder.connect("h", again, "the first session, taken from a connection that stands")
    recorder.ask("h", "the end of the session", Operation.CLOSE_SESSION, b"")
    recorder.connect("i", again, "a session that has ended")
    recorder.connect("j", messages.connect(0, 2000, 0, bytes(16)), "a short session")
    ephemeral = messages.create("/t/short", b"", ephemeral=True)
    recorder.ask("j", "an ephemeral node", Operation.CREATE2, ephemeral)
    recorder.cut("j")
    recorder.wait(7.0)


def main(file: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = ZooKeeperServer(Path(folder), _TICK_MS)
        try:
            server.start()
            recorder = Recorder(server.port)
            conversation(recorder)
        finally:
            server.close()
    file.write_text("\n".join(recorder.lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
