"""Servers that run while a test needs them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Protocol


class _Startable(Protocol):
    def start(self) -> None: ...

    def close(self) -> None: ...


@contextmanager
def running(servers: Sequence[_Startable]) -> Iterator[None]:
    """Starts servers in order; ends all of them, also if one did not start or another cleanup fails.

    A broker that outlives its test would take part in the cluster of the tests after it.
    """
    with ExitStack() as ends:
        for server in servers:
            ends.callback(server.close)
            server.start()
        yield
