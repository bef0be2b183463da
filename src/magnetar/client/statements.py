"""Support for the statements ``with`` and ``for`` in clients, producers, consumers and readers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Self

from magnetar.client.exceptions import AlreadyClosed
from magnetar.client.message import Message


class ClosedByAsyncWith(ABC):
    """Base class of objects that an ``async with`` block closes at its end."""

    @abstractmethod
    async def close(self) -> None:
        """Closes the object. Idempotent."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class AsyncMessages(ClosedByAsyncWith):
    """Base class of objects whose messages ``async for`` receives, until the object is closed."""

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
    """Base class of objects that a ``with`` block closes at its end."""

    @abstractmethod
    def close(self) -> None:
        """Closes the object. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Messages(ClosedByWith):
    """Base class of objects whose messages ``for`` receives, until the object is closed."""

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
