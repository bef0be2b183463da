"""Metadata stores that pass calls to another store, to measure operations, or to determine outcomes after
lost answers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from magnetar.io.interfaces import Clock, Loop
from magnetar.io.waiting import InProgress, sleep
from magnetar.metadata.interface import (
    MUST_NOT_EXIST,
    BadVersion,
    Change,
    Check,
    Delete,
    MetadataError,
    MetadataRefused,
    MetadataStore,
    MetadataUnavailable,
    Node,
    NodeMissing,
    Overtaken,
    Put,
    SessionEvent,
    Step,
    named,
)

T = TypeVar("T")
BOUNDS_MS = (1.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0)
"""Upper bounds, in ms, of the buckets in which durations are counted."""
_NO_VERSION = (1 << 31) - 1
"""A version that no node has."""
_KINDS = {"get": "get", "put": "put", "delete": "del"}
"""The operations that are measured, with their names in Pulsar's metrics."""
_KINDS_OF_STEPS = {Put: "put", Delete: "del"}
_PAUSES = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
"""Seconds to wait before each attempt to determine the outcome of a change."""


class PassingOnStore:
    """A ``MetadataStore`` that passes every call to ``inner``."""

    def __init__(self, inner: MetadataStore) -> None:
        self.inner = inner

    async def _do(self, call: str, work: Callable[[], Awaitable[T]]) -> T:
        """Runs one operation, ``work``, whose name is ``call``; subclasses override this method."""
        return await work()

    async def get(self, path: str) -> Node | None:
        return await self._do("get", lambda: self.inner.get(path))

    async def exists(self, path: str) -> bool:
        return await self._do("exists", lambda: self.inner.exists(path))

    async def children(self, path: str) -> Sequence[str]:
        return await self._do("children", lambda: self.inner.children(path))

    async def put(
        self,
        path: str,
        value: bytes,
        expected_version: int | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Node:
        return await self._do(
            "put",
            lambda: self.inner.put(path, value, expected_version, ephemeral=ephemeral, sequential=sequential),
        )

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        await self._do("delete", lambda: self.inner.delete(path, expected_version))

    async def change_together(self, steps: Sequence[Step]) -> Sequence[Node | None]:
        return await self._do("change_together", lambda: self.inner.change_together(steps))

    def listen(self, root: str, listener: Callable[[Change], None]) -> None:
        self.inner.listen(root, listener)

    def listen_session(self, listener: Callable[[SessionEvent], None]) -> None:
        self.inner.listen_session(listener)

    async def close(self) -> None:
        await self.inner.close()


class OperationTimes:
    """The durations of one kind of operation with one outcome."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        """The number of operations in each bucket; the last number counts durations above all bounds."""
        self.total_ms = 0.0

    def add(self, seconds: float) -> None:
        milliseconds = seconds * 1000
        self.counts[bisect_left(BOUNDS_MS, milliseconds)] += 1
        self.total_ms += milliseconds


class MeasuredStore(PassingOnStore):
    """A ``MetadataStore`` that passes every call to ``inner`` and measures its duration."""

    def __init__(self, inner: MetadataStore, clock: Clock, name: str) -> None:
        """:param name: the name of the store that metrics show to operators"""
        super().__init__(inner)
        self.name = name
        self.times: dict[tuple[str, bool], OperationTimes] = {
            (kind, good): OperationTimes() for kind in _KINDS.values() for good in (True, False)
        }
        """The durations of operations, by kind and success. A condition that is not met counts as a failure,
        as in Pulsar."""
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
        """Makes the changes, and measures each step as if it were a single operation; checks are not
        measured, because Pulsar's metrics have no name for them."""
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


class ResolvingStore(PassingOnStore):
    """A ``MetadataStore`` that passes every call to ``inner``, and resolves unknown outcomes of puts and
    deletions.

    If a change is not answered, value and version of the node show whether the change took effect. If it did
    not, the change is repeated under the same condition. Callers still get MetadataUnavailable if the store
    stays unavailable, and Overtaken if others may have changed the node after this change, which may have
    taken effect.

    Sequential puts are not repeated, because each attempt uses up a number.
    """

    def __init__(self, inner: MetadataStore, loop: Loop) -> None:
        super().__init__(inner)
        self._loop = loop
        self._sessions_lost = 0
        inner.listen_session(self._session_changed)
        self._changing = InProgress(loop)
        """Changes that are not answered yet."""

    async def close(self) -> None:
        """Closes ``inner``, after pending changes have been answered."""
        await self._changing.none()
        await super().close()

    async def put(
        self,
        path: str,
        value: bytes,
        expected_version: int | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Node:
        async def put() -> Node:
            return await self.inner.put(
                path, value, expected_version, ephemeral=ephemeral, sequential=sequential
            )

        async def look() -> Node:
            node = await self.inner.get(path)
            if node is not None and _is_result(node, value, expected_version, ephemeral=ephemeral):
                return node
            if node is not None and _is_of_another(node) and expected_version is not None:
                raise Overtaken(f"{path}: another session created it in the meantime")
            try:
                return await put()
            except BadVersion as error:
                # A server may answer a read before it knows of a change made through another server; by the
                # time it refuses a write it does.
                node = await self.inner.get(path)
                if node is not None and _is_result(node, value, expected_version, ephemeral=ephemeral):
                    return node
                if node is not None and expected_version is not None and node.version == expected_version + 1:
                    # Another process made this version, so the change has not taken effect.
                    raise
                raise Overtaken(str(error)) from error

        return await self._certainly(put, None if sequential else look)

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        async def delete() -> None:
            await self.inner.delete(path, expected_version)

        async def look() -> None:
            # A server may answer a read before it knows of the deletion whose answer was lost, when the path
            # may have a new node with the same version already. It refuses a write only once it knows.
            try:
                await self.inner.delete(path, _NO_VERSION)
            except NodeMissing:
                return
            except BadVersion:
                node = await self.inner.get(path)
            if node is not None and expected_version is not None and _is_of_another(node):
                # A new node with the same version: the old one is deleted, which is what counts.
                return
            try:
                await delete()
            except NodeMissing:
                # Deleted by the attempt whose answer was lost, or by another process.
                return

        await self._certainly(delete, look)

    async def change_together(self, steps: Sequence[Step]) -> Sequence[Node | None]:
        async def change() -> Sequence[Node | None]:
            return await self.inner.change_together(steps)

        async def look() -> Sequence[Node | None]:
            nodes = await self._nodes_of(steps)
            if any(map(_is_remade, steps, nodes)):
                # It may have the expected version although it is a new node.
                if all(map(_is_done, steps, nodes)):
                    return _answer(steps, nodes)
                raise Overtaken(
                    f"{named(steps)}: another session created some of these nodes in the meantime"
                )
            try:
                return await change()
            except (BadVersion, NodeMissing) as error:
                # By the time a server refuses the change it knows the outcome of the first attempt.
                nodes = await self._nodes_of(steps)
                if all(map(_is_done, steps, nodes)):
                    return _answer(steps, nodes)
                overtaken = Overtaken(str(error))
                overtaken.step = error.step
                raise overtaken from error

        return await self._certainly(change, look)

    async def _nodes_of(self, steps: Sequence[Step]) -> list[Node | None]:
        """Returns the current node of each step; None if the node does not exist, and for nodes that a step
        only checks, because any state of such a node is acceptable."""
        return [None if isinstance(step, Check) else await self.inner.get(step.path) for step in steps]

    async def _certainly(
        self, change: Callable[[], Awaitable[T]], look: Callable[[], Awaitable[T]] | None
    ) -> T:
        """Makes a change, and determines its outcome if the answer was lost.

        :param look: determines the outcome if the answer to ``change`` was lost; repeated until answered.
            None: the outcome cannot be determined
        """
        sessions_lost = self._sessions_lost
        with self._changing:
            try:
                return await change()
            except MetadataRefused:
                raise
            except MetadataUnavailable as error:
                if look is None:
                    raise
                unknown = error
            for pause in _PAUSES:
                await sleep(self._loop, pause)
                if sessions_lost != self._sessions_lost:
                    # The caller may own nothing any more, so another session must not make the change.
                    break
                try:
                    return await look()
                except MetadataRefused as error:
                    raise _still(error) from error
                except MetadataUnavailable as error:
                    unknown = _still(error)
            raise unknown

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.LOST:
            self._sessions_lost += 1


def _still(error: MetadataUnavailable) -> MetadataUnavailable:
    """Returns the error of a change whose second attempt was refused, so that the outcome of the first
    attempt stays unknown."""
    return MetadataUnavailable(f"the outcome is unknown: {error}")


def _is_of_another(node: Node) -> bool:
    """Whether the node is ephemeral and was created by another session."""
    return node.ephemeral and not node.own


def _answer(steps: Sequence[Step], nodes: Sequence[Node | None]) -> list[Node | None]:
    return [node if isinstance(step, Put) else None for step, node in zip(steps, nodes, strict=True)]


def _is_remade(step: Step, node: Node | None) -> bool:
    """Whether another session has created the node that a step expects to exist."""
    return node is not None and _is_of_another(node) and step.expected_version not in (None, MUST_NOT_EXIST)


def _is_done(step: Step, node: Node | None) -> bool:
    """Whether a node is in the state that a step produces."""
    if isinstance(step, Put):
        expected = step.expected_version
        return node is not None and _is_result(node, step.value, expected, ephemeral=step.ephemeral)
    return node is None or _is_remade(step, node)


def _is_result(node: Node, value: bytes, expected: int | None, *, ephemeral: bool) -> bool:
    """Whether a node is as a put would leave it: with the value, the version after ``expected`` and, if the
    put is ``ephemeral``, this session as its owner. If ``expected`` is None, only the value counts."""
    if expected is None:
        # Unconditional: no other write would have been kept anyway.
        return node.value == value
    return node.version == expected + 1 and node.value == value and (not ephemeral or node.own)
