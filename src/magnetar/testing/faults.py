"""Faults as a test holds them: each is on inside its ``with``."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

Ask = Callable[..., dict[str, Any]]


class Fault:
    """On from the entrance of its ``with`` to the exit."""

    def __init__(self, ask: Ask, kind: str, **what: Any) -> None:
        self._ask = ask
        self._kind = kind
        self._what = what
        self._number: int | None = None

    def __enter__(self) -> Self:
        """:raises BrokerRefused: something is wrong with what is asked for"""
        self._number = self._ask(self._kind, **self._what)["fault"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Before the end of its ``with``; nothing happens when it has ended, or the broker has."""
        number, self._number = self._number, None
        if number is not None:
            self._ask("end", fault=number)


class HeldReceipts(Fault):
    """Receipts that are held back."""

    @property
    def count(self) -> int:
        """How many are held now."""
        return int(self._ask("held", fault=self._number)["held"]) if self._number is not None else 0

    def release(self) -> int:
        """Sends those that are held now, and goes on holding; answers how many there were."""
        return int(self._ask("release", fault=self._number)["released"]) if self._number is not None else 0
