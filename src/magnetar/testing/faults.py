"""Handles of injected faults for tests: each is active inside its ``with`` statement."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from magnetar.testing.errors import BrokerRefused

Ask = Callable[..., dict[str, Any]]


class Fault:
    """A fault, active inside its ``with`` statement."""

    def __init__(self, ask: Ask, number: int, kind: str, **what: Any) -> None:
        """:param number: unique for all faults of the broker, over restarts"""
        self._ask = ask
        self._number = number
        self._kind = kind
        self._what = what
        self._on = False

    def __enter__(self) -> Self:
        """:raises BrokerRefused: the arguments are not valid"""
        self._ask(self._kind, fault=self._number, **self._what)
        self._on = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Ends the fault before its ``with`` does. Does nothing if the fault or the broker has ended."""
        if self._on:
            self._on = False
            # Without a running broker there is nothing to end.
            with suppress(BrokerRefused):
                self._ask("end", fault=self._number)


class HeldReceipts(Fault):
    """A fault that holds back receipts."""

    @property
    def count(self) -> int:
        """Returns the number of held receipts."""
        return int(self._ask("held", fault=self._number)["held"])

    def release(self) -> int:
        """Sends the held receipts, and continues to hold later ones; returns their number."""
        return int(self._ask("release", fault=self._number)["released"])
