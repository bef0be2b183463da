"""Support for the statements ``with`` and ``for`` in clients, producers, consumers and readers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Self

from magnetar.client.exceptions import AlreadyClosed
from magnetar.client.message import Message


class ClosedByAsyncWith(ABC):
    """Base of objects that are closed at the end of an ``async with`` block."""

    @abstractmethod
    async def close(self) -> None:
        """Closes the object. Idempotent."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class AsyncMessages(ClosedByAsyncWith):
    """Base of objects whose messages can be received with ``async for``, until the object is closed."""

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
    """Base of objects that are closed at the end of a ``with`` block."""

    @abstractmethod
    def close(self) -> None:
        """Closes the object. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Messages(ClosedByWith):
    """Base of objects whose messages can be received with ``for``, until the object is closed."""

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
