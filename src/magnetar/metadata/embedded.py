"""Metadata of a single process, in SQLite on a worker of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from magnetar.io.interfaces import Io, SqlConnection, SqlError, SqlFull
from magnetar.io.jobs import run_job
from magnetar.io.space_reserve import SpaceReserve, is_shortage
from magnetar.io.waiting import finished
from magnetar.metadata.interface import (
    Change,
    MetadataError,
    MetadataRefused,
    MetadataUnavailable,
    Node,
    SessionEvent,
    Step,
    check_path,
    check_steps,
    check_value,
)
from magnetar.metadata.listeners import ChangeListeners
from magnetar.metadata.sqlite_nodes import FORMAT_VERSION, SqliteNodes

T = TypeVar("T")
Operation = tuple[Callable[[SqliteNodes], Any], Any]
"""What to do, and the future that hears of it."""
Outcome = tuple[Any, BaseException | None, list[Change]]

_PARTS_OF_RESERVE = 16
"""So large a part of the reserve is enough for nearly all transactions; all of it, given up at once, might go
to whoever fills the device."""
_FIRST_RESERVE_BYTES = 1 << 20
"""The reserve of a small database; then it is as large as the database, within its bound."""
_TRANSACTIONS_A_LOOK = 256
"""Between two looks at how large the database is."""
_LEAST_BYTES = 64 << 10
"""Given up by a transaction without room before it is tried again, or half of the reserve if that is more."""


class UnknownMetadataFormat(MetadataError):
    """A newer release wrote the metadata in a format this one does not know."""


class DatabaseDamaged(MetadataError):
    """The database cannot be opened, or is not what a release wrote."""


class EmbeddedMetadataStore:
    """A ``MetadataStore``; made by :meth:`open_store`.

    All operations that wait become one transaction, in the order they were asked for; one whose condition
    fails is undone alone. Ephemeral nodes belong to the process: none is older than the store's opening.
    """

    def __init__(self, io: Io, path: str, reserve_bytes: int) -> None:
        self._io = io
        self._reserve_bytes = reserve_bytes
        self._path = path
        self._worker = io.start_worker("metadata")
        self._waiting: list[Operation] = []
        self._in_flight: list[Operation] = []
        self._scheduled = False
        self._closed = False
        self._idle: Any = None
        self._stopped: Any = None
        self._listeners = ChangeListeners()
        self._transactions = 0
        self._reserve: SpaceReserve
        self._connection: SqlConnection
        self._nodes: SqliteNodes

    @classmethod
    async def open_store(cls, io: Io, path: str, *, reserve_bytes: int = 0) -> EmbeddedMetadataStore:
        """Opens the database at ``path``, made when missing, and removes ephemeral nodes a crash left.

        :param reserve_bytes: kept beside it for what must be written when the device is full

        :raises UnknownMetadataFormat: a newer release wrote it
        :raises DatabaseDamaged: it is no database, or another one
        :raises MetadataUnavailable: the device has no room for what opening writes
        """
        store = cls(io, path, reserve_bytes)
        try:
            await run_job(io.loop, store._worker, store._open)
        except BaseException:
            store._worker.close()
            raise
        return store

    async def get(self, path: str) -> Node | None:
        check_path(path)
        return await self._do(lambda nodes: nodes.get(path))

    async def put(
        self,
        path: str,
        value: bytes,
        expected_version: int | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Node:
        check_path(path)
        check_value(path, value)
        now_ms = self._io.clock.wall_ms()
        return await self._do(
            lambda nodes: nodes.put(path, value, expected_version, ephemeral, sequential, now_ms)
        )

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        check_path(path)
        await self._do(lambda nodes: nodes.delete(path, expected_version))

    async def change_together(self, steps: Sequence[Step]) -> Sequence[Node | None]:
        check_steps(steps)
        now_ms = self._io.clock.wall_ms()
        return await self._do(lambda nodes: nodes.change_together(steps, now_ms))

    async def exists(self, path: str) -> bool:
        check_path(path)
        return await self._do(lambda nodes: nodes.exists(path))

    async def children(self, path: str) -> Sequence[str]:
        check_path(path)
        return await self._do(lambda nodes: nodes.children(path))

    def listen(self, root: str, listener: Callable[[Change], None]) -> None:
        self._listeners.add(root, listener)

    def listen_session(self, listener: Callable[[SessionEvent], None]) -> None:
        """Tells of the session at once: it lasts as long as the store is open."""
        if not self._closed:
            self._io.loop.call_soon(listener, SessionEvent.CONNECTED)

    async def close(self) -> None:
        if self._stopped is not None:
            await finished(self._io.loop, self._stopped)
            return
        self._closed = True
        self._stopped = self._io.loop.create_future()
        try:
            while self._waiting or self._in_flight:
                self._idle = self._io.loop.create_future()
                await self._idle
            await run_job(self._io.loop, self._worker, self._end_session)
            self._worker.close()
        finally:
            self._stopped.set_result(None)

    async def _do(self, operation: Callable[[SqliteNodes], T]) -> T:
        if self._closed:
            raise MetadataRefused("the metadata store is closed")
        future = self._io.loop.create_future()
        self._waiting.append((operation, future))
        if not self._in_flight and not self._scheduled:
            self._scheduled = True
            self._io.loop.call_soon(self._start)
        result: T = await future
        return result

    def _start(self) -> None:
        self._scheduled = False
        self._in_flight, self._waiting = self._waiting, []
        operations = [operation for operation, _ in self._in_flight]
        self._worker.submit(partial(self._run, operations), self._finished)

    def _finished(self, outcomes: list[Outcome] | None, error: BaseException | None) -> None:
        done, self._in_flight = self._in_flight, []
        if outcomes is None:
            self._fail(done, error)
            return
        if self._waiting:
            self._start()
        changes: list[Change] = []
        for (_, future), (result, failure, changed) in zip(done, outcomes, strict=True):
            changes += changed
            if future.done():
                continue
            if failure is not None:
                future.set_exception(failure)
            else:
                future.set_result(result)
        if not self._in_flight and self._idle is not None:
            self._idle.set_result(None)
            self._idle = None
        for change in changes:
            self._listeners.tell(change)

    def _fail(self, done: list[Operation], error: BaseException | None) -> None:
        """A transaction that cannot be written leaves nobody knowing what is durable."""
        waiting, self._waiting = self._waiting, []
        self._closed = True
        for _, future in (*done, *waiting):
            if not future.done():
                future.set_exception(MetadataUnavailable(f"the metadata cannot be written: {error}"))
        if self._idle is not None:
            self._idle.set_result(None)
            self._idle = None
        self._io.stop_process(f"cannot write the metadata in {self._path!r}: {error}; the process stops")

    def _open(self) -> None:
        """Runs on the worker, as all below."""
        directory = self._path.rpartition("/")[0] or "."
        self._reserve = SpaceReserve(self._io.disk, directory, self._reserve_bytes, _FIRST_RESERVE_BYTES)
        self._make_room()
        try:
            self._connection = self._io.open_sqlite(self._path)
        except SqlFull as error:
            raise self._without_room(error) from error
        except SqlError as error:
            raise DatabaseDamaged(f"{self._path} cannot be opened: {error}") from error
        try:
            self._prepare()
        except BaseException:
            try:
                self._connection.close()
            except SqlFull as error:
                raise self._without_room(error) from error
            raise

    def _make_room(self) -> None:
        """Costs a system call. Whether the room is enough, the writing itself finds out."""
        reserve = self._reserve
        if not reserve.size:
            return
        try:
            if reserve.make_room(reserve.wanted // _PARTS_OF_RESERVE) and not reserve.whole:
                reserve.fill()
        except OSError as error:
            if not is_shortage(error):
                raise

    def _without_room(self, error: SqlFull) -> MetadataRefused:
        return MetadataRefused(f"no room for the metadata in {self._path!r}: {error}")

    def _prepare(self) -> None:
        self._nodes = SqliteNodes(self._connection)
        try:
            found = self._nodes.prepare()
            if found > FORMAT_VERSION:
                raise UnknownMetadataFormat(
                    f"{self._path!r} has format {found}; this release knows formats up to {FORMAT_VERSION}"
                )
            if found < 1:
                raise DatabaseDamaged(f"{self._path} is not a metadata store: its format is {found}")
            self._remove_ephemeral()
        except SqlFull as error:
            raise self._without_room(error) from error
        except SqlError as error:
            raise DatabaseDamaged(f"{self._path} is not a sound metadata store: {error}") from error

    def _end_session(self) -> None:
        self._make_room()
        self._remove_ephemeral()
        self._connection.close()

    def _remove_ephemeral(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._nodes.delete_ephemeral()
        self._connection.execute("COMMIT")
        self._nodes.changes.clear()

    def _run(self, operations: list[Callable[[SqliteNodes], Any]]) -> list[Outcome]:
        """All operations as one transaction; without room for it none of them happens."""
        if self._transactions % _TRANSACTIONS_A_LOOK == 0:
            self._reserve.grow(self._nodes.database_bytes())
        self._transactions += 1
        self._make_room()
        while True:
            try:
                return self._transact(operations)
            except SqlFull as error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                if not self._reserve.held:
                    failure = self._without_room(error)
                    return [(None, failure, []) for _ in operations]
                self._reserve.give_up(max(self._reserve.held // 2, _LEAST_BYTES))

    def _transact(self, operations: list[Callable[[SqliteNodes], Any]]) -> list[Outcome]:
        """Each operation in a savepoint of its own."""
        connection, nodes = self._connection, self._nodes
        outcomes: list[Outcome] = []
        connection.execute("BEGIN IMMEDIATE")
        for operation in operations:
            connection.execute("SAVEPOINT operation")
            nodes.changes = []
            try:
                result = operation(nodes)
            except MetadataError as error:
                connection.execute("ROLLBACK TO operation")
                outcomes.append((None, error, []))
            else:
                outcomes.append((result, None, nodes.changes))
            connection.execute("RELEASE operation")
        connection.execute("COMMIT")
        return outcomes
