"""``magnetar`` with wires in between: ``python behind_proxies.py PORT=OTHER,... COMMAND ...``

What it would connect with at some ports it connects with at others.

Bookies tell their own address, so that a wire cannot be put in front of one by any setting.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from magnetar.cli.magnetar import main
from magnetar.io.interfaces import StreamProtocol, Transport
from magnetar.io.real.network import TcpNetwork


def put_between(ports: dict[int, int]) -> None:
    direct: Any = TcpNetwork.connect

    async def connect(
        network: TcpNetwork, host: str, port: int, factory: Callable[[], StreamProtocol]
    ) -> tuple[Transport, StreamProtocol]:
        made: tuple[Transport, StreamProtocol] = await direct(network, host, ports.get(port, port), factory)
        return made

    TcpNetwork.connect = connect  # type: ignore[method-assign]  # that is the purpose of the program


if __name__ == "__main__":
    pairs = (pair.split("=") for pair in sys.argv[1].split(","))
    put_between({int(port): int(other) for port, other in pairs})
    sys.exit(main(sys.argv[2:]))
