"""The open shadows of one broker, which follow changes of their sources' records."""

from __future__ import annotations

from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.records import ROOT
from magnetar.managed_ledger.shadow_ledger import ShadowLedger
from magnetar.metadata.interface import Change, MetadataStore, SessionEvent


class Shadows:
    """By the path of the record of the source. There is one listener for all, as it cannot be removed."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._by_source: dict[str, dict[ShadowLedger, None]] = {}
        self._listens = False

    def opened(self, shadow: ShadowLedger) -> None:
        """Reports changes to the shadow from now on until :meth:`over`, and those since it was opened."""
        if not self._listens:
            self._listens = True
            self._metadata.listen(ROOT, self._changed)
            self._metadata.listen_session(self._session)
        self._by_source.setdefault(shadow.source_path, {})[shadow] = None
        shadow.source_changed()

    def over(self, ledger: ManagedLedger) -> None:
        """Called when a managed ledger is closed or deleted; does nothing if it is not a shadow."""
        if isinstance(ledger, ShadowLedger):
            known = self._by_source.get(ledger.source_path, {})
            known.pop(ledger, None)
            if not known:
                self._by_source.pop(ledger.source_path, None)

    def _changed(self, change: Change) -> None:
        for shadow in list(self._by_source.get(change.path, ())):
            shadow.source_changed()

    def _session(self, event: SessionEvent) -> None:
        if event is SessionEvent.RECONNECTED:
            for shadows in list(self._by_source.values()):
                for shadow in list(shadows):
                    shadow.source_changed()
