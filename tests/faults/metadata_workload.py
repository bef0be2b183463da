"""Random use of a metadata store, and a memory of what it acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from simulated_io import Simulation

from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.interface import MUST_NOT_EXIST, BadVersion, MetadataStore

State = tuple[bytes, int] | None
"""Value and version; None: no such node."""


@dataclass
class _Slot:
    """A path one actor has to itself."""

    path: str
    states: list[State] = field(default_factory=lambda: [None])
    """What may be found: one state, two while an operation has not been answered."""


class MetadataWorkload:
    """A ``Workload``: actors that put, replace and delete, each below a path of its own."""

    def __init__(self, seed: int, actors: int = 4) -> None:
        self._random = Random(seed)
        self._store: MetadataStore
        self._slots = [[_Slot(f"/a{actor}/n{slot}") for slot in range(4)] for actor in range(actors)]
        self._numbers: set[str] = set()
        self._count = 0
        self.checked = 0

    async def begin(self, simulation: Simulation) -> None:
        self._store = await EmbeddedMetadataStore.open_store(simulation.io, "metadata/metadata.db")
        for slots in self._slots:
            for slot in slots:
                node = await self._store.get(slot.path)
                found = None if node is None else (node.value, node.version)
                assert found in slot.states, f"{slot.path}: found {found}, expected one of {slot.states}"
                slot.states = [found]
                self.checked += 1
        numbered = set(await self._store.children("/numbered"))
        assert self._numbers <= numbered
        assert await self._store.children("/session") == []

    async def work(self) -> None:
        await asyncio.gather(*(self._act(slots) for slots in self._slots))

    async def end(self) -> None:
        await self._store.close()

    async def _act(self, slots: list[_Slot]) -> None:
        random = self._random
        while True:
            slot = random.choice(slots)
            self._count += 1
            action: Callable[[_Slot], object] = random.choice(
                (self._put, self._put, self._replace, self._refused, self._delete, self._number)
            )
            await action(slot)  # type: ignore[misc]
            await asyncio.sleep(random.random() * 0.005)

    async def _put(self, slot: _Slot) -> None:
        (old,) = slot.states
        value = b"%d" % self._count * self._random.choice((1, 10, 500))
        slot.states = [old, (value, 0 if old is None else old[1] + 1)]
        await self._store.put(slot.path, value)
        slot.states = slot.states[1:]

    async def _replace(self, slot: _Slot) -> None:
        (old,) = slot.states
        value = b"%d" % self._count
        expected = MUST_NOT_EXIST if old is None else old[1]
        slot.states = [old, (value, expected + 1)]
        await self._store.put(slot.path, value, expected)
        slot.states = slot.states[1:]

    async def _refused(self, slot: _Slot) -> None:
        (old,) = slot.states
        try:
            await self._store.put(slot.path, b"wrong", 10_000 if old is None else old[1] + 1)
        except BadVersion:
            return
        raise AssertionError("a put with the wrong version was not refused")

    async def _delete(self, slot: _Slot) -> None:
        (old,) = slot.states
        if old is not None:
            slot.states = [old, None]
            await self._store.delete(slot.path, old[1])
            slot.states = [None]

    async def _number(self, slot: _Slot) -> None:
        node = await self._store.put("/numbered/n-", b"", sequential=True)
        name = node.path.rpartition("/")[2]
        assert name not in self._numbers, f"{name} was used twice"
        self._numbers.add(name)
        await self._store.put("/session/e-", b"", ephemeral=True, sequential=True)
