"""What follows changes of the metadata tries again after an unexpected error, which is reported."""

from __future__ import annotations

from typing import Any

import pytest
from world import World

from magnetar.broker.ownership.brokers import BROKERS, Leadership, LiveBrokers
from magnetar.metadata.following import Follower
from magnetar.proxy.brokers import RegisteredBrokers


class Defect(Exception):
    """An error that nothing expects."""


class Followed:
    """A metadata store in a world whose loop goes on after an error was reported to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = World()
        self.io = self.world.simulation.io
        self.metadata = self.world.metadata
        self.reported: list[BaseException] = []
        reported = self.reported
        monkeypatch.setattr(
            self.io.loop, "call_exception_handler", lambda context: reported.append(context["exception"])
        )
        self.calls = 0

    def once(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        """The next call of a method fails in an unexpected way."""
        works = getattr(owner, name)

        async def fails(*arguments: Any) -> Any:
            self.calls += 1
            if self.calls == 1:
                raise Defect("a defect")
            return await works(*arguments)

        monkeypatch.setattr(owner, name, fails)

    def put(self, path: str, value: bytes = b"{}") -> None:
        self.world.run(self.metadata.put(path, value))

    def check(self) -> None:
        self.world.wait(120.0)
        assert [type(error) for error in self.reported] == [Defect]
        assert self.calls >= 2


def test_a_follower_reads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    followed = Followed(monkeypatch)
    taken: list[bytes] = []

    async def take() -> None:
        node = await followed.metadata.get("/a")
        assert node is not None
        taken.append(node.value)

    follower = Follower(followed.io, followed.metadata, "/a", "the test", take)
    followed.once(monkeypatch, follower, "_take")
    followed.put("/a", b"new")
    followed.check()
    assert taken[-1] == b"new"


def test_the_list_of_brokers_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    followed = Followed(monkeypatch)
    brokers = LiveBrokers(followed.io, followed.metadata)
    followed.world.run(brokers.start())
    followed.world.wait(0.1)
    followed.once(monkeypatch, brokers, "_record")
    followed.put(f"{BROKERS}/b:8080")
    followed.check()
    brokers.stop()


def test_an_election_is_held_again(monkeypatch: pytest.MonkeyPatch) -> None:
    followed = Followed(monkeypatch)
    brokers = LiveBrokers(followed.io, followed.metadata)
    leadership = Leadership(followed.io, followed.metadata, brokers, "b:8080", "http://b:8080")
    followed.world.run(leadership.start())
    assert leadership.is_leader
    followed.once(monkeypatch, leadership, "_elect")
    node = followed.world.run(followed.metadata.get("/loadbalance/leader"))
    assert node is not None
    followed.world.run(leadership._remove(node))
    followed.check()
    assert followed.world.run(followed.metadata.get("/loadbalance/leader")) is not None
    followed.world.run(leadership.stop())


def test_the_brokers_of_a_proxy_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    followed = Followed(monkeypatch)
    brokers = RegisteredBrokers(followed.io.loop, followed.metadata)
    followed.world.run(brokers.open())
    followed.once(monkeypatch, brokers, "_read")
    followed.put("/loadbalance/brokers/b:8080")
    followed.check()
