"""HTTP as any column, each over a connection that is kept."""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPException
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from access_matrix.columns import Column

NO_ANSWER = 0
"""Instead of a status: none came in time."""
_SECONDS = 30.0
_FAILURES_OF_AN_ADDRESS = 4
_addresses = count(1)


def fresh_address() -> str:
    """An address of this machine from which nobody has failed: those who do are answered later and later."""
    number = next(_addresses)
    return f"127.7.{number // 250}.{number % 250 + 1}"


class Calls:
    """Of one thread."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._place = parts.hostname or "", parts.port or 80
        self._connections: dict[str, HTTPConnection] = {}
        self._failures: dict[str, int] = {}

    def ask(self, column: Column, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """Status and body of the answer, or :data:`NO_ANSWER`; ``body`` goes as JSON."""
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if column.token:
            headers["Authorization"] = f"Bearer {column.token}"
        if column.original:
            headers["X-Original-Principal"] = column.original
        text = None if body is None else json.dumps(body).encode()
        if column.unknown:
            self._count_failure(column)
        for last in (False, True):
            connection = self._connections.get(column.name) or self._connect(column)
            try:
                connection.request(method, path, text, headers)
                response = connection.getresponse()
                return response.status, response.read()
            except TimeoutError:
                self._forget(column)
                return NO_ANSWER, b""
            except (HTTPException, ConnectionError):
                # A connection that rested too long is closed by the server.
                self._forget(column)
                if last:
                    raise
        raise AssertionError("unreachable")

    def _connect(self, column: Column) -> HTTPConnection:
        source = (fresh_address(), 0) if column.unknown else None
        connection = HTTPConnection(*self._place, timeout=_SECONDS, source_address=source)
        self._connections[column.name] = connection
        return connection

    def _count_failure(self, column: Column) -> None:
        failures = self._failures.get(column.name, 0) + 1
        if failures > _FAILURES_OF_AN_ADDRESS:
            self._forget(column)
            failures = 1
        self._failures[column.name] = failures

    def _forget(self, column: Column) -> None:
        connection = self._connections.pop(column.name, None)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
