"""TCP between simulated processes: delayed, cut into pieces, lost or reset as the seed decides.

A :class:`SimulatedNetwork` connects the hosts of one timeline; each process gets a :class:`SimulatedHost`,
which is its :class:`magnetar.io.interfaces.Network`. Bytes of one direction arrive in order, once, or not at
all.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from itertools import pairwise
from random import Random

from magnetar.io.interfaces import Future, StreamProtocol
from simulated_io.endpoint import Conditions, Endpoint
from simulated_io.loop import SimulatedLoop

_FIRST_FREE_PORT = 40_000
_SINGLE_BYTES = 3000
"""Of each connection; later bytes are cut into larger pieces, for the speed of the simulation."""


def _pass(waited_for: Future[object]) -> None:
    # The waiter may just have been cancelled.
    if not waited_for.done():
        waited_for.set_result(None)


class Link:
    """One connection: two endpoints and what happens between them."""

    def __init__(self, network: SimulatedNetwork, number: int, conditions: Conditions) -> None:
        self.network = network
        self.loop = network.loop
        self.number = number
        self.conditions = conditions
        # Separate randomness, so that the course of one connection does not affect others.
        self.random = Random(network.random.getrandbits(64))
        self.silent = False
        """Nothing arrives any more, and neither side is notified."""
        self.ending = False
        """The connection was reset: data on their way may still arrive, and nothing more is sent."""
        self.ends: list[Endpoint] = []
        self.hosts: frozenset[str] = frozenset()
        """The names of both hosts."""
        self._single_bytes = _SINGLE_BYTES
        self._flights_left = -1
        if self.random.random() < conditions.cut:
            self._flights_left = 1 + int(conditions.longest_life * self.random.random() ** 2)

    def delay(self) -> float:
        return self.random.random() * self.conditions.latency

    def flight(self) -> bool:
        """Counts a flight; returns True if the connection ends with it."""
        self._flights_left -= 1
        return self._flights_left == 0

    def pieces(self, data: bytes) -> list[bytes]:
        """Returns the pieces in which one flight arrives."""
        most = self.conditions.pieces
        if most == 1 or len(data) < 2:
            return [data]
        if most == 0:
            if len(data) <= self._single_bytes:
                self._single_bytes -= len(data)
                return [data[i : i + 1] for i in range(len(data))]
            most = 20
        cuts = {self.random.randrange(1, len(data)) for _ in range(self.random.randrange(most))}
        places = [0, *sorted(cuts), len(data)]
        return [data[a:b] for a, b in pairwise(places)]

    def reset(self) -> None:
        """Breaks the connection; each side is notified at its own time."""
        self.ending = True
        for end in self.ends:
            self.loop.call_later(self.delay(), end.broken)

    def gone(self) -> None:
        """Both sides have been notified of the end."""
        self.network.links.pop(self.number, None)


class SimulatedListener:
    def __init__(self, host: SimulatedHost, port: int, factory: Callable[[], StreamProtocol]) -> None:
        self.host = host.name
        self.port = port
        self.factory = factory
        self.process = host
        self._network = host.network

    def close(self) -> None:
        address = (self.host, self.port)
        if self._network.listeners.get(address) is self:
            del self._network.listeners[address]


class SimulatedNetwork:
    """:param loop: of the world, which outlives every process"""

    def __init__(self, loop: SimulatedLoop, seed: int, conditions: Conditions | None = None) -> None:
        self.loop = loop
        self.random = Random(seed)
        self.conditions = conditions if conditions is not None else Conditions()
        self.listeners: dict[tuple[str, int], SimulatedListener] = {}
        self.links: dict[int, Link] = {}
        """Connections by number, in the order of their creation."""
        self._separated: dict[frozenset[str], list[Link]] = {}
        self.watch: Callable[[int, str, int], None] | None = None
        """Called with events: the connection's number, the event, a number of bytes."""
        self._made = 0
        self._free_port = _FIRST_FREE_PORT

    def host(self, loop: SimulatedLoop, name: str) -> SimulatedHost:
        """Returns the network as one process sees it.

        :param loop: of the process, which handles what arrives there
        """
        return SimulatedHost(self, loop, name)

    def take_port(self) -> int:
        self._free_port += 1
        return self._free_port

    def told(self, link: Link, what: str, size: int = 0) -> None:
        if self.watch is not None:
            self.watch(link.number, what, size)

    def separate(self, one: str, other: str) -> None:
        """From now on nothing gets from one host to the other, or back, and neither is notified."""
        hosts = frozenset((one, other))
        if hosts in self._separated:
            return
        links = self.links.values()
        self._separated[hosts] = [link for link in links if link.hosts == hosts and not link.silent]
        for link in self._separated[hosts]:
            link.silent = True

    def rejoin(self, one: str, other: str) -> None:
        """Ends the separation; earlier connections break when they are used."""
        for link in self._separated.pop(frozenset((one, other)), ()):
            link.silent = False
            link.reset()

    def separated(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self._separated

    def answers(self, address: tuple[str, int]) -> bool:
        """Whether a host listens at the address."""
        return address in self.listeners

    def open_link(
        self, client: SimulatedHost, factory: Callable[[], StreamProtocol], listener: SimulatedListener
    ) -> Endpoint:
        """Makes both ends at the same time; each side is notified in its own loop."""
        self._made += 1
        link = Link(self, self._made, self.conditions)
        self.links[link.number] = link
        link.hosts = frozenset((client.name, listener.host))
        near_address, far_address = (client.name, self.take_port()), (listener.host, listener.port)
        near = Endpoint(link, client.loop, near_address, far_address)
        far = Endpoint(link, listener.process.loop, far_address, near_address)
        near.peer, far.peer = far, near
        link.ends = [near, far]
        client.ends.append(near)
        listener.process.ends.append(far)
        self.told(link, "made")
        listener.process.loop.call_soon(far.begin, listener.factory)
        near.begin(factory)
        return near


class SimulatedHost:
    """The network of one process: see :class:`magnetar.io.interfaces.Network`."""

    def __init__(self, network: SimulatedNetwork, loop: SimulatedLoop, name: str) -> None:
        self.network = network
        self.loop = loop
        self.name = name
        self.ends: list[Endpoint] = []
        self._listeners: list[SimulatedListener] = []

    async def listen(self, host: str, port: int, factory: Callable[[], StreamProtocol]) -> SimulatedListener:
        """Listens under this process's name, whatever ``host`` is."""
        port = port or self.network.take_port()
        address = (self.name, port)
        if address in self.network.listeners:
            raise OSError(errno.EADDRINUSE, "the address is in use")
        listener = SimulatedListener(self, port, factory)
        self.network.listeners[address] = listener
        self._listeners.append(listener)
        return listener

    async def connect(
        self, host: str, port: int, factory: Callable[[], StreamProtocol]
    ) -> tuple[Endpoint, StreamProtocol]:
        network = self.network
        conditions = network.conditions
        luck = network.random.random()
        passed = self.loop.create_future()
        unanswered = luck < conditions.unanswered or network.separated(self.name, host)
        delay = conditions.connect_timeout if unanswered else network.random.random() * conditions.latency
        timer = self.loop.call_later(delay, _pass, passed)
        try:
            await passed
        finally:
            timer.cancel()
        if unanswered or network.separated(self.name, host):
            raise TimeoutError(errno.ETIMEDOUT, f"no answer from {host}:{port}")
        listener = network.listeners.get((host, port))
        if listener is None or luck < conditions.unanswered + conditions.refused:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{host}:{port} refuses")
        end = network.open_link(self, factory, listener)
        return end, end.protocol

    def ends_open(self) -> int:
        """The connections of this process that have not ended."""
        self.ends = [end for end in self.ends if not end.lost]
        return len(self.ends)

    def die(self, *, silently: bool) -> None:
        """The process has ended: its listeners are closed, and it gets no more events.

        :param silently: as in a power loss of the machine: the other sides are not notified
        """
        for listener in self._listeners:
            listener.close()
        for end in self.ends:
            end.die(silently=silently)
        self.ends.clear()
