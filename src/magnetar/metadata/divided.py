"""Combines two stores: the configuration store with the data that clusters share, and the local store with
the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magnetar.metadata.interface import Change, MetadataStore, Node, SessionEvent, Step, lies_in
from magnetar.naming.namespace_name import POLICIES

SHARED_ROOTS = ("/admin/clusters", POLICIES, "/admin/partitioned-topics", "/admin/resourcegroups")
"""The roots of the paths in the configuration store."""
_ABOVE = ("/", "/admin")


class DividedStore:
    """A ``MetadataStore`` that combines the local store and the configuration store. Ephemeral nodes belong
    to the local session; the configuration store has none.

    The two sessions are reported as one session, which is connected while both are connected, and lost when
    the local session is lost.
    """

    def __init__(self, local: MetadataStore, configuration: MetadataStore) -> None:
        self._local = local
        self._configuration = configuration

    def _at(self, path: str) -> MetadataStore:
        shared = any(lies_in(root, path) for root in SHARED_ROOTS)
        return self._configuration if shared else self._local

    async def get(self, path: str) -> Node | None:
        return await self._at(path).get(path)

    async def exists(self, path: str) -> bool:
        return await self._at(path).exists(path)

    async def children(self, path: str) -> Sequence[str]:
        if path not in _ABOVE:
            return await self._at(path).children(path)
        local, shared = await self._local.children(path), await self._configuration.children(path)
        if path == "/":
            return sorted({*local, *(name for name in shared if name == "admin")})
        names = {root.rpartition("/")[2] for root in SHARED_ROOTS}
        # A server that several clusters share may have more nodes.
        return sorted({*(set(local) - names), *names.intersection(shared)})

    async def put(
        self,
        path: str,
        value: bytes,
        expected_version: int | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> Node:
        store = self._at(path)
        return await store.put(path, value, expected_version, ephemeral=ephemeral, sequential=sequential)

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        await self._at(path).delete(path, expected_version)

    async def change_together(self, steps: Sequence[Step]) -> Sequence[Node | None]:
        """Makes all changes, or no change; see :meth:`MetadataStore.change_together`.

        :raises ValueError: the steps concern nodes of both stores, which cannot be changed together
        """
        stores = {id(store): store for store in (self._at(step.path) for step in steps)}
        if len(stores) > 1:
            shared = next(step.path for step in steps if self._at(step.path) is self._configuration)
            own = next(step.path for step in steps if self._at(step.path) is self._local)
            raise ValueError(
                f"{shared} is stored in the configuration store and {own} is not: they cannot be "
                "changed together"
            )
        store = next(iter(stores.values()), self._local)
        return await store.change_together(steps)

    def listen(self, root: str, listener: Callable[[Change], None]) -> None:
        if root not in _ABOVE:
            self._at(root).listen(root, listener)
            return

        def in_place(store: MetadataStore) -> Callable[[Change], None]:
            def heard(change: Change) -> None:
                if change.path in _ABOVE or self._at(change.path) is store:
                    listener(change)

            return heard

        self._local.listen(root, in_place(self._local))
        self._configuration.listen(root, in_place(self._configuration))

    def listen_session(self, listener: Callable[[SessionEvent], None]) -> None:
        joined = _JoinedSession(listener)
        self._local.listen_session(joined.of_local)
        self._configuration.listen_session(joined.of_configuration)

    async def close(self) -> None:
        try:
            await self._local.close()
        finally:
            await self._configuration.close()


class _JoinedSession:
    """Combines the events of two sessions for a listener."""

    def __init__(self, listener: Callable[[SessionEvent], None]) -> None:
        self._listener = listener
        self._local: SessionEvent | None = None
        self._configuration: SessionEvent | None = None
        self._told: SessionEvent | None = None

    def of_local(self, event: SessionEvent) -> None:
        self._local = event
        if event is SessionEvent.LOST:
            self._tell(event)
        else:
            self._weigh()

    def of_configuration(self, event: SessionEvent) -> None:
        self._configuration = event
        self._weigh()

    def _weigh(self) -> None:
        up = (SessionEvent.CONNECTED, SessionEvent.RECONNECTED)
        if self._local in up and self._configuration in up:
            if self._told is None:
                self._tell(SessionEvent.CONNECTED)
            elif self._told not in up:
                self._tell(SessionEvent.RECONNECTED)
        elif self._told in up:
            self._tell(SessionEvent.DISCONNECTED)

    def _tell(self, event: SessionEvent) -> None:
        self._told = event
        self._listener(event)
