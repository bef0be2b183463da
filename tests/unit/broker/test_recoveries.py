"""How many topics are recovered at the same time, and which come first."""

from __future__ import annotations

from typing import Any

import pytest
from lived import Lived
from simulated_io import simulated_io

from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.serving.recoveries import AT_ONCE, Recoveries
from magnetar.errors import TopicNotFound
from magnetar.io.waiting import sleep
from magnetar.managed_ledger.errors import ManagedLedgerNotFound
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.naming.topic_name import TopicName
from magnetar.security.authentication import ANONYMOUS, BROKER


def names(kind: str, count: int) -> list[TopicName]:
    return [TopicName.parse(f"persistent://public/default/{kind}-{number}") for number in range(count)]


class Slow:
    """Each recovery takes a second: in which order they begin, and how many there are at once."""

    def __init__(self, lived: Lived, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lived = lived
        self.began: list[str] = []
        self.most = self._now = 0
        self.missing: set[str] = set()
        self._open = lived.world.managed.open
        monkeypatch.setattr(lived.world.managed, "open", self.open)

    async def open(self, name: str, **how: Any) -> ManagedLedger:
        self.began.append(name.rpartition("/")[2])
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            await sleep(self.lived.broker.io.loop, 1)
            if name.rpartition("/")[2] in self.missing:
                raise ManagedLedgerNotFound(name)
            return await self._open(name, **how)
        finally:
            self._now -= 1

    def load(self, wanted: list[TopicName], principal: Any) -> list[Any]:
        loop = self.lived.broker.io.loop
        return [
            loop.create_task(self.lived.broker.topics.load(each, create=True, principal=principal))
            for each in wanted
        ]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    return Slow(Lived(EffectivePolicies()), monkeypatch)


def test_at_most_so_many_are_recovered_at_once_and_all_of_them_in_the_end(slow: Slow) -> None:
    for each in slow.load(names("t", 3 * AT_ONCE), ANONYMOUS):
        slow.lived.world.run(each)
    assert slow.most == AT_ONCE
    assert len(slow.lived.broker.topics.loaded) == 3 * AT_ONCE
    assert (slow.lived.broker.topics.recoveries.running, slow.lived.broker.topics.recoveries.waiting) == (
        0,
        0,
    )


def test_those_for_which_a_client_waits_come_before_those_that_nobody_waits_for(slow: Slow) -> None:
    own, clients = names("own", 2 * AT_ONCE), names("client", AT_ONCE)
    tasks = slow.load(own, BROKER)
    slow.lived.world.wait(0.5)
    tasks += slow.load(clients, ANONYMOUS)
    slow.lived.world.wait(0.1)
    # For the last of the broker's own somebody comes while it waits.
    tasks += slow.load(own[-1:], ANONYMOUS)
    for each in tasks:
        slow.lived.world.run(each)
    wanted = [*own[:AT_ONCE], *clients, own[-1], *own[AT_ONCE:-1]]
    assert slow.began == [each.local for each in wanted]
    assert slow.most == AT_ONCE


def test_policies_of_topics_come_before_the_topics_that_need_them(slow: Slow) -> None:
    tasks = slow.load(names("own", 2 * AT_ONCE), BROKER)
    slow.lived.world.wait(0.5)
    tasks += slow.load([TopicName.parse("persistent://public/default/__change_events")], BROKER)
    for each in tasks:
        slow.lived.world.run(each)
    assert slow.began[AT_ONCE] == "__change_events"


def test_what_fails_makes_room_for_the_next_one(slow: Slow) -> None:
    missing = names("missing", AT_ONCE)
    slow.missing = {each.local for each in missing}
    failing, waiting = slow.load(missing, ANONYMOUS), slow.load(names("t", 5), ANONYMOUS)
    for each in failing:
        with pytest.raises(TopicNotFound):
            slow.lived.world.run(each)
    for each in waiting:
        slow.lived.world.run(each)
    assert slow.lived.broker.topics.recoveries.running == 0


def test_who_goes_while_waiting_takes_no_turn_with_it() -> None:
    loop = simulated_io(1).loop
    recoveries = Recoveries(loop, 1)
    done: list[str] = []

    async def recover(name: str) -> None:
        async with recoveries.turn(name):
            await sleep(loop, 1)
            done.append(name)

    tasks = [loop.create_task(recover(name)) for name in "abcd"]
    loop.run_for(0.5)
    tasks[1].cancel()
    loop.run_for(0.5)
    # Its turn has come in this very moment.
    tasks[2].cancel()
    loop.run_for(3)
    assert done == ["a", "d"]
    assert (recoveries.running, recoveries.waiting) == (0, 0)
