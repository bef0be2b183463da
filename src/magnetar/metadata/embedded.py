"""Metadata of a single process, in SQLite, with a worker of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from magnetar.io.files import SpaceReserve, copy_file, is_shortage
from magnetar.io.interfaces import Future, Io, SqlConnection, SqlError, SqlFull
from magnetar.io.waiting import finished, run_job
from magnetar.metadata.following import ChangeListeners
from magnetar.metadata.interface import (
    Change,
    MetadataError,
    MetadataRefused,
    MetadataUnavailable,
    Node,
    NodeDamaged,
    SessionEvent,
    Step,
    check_path,
    check_steps,
    check_value,
)
from magnetar.metadata.progress import IDENTITY_BYTES, Edit, Edits, NodeRange, Progress, Verify
from magnetar.metadata.sqlite_nodes import FORMAT_VERSION, OFFLOADING_FORMAT, SqliteNodes

log = logging.getLogger(__name__)

T = TypeVar("T")
Operation = tuple[Callable[[SqliteNodes], object], Any]
"""An operation on the nodes, and the future for its result."""
Outcome = tuple[object, BaseException | None, list[Change]]
Transacted = tuple[list[Outcome], Edits | None]
"""The outcome of each operation, and the transaction's changes of persistent nodes, if any."""

_PARTS_OF_RESERVE = 16
"""The reserve divided by this number is released first, which is enough for nearly all transactions; if the
whole reserve were released at once, other writers might take the space."""
_FIRST_RESERVE_BYTES = 1 << 20
"""The minimum size of the reserve, in bytes. For a larger database, the reserve has the database's size, up
to a limit."""
_TRANSACTIONS_A_LOOK = 256
"""The number of transactions between two checks of the size of the database."""
_TRANSACTIONS_A_CHECKPOINT = 8
"""The number of transactions between two checkpoints of the write-ahead log while the reserve is
incomplete."""
_LEAST_BYTES = 64 << 10
"""If there is no space for a transaction, this many bytes of the reserve (or half of the reserve if that is
more) are released, and the transaction is tried again."""


class UnknownMetadataFormat(MetadataError):
    """A newer release wrote the metadata in a format that this release does not know."""


class DatabaseDamaged(MetadataError):
    """The database cannot be opened, or its content is not what Magnetar wrote."""


