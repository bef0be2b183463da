"""Faults as a test holds them: each is on inside its ``with``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from magnetar.testing.errors import BrokerRefused

Ask = Callable[..., dict[str, Any]]


class Fault:
    """On from the entrance of its ``with`` to the exit."""

    def __init__(self, ask: Ask, number: int, kind: str, **what: Any) -> None:
        """:param number: of no other fault in any life of the broker"""
        self._ask = ask
        self._number = number
        self._kind = kind
        self._what = what
        self._on = False

    def __enter__(self) -> Self:
        """:raises BrokerRefused: something is wrong with what is asked for"""
        self._ask(self._kind, fault=self._number, **self._what)
        self._on = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Before the end of its ``with``. Nothing happens when it has ended, or the broker has."""
        if self._on:
            self._on = False
            # Where the broker does not run there is nothing to end.
            with suppress(BrokerRefused):
                self._ask("end", fault=self._number)


class HeldReceipts(Fault):
    """Receipts that are held back."""

    @property
    def count(self) -> int:
        """How many are held now."""
        return int(self._ask("held", fault=self._number)["held"])

    def release(self) -> int:
        """Sends those that are held now, and goes on holding; answers how many there were."""
        return int(self._ask("release", fault=self._number)["released"])
