"""Unloading with redirection: clients of a topic are told its new broker once that is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Assigned(NamedTuple):
    """The addresses of the broker that serves a topic from now on; empty: it has no such address."""

    url: str
    url_tls: str


class Departure:
    """Topics of one bundle that are leaving: input of their clients is ignored until they are told."""

    def __init__(self) -> None:
        self._farewells: list[Callable[[Assigned | None], None]] = []

    def add(self, farewell: Callable[[Assigned | None], None]) -> None:
        """:param farewell: tells one client"""
        self._farewells.append(farewell)

    @property
    def waiting(self) -> int:
        return len(self._farewells)

    def tell(self, assigned: Assigned | None) -> None:
        """:param assigned: None: clients look their topics up"""
        farewells, self._farewells = self._farewells, []
        for farewell in farewells:
            farewell(assigned)
