"""Clients of topics that go to another broker: they are told when it is known where they find them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Assigned(NamedTuple):
    """Where a topic is served from now on; empty: not in that way."""

    url: str
    url_tls: str


class Departure:
    """Of the topics of one bundle: nothing is taken of their clients any more, and they wait to be told."""

    def __init__(self) -> None:
        self._farewells: list[Callable[[Assigned | None], None]] = []

    def add(self, farewell: Callable[[Assigned | None], None]) -> None:
        """:param farewell: tells one client"""
        self._farewells.append(farewell)

    @property
    def waiting(self) -> int:
        return len(self._farewells)

    def tell(self, assigned: Assigned | None) -> None:
        """:param assigned: None: they look their topics up"""
        farewells, self._farewells = self._farewells, []
        for farewell in farewells:
            farewell(assigned)