class EmbeddedMetadataStore:
    """A ``MetadataStore`` on the local disk, opened by :meth:`open_store`.

    All waiting operations become one transaction, in the order of their calls; an operation whose condition
    is not met is rolled back alone. Ephemeral nodes belong to the process: none is older than the opening of
    the store.

    :ivar progress: the progress of the metadata as of the last transaction whose operations were answered
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
        self._idle: Future[None] | None = None
        self._stopped: Future[None] | None = None
        self._listeners = ChangeListeners()
        self._transactions = 0
        self.progress = Progress(b"")
        self._edit_listeners: list[Callable[[Edits], None]] = []
        self._next_ledger_id: Callable[[], int] = lambda: 1
        self._written = self.progress
        """The progress at the end of the last transaction; only the worker uses it."""
        self._reserve: SpaceReserve
        self._connection: SqlConnection
        self._nodes: SqliteNodes

    @classmethod
    async def open_store(
        cls, io: Io, path: str, *, reserve_bytes: int = 0, verify: Verify = lambda _found: None
    ) -> EmbeddedMetadataStore:
        """Opens the database at ``path``, creates it if missing, and removes ephemeral nodes left by a crash.

        Every row is read, and compared with the tally in the database.

        :param reserve_bytes: the maximum number of bytes that are reserved on the device for writes that are
            necessary when the device is full
        :param verify: see :data:`~magnetar.metadata.progress.Verify`; called on the store's worker. This
            method raises the errors of ``verify``
        :raises UnknownMetadataFormat: a newer release wrote the database
        :raises DatabaseDamaged: the file is not a metadata store, or has other rows than those that were
            written
        :raises MetadataUnavailable: the device has no space for the writes of the opening
        """
        store = cls(io, path, reserve_bytes)
        try:
            await run_job(io.loop, store._worker, partial(store._open, verify))
        except BaseException:
            store._worker.close()
            raise
        store.progress = store._written
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
        """Reports the session as connected at once, because it lasts as long as the store is open."""
        if not self._closed:
            self._io.loop.call_soon(listener, SessionEvent.CONNECTED)

    async def pair_with(self, ledger_store: bytes, next_ledger_id: Callable[[], int]) -> None:
        """Records durably the ledger store to which the metadata belongs.

        :param ledger_store: the id of the ledger store
        :param next_ledger_id: returns the next ledger id of the ledger store; called in each transaction
        :raises MetadataRefused: the device has no space for the record
        """
        self._next_ledger_id = next_ledger_id
        if self.progress.ledger_store != ledger_store:
            paired = self.progress._replace(ledger_store=ledger_store, next_ledger_id=next_ledger_id())
            await run_job(self._io.loop, self._worker, partial(self._pair, paired))
            self.progress = paired

    def listen_for_edits(self, listener: Callable[[Edits], None]) -> None:
        """Registers ``listener``, which is called for each transaction that changes persistent nodes, before
        the operations of the transaction are answered.
        """
        self._edit_listeners.append(listener)

    def stop_listening_for_edits(self, listener: Callable[[Edits], None]) -> None:
        """Ends the reports to a listener of :meth:`listen_for_edits`."""
        if listener in self._edit_listeners:
            self._edit_listeners.remove(listener)

    async def read_part(self, after: str, take: Callable[[NodeRange], None]) -> None:
        """Passes the next part of the persistent nodes, which begins after the path ``after``, to ``take``.

        Changes that :meth:`listen_for_edits` reports before the call of ``take`` are in the part; later
        changes are not. Returns when ``take`` was called.

        :raises MetadataUnavailable: the nodes cannot be read
        """
        read = self._io.loop.create_future()

        def done(part: NodeRange | None, error: BaseException | None) -> None:
            if part is not None:
                take(part)
            if read.done():
                return
            if error is None:
                read.set_result(None)
            else:
                read.set_exception(MetadataUnavailable(f"{self._path} cannot be read: {error}"))

        self._worker.submit(lambda: self._nodes.part(after, self._written), done)
        await read

    async def note_offloading(self) -> None:
        """Records durably that ledgers are in tiered storage, so that releases without tiered storage
        refuse the data.

        :raises MetadataRefused: the store is closed, or has no space
        :raises MetadataUnavailable: the outcome is unknown
        """
        await self._do(SqliteNodes.note_offloading)

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
        self._worker.submit(partial(self._run, operations, self._next_ledger_id()), self._finished)

    def _finished(self, transacted: Transacted | None, error: BaseException | None) -> None:
        done, self._in_flight = self._in_flight, []
        if transacted is None:
            self._fail(done, error)
            return
        outcomes, edits = transacted
        if edits is not None:
            self.progress = edits.progress
            for listener in list(self._edit_listeners):
                listener(edits)
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
        """Stops the process, because after a failed write of a transaction it is unknown what is durable."""
        waiting, self._waiting = self._waiting, []
        self._closed = True
        for _, future in (*done, *waiting):
            if not future.done():
                future.set_exception(MetadataUnavailable(f"the metadata cannot be written: {error}"))
        if self._idle is not None:
            self._idle.set_result(None)
            self._idle = None
        self._io.stop_process(f"cannot write the metadata in {self._path!r}: {error}; the process stops")

    def _open(self, verify: Verify) -> None:
        """Opens the database. Runs on the worker, like all methods below."""
        directory = self._path.rpartition("/")[0] or "."
        self._reserve = SpaceReserve(self._io.disk, directory, self._reserve_bytes, _FIRST_RESERVE_BYTES)
        self._make_room()
        try:
            self._connection = self._io.open_sqlite(self._path)
        except SqlFull as error:
            raise self._without_room(error) from error
        except SqlError as error:
            raise DatabaseDamaged(f"{self._path} cannot be opened: {error}") from error
        self._nodes = SqliteNodes(self._connection)
        self._changed = False
        try:
            self._prepare(verify)
        except BaseException:
            self._close_unchanged()
            raise

    def _close_unchanged(self) -> None:
        """Closes the database after a failed opening; if nothing was written, database and write-ahead log
        stay unchanged.

        When SQLite closes a database, it copies the readable part of the write-ahead log into the database
        and removes the log. The rest of the log would be lost, and so would a database to which the log does
        not belong.
        """
        disk, write_ahead = self._io.disk, f"{self._path}-wal"
        kept = [] if self._changed or not disk.exists(write_ahead) else [self._path, write_ahead]
        try:
            for path in kept:
                copy_file(disk, path, f"{path}.kept")
        except OSError as error:
            log.warning(
                "cannot keep a copy of the metadata files as they were found",
                extra={"path": self._path, "error": str(error)},
            )
            kept = []
        try:
            self._connection.close()
        except SqlFull as error:
            raise self._without_room(error) from error
        finally:
            for path in kept:
                disk.rename(f"{path}.kept", path)
            if kept:
                disk.sync_directory(self._path.rpartition("/")[0] or ".")

    def _make_room(self) -> None:
        """Releases space of the reserve before a transaction if the device has too little. Only the write
        itself shows whether the space is enough."""
        reserve = self._reserve
        if not reserve.size:
            return
        try:
            if reserve.make_room(reserve.wanted // _PARTS_OF_RESERVE) and not reserve.whole:
                reserve.fill()
        except OSError as error:
            if not is_shortage(error):
                raise

    def _keep_log_short(self) -> None:
        """While the device is nearly full, restarts the write-ahead log in the space that it already has.

        Otherwise the log would use up the space that the reserve has released.
        """
        if not self._reserve.whole and self._transactions % _TRANSACTIONS_A_CHECKPOINT == 0:
            try:
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            except SqlFull:
                # The database would have to grow for the checkpoint, so the log goes on growing.
                return

    def _without_room(self, error: SqlFull) -> MetadataRefused:
        return MetadataRefused(f"no space for the metadata in {self._path!r}: {error}")

    def _prepare(self, verify: Verify) -> None:
        try:
            self._connection.start()
            found = self._nodes.format()
            if found > OFFLOADING_FORMAT:
                raise UnknownMetadataFormat(
                    f"{self._path!r} has format {found}; this release knows formats up to {OFFLOADING_FORMAT}"
                )
            if found < 0:
                raise DatabaseDamaged(f"{self._path} is not a metadata store: its format is {found}")
            self._keep_log_short()
            self._written = self._found(found, verify)
            self._remove_ephemeral()
        except SqlFull as error:
            raise self._without_room(error) from error
        except (SqlError, NodeDamaged) as error:
            raise DatabaseDamaged(f"{self._path} is damaged: {error}") from error

    def _found(self, found: int, verify: Verify) -> Progress:
        """Returns the recorded progress. In a database that is new or of an older format, a new progress is
        written first.

        :param found: the format of the database; 0: it is new
        """
        nodes = self._nodes
        if found >= FORMAT_VERSION:
            progress, nodes.tally = nodes.read_progress(), nodes.count_all()
            if progress.tally != nodes.tally:
                raise NodeDamaged(
                    f"its {nodes.tally.nodes} nodes differ from the {progress.tally.nodes} nodes that "
                    "were written"
                )
            verify(progress)
            self._changed = True
            return progress
        if found:
            nodes.tally = nodes.count_all()
        verify(Progress(b"", 0, nodes.tally) if found else None)
        self._changed = True
        progress = Progress(self._io.randomness.token(IDENTITY_BYTES), 0, nodes.tally)
        self._connection.execute("BEGIN IMMEDIATE")
        if not found:
            nodes.create()
        nodes.add_progress(progress)
        self._connection.execute("COMMIT")
        return progress

    def _pair(self, progress: Progress) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._nodes.write_progress(progress)
            self._connection.execute("COMMIT")
        except SqlFull as error:
            self._roll_back()
            self._erase_refused()
            raise self._without_room(error) from error
        self._written = progress

    def _end_session(self) -> None:
        self._make_room()
        self._remove_ephemeral()
        self._connection.close()

    def _remove_ephemeral(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._nodes.delete_ephemeral()
        noted = self._note_progress(self._written.next_ledger_id)
        self._connection.execute("COMMIT")
        if noted is not None:
            self._written = noted.progress
        self._nodes.changes, self._nodes.edits = [], []

    def _note_progress(self, next_ledger_id: int) -> Edits | None:
        """Assigns a new generation to the transaction's changes of persistent nodes, and returns these
        changes; None: the transaction changes no persistent nodes.
        """
        nodes = self._nodes
        if not nodes.edits:
            return None
        last = self._written
        progress = last._replace(
            generation=last.generation + 1,
            tally=nodes.tally,
            next_ledger_id=max(last.next_ledger_id, next_ledger_id),
        )
        nodes.write_progress(progress)
        return Edits(progress, nodes.edits)

    def _run(self, operations: list[Callable[[SqliteNodes], object]], next_ledger_id: int) -> Transacted:
        """Runs all operations as one transaction; if there is no space for the transaction, no operation
        takes effect.
        """
        if self._transactions % _TRANSACTIONS_A_LOOK == 0:
            self._reserve.grow(self._nodes.database_bytes())
        self._transactions += 1
        self._make_room()
        self._keep_log_short()
        while True:
            tally = self._nodes.tally
            try:
                return self._transact(operations, next_ledger_id)
            except SqlFull as error:
                self._nodes.tally = tally
                self._roll_back()
                if not self._reserve.held:
                    self._erase_refused()
                    failure = self._without_room(error)
                    return [(None, failure, []) for _ in operations], None
                self._reserve.give_up(max(self._reserve.held // 2, _LEAST_BYTES))

    def _roll_back(self) -> None:
        """Ends a failed transaction, unless SQLite has rolled it back itself."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _erase_refused(self) -> None:
        """Overwrites what a refused transaction may have left in the write-ahead log.

        SQLite may have written the whole transaction, including its commit record, before the device had no
        space for the padding up to the end of a sector. A crash would then restore a change that was answered
        as refused: a record that names a deleted ledger, for example. This method writes a small transaction
        at the same offset, in space that the log has; the old bytes after it then have wrong checksums.
        """
        connection = self._connection
        try:
            mark = int(connection.execute("PRAGMA application_id")[0][0])
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(f"PRAGMA application_id = {1 - mark % 2}")
            connection.execute("COMMIT")
        except SqlFull:
            self._roll_back()
        log = f"{self._path}-wal"
        if self._io.disk.exists(log):
            file = self._io.disk.open(log)
            try:
                file.sync()
            finally:
                file.close()

    def _transact(self, operations: list[Callable[[SqliteNodes], object]], next_ledger_id: int) -> Transacted:
        """Runs all operations in one transaction, each in its own savepoint; returns the outcomes."""
        connection, nodes = self._connection, self._nodes
        outcomes: list[Outcome] = []
        edits: list[Edit] = []
        connection.execute("BEGIN IMMEDIATE")
        for operation in operations:
            connection.execute("SAVEPOINT operation")
            nodes.changes, nodes.edits = [], []
            tally = nodes.tally
            try:
                result = operation(nodes)
            except MetadataError as error:
                connection.execute("ROLLBACK TO operation")
                nodes.tally = tally
                outcomes.append((None, error, []))
            else:
                outcomes.append((result, None, nodes.changes))
                edits += nodes.edits
            connection.execute("RELEASE operation")
        nodes.edits = edits
        noted = self._note_progress(next_ledger_id)
        connection.execute("COMMIT")
        if noted is not None:
            self._written = noted.progress
        return outcomes, noted
