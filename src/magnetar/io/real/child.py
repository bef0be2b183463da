"""What runs in a process of its own: it answers questions that come through its standard input, a socket.

A question is its length and its bytes; an answer is how it was answered, its length and its bytes. When the
other side is gone, however it went, there is nothing to be read any more, and the process ends.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
from importlib import import_module
from typing import cast

from magnetar.io.interfaces import Service
from magnetar.io.real.disk import RealDisk
from magnetar.io.real.memory import keep_freed_buffers
from magnetar.io.serving import answer_to

QUESTION = struct.Struct("<I")
ANSWER = struct.Struct("<BI")

BUFFER_BYTES = 1 << 20
"""Of the socket, on either side, where the system allows as much."""

_NICENESS = 10
"""Publishing goes first; where nobody else wants the processor it changes nothing."""


def service_name(service: Service) -> str:
    """What :func:`main` finds a service by."""
    return f"{service.__module__}:{service.__qualname__}"


def _service(name: str) -> Service:
    module, _, function = name.partition(":")
    return cast(Service, getattr(import_module(module), function))


def _whole(connection: socket.socket, length: int) -> bytes | None:
    """So many bytes; None when the other side is gone."""
    data = connection.recv(length, socket.MSG_WAITALL)
    if len(data) == length:
        return data
    pieces = [data]
    while data and length > (got := sum(map(len, pieces))):
        data = connection.recv(length - got, socket.MSG_WAITALL)
        pieces.append(data)
    return b"".join(pieces) if data else None


def answer_all(connection: socket.socket, service: Service, root: str) -> None:
    """Answers questions until the other side is gone."""
    answer = service(RealDisk(root))
    while (header := _whole(connection, QUESTION.size)) is not None:
        question = _whole(connection, QUESTION.unpack(header)[0])
        if question is None:
            return
        how, parts = answer_to(question, answer)
        size = sum(len(part) for part in parts)
        connection.sendall(b"".join((ANSWER.pack(how, size), *parts)))


def main(arguments: list[str]) -> int:
    """:param arguments: the name of a service, and the root of its disk"""
    # Whoever stops the whole group from a terminal stops the other side, and with it this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    keep_freed_buffers()
    name, root = arguments
    connection = socket.socket(fileno=os.dup(0))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    try:
        answer_all(connection, _service(name), root)
    except (BrokenPipeError, ConnectionResetError):
        # The other side went while it was answered.
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
