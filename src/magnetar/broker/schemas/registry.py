"""The schema registry: the versions of each topic's schema, and the rules for new versions.

Definitions are parsed and compared on a worker thread, because a large definition would block the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from magnetar.broker.schemas import compatibility
from magnetar.broker.schemas.compatibility import validate
from magnetar.broker.schemas.data import WITH_DEFINITION, SchemaData, SchemaType, StoredSchema
from magnetar.broker.schemas.storage import ROOT, SchemaStorage
from magnetar.errors import ConcurrentModification, IncompatibleSchema, ServiceNotReady
from magnetar.io.interfaces import Io, Worker
from magnetar.io.locks import Mutex
from magnetar.io.waiting import run_job
from magnetar.metadata.following import MetadataCache
from magnetar.metadata.interface import BadVersion, MetadataStore

if TYPE_CHECKING:
    from magnetar.broker.flow.rates import SchemaOperations


T = TypeVar("T")
_MAX_KNOWN_BYTES = 16 * 1024 * 1024
"""The maximum size of all cached definitions."""
_TRIES = 5


class SchemaRegistry:
    """Schemas by their id, ``tenant/namespace/topic``; the topic need not exist."""

    def __init__(
        self, io: Io, storage: SchemaStorage, metadata: MetadataStore, operations: SchemaOperations
    ) -> None:
        self._io = io
        self.storage = storage
        self._operations = operations
        self._worker: Worker | None = None
        self._known = MetadataCache(metadata, ROOT, self._read, most=_MAX_KNOWN_BYTES, weigh=_size)
        self._mutexes: dict[str, Mutex] = {}
        self._users: dict[str, int] = {}

    def close(self) -> None:
        """Ends the thread that compares schemas."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    async def run(self, job: Callable[[], T]) -> T:
        """Runs a job on the registry's worker thread and returns its result; for work whose duration depends
        on the size of definitions and payloads."""
        if self._worker is None:
            self._worker = self._io.start_worker("schemas")
        return await run_job(self._io.loop, self._worker, job)

    async def _validate(self, schema: SchemaData) -> None:
        if schema.data or schema.type in WITH_DEFINITION:
            await self.run(lambda: validate(schema))
        else:
            validate(schema)

    # Reading

    async def history(self, schema_id: str) -> tuple[StoredSchema, ...]:
        """Returns all stored versions, including marks of deletions, the oldest first.

        :raises LedgerError: a version cannot be read
        """
        return await self._known.get(f"{ROOT}/{schema_id}")

    async def _read(self, path: str) -> tuple[StoredSchema, ...]:
        index, _record = await self.storage.index(path[len(ROOT) + 1 :])
        return tuple([await self.storage.read(entry) for entry in index])

    async def versions(self, schema_id: str) -> tuple[StoredSchema, ...]:
        """Returns the versions since the last deletion of the schema, the oldest first."""
        history = await self.history(schema_id)
        for place in range(len(history), 0, -1):
            if history[place - 1].deleted:
                return history[place:]
        return history

    async def list(self, schema_id: str) -> tuple[StoredSchema, ...]:
        """Returns what :meth:`versions` returns; telemetry counts the call as a LIST request."""
        with self._operations.measured(SchemaOperation.LIST, schema_id):
            return await self.versions(schema_id)

    async def get(self, schema_id: str, version: int | None = None) -> StoredSchema | None:
        """Returns one version of a schema; None if the version does not exist or was deleted.

        :param version: the number of the version; None: the latest version
        """
        with self._operations.measured(SchemaOperation.GET, schema_id):
            for found in reversed(await self.versions(schema_id)):
                if version is None or found.version == version:
                    return found
        return None

    async def find(self, schema_id: str, schema: SchemaData) -> int | None:
        """Returns the number of the version that has the same meaning as ``schema``; None: no version has
        this meaning.

        :raises InvalidSchemaData: the definition cannot be parsed
        """
        versions = await self.versions(schema_id)
        found = await self.run(lambda: _find(versions, schema)) if versions else None
        return None if found is None else found.version

    # Adding

    async def put_if_absent(
        self, schema_id: str, schema: SchemaData, strategy: str, *, may_add: bool = True
    ) -> int:
        """Returns the version of a schema; a new schema is added first.

        :param strategy: the compatibility strategy, one of :data:`compatibility.STRATEGIES`
        :param may_add: whether the schema may be added; False: only an existing version is accepted
        :raises InvalidSchemaData: the schema is invalid
        :raises IncompatibleSchema: the schema is new and may not follow the existing versions
        """
        with self._operations.measured(SchemaOperation.PUT, schema_id):
            await self._validate(schema)
            async with _Alone(self, schema_id):
                for _ in range(_TRIES):
                    try:
                        return await self._put(schema_id, schema, strategy, may_add=may_add)
                    except BadVersion:
                        # Another broker stored a version meanwhile.
                        self._forget(schema_id)
            raise ServiceNotReady("The schema is being changed by other clients; try again")

    async def _put(self, schema_id: str, schema: SchemaData, strategy: str, *, may_add: bool) -> int:
        versions = await self.versions(schema_id)
        for known in reversed(versions):
            if known.data.type is schema.type and known.data.data == schema.data:
                return known.version

        found = await self.run(lambda: _find(versions, schema)) if versions else None
        if found is not None:
            return found.version
        if not may_add:
            raise IncompatibleSchema("Schema not found and schema auto updating is disabled.")
        if versions:
            await self._compare(schema_id, versions, schema, strategy)
        return await self._append(schema_id, schema, deleted=False)

    async def _compare(
        self, schema_id: str, versions: Sequence[StoredSchema], schema: SchemaData, strategy: str
    ) -> None:
        """Checks that a producer's schema may follow the existing versions.

        :raises IncompatibleSchema: the schema may not follow the existing versions
        """
        known = [each.data for each in versions]
        try:
            await self.run(lambda: compatibility.check_producer(known, schema, strategy))
        except IncompatibleSchema:
            self._operations.compared(schema_id, compatible=False)
            raise
        self._operations.compared(schema_id, compatible=True)

    async def _append(self, schema_id: str, schema: SchemaData, *, deleted: bool) -> int:
        index, record = await self.storage.index(schema_id)
        version = index[-1].version + 1 if index else 0
        stored = StoredSchema(version, schema, self._io.clock.wall_ms(), deleted)
        await self.storage.append(schema_id, stored, index, record)
        self._forget(schema_id)
        return version

    def _forget(self, schema_id: str) -> None:
        self._known.forget(f"{ROOT}/{schema_id}")

    # Checking

    async def check_consumer(self, schema_id: str, schema: SchemaData, strategy: str) -> None:
        """Checks that a consumer with a schema can read the topic.

        :raises IncompatibleSchema: a consumer with that schema cannot read the topic, or the topic has no
            schema
        :raises InvalidSchemaData: the schema is invalid
        """
        await self._validate(schema)
        versions = [each.data for each in await self.versions(schema_id)]
        if strategy == "ALWAYS_COMPATIBLE":
            return
        if not versions:
            raise IncompatibleSchema(
                "Failed to add schema to an active topic with empty(BYTES) schema: "
                f"new schema type {schema.type.name}"
            )
        await self.run(lambda: compatibility.check_consumer(versions, schema, strategy))

    async def check(self, schema_id: str, schema: SchemaData, strategy: str) -> None:
        """Checks that a producer could add a schema; nothing is added.

        :raises IncompatibleSchema: the producer could not add the schema
        :raises InvalidSchemaData: the schema is invalid
        """
        await self._validate(schema)
        versions = await self.versions(schema_id)
        if versions:
            await self._compare(schema_id, versions, schema, strategy)

    # Deleting

    async def mark_deleted(self, schema_id: str, user: str = "") -> int:
        """Marks the schema as deleted; returns the version of the mark. Stored versions are kept."""
        with self._operations.measured(SchemaOperation.DELETE, schema_id):
            async with _Alone(self, schema_id):
                return await self._append(schema_id, SchemaData(SchemaType.NONE, user=user), deleted=True)

    async def delete(self, schema_id: str) -> None:
        """Deletes all versions of a schema and their ledgers; does nothing if the schema does not exist.

        :raises ConcurrentModification: another broker stored a version at the same time; nothing is deleted
        """
        with self._operations.measured(SchemaOperation.DELETE, schema_id):
            async with _Alone(self, schema_id):
                try:
                    await self.storage.delete(schema_id)
                except BadVersion as error:
                    text = f"The schema {schema_id} was changed while it was being deleted; try again"
                    raise ConcurrentModification(text) from error
                finally:
                    self._forget(schema_id)


