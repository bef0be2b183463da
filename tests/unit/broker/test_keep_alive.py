"""Looks at a client's silence, with a clock that the test moves."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_io import SimulatedDisk, simulated_io

from magnetar.broker.flow.connection import KeepAlive, KeepAliveSettings
from magnetar.io.wheel import TimerWheel
from magnetar.protocol.pulsar_api_pb2 import BaseCommand


class Watched:
    def __init__(self) -> None:
        self.address = "peer"
        self.closed = False
        self.held_back = False
        self.throttled = False
        self.session = self
        self.greeted = True
        self.pings = 0
        self.aborted = False

    def send(self, command: BaseCommand) -> None:
        assert command.type == BaseCommand.PING
        self.pings += 1

    def abort(self) -> None:
        self.closed = self.aborted = True


class World:
    def __init__(self, liveness: float = 5.0) -> None:
        self.simulation = simulated_io(1, SimulatedDisk(1))
        self.loop = self.simulation.loop
        self.connection = Watched()
        settings = KeepAliveSettings(30.0, liveness)
        self.keep_alive = KeepAlive(self.connection, self.loop, TimerWheel(self.loop), settings)
        self.keep_alive.start()
        self.answers: list[bool] = []

    def ask(self) -> None:
        async def ask() -> None:
            self.answers.append(await self.keep_alive.ask())

        self._task: Any = self.loop.create_task(ask())
        self.loop.run_for(0.02)


@pytest.fixture
def world() -> World:
    return World()


def test_a_client_that_does_not_say_who_it_is_is_closed_however_much_it_sends(world: World) -> None:
    world.connection.greeted = False
    for _ in range(29):
        world.loop.run_for(1.0)
        world.keep_alive.heard()
    assert not world.connection.aborted
    world.loop.run_for(2.0)
    assert world.connection.aborted
    assert not world.connection.pings


def test_a_silent_client_is_pinged_and_closed_an_interval_later(world: World) -> None:
    world.loop.run_for(31)
    assert (world.connection.pings, world.connection.aborted) == (1, False)
    world.loop.run_for(30)
    assert world.connection.aborted


def test_a_busy_client_is_left_alone(world: World) -> None:
    for _ in range(20):
        world.keep_alive.heard()
        world.loop.run_for(29)
    assert (world.connection.pings, world.connection.aborted) == (0, False)


def test_a_client_that_answers_stays(world: World) -> None:
    for times in range(1, 6):
        while world.connection.pings < times:
            world.loop.run_for(1)
        world.keep_alive.heard()
    assert not world.connection.aborted


def test_a_client_that_is_not_read_is_not_silent(world: World) -> None:
    """While its publishes waited for the disk it could not show that it was alive, and was closed."""
    world.connection.held_back = True
    world.loop.run_for(300)
    assert (world.connection.pings, world.connection.aborted) == (0, False)
    world.ask()
    assert world.answers == [True]


def test_a_client_that_is_throttled_is_told_that_the_broker_lives_and_stays(world: World) -> None:
    world.connection.held_back = world.connection.throttled = True
    world.loop.run_for(301)
    assert (world.connection.pings, world.connection.aborted) == (10, False)
    world.ask()
    assert world.answers == [True]
    # From then on it has to answer again.
    world.connection.held_back = world.connection.throttled = False
    world.loop.run_for(30)
    assert (world.connection.pings, world.connection.aborted) == (11, False)
    world.loop.run_for(31)
    assert world.connection.aborted


def test_a_closed_connection_that_does_not_go_is_aborted(world: World) -> None:
    world.connection.closed = True
    world.loop.run_for(31)
    assert world.connection.aborted


def test_asking_brings_an_answer_either_way(world: World) -> None:
    world.ask()
    assert (world.connection.pings, world.answers) == (1, [])
    world.keep_alive.heard()
    world.loop.run_for(0.1)
    assert world.answers == [True]
    world.ask()
    world.loop.run_for(6)
    assert world.answers == [True, False]
    assert world.connection.aborted
    world.ask()
    assert world.answers == [True, False, False]


def test_all_who_ask_at_once_share_one_ping(world: World) -> None:
    for _ in range(3):
        world.ask()
    world.keep_alive.heard()
    world.loop.run_for(0.1)
    assert (world.connection.pings, world.answers) == (1, [True, True, True])


def test_the_time_of_an_answered_question_does_not_end_the_next(world: World) -> None:
    world.ask()
    world.keep_alive.heard()
    world.loop.run_for(4.9)
    world.ask()
    world.loop.run_for(1)
    assert not world.connection.aborted
    world.keep_alive.heard()
    world.loop.run_for(0.1)
    assert world.answers == [True, True]


def test_nobody_is_asked_where_it_is_switched_off() -> None:
    world = World(liveness=0)
    world.ask()
    assert (world.connection.pings, world.answers) == (0, [True])


def test_a_connection_that_goes_answers_who_asked(world: World) -> None:
    world.ask()
    world.keep_alive.stop()
    world.loop.run_for(100)
    assert world.answers == [False]
    assert not world.connection.aborted
