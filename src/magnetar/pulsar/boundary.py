"""Converts between the official client's interface and ``magnetar.client``: arguments, errors, and the event
loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TypeVar

from magnetar.client.exceptions import AlreadyClosed, OperationNotSupported, PulsarException, Result
from magnetar.client.message_id import MessageId
from magnetar.io.real.loop_thread import LoopThread, Together

T = TypeVar("T")
K = TypeVar("K")
log = logging.getLogger("magnetar.client.pulsar")

_PREFIXED = range(Result.ConsumerAssignError, Result.Interrupted + 1)
"""Results whose official error texts begin with the exception's name."""


def check_type(kind: type[K], value: object, name: str, error: type[Exception] = ValueError) -> K:
    """Checks the type of an argument, and returns the argument.

    :param error: class of the exception for an argument of another type; TypeError where the official package
        leaves the check to its C++ part
    """
    if not isinstance(value, kind):
        raise error(
            f"Argument {name} is expected to be of type '{kind.__name__}' and not '{type(value).__name__}'"
        )
    return value


def check_type_or_none(kind: type[K], value: object, name: str) -> K | None:
    """Checks that an argument has the type or is None, and returns the argument.

    :raises ValueError: the argument has another type
    """
    if value is not None and not isinstance(value, kind):
        raise ValueError(f"Argument {name} is expected to be either None or of type '{kind.__name__}'")
    return value


def checked(method: Callable[..., T]) -> Callable[..., T]:
    """Returns the method unchanged, but without static types for its arguments: the caller has checked the
    options already.
    """
    return method


def refuse(option: str, reason: str) -> OperationNotSupported:
    """Returns the error for an unsupported part of the official interface."""
    return OperationNotSupported(f"{option} is not supported: {reason}")


def without_effect(option: str, reason: str) -> None:
    """Logs that an option has no effect."""
    log.warning("%s has no effect: %s", option, reason)


def official(error: PulsarException) -> PulsarException:
    """Returns an error of the same class with the official client's text, by which programs distinguish
    errors; the caller raises the result from ``error``, which contains the details.
    """
    result = error.result
    name = "TimeOut" if result is Result.Timeout else result.name
    prefix = "Result" if result in _PREFIXED else ""
    return type(error)(f"Pulsar error: {prefix}{name}")


class Calls:
    """Runs coroutines of ``magnetar.client`` in its loop, and converts errors to errors of the official
    client.
    """

    def __init__(self) -> None:
        self.thread = LoopThread("pulsar")
        self.closed = False

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Runs ``work`` and returns its result; blocks.

        :raises PulsarException: an error of ``work`` with the official text, or AlreadyClosed after
            :meth:`close`
        """
        if self.closed:
            work.close()
            raise official(AlreadyClosed("the client is closed"))
        with self.errors():
            return self.thread.run(work)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """A context manager: gives errors of ``magnetar.client`` the official texts; raises AlreadyClosed if
        another thread has closed the client.
        """
        try:
            yield
        except (PulsarException, RuntimeError) as error:
            self.translate(error)
            raise

    def translate(self, error: PulsarException | RuntimeError) -> None:
        """Raises the official client's error for an error of ``magnetar.client``; returns if the official
        client has no such error.
        """
        if isinstance(error, PulsarException):
            raise official(error) from error
        if self.closed:
            raise official(AlreadyClosed("the client was closed")) from error

    async def run_beside(self, work: Coroutine[object, object, T]) -> T:
        """Like :meth:`run`, for a caller in another event loop; errors of ``magnetar.client`` are not
        converted.
        """
        if self.closed:
            work.close()
            raise AlreadyClosed("the client is closed")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.thread.loop))

    def post(self, call: Callable[..., object], *arguments: object) -> None:
        """Calls ``call`` on the loop; calls are made in the order in which they were posted.

        :raises PulsarException: the client is closed (AlreadyClosed of ``magnetar.client``)
        """
        if self.closed:
            raise AlreadyClosed("the client is closed")
        try:
            self.thread.post(call, *arguments)
        except RuntimeError as error:
            if not self.closed:
                raise
            raise AlreadyClosed("the client was closed") from error

    def close(self) -> None:
        """Ends the loop; afterwards, the methods raise AlreadyClosed."""
        self.closed = True
        self.thread.close()


_Answer = tuple[asyncio.Future[MessageId], MessageId | None, Exception | None]


class Answers:
    """Passes message ids from the client's thread to futures of another event loop.

    Ids that arrive together wake up that loop only once.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._arrived: Together[_Answer] = Together(self._wake, self._pass_on)

    def post(
        self, future: asyncio.Future[MessageId], message_id: MessageId | None, error: Exception | None
    ) -> None:
        """Completes a future with the message id or the error; called in the client's thread."""
        self._arrived.add((future, message_id, error))

    def _wake(self, call: Callable[[], object]) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(call)

    @staticmethod
    def _pass_on(arrived: deque[_Answer]) -> None:
        while arrived:
            future, message_id, error = arrived.popleft()
            if future.done():
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(message_id if message_id is not None else MessageId())
