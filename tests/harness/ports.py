"""Ports of servers that tests start, end and start again."""

from __future__ import annotations

import random
import socket
import time
from pathlib import Path

_LOWEST = 15_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""The ports that the kernel gives to connections of clients, and to listeners that ask for any port."""


def free_port() -> int:
    """A port that nothing listens on, and that the kernel gives to no connection until it is used."""
    first = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    while True:
        port = random.SystemRandom().randrange(min(_LOWEST, first - 1000), first)
        try:
            held(port).close()
        except OSError:
            continue
        return port


def held(port: int) -> socket.socket:
    """Keeps a port, while its server does not run, for that server alone: it can still listen there.

    :raises OSError: something listens there
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        holder.bind(("127.0.0.1", port))
    except OSError:
        holder.close()
        raise
    return holder


def held_after_end(port: int, seconds: float = 10.0) -> socket.socket:
    """Like :func:`held`, for the port of a server that has just ended.

    A process that the server was starting when it was killed has the server's listeners until it executes its
    own program.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return held(port)
        except OSError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(0.01)
