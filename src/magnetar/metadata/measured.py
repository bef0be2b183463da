"""Durations and failures of the operations of a metadata store, in Pulsar's metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from magnetar.io.interfaces import Clock
from magnetar.metadata.interface import Delete, MetadataError, MetadataStore, Node, Put, Step
from magnetar.metadata.passing_on import PassingOnStore

T = TypeVar("T")

BOUNDS_MS = (1.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0)
"""Upper bounds of the buckets."""
_KINDS = {"get": "get", "put": "put", "delete": "del"}
"""The operations that are counted, with Pulsar's names."""
_KINDS_OF_STEPS = {Put: "put", Delete: "del"}


class OperationTimes:
    """Durations of one kind of operations with one outcome."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        """Counts by bucket, and one more for durations above all bounds."""
        self.total_ms = 0.0

    def add(self, seconds: float) -> None:
        milliseconds = seconds * 1000
        self.counts[bisect_left(BOUNDS_MS, milliseconds)] += 1
        self.total_ms += milliseconds


class MeasuredStore(PassingOnStore):
    """A ``MetadataStore`` in front of ``inner``."""

    def __init__(self, inner: MetadataStore, clock: Clock, name: str) -> None:
        """:param name: as shown to operators"""
        super().__init__(inner)
        self.name = name
        self.times: dict[tuple[str, bool], OperationTimes] = {
            (kind, good): OperationTimes() for kind in _KINDS.values() for good in (True, False)
        }
        """By kind and success. A condition that does not hold counts as a failure, as in Pulsar."""
        self.put_bytes = 0
        self._clock = clock

    async def put(
        self,
        path: str,
        value: bytes,
        expected_version: int | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Node:
        node = await super().put(path, value, expected_version, ephemeral=ephemeral, sequential=sequential)
        self.put_bytes += len(value)
        return node

    async def change_together(self, steps: Sequence[Step]) -> Sequence[Node | None]:
        """Each step counts like the same operation alone; a check has no counterpart in Pulsar's metrics."""
        kinds = [_KINDS_OF_STEPS[type(step)] for step in steps if type(step) in _KINDS_OF_STEPS]
        nodes = await self._measured(kinds, lambda: self.inner.change_together(steps))
        self.put_bytes += sum(len(step.value) for step in steps if isinstance(step, Put))
        return nodes

    async def _do(self, call: str, work: Callable[[], Awaitable[T]]) -> T:
        return await self._measured([_KINDS[call]] if call in _KINDS else [], work)

    async def _measured(self, kinds: Sequence[str], work: Callable[[], Awaitable[T]]) -> T:
        begun = self._clock.monotonic()
        try:
            result = await work()
        except MetadataError:
            self._count(kinds, False, begun)
            raise
        self._count(kinds, True, begun)
        return result

    def _count(self, kinds: Sequence[str], good: bool, begun: float) -> None:
        seconds = self._clock.monotonic() - begun
        for kind in kinds:
            self.times[kind, good].add(seconds)
