"""Asks every cell of the matrix."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from urllib.parse import quote

from raw_client import Client, Refused
from raw_transactions import begin

from access_matrix.binary import (
    CLOSED,
    OF_NAMESPACES,
    OF_TOPICS,
    OF_TRANSACTIONS,
    OK,
    OWN,
    PLACES,
    abort,
    commands,
    connect,
    connected,
    load_coordinator,
)
from access_matrix.calls import NO_ANSWER, Calls
from access_matrix.columns import COLUMNS, OPENER, SUPERUSER, Column
from access_matrix.objects import Objects, Things, grant, make_namespaces, topic_path
from access_matrix.rows import PLAIN, Row, rows

CHANGED = "+"
"""Behind an outcome: what was asked for has happened."""
CONNECT = "CONNECT"
NOT_ASKED = "-"
_READ_LATER = COLUMNS[:9]
"""Those who may nothing, but for the last of them: after it is read what all of them have changed."""
_THREADS = 8
_VOID = [str(NO_ANSWER)] * len(COLUMNS)

Matrix = Mapping[str, Sequence[str]]
"""By the row's key: an outcome for each column."""


class Asking:
    """Of one broker."""

    def __init__(
        self, url: str, port: int, *, patience: float = 0.0, prefix: str = "", recording: bool = False
    ) -> None:
        """:param patience: seconds until what was changed can be read

        :param prefix: of the names of objects, where an earlier run has left its own
        :param recording: every column asks in every way, and rows whose objects cannot be made are void
        """
        self._recording = recording
        self._url = url
        self._port = port
        self._patience = patience
        self._prefix = prefix
        self._of_thread = threading.local()
        self._opened: list[Calls] = []
        self._connected: Sequence[str] = ()

    def everything(
        self,
        only: str = "",
        told: Callable[[str, Sequence[str]], None] | None = None,
        known: Container[str] = (),
    ) -> Matrix:
        """The matrix.

        :param only: of rows whose keys hold this
        :param known: rows that are left out
        :param told: called with each row of HTTP as soon as it is known
        """
        calls = self._calls()
        make_namespaces(calls)
        wanted = [row for row in rows() if only in row.key and row.key not in known]
        try:
            with ThreadPoolExecutor(_THREADS) as pool:
                found: dict[str, Sequence[str]] = {}
                for key, outcomes in pool.map(self._of_row, enumerate(wanted)):
                    found[key] = outcomes
                    if told is not None:
                        told(key, outcomes)
                if only in ("", CONNECT):
                    found[CONNECT] = self._connected = [connected(self._port, one) for one in COLUMNS]
                    load_coordinator(self._port)
                    found.update(pool.map(self._of_command, enumerate(commands())))
                return found
        finally:
            for one in self._opened:
                one.close()

    def _calls(self) -> Calls:
        found: Calls | None = getattr(self._of_thread, "calls", None)
        if found is None:
            found = self._of_thread.calls = Calls(self._url)
            self._opened.append(found)
        return found

    def _of_row(self, numbered: tuple[int, Row]) -> tuple[str, list[str]]:
        try:
            return self._asked_of_row(*numbered)
        except (AssertionError, ConnectionError, Refused, TimeoutError) as error:
            if not self._recording:
                raise
            print(numbered[1].key, repr(error))
            return numbered[1].key, _VOID

    def _asked_of_row(self, number: int, row: Row) -> tuple[str, list[str]]:
        calls = self._calls()
        objects = Objects(calls, self._port)
        outcomes: list[str] = []
        things: Things | None = None
        generation = 0
        seen = True
        for column in COLUMNS:
            if row.way != PLAIN and not (column.asks_every_way or self._recording):
                outcomes.append(NOT_ASKED)
                continue
            if things is None:
                things = objects.make(
                    row, f"{self._prefix}r{number}g{generation}", granted=not column.administers
                )
                generation += 1
            body = things.body_of(row.endpoint) if row.endpoint.body else None
            status, _answer = calls.ask(column, row.endpoint.method, things.path, body)
            if status == NO_ANSWER:
                # Nobody waits for the others.
                return row.key, _VOID
            if not row.endpoint.changes:
                outcomes.append(str(status))
                continue
            if status in (401, 403) and column in _READ_LATER and not self._recording:
                outcomes.append(str(status))
                continue
            changed = self._has_changed(objects, things, status < 300 and seen)
            if status < 300 and not changed:
                # The row changes nothing that can be read: nobody waits for it again.
                seen = False
            outcomes.append(f"{status}{CHANGED if changed else ''}")
            if changed or status < 300:
                things = None
        return row.key, outcomes

    def _has_changed(self, objects: Objects, things: Things, expected: bool) -> bool:
        end = time.monotonic() + (self._patience if expected else 0.0)
        while objects.state(things) == things.before:
            if time.monotonic() >= end:
                return False
            time.sleep(0.02)
        return True

    # The binary protocol

    def _of_command(self, numbered: tuple[int, tuple[str, str]]) -> tuple[str, list[str]]:
        number, (name, place) = numbered
        calls = self._calls()
        outcomes: list[str] = []
        topic = ""
        generation = 0
        for column, state in zip(COLUMNS, self._connected, strict=True):
            if state != OK:
                outcomes.append(CLOSED)
                continue
            with self._client(column) as client:
                if name in OF_NAMESPACES:
                    outcomes.append(OF_NAMESPACES[name](client, place))
                    continue
                if name in OF_TRANSACTIONS:
                    outcomes.append(self._of_transaction(client, name, place))
                    continue
                if not topic:
                    own = f"{self._prefix}b{number}g{generation}"
                    topic = self._topic(calls, place, own, granted=not column.administers)
                    generation += 1
                outcome = OF_TOPICS[name](client, topic)
            appeared = not PLACES[place].exists and self._is_there(calls, topic)
            outcomes.append(outcome + (CHANGED if appeared else ""))
            if outcome == OK or appeared:
                topic = ""
        return f"{name} {place}", outcomes

    def _of_transaction(self, client: Client, name: str, owner: str) -> str:
        with self._client(OPENER) as other, self._client(SUPERUSER) as superuser:
            transaction = begin(client if owner == OWN else other)
            outcome = OF_TRANSACTIONS[name](client, transaction)
            if outcome != OK or not name.startswith("END_TXN"):
                assert abort(superuser, transaction) == OK
        return outcome

    @contextmanager
    def _client(self, column: Column) -> Iterator[Client]:
        client = connect(self._port, column)
        try:
            yield client
        finally:
            client.close()

    @staticmethod
    def _topic(calls: Calls, place: str, name: str, *, granted: bool) -> str:
        """A topic at a place, made by the superuser unless it is to be new."""
        where = PLACES[place]
        full = f"{where.domain}://{where.namespace}/{name}"
        path = topic_path(where.domain, where.namespace, name)
        if not where.exists:
            return full
        if where.partition:
            calls.ask(SUPERUSER, "PUT", f"{path}/partitions", 2)
        else:
            calls.ask(SUPERUSER, "PUT", path)
        if where.granted and granted:
            grant(calls, path)
        return f"{full}-partition-0" if where.partition else full

    @staticmethod
    def _is_there(calls: Calls, topic: str) -> bool:
        path = quote(topic.replace("://", "/"))
        return calls.ask(SUPERUSER, "GET", f"/admin/v2/{path}/stats")[0] == 200


def write(matrix: Matrix) -> str:
    """The matrix as a table of text."""
    lines = ["\t".join(["row", *(column.name for column in COLUMNS)])]
    lines += ["\t".join([key, *outcomes]) for key, outcomes in matrix.items()]
    return "\n".join(lines) + "\n"


def read(text: str) -> Matrix:
    """What :func:`write` wrote."""
    lines = [line.split("\t") for line in text.splitlines()]
    assert lines[0][1:] == [column.name for column in COLUMNS]
    return {key: outcomes for key, *outcomes in lines[1:]}