class _Alone:
    """A lock with which one task at a time changes a schema."""

    def __init__(self, registry: SchemaRegistry, schema_id: str) -> None:
        self._registry = registry
        self._id = schema_id

    async def __aenter__(self) -> None:
        registry = self._registry
        mutex = registry._mutexes.get(self._id)
        if mutex is None:
            mutex = registry._mutexes[self._id] = Mutex(registry._io.loop)
        registry._users[self._id] = registry._users.get(self._id, 0) + 1
        try:
            await mutex.__aenter__()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *_exc: object) -> None:
        await self._registry._mutexes[self._id].__aexit__()
        self._leave()

    def _leave(self) -> None:
        users = self._registry._users
        users[self._id] -= 1
        if not users[self._id]:
            del users[self._id]
            del self._registry._mutexes[self._id]


def _size(versions: Sequence[StoredSchema]) -> int:
    return sum(len(each.data.data) for each in versions) + 1000


def _find(versions: Sequence[StoredSchema], schema: SchemaData) -> StoredSchema | None:
    for known in versions:
        if compatibility.same(known.data, schema):
            return known
    return None


class SchemaOperation(Enum):
    """A request to the schema registry; the value is its name in telemetry, as in Pulsar."""

    GET = "get"
    LIST = "list"
    PUT = "put"
    DELETE = "delete"
