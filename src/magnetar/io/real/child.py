"""The main program of a child process: answers requests from its standard input, which is a socket.

A request is its length and its bytes; an answer is its outcome, its length and its bytes. When the parent has
ended for any reason, the socket is at its end and the process exits.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
from importlib import import_module

from magnetar.io.interfaces import Service
from magnetar.io.real.disk import RealDisk
from magnetar.io.real.memory import keep_freed_buffers
from magnetar.io.serving import answer_to

QUESTION = struct.Struct("<I")
ANSWER = struct.Struct("<BI")

BUFFER_BYTES = 1 << 20
"""The size of the socket's buffer on either side, if the system allows it."""

_NICENESS = 10
"""The niceness of the child, because publishing takes precedence; on an idle processor it has no effect."""


def service_name(service: Service) -> str:
    """Returns the name by which :func:`main` finds a service."""
    return f"{service.__module__}:{service.__qualname__}"


def _whole(connection: socket.socket, length: int) -> bytes | None:
    """Returns ``length`` bytes; None if the parent has ended."""
    data = connection.recv(length, socket.MSG_WAITALL)
    if len(data) == length:
        return data
    pieces = [data]
    while data and length > (got := sum(map(len, pieces))):
        data = connection.recv(length - got, socket.MSG_WAITALL)
        pieces.append(data)
    return b"".join(pieces) if data else None


def answer_all(connection: socket.socket, service: Service, root: str) -> None:
    """Answers requests until the parent has ended."""
    answer = service(RealDisk(root))
    while (header := _whole(connection, QUESTION.size)) is not None:
        question = _whole(connection, QUESTION.unpack(header)[0])
        if question is None:
            return
        how, parts = answer_to(question, answer)
        size = sum(len(part) for part in parts)
        connection.sendall(b"".join((ANSWER.pack(how, size), *parts)))


def main(arguments: list[str]) -> int:
    """Runs a service in this process until the parent closes the connection.

    :param arguments: the name of a service, and the root of its disk
    """
    # A Ctrl-C goes to the whole process group: the parent stops, and this process with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    keep_freed_buffers()
    name, root = arguments
    module, _, function = name.partition(":")
    service: Service = getattr(import_module(module), function)
    connection = socket.socket(fileno=os.dup(0))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    try:
        answer_all(connection, service, root)
    except (BrokenPipeError, ConnectionResetError):
        # The parent ended while the answer was being sent.
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
