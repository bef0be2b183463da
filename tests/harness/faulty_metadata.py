"""A metadata store that fails on demand, in front of another one, for tests of what is above."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import TypeVar

from magnetar.io.interfaces import Loop
from magnetar.metadata.interface import (
    Change,
    Delete,
    MetadataStore,
    MetadataUnavailable,
    Node,
    NodeMissing,
    SessionEvent,
    Step,
)
from magnetar.metadata.passing_on import PassingOnStore

T = TypeVar("T")


class Fault(Enum):
    """When an operation loses its answer."""

    BEFORE = "before it happened"
    AFTER = "after it happened"


class FaultyMetadataStore(PassingOnStore):
    """A ``MetadataStore`` in front of ``inner``. Without a requested fault it has no effect."""

    def __init__(self, inner: MetadataStore, loop: Loop) -> None:
        super().__init__(inner)
        self._loop = loop
        self.draw: Callable[[str], Fault | None] = lambda _call: None
        """Called for each operation with its method's name: ``get``, ``put`` and so on."""
        self.event_delay = 0.0
        """Seconds between the answer to a change and its notification."""
        self.connected = True
        self.failed = 0
        """Operations that have lost their answer."""
        self._failing: dict[str, list[Fault]] = {}
        self._ephemeral: set[str] = set()
        self._session_listeners: list[Callable[[SessionEvent], None]] = []

    def fail_next(self, call: str, fault: Fault) -> None:
        """Makes the next operation of that name, after those with a planned fault, lose its answer."""
        self._failing.setdefault(call, []).append(fault)

    def disconnect(self) -> None:
        """Stops answers and notifications."""
        self.connected = False
        self._tell(SessionEvent.DISCONNECTED)

    def reconnect(self) -> None:
        """Resumes answers; changes from the meantime are not reported."""
        self.connected = True
        self._tell(SessionEvent.RECONNECTED)

    async def lose_session(self) -> None:
        """Removes the ephemeral nodes of the session; nothing is answered until :meth:`reconnect`."""
        self.connected = False
        for path in sorted(self._ephemeral, reverse=True):
            try:
                await self.inner.delete(path)
            except NodeMissing:
                # It was deleted already.
                continue
        self._ephemeral.clear()
        self._tell(SessionEvent.LOST)

    def _tell(self, event: SessionEvent) -> None:
        for listener in self._session_listeners:
            listener(event)

    async def _do(self, call: str, work: Callable[[], Awaitable[T]]) -> T:
        waiting = self._failing.get(call)
        fault = waiting.pop(0) if waiting else self.draw(call)
        if not self.connected or fault is Fault.BEFORE:
            self.failed += 1
            raise MetadataUnavailable(f"no answer to {call}")
        answer = await work()
        if fault is Fault.AFTER or not self.connected:
            self.failed += 1
            raise MetadataUnavailable(f"the answer to {call} was lost")
        return answer

    async def put(
        self,
        path: str,
        value: bytes,
        expected_version: int | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Node:
        async def work() -> Node:
            node = await self.inner.put(
                path, value, expected_version, ephemeral=ephemeral, sequential=sequential
            )
            if node.ephemeral:
                self._ephemeral.add(node.path)
            return node

        return await self._do("put", work)

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        await super().delete(path, expected_version)
        self._ephemeral.discard(path)

    async def change_together(self, steps: Sequence[Step]) -> Sequence[Node | None]:
        async def work() -> Sequence[Node | None]:
            nodes = await self.inner.change_together(steps)
            self._ephemeral.difference_update(step.path for step in steps if isinstance(step, Delete))
            self._ephemeral.update(node.path for node in nodes if node is not None and node.ephemeral)
            return nodes

        return await self._do("change_together", work)

    def listen(self, root: str, listener: Callable[[Change], None]) -> None:
        def pass_on(change: Change) -> None:
            if self.connected:
                listener(change)

        def changed(change: Change) -> None:
            if self.event_delay:
                self._loop.call_later(self.event_delay, pass_on, change)
            else:
                pass_on(change)

        super().listen(root, changed)

    def listen_session(self, listener: Callable[[SessionEvent], None]) -> None:
        self._session_listeners.append(listener)
        super().listen_session(listener)
