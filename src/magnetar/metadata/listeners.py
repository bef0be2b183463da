"""Listeners of metadata changes and session events; an error of one does not affect the others."""

from __future__ import annotations

import logging
from collections.abc import Callable

from magnetar.metadata.interface import Change, SessionEvent, check_path, lies_in

log = logging.getLogger(__name__)


class ChangeListeners:
    """Listeners by root path."""

    def __init__(self) -> None:
        self._all: list[tuple[str, Callable[[Change], None]]] = []

    def add(self, root: str, listener: Callable[[Change], None]) -> None:
        """:raises ValueError: ``root`` is not a valid path"""
        check_path(root)
        self._all.append((root, listener))

    def tell(self, change: Change) -> None:
        for root, listener in self._all:
            if not lies_in(root, change.path):
                continue
            try:
                listener(change)
            except Exception:
                log.exception("listener for changes of the metadata failed", extra={"path": change.path})


class SessionListeners:
    """Listeners of the session."""

    def __init__(self) -> None:
        self._all: list[Callable[[SessionEvent], None]] = []

    def add(self, listener: Callable[[SessionEvent], None]) -> None:
        self._all.append(listener)

    def tell(self, event: SessionEvent) -> None:
        for listener in tuple(self._all):
            try:
                listener(event)
            except Exception:
                log.exception(
                    "listener for events of the metadata session failed", extra={"event": event.value}
                )
