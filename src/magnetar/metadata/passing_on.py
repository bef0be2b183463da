"""Base of metadata stores in front of another one that change some of its behaviour."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from magnetar.metadata.interface import Change, MetadataStore, Node, SessionEvent, Step

T = TypeVar("T")


class PassingOnStore:
    """A ``MetadataStore`` that passes every call to ``inner``."""

    def __init__(self, inner: MetadataStore) -> None:
        self.inner = inner

    async def _do(self, call: str, work: Callable[[], Awaitable[T]]) -> T:
        """Runs each operation; ``call`` is its name."""
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
