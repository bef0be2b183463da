"""Leaders that fence each other, and a producer that waits for shared ones to leave (PIP-68)."""

from __future__ import annotations

from bisect import bisect_left, insort
from random import Random
from typing import TYPE_CHECKING

from magnetar.broker.publishing.producer import AccessMode
from magnetar.errors import ServerErrorCode
from simulation.client import Client
from simulation.connection import Gone, Refused
from simulation.scripted_producer import Position, ScriptedProducer
from simulation.trace import Violation

if TYPE_CHECKING:
    from simulation.world import World

FENCED = "persistent://public/default/fenced"
AWAITED = "persistent://public/default/awaited"
_LONGEST_TURN = 60.0
_OVERLAP = 5.0
"""Seconds that a shared producer stays, at most, until the other one is there."""


class Leading:
    """All of them."""

    def __init__(self, world: World, random: Random) -> None:
        def drawn() -> Random:
            return Random(random.getrandbits(64))

        self.epochs = _Epochs()
        self._leaders = [_Leader(Client(world, f"leader{index}"), self.epochs, drawn()) for index in range(2)]
        self.waiting = _Waiting(Client(world, "waiting"), drawn())
        self.shared = [_Shared(Client(world, f"shared{index}"), self, drawn()) for index in range(2)]

    @property
    def people(self) -> list[_Leader | _Waiting | _Shared]:
        return [*self._leaders, self.waiting, *self.shared]

    def __str__(self) -> str:
        return f"leading: {', '.join(str(each) for each in (*self._leaders, self.waiting))}"

    @property
    def done(self) -> bool:
        return self.waiting.done and all(leader.done for leader in self._leaders)


class _Epochs:
    """What leaders were told, and what of theirs is stored."""

    def __init__(self) -> None:
        self._granted: set[int] = set()
        self._stored: list[tuple[Position, int]] = []

    def granted(self, before: int | None, epoch: int) -> None:
        """:param before: the epoch that the leader came back with

        :raises Violation: another one has or had it
        """
        if before is not None:
            if epoch != before:
                raise Violation(f"{FENCED}: a leader of epoch {before} comes back with epoch {epoch}")
        elif epoch in self._granted:
            raise Violation(f"{FENCED}: two leaders have epoch {epoch}")
        self._granted.add(epoch)

    def stored(self, position: Position, epoch: int) -> None:
        """:raises Violation: it is stored behind what a later leader published, or the other way round"""
        at = bisect_left(self._stored, (position, epoch))
        around = self._stored[max(at - 1, 0) : at + 1]
        for other, theirs in around:
            if (other < position and theirs > epoch) or (other > position and theirs < epoch):
                raise Violation(f"{FENCED}: {position} of epoch {epoch}, and {other} of epoch {theirs}")
        insort(self._stored, (position, epoch))


class _Leader:
    """Publishes until another one fences it; then it starts over as a new one."""

    def __init__(self, client: Client, epochs: _Epochs, random: Random) -> None:
        self._client = client
        self._world: World = client.world
        self._epochs = epochs
        self._random = random
        self._epoch: int | None = None
        self._number = 0
        self._lives = 0
        self._left = 3
        """Entries to publish when the faults are over."""

    def __str__(self) -> str:
        return f"{self._client.name} has {self._left} entries left"

    @property
    def done(self) -> bool:
        return self._left == 0

    async def run(self) -> None:
        while not self.done:
            try:
                await self._lead()
            except Gone as error:
                self._world.trace.note(self._client.name, "not open:", error)
            except Refused as error:
                self._world.trace.note(self._client.name, "refused:", error)
                if error.code == ServerErrorCode.PRODUCER_FENCED:
                    # Somebody starts it anew.
                    self._epoch = None
                    await self._world.sleep(self._random.random() * 2)
            await self._world.sleep(self._random.random() * 0.5)

    async def _lead(self) -> None:
        self._lives += 1
        connection = await self._client.connection()
        producer = ScriptedProducer(self._world, connection, self._client.name)
        before = self._epoch
        fields = {} if before is None else {"topic_epoch": before}
        mode = AccessMode.ExclusiveWithFencing.value
        answer = await producer.open(FENCED, epoch=self._lives, producer_access_mode=mode, **fields)
        self._epochs.granted(before, answer.topic_epoch)
        self._epoch = epoch = answer.topic_epoch
        self._world.trace.note(self._client.name, "leads, epoch", epoch)
        while not self.done:
            # What is sent again after a new connection is of the same epoch: else this one is fenced.
            position = await producer.send(self._number)
            if position is not None:
                self._epochs.stored(position, epoch)
            self._number += 1
            self._left -= self._world.quiet
            await self._world.sleep(self._random.random() * 0.2)
            if self._random.random() < 0.05 and not self._world.quiet:
                connection.abort()
        await producer.leave()


class _Shared:
    """Comes and goes, as in a rolling restart: it leaves only when the other one is there."""

    def __init__(self, client: Client, all_of_them: Leading, random: Random) -> None:
        self._client = client
        self._world: World = client.world
        self._all = all_of_them
        self._random = random
        self._lives = 0
        self.open = False

    async def run(self) -> None:
        while not self._all.waiting.done:
            try:
                await self._stay()
            except (Gone, Refused) as error:
                self._world.trace.note(self._client.name, "not open:", error)
            self.open = False
            await self._world.sleep(0.05 + self._random.random() * 0.1)

    async def _stay(self) -> None:
        self._lives += 1
        producer = ScriptedProducer(self._world, await self._client.connection(), self._client.name)
        await producer.open(AWAITED, epoch=self._lives)
        self.open = True
        await self._world.sleep(0.1 + self._random.random())
        end = self._world.loop.time() + _OVERLAP
        while not self._other_is_open and self._world.loop.time() < end and not producer.closed:
            await self._world.sleep(0.05)
        await producer.leave()

    @property
    def _other_is_open(self) -> bool:
        return any(each.open for each in self._all.shared if each is not self)


class _Waiting:
    """Wants the topic for itself, and gets it when the shared producers have left."""

    def __init__(self, client: Client, random: Random) -> None:
        self._client = client
        self._world: World = client.world
        self._random = random
        self._lives = 0
        self._turns = 2

    def __str__(self) -> str:
        return f"{self._client.name} has {self._turns} turns left"

    @property
    def done(self) -> bool:
        return self._turns == 0

    async def run(self) -> None:
        while not self.done:
            await self._world.sleep(0.5 + self._random.random())
            try:
                await self._take_turn()
            except (Gone, Refused) as error:
                self._world.trace.note(self._client.name, "no turn:", error)

    async def _take_turn(self) -> None:
        self._lives += 1
        producer = ScriptedProducer(self._world, await self._client.connection(), self._client.name)
        mode = AccessMode.WaitForExclusive.value
        await producer.open(AWAITED, patience=_LONGEST_TURN, epoch=self._lives, producer_access_mode=mode)
        await producer.send(self._lives)
        await producer.leave()
        self._turns -= 1
        self._world.trace.note(self._client.name, "had its turn")
