"""Ownership in a standalone broker: it owns every bundle as long as its session lasts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magnetar.broker.ownership.contract import Asked, Bundle, Lost, Owner
from magnetar.errors import ServiceNotReady
from magnetar.metadata.interface import MetadataStore, SessionEvent


class OnlyBroker:
    """See :class:`magnetar.broker.ownership.contract.Ownership`."""

    def __init__(self, metadata: MetadataStore, own: Callable[[int], Owner]) -> None:
        """:param own: returns this broker as the owner of a generation"""
        self._own = own
        self._generation = 1
        self._lasts = True
        """False from the loss of the session until there is a new one."""
        self._listeners: list[Lost] = []
        metadata.listen_session(self._session_changed)

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.LOST:
            self._lasts = False
            self._generation += 1
            for lost in self._listeners:
                lost(None)
        elif event in (SessionEvent.CONNECTED, SessionEvent.RECONNECTED):
            self._lasts = True

    def check_serving(self) -> None:
        if not self._lasts:
            raise ServiceNotReady("The broker has lost its session with the metadata store")

    async def owner_of(self, bundle: Bundle, asked: Asked = Asked.PLACE, *, persistent: bool = True) -> Owner:
        self.check_serving()
        return self._own(self._generation)

    async def retire_bundle(self, bundle: Bundle) -> None:
        """Does nothing: this broker owns every bundle."""

    def held(self) -> Sequence[Bundle]:
        return ()

    def begin_release(self, bundle: Bundle) -> bool:
        return False

    async def release(self, bundle: Bundle, towards: str | None = None) -> None:
        """Does nothing: no other broker could take the bundle."""

    def is_current(self, bundle: Bundle, owner: Owner) -> bool:
        return self._lasts and owner.generation == self._generation

    def listen(self, lost: Lost) -> None:
        self._listeners.append(lost)
