"""Finds out the outcome of changes whose answer was lost, so that none is wrongly taken for undone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from magnetar.io.interfaces import Loop
from magnetar.io.waiting import InProgress, sleep
from magnetar.metadata.interface import (
    MUST_NOT_EXIST,
    BadVersion,
    Check,
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
from magnetar.metadata.passing_on import PassingOnStore

T = TypeVar("T")

_PAUSES = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
"""Seconds before each attempt to find out the outcome of a change."""


class ResolvingStore(PassingOnStore):
    """A ``MetadataStore`` in front of ``inner`` that resolves the outcomes of puts and deletions.

    A change without an answer is looked for: value and version show whether it took effect. If it did not, it
    is repeated under the same condition. MetadataUnavailable remains for a store that stays unavailable, and
    Overtaken for a node that others may have changed after this change, which then may have taken effect.
    Sequential puts are not repeated, because each takes a number.
    """

    def __init__(self, inner: MetadataStore, loop: Loop) -> None:
        super().__init__(inner)
        self._loop = loop
        self._sessions_lost = 0
        inner.listen_session(self._session_changed)
        self._changing = InProgress(loop)
        """Changes that are not answered yet."""

    async def close(self) -> None:
        """Waits for the answers to pending changes first."""
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
                raise Overtaken(f"{named(steps)}: another session created some of it in the meantime")
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
        """Returns the present nodes; None for those that are only checked, which any state satisfies."""
        return [None if isinstance(step, Check) else await self.inner.get(step.path) for step in steps]

    async def _certainly(
        self, change: Callable[[], Awaitable[T]], look: Callable[[], Awaitable[T]] | None
    ) -> T:
        """:param look: finds out the outcome if the answer to ``change`` was lost; repeated until answered"""
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
    """Replaces a refusal of the second attempt, which says nothing about the first one."""
    return MetadataUnavailable(f"the outcome is unknown: {error}")


def _is_of_another(node: Node) -> bool:
    """Whether another session created the node, so that it did not exist when this one made its change."""
    return node.ephemeral and not node.own


def _answer(steps: Sequence[Step], nodes: Sequence[Node | None]) -> list[Node | None]:
    return [node if isinstance(step, Put) else None for step, node in zip(steps, nodes, strict=True)]


def _is_remade(step: Step, node: Node | None) -> bool:
    """Whether another session has created what a step expects to exist."""
    return node is not None and _is_of_another(node) and step.expected_version not in (None, MUST_NOT_EXIST)


def _is_done(step: Step, node: Node | None) -> bool:
    """Whether a node is in the state that a step leaves."""
    if isinstance(step, Put):
        expected = step.expected_version
        return node is not None and _is_result(node, step.value, expected, ephemeral=step.ephemeral)
    return node is None or _is_remade(step, node)


def _is_result(node: Node, value: bytes, expected: int | None, *, ephemeral: bool) -> bool:
    """Whether a node is the result of a put of ``value``. If another process made it, the next put fails."""
    if expected is None:
        # Unconditional: no other write would have been kept anyway.
        return node.value == value
    return node.version == expected + 1 and node.value == value and (not ephemeral or node.own)
