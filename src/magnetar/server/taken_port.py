"""Finds the process that uses the port of a server."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LISTENING = "0A"


class PortTaken(OSError):
    """Another process listens on the port; the text names it, and the option that changes the port."""


@contextmanager
def taken_port(kind: str, option: str, port: int) -> Iterator[None]:
    """:raises PortTaken: the body of the ``with`` statement found the port in use"""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        owner = owner_of(port)
        by = f" by {owner}" if owner else ""
        raise PortTaken(f"{kind} port {port} is in use{by}; use {option} 0 for a free port") from error


def owner_of(port: int) -> str | None:
    """Returns id and name of the process that listens on a TCP port; None if the system does not tell."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port)}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(link.readlink()) in sockets for link in (process / "fd").iterdir()):
                name = (process / "comm").read_text("utf-8", "replace").strip()
                return f"process {process.name} ({name})"
        except OSError:
            # The process belongs to another user, or has ended.
            continue
    return None


def _inodes(port: int) -> Iterator[str]:
    """Yields the inodes of sockets that listen on a port, from the kernel's tables."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for fields in (line.split() for line in lines):
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]
