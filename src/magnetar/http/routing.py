"""Which endpoint a path belongs to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from magnetar.broker.admin.all import Admin
from magnetar.broker.stats.figures import MetricsSnapshot
from magnetar.http.engine.message import Request, Response
from magnetar.http.metrics.rendering import MetricsOptions


@dataclass(frozen=True, slots=True)
class Process:
    """What is asked of the process around a broker."""

    ready: Callable[[], bool]
    """True from the moment clients are served until stopping begins."""
    check_health: Callable[[], Awaitable[None]]
    """Publishes to and reads from a topic of the broker's own; raises BrokerError if that does not work."""
    settings: Mapping[str, str]
    """Every setting in effect, by Pulsar's name, as text."""
    storage: Callable[[str | None], Awaitable[Mapping[str, Any]]]
    """The disk, the ledger store, and what topics take: all of them, or those of a namespace."""
    figures: Callable[[], Awaitable[MetricsSnapshot]]
    """Everything that metrics print, of one moment as far as possible."""


@dataclass(frozen=True, slots=True)
class Application:
    """What handlers work with."""

    admin: Admin
    process: Process
    metrics: MetricsOptions
    version: str
    cluster: str = ""
    """The name of the broker's cluster."""


Handler = Callable[[Application, Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One row of the endpoint table."""

    method: str
    path: str
    """``/``-separated; ``{name}`` stands for one piece, whatever it holds once decoded."""
    handler: Handler
    description: str
    aliases: Sequence[str] = ()
    """Older paths to the same; their variables may differ."""
    constants: Mapping[str, str] = field(default_factory=dict)
    """Variables that the path does not have and the handler wants."""


@dataclass(frozen=True, slots=True)
class Found:
    handler: Handler
    variables: dict[str, str]


@dataclass(slots=True)
class _Node:
    fixed: dict[str, _Node] = field(default_factory=dict)
    variable: _Node | None = None
    methods: dict[str, tuple[Handler, tuple[str, ...], Mapping[str, str]]] = field(default_factory=dict)


class Router:
    """Finds endpoints; fixed pieces win over variables, the rest of the path decides where both fit."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._root = _Node()
        for endpoint in endpoints:
            for path in (endpoint.path, *endpoint.aliases):
                self._add(path, endpoint)

    def _add(self, path: str, endpoint: Endpoint) -> None:
        node = self._root
        names: list[str] = []
        for piece in _pieces(path):
            if piece.startswith("{"):
                names.append(piece[1:-1])
                node.variable = node.variable or _Node()
                node = node.variable
            else:
                node = node.fixed.setdefault(piece, _Node())
        if endpoint.method in node.methods:
            raise ValueError(f"two endpoints for {endpoint.method} {path}")
        node.methods[endpoint.method] = (endpoint.handler, tuple(names), endpoint.constants)

    def find(self, method: str, path: str) -> Found | frozenset[str]:
        """The endpoint, or the methods that the path has (none: nothing is there). HEAD is served by GET."""
        wanted = "GET" if method == "HEAD" else method
        allowed: set[str] = set()
        for node, values in _matches(self._root, _pieces(path), 0, ()):
            entry = node.methods.get(wanted)
            if entry is not None:
                handler, names, constants = entry
                return Found(handler, {**constants, **dict(zip(names, map(unquote, values), strict=True))})
            allowed.update(node.methods)
        return frozenset(allowed)


def _pieces(path: str) -> list[str]:
    """The pieces of a path; a slash at the end adds none."""
    pieces = path.split("/")[1:]
    if pieces and not pieces[-1]:
        pieces.pop()
    return pieces


def _matches(
    node: _Node, pieces: list[str], index: int, values: tuple[str, ...]
) -> Iterator[tuple[_Node, tuple[str, ...]]]:
    """All ways to read the path, best first."""
    if index == len(pieces):
        if node.methods:
            yield node, values
        return
    piece = pieces[index]
    fixed = node.fixed.get(piece)
    if fixed is not None:
        yield from _matches(fixed, pieces, index + 1, values)
    if node.variable is not None and piece:
        yield from _matches(node.variable, pieces, index + 1, (*values, piece))
