"""Metadata in ZooKeeper. The layers above determine the paths and values of nodes, which are Pulsar's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from magnetar.io.waiting import InProgress, nobody_waits
from magnetar.metadata.following import ChangeListeners
from magnetar.metadata.interface import (
    MUST_NOT_EXIST,
    BadVersion,
    Change,
    ChangeKind,
    Delete,
    MetadataError,
    MetadataRefused,
    MetadataUnavailable,
    Node,
    NodeMissing,
    Put,
    SessionEvent,
    Step,
    check_path,
    check_steps,
    check_value,
    named,
)
from magnetar.metadata.zookeeper.address import EnsembleAddress
from magnetar.metadata.zookeeper.messages import (
    NO_NODE,
    JuteReader,
    Operation,
    OperationResult,
    add_watch,
    check_packet,
    create,
    delete,
    error_of,
    failed,
    multi,
    read,
    set_data,
    take_results,
    take_stat,
)
from magnetar.metadata.zookeeper.session import Outside, SessionSettings, ZooKeeperSession

T = TypeVar("T")

_ANY = -1
_TRIES = 20
"""The maximum number of attempts of a put whose node or parents are created or deleted between two of its
requests."""


class ZooKeeperMetadataStore:
    """A ``MetadataStore`` in ZooKeeper, opened by :meth:`open_store`.

    A put creates missing parents, with a request for each. Reads are answered by the server to which this
    session is connected. The answers are never older than data that the session has read or written before,
    but may lack later changes by other sessions.
    """

    def __init__(self, outside: Outside, address: EnsembleAddress, settings: SessionSettings) -> None:
        self._chroot = address.chroot
        self._listeners = ChangeListeners()
        self._roots: list[str] = []
        self.session = ZooKeeperSession(outside, address, settings, self._on_event)
        self._operations = InProgress(outside.loop)
        self._closed = False

    @classmethod
    async def open_store(
        cls,
        outside: Outside,
        address: EnsembleAddress,
        settings: SessionSettings | None = None,
        *,
        wait_seconds: float = 60.0,
    ) -> ZooKeeperMetadataStore:
        """Waits for the first connection, and creates the chroot if it is missing.

        :raises MetadataUnavailable: no server answered within ``wait_seconds``
        """
        store = cls(outside, address, settings or SessionSettings())
        store.session.start()
        try:
            if not await store.session.opened(wait_seconds):
                trouble = f"{store.session.server}: {store.session.trouble}"
                raise MetadataRefused(f"ZooKeeper at {address} cannot be reached: {trouble}")
            if address.chroot:
                await store._make_parents(f"{address.chroot}/x")
        except BaseException:
            await store.close()
            raise
        return store

    async def get(self, path: str) -> Node | None:
        check_path(path)

        def take(reader: JuteReader) -> Node:
            value = reader.take_bytes()
            return take_stat(reader).node(path, value, self.session.session_id)

        return await self._unless_missing(self._read(Operation.GET_DATA, path, take), None)

    async def exists(self, path: str) -> bool:
        check_path(path)
        return await self._unless_missing(
            self._read(Operation.EXISTS, path, lambda _reader: True), instead=False
        )

    async def children(self, path: str) -> Sequence[str]:
        check_path(path)
        found = self._read(Operation.GET_CHILDREN, path, JuteReader.take_texts)
        return sorted(await self._unless_missing(found, []))

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
        make = create(self._real(path), value, ephemeral=ephemeral, sequential=sequential)
        check_packet(path, make)
        with self._operation():
            if sequential or expected_version == MUST_NOT_EXIST:
                return await self._create(path, value, make)
            if expected_version is not None:
                return await self._set(path, value, expected_version)
            for _ in range(_TRIES):
                with suppress(NodeMissing):
                    return await self._set(path, value, _ANY)
                # It did not exist: it is created, unless another session has created it meanwhile.
                with suppress(BadVersion):
                    return await self._create(path, value, make)
            raise MetadataUnavailable(
                f"{path} cannot be written: other sessions created and deleted it during {_TRIES} attempts"
            )

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        check_path(path)
        version = _ANY if expected_version is None else expected_version
        with self._operation():
            await self._ask(Operation.DELETE, path, delete(self._real(path), version), _nothing)

    async def change_together(self, steps: Sequence[Step]) -> Sequence[Node | None]:
        check_steps(steps)
        if not steps:
            return []
        asked = [self._asked(step) for step in steps]
        about = named(steps)
        packet = multi(asked)
        check_packet(about, packet)
        operations = [operation for operation, _ in asked]
        with self._operation():
            for _ in range(_TRIES):
                results = await self._ask(
                    Operation.MULTI, about, packet, lambda reader: take_results(reader, operations)
                )
                at = failed(results)
                if at is None:
                    return [self._changed(step, result) for step, result in zip(steps, results, strict=True)]
                if operations[at] != Operation.CREATE2 or results[at].error != NO_NODE:
                    raise _refused(steps[at], at, results[at].error)
                await self._make_parents(self._real(steps[at].path))
            raise MetadataUnavailable(
                f"{about} failed: other sessions deleted parent nodes during {_TRIES} attempts"
            )

    def _asked(self, step: Step) -> tuple[Operation, bytes]:
        real = self._real(step.path)
        if isinstance(step, Put):
            if step.expected_version == MUST_NOT_EXIST:
                return Operation.CREATE2, create(real, step.value, ephemeral=step.ephemeral)
            return Operation.SET_DATA, set_data(real, step.value, step.expected_version)
        version = _ANY if step.expected_version is None else step.expected_version
        return Operation.DELETE if isinstance(step, Delete) else Operation.CHECK, delete(real, version)

    def _changed(self, step: Step, result: OperationResult) -> Node | None:
        if not isinstance(step, Put) or result.stat is None:
            return None
        return result.stat.node(step.path, step.value, self.session.session_id)

    def listen(self, root: str, listener: Callable[[Change], None]) -> None:
        self._listeners.add(root, listener)
        if root not in self._roots:
            self._roots.append(root)
            real = self._real(root)
            self.session.watch(real, add_watch(real))

    def listen_session(self, listener: Callable[[SessionEvent], None]) -> None:
        self.session.listen(listener)

    async def close(self) -> None:
        self._closed = True
        await self._operations.none()
        await self.session.close()

    def _real(self, path: str) -> str:
        """Returns the path in ZooKeeper, including the chroot."""
        if not self._chroot:
            return path
        return self._chroot if path == "/" else self._chroot + path

    def _shown(self, real: str) -> str:
        return real[len(self._chroot) :] or "/"

    async def _ask(
        self,
        operation: Operation,
        path: str,
        packet: bytes,
        take: Callable[[JuteReader], T],
        *,
        repeatable: bool = False,
    ) -> T:
        result: T = await self.session.ask(operation, path, packet, take, repeatable=repeatable)
        return result

    async def _read(self, operation: Operation, path: str, take: Callable[[JuteReader], T]) -> T:
        with self._operation():
            return await self._ask(operation, path, read(self._real(path)), take, repeatable=True)

    async def _unless_missing(self, answer: Awaitable[T], instead: T) -> T:
        try:
            return await answer
        except NodeMissing:
            return instead

    async def _set(self, path: str, value: bytes, version: int) -> Node:
        def take(reader: JuteReader) -> Node:
            return take_stat(reader).node(path, value, self.session.session_id)

        try:
            return await self._ask(Operation.SET_DATA, path, set_data(self._real(path), value, version), take)
        except NodeMissing:
            if version == _ANY:
                raise
            raise BadVersion(f"{path}: the node does not exist; expected version {version}") from None

    async def _create(self, path: str, value: bytes, packet: bytes) -> Node:
        """Creates a node.

        :raises BadVersion: the node exists
        """

        def take(reader: JuteReader) -> Node:
            made = self._shown(reader.take_text())
            return take_stat(reader).node(made, value, self.session.session_id)

        for _ in range(_TRIES):
            try:
                return await self._ask(Operation.CREATE2, path, packet, take)
            except NodeMissing:
                await self._make_parents(self._real(path))
        raise MetadataUnavailable(f"{path}: other sessions keep deleting its parent nodes")

    async def _make_parents(self, real: str) -> None:
        """Creates missing parents with one write, because a session's requests are processed in the order of
        sending."""
        pieces = real.split("/")[1:-1]
        parents = ["/" + "/".join(pieces[: count + 1]) for count in range(len(pieces))]
        asked = [
            self.session.ask(Operation.CREATE2, parent, create(parent, b""), _nothing) for parent in parents
        ]
        for each in asked:
            # After an error the futures of the others are not awaited.
            each.add_done_callback(nobody_waits)
        for each in asked:
            try:
                await each
            except (BadVersion, NodeMissing):
                # It exists; or its parent was deleted meanwhile, and the caller tries again.
                continue

    def _on_event(self, kind: ChangeKind, real: str) -> None:
        path = self._shown(real)
        self._listeners.tell(Change(kind, path))
        if kind in (ChangeKind.CREATED, ChangeKind.DELETED) and path != "/":
            self._listeners.tell(Change(ChangeKind.CHILDREN, path.rpartition("/")[0] or "/"))

    def _operation(self) -> InProgress:
        """Returns a context manager for an operation; closing the store waits for the operation's end.

        :raises MetadataRefused: the store is closed
        """
        if self._closed:
            raise MetadataRefused("the metadata store is closed")
        return self._operations


def _refused(step: Step, at: int, code: int) -> MetadataError:
    error = error_of(code, step.path)
    if isinstance(error, NodeMissing) and not isinstance(step, Delete):
        error = BadVersion(f"{step.path}: the node does not exist; expected version {step.expected_version}")
    error.step = at
    return error


def _nothing(_reader: JuteReader) -> None:
    return None
