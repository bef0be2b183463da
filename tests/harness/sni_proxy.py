"""A proxy that passes TLS connections on, without decrypting them, by the server name in the handshake."""

from __future__ import annotations

import socket
import threading

_HELLO_BYTES = 16384


class SniProxy:
    """Listens on a free port; ends with :meth:`close`."""

    def __init__(self, targets: dict[str, tuple[str, int]]) -> None:
        """:param targets: host and port by server name"""
        self._targets = targets
        self.names: list[str] = []
        """The names that clients asked for, in their order; empty: none."""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self._open.append(client)
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        hello = b""
        while len(hello) < 5 or len(hello) < 5 + int.from_bytes(hello[3:5]):
            data = client.recv(_HELLO_BYTES)
            if not data:
                client.close()
                return
            hello += data
        name = server_name(hello)
        self.names.append(name)
        target = self._targets.get(name)
        if target is None:
            client.close()
            return
        broker = socket.create_connection(target)
        self._open.append(broker)
        broker.sendall(hello)
        self._start(_copy, broker, client)
        _copy(client, broker)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for each in self._open:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in tuple(self._threads):
            thread.join()
        for each in self._open:
            each.close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        # One of the sides has left, so the other has to.
        for each in (source, target):
            each.close()


def server_name(hello: bytes) -> str:
    """Returns the server name in a TLS record with a ClientHello (RFC 8446, 4.1.2); empty: it has none."""
    at = 5 + 4 + 2 + 32
    at += 1 + hello[at]
    at += 2 + int.from_bytes(hello[at : at + 2])
    at += 1 + hello[at]
    end = at + 2 + int.from_bytes(hello[at : at + 2])
    at += 2
    while at < end:
        kind, size = int.from_bytes(hello[at : at + 2]), int.from_bytes(hello[at + 2 : at + 4])
        if kind == 0:
            length = int.from_bytes(hello[at + 7 : at + 9])
            return hello[at + 9 : at + 9 + length].decode()
        at += 4 + size
    return ""
