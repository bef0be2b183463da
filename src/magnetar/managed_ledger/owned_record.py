"""A record in the metadata store that only its owner changes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from magnetar.io.interfaces import Loop
from magnetar.io.locks import Mutex
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import InProgress, outcome
from magnetar.managed_ledger.errors import ManagedLedgerFenced, ManagedLedgerOvertaken
from magnetar.metadata.interface import (
    MUST_NOT_EXIST,
    BadVersion,
    Check,
    Delete,
    MetadataRefused,
    MetadataStore,
    MetadataUnavailable,
    Node,
    NodeMissing,
    Overtaken,
    Put,
    may_have_happened,
)

Written = Callable[[], None] | None


def perhaps_written(error: BaseException) -> bool:
    """Whether a put that failed with ``error`` may have taken effect.

    In that case, the stored record may refer to the ledgers of the put, which must not be deleted.
    """
    return isinstance(error, ManagedLedgerOvertaken) or may_have_happened(error)


class OwnedRecord:
    """Writes one record, one write at a time, each on the condition that the record has the last known
    version.

    After an unanswered write, the next write first finds out whether the unanswered write took effect,
    because this determines the version.

    :param version: the version that was read; the next put notices another process's write since then
    :param tenure: limits the time in which the record may be written; it began before the record was read.
        None: a new tenure
    """

    def __init__(
        self,
        loop: Loop,
        metadata: MetadataStore,
        path: str,
        version: int = MUST_NOT_EXIST,
        tenure: Tenure | None = None,
    ) -> None:
        self.path = path
        self.version = version
        self.tenure = tenure or Tenure(loop)
        self._loop = loop
        self._tasks = TaskScope(loop, path)
        self._metadata = metadata
        self._mutex = Mutex(loop)
        self._unknown: tuple[bytes, Written] | None = None
        self._abandoned = False
        self.deleted = False
        """Whether this owner has deleted the record, which is then never written again, because a new record
        at the path has the same versions."""

    def abandon(self) -> None:
        """Stops all writes, because the record belongs to another process."""
        self._abandoned = True

    async def put(
        self, encode: Callable[[], bytes], written: Written = None, above: OwnedRecord | None = None
    ) -> None:
        """Writes the record; durable when this returns.

        :param encode: returns the record at the time of the write
        :param written: called after this write and before the next write
        :param above: a record whose owner must not have changed; None: only this record is checked
        :raises BadVersion: the record was to be created and exists
        :raises ManagedLedgerFenced: another process has written the record
        :raises ManagedLedgerOvertaken: another process has written the record, possibly after this write
        :raises MetadataUnavailable: it is unknown whether the record was written; the next put finds this out
        """
        # A separate task: if the caller is cancelled the version must still follow the store's.
        task = self._tasks.answer(self._put(encode, written, above))
        await outcome(self._loop, task)

    async def delete(self, above: OwnedRecord | None = None) -> None:
        """Deletes the record, unless another process has written the record.

        :param above: see :meth:`put`
        :raises ManagedLedgerFenced: another process has written the record
        :raises NodeMissing: the record does not exist any more
        """
        task = self._tasks.answer(self._delete(above))
        await outcome(self._loop, task)

    async def change_below(self, step: Put | Delete) -> Node | None:
        """Changes another record on the condition that this record is unchanged since its last write by this
        process.

        Writes of this record do not wait; if this record is written in the meantime, the change is tried
        again.

        :returns: the changed record after a put; None after a deletion
        :raises BadVersion: the other record does not have the version in the step
        :raises NodeMissing: the other record does not exist
        :raises ManagedLedgerFenced: another process has written or deleted this record
        :raises MetadataUnavailable: the outcome is unknown
        """
        while True:
            self._check_owned()
            version = self.version
            try:
                with self.tenure.writing():
                    nodes = await self._metadata.change_together([Check(self.path, version), step])
            except (BadVersion, NodeMissing) as error:
                if error.step != 0:
                    raise
                async with self.held() as now:
                    if now == version:
                        raise self._fenced() from error
            else:
                return nodes[1]

    @asynccontextmanager
    async def held(self) -> AsyncIterator[int]:
        """Blocks writes of the record inside the ``with`` block; yields the version of the last write by this
        process.

        Works also for a record that is :attr:`deleted`.

        :raises BadVersion: the record was to be created and exists
        :raises ManagedLedgerFenced: another process has written the record
        :raises MetadataUnavailable: the outcome of the last write is still unknown
        """
        async with self._mutex:
            if not self.deleted:
                await self._find_out()
                self._check_owned()
            yield self.version

    async def still_owned(self, is_same: Callable[[bytes], bool]) -> bool:
        """Whether the stored record is the record that this process last wrote.

        :param is_same: distinguishes the record by its contents from a record that was created later
        :raises MetadataUnavailable: the store does not answer
        """
        async with self._mutex:
            try:
                await self._find_out()
            except (BadVersion, ManagedLedgerFenced):
                return False
            node = await self._metadata.get(self.path)
        if not self._owned() or node is None or node.version != self.version:
            return False
        return is_same(node.value)

    async def _put(self, encode: Callable[[], bytes], written: Written, above: OwnedRecord | None) -> None:
        async with self._mutex:
            await self._find_out()
            self._check_owned()
            value = encode()
            try:
                version = await self._write(value, above)
            except BadVersion as error:
                if self.version == MUST_NOT_EXIST:
                    raise
                if isinstance(error, Overtaken):
                    raise ManagedLedgerOvertaken(f"{self.path}: {error}") from error
                raise self._fenced() from error
            except MetadataRefused:
                raise
            except MetadataUnavailable:
                self._unknown = value, written
                raise
            self._wrote(version, written)

    async def _write(self, value: bytes, above: OwnedRecord | None) -> int:
        if above is None:
            with self.tenure.writing():
                return (await self._metadata.put(self.path, value, self.version)).version
        node = await above.change_below(Put(self.path, value, self.version))
        assert node is not None
        return node.version

    async def _delete(self, above: OwnedRecord | None) -> None:
        async with self.held() as version:
            if self.deleted:
                raise NodeMissing(f"{self.path} was deleted")
            try:
                if above is None:
                    with self.tenure.writing():
                        await self._metadata.delete(self.path, version)
                else:
                    await above.change_below(Delete(self.path, version))
            except NodeMissing:
                self.deleted = True
                raise
            except BadVersion as error:
                raise self._fenced() from error
            self.deleted = True

    async def _find_out(self) -> None:
        """Finds out whether a write that was not answered took effect."""
        if self._unknown is None:
            return
        value, written = self._unknown
        node = await self._metadata.get(self.path)
        self._unknown = None
        found = MUST_NOT_EXIST if node is None else node.version
        if found == self.version:
            return
        if node is not None and found == self.version + 1 and node.value == value:
            self._wrote(found, written)
            return
        if self.version == MUST_NOT_EXIST:
            raise BadVersion(f"{self.path} was created by another process")
        raise self._fenced()

    def _wrote(self, version: int, written: Written) -> None:
        self.version = version
        if written is not None:
            written()

    def _owned(self) -> bool:
        return not (self._abandoned or self.deleted or self.tenure.ended)

    def _check_owned(self) -> None:
        if not self._owned():
            raise ManagedLedgerFenced(f"{self.path} is no longer owned by this broker")

    def _fenced(self) -> ManagedLedgerFenced:
        return ManagedLedgerFenced(f"{self.path} was changed by another process")


class Tenure:
    """The time in which one owner may write the records of a managed ledger and of its cursors.

    A conditional write compares versions, and the versions of a record that is deleted and created again
    start from 0. So the new record can get the version that a former owner read in the old record. Therefore
    each write also needs the tenure of its owner, which begins before the record is read and ends before
    another broker can own the managed ledger:

    - A broker releases a bundle when the tenures of all its topics are over and the metadata store has
      answered their writes. Only then, and in the same session, it deletes the node of the bundle.
    - When a session ends, ZooKeeper deletes its nodes of bundles and refuses later requests of that session.
    - After a deletion the owner's tenure is over, whichever broker creates the record next.

    A tenure that has ended never begins again.
    """

    def __init__(self, loop: Loop) -> None:
        self._writes = InProgress(loop)
        self.ended = False

    def end(self) -> None:
        """Ends the tenure: no write begins any more. Idempotent."""
        self.ended = True

    async def over(self) -> None:
        """Ends the tenure; returns when no write is in progress, so that the next owner may begin."""
        self.end()
        await self._writes.none()

    def writing(self) -> InProgress:
        """Returns the context manager for each write.

        :raises ManagedLedgerFenced: the tenure has ended
        """
        if self.ended:
            raise ManagedLedgerFenced("this broker no longer owns the record")
        return self._writes
