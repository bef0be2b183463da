"""What clients, producers, consumers and readers offer to the statements ``with`` and ``for``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Self

from magnetar.client.exceptions import AlreadyClosed
from magnetar.client.message import Message


class ClosedByAsyncWith(ABC):
    """Is closed at the end of the block of ``async with``."""

    @abstractmethod
    async def close(self) -> None:
        """Closes it. Idempotent."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class AsyncMessages(ClosedByAsyncWith):
    """Its messages can be received with ``async for``, which ends when it is closed."""

    @abstractmethod
    async def _next(self) -> Message:
        """Returns the next message."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self._next()
        except AlreadyClosed as error:
            raise StopAsyncIteration from error


class ClosedByWith(ABC):
    """Is closed at the end of the block of ``with``."""

    @abstractmethod
    def close(self) -> None:
        """Closes it. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Messages(ClosedByWith):
    """Its messages can be received with ``for``, which ends when it is closed."""

    @abstractmethod
    def _next(self) -> Message:
        """Returns the next message."""

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        try:
            return self._next()
        except AlreadyClosed as error:
            raise StopIteration from error
