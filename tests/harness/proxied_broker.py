"""``magnetar broker`` behind wires that a test can cut: one to ZooKeeper, one to each bookie."""

from __future__ import annotations

from pathlib import Path

from bookkeeper_servers import BookKeeperServers
from cluster_broker import BrokerProcess
from tcp_proxy import TcpProxy

_PROGRAM = Path(__file__).parent / "behind_proxies.py"


class Wires:
    """From one broker to the servers of a test."""

    def __init__(self, servers: BookKeeperServers) -> None:
        self.zookeeper = TcpProxy(servers.zookeeper.port)
        self.bookies = [TcpProxy(bookie.port) for bookie in servers.bookies]

    @property
    def all(self) -> list[TcpProxy]:
        return [self.zookeeper, *self.bookies]

    def to_bookie(self, port: int) -> TcpProxy:
        """The wire to a bookie; one that has come since gets one with the broker's next start."""
        for wire in self.bookies:
            if wire.target == port:
                return wire
        self.bookies.append(TcpProxy(port))
        return self.bookies[-1]

    def heal(self) -> None:
        for wire in self.all:
            wire.heal()

    def close(self) -> None:
        for wire in self.all:
            wire.close()


class ProxiedBroker(BrokerProcess):
    def __init__(self, folder: Path, servers: BookKeeperServers, **settings: int | str) -> None:
        super().__init__(folder, servers, **settings)
        self.wires = Wires(servers)
        self._servers = servers

    def start(self) -> None:
        for bookie in self._servers.bookies:
            self.wires.to_bookie(bookie.port)
        ports = ",".join(f"{wire.target}={wire.port}" for wire in self.wires.all)
        self.program = [str(_PROGRAM), ports]
        super().start()

    def close(self) -> None:
        super().close()
        self.wires.close()
