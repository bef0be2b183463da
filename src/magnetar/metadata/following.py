"""Follows the content below a node: reads it after each change, until nothing newer is there."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from magnetar.errors import MetadataFailure
from magnetar.io.interfaces import Io, Task
from magnetar.io.waiting import sleep
from magnetar.metadata.interface import (
    Change,
    MetadataError,
    MetadataStore,
    MetadataUnavailable,
    SessionEvent,
)

log = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0


class Follower:
    """The last content read stays in effect until a new one was read.

    :param what: its name, for the log
    :param take: reads everything and puts it into effect
    :param pause: seconds after each reading, for content that changes continually
    """

    def __init__(
        self,
        io: Io,
        metadata: MetadataStore,
        root: str,
        what: str,
        take: Callable[[], Awaitable[None]],
        pause: float = 0.0,
    ) -> None:
        self._io = io
        self._what = what
        self._take = take
        self._pause = pause
        self._task: Task[None] | None = None
        self._stale = False
        self._stopped = False
        metadata.listen(root, self._changed)
        metadata.listen_session(self._session_changed)

    def stop(self) -> None:
        self._stopped = True
        if self._task is not None:
            self._task.cancel()

    def _changed(self, _change: Change) -> None:
        self._read_anew()

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.RECONNECTED:
            self._read_anew()

    def _read_anew(self) -> None:
        self._stale = True
        if self._task is None and not self._stopped:
            self._task = self._io.loop.create_task(self._follow())

    async def _follow(self) -> None:
        try:
            while self._stale:
                self._stale = False
                try:
                    await self._take()
                except MetadataUnavailable as error:
                    log.warning(
                        "cannot read metadata; trying again later",
                        extra={"what": self._what, "error": str(error)},
                    )
                    self._stale = True
                    await sleep(self._io.loop, _RETRY_SECONDS)
                except (MetadataError, MetadataFailure) as error:
                    log.error(
                        "cannot read metadata; keeping the former values",
                        extra={"what": self._what, "error": str(error)},
                    )
                else:
                    if self._pause:
                        await sleep(self._io.loop, self._pause)
        finally:
            self._task = None
