"""Where a broker that closes a producer or a consumer says that its topic is: clients go there at once."""

from __future__ import annotations

from typing import Any, cast

import pytest
from simulated_io import Simulation, simulated_io

from magnetar.client.attachment import Attached, Attachment, Services
from magnetar.client.connection import Connection
from magnetar.client.exceptions import ConnectError, PulsarException
from magnetar.client.lookup import Lookup, TopicBroker
from magnetar.client.pool import ConnectionPool
from magnetar.client.security import Address
from magnetar.client.wire import Assigned, ProducerEnd
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

FIRST, SECOND, THIRD, PROXY = (Address(name, 6650) for name in ("first", "second", "third", "proxy"))


class Pool:
    def __init__(self) -> None:
        self.asked: list[tuple[Address, Address]] = []
        self.unreachable: set[Address] = set()

    async def next(self, broker: Address, through: Address) -> Connection:
        self.asked.append((broker, through))
        if broker in self.unreachable:
            raise ConnectError("nobody answers")
        return cast(Connection, object())


class LookedUp(Lookup):
    """Counts what it is asked."""

    def __init__(self, pool: Pool, *, secured: bool) -> None:
        super().__init__(cast(ConnectionPool, pool), (FIRST,), timeout=1, secured=secured)
        self.count = 0
        self.found = TopicBroker(FIRST, FIRST)

    async def owner(self, topic: str) -> TopicBroker:
        self.count += 1
        return self.found


class Introduced(Attached):
    """It is known at once, and nothing waits for it."""

    def __init__(self, services: Services) -> None:
        attachment = Attachment[ProducerEnd](
            services,
            "t",
            cast(ProducerEnd, self),
            lambda wire: wire.producers,
            announce=self._announce,
            close_command=lambda _request_id: BaseCommand(),
            attached=lambda _connection: None,
            ended=self._ended,
        )
        super().__init__(services, attachment)

    async def _announce(self, connection: Connection) -> None:
        """The broker does not need to be asked."""

    def _ended(self, error: PulsarException) -> None:
        raise AssertionError(error)


class Case:
    def __init__(self, *, secured: bool = False, found: TopicBroker | None = None) -> None:
        self.simulation: Simulation = simulated_io(1)
        self.pool = Pool()
        self.lookup = LookedUp(self.pool, secured=secured)
        self.lookup.found = found or self.lookup.found
        services = Services(
            cast(Any, self.simulation.io),
            cast(ConnectionPool, self.pool),
            self.lookup,
            operation_timeout=10,
            open_producer=cast(Any, None),
        )
        self.attached = Introduced(services)
        self.simulation.loop.run_until(self.attached.open())

    def closed(self, assigned: Assigned | None, seconds: float = 0.001) -> None:
        self.attached.closed_by_broker(assigned)
        self.simulation.loop.run_for(seconds)


def test_it_goes_where_it_is_told_without_a_lookup_and_without_waiting() -> None:
    case = Case()
    case.closed(Assigned("pulsar://second:6650", ""))
    assert case.attached.is_connected()
    case.closed(Assigned("pulsar://third:6650", ""))
    assert case.pool.asked == [(FIRST, FIRST), (SECOND, SECOND), (THIRD, THIRD)]
    assert case.lookup.count == 1


def test_who_is_told_nothing_looks_up() -> None:
    case = Case()
    case.closed(None, 10)
    assert case.attached.is_connected()
    assert case.lookup.count == 2


def test_what_is_told_counts_once() -> None:
    case = Case()
    case.pool.unreachable.add(SECOND)
    case.closed(Assigned("pulsar://second:6650", ""), 10)
    assert case.attached.is_connected()
    assert case.pool.asked == [(FIRST, FIRST), (SECOND, SECOND), (FIRST, FIRST)]
    assert case.lookup.count == 2


def test_through_a_proxy_it_goes_on_through_the_proxy() -> None:
    case = Case(found=TopicBroker(FIRST, PROXY))
    case.closed(Assigned("pulsar://second:6650", ""))
    assert case.pool.asked == [(FIRST, PROXY), (SECOND, PROXY)]


@pytest.mark.parametrize(
    "told", [Assigned("pulsar://second:6650", ""), Assigned("", "nonsense"), Assigned("", "")]
)
def test_an_address_that_cannot_be_used_is_none(told: Assigned) -> None:
    case = Case(secured=True)
    case.closed(told, 10)
    assert case.attached.is_connected()
    assert case.lookup.count == 2
    case.closed(Assigned("pulsar://second:6650", "pulsar+ssl://third:6650"))
    assert case.pool.asked[-1] == (THIRD, THIRD)
