"""Uncompresses large contents in threads, within a memory limit that several consumers share.

The uncompressed size of an entry is only a claim of its producer: some kilobytes may stand for 128 MiB.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

from magnetar.client.exceptions import InvalidMessage, MessageTooBig, PulsarException, Timeout, UnknownError
from magnetar.client.message import RawEntry
from magnetar.io.interfaces import Loop
from magnetar.io.locks import NoRoom, Room
from magnetar.io.tasks import TaskScope
from magnetar.protocol.errors import ProtocolError
from magnetar.protocol.pulsar_api_pb2 import CompressionType, MessageMetadata

ALONE_BYTES = 64 * 1024
"""Up to this size, contents are uncompressed immediately, which takes less than a millisecond."""


class Unpacking:
    """Uncompresses large contents in a thread, for all consumers that have it as
    :attr:`ConsumerOptions.unpacking`."""

    def __init__(
        self, apart: Callable[[Callable[[], object]], Awaitable[Any]], room: Room, *, most: int, copies: int
    ) -> None:
        """:param apart: runs a function in a thread

        :param most: size of the largest content, uncompressed, in bytes
        :param copies: copies of a content in memory until its consumer releases it
        """
        self._apart = apart
        self._room = room
        self._most = most
        self._copies = copies

    @staticmethod
    def is_for(metadata: MessageMetadata) -> bool:
        """Whether a payload with these metadata is uncompressed in a thread: it is large and not
        encrypted."""
        compressed = metadata.compression != CompressionType.NONE and not metadata.encryption_keys
        return compressed and metadata.uncompressed_size > ALONE_BYTES

    async def opened(self, entry: RawEntry) -> RawEntry:
        """Returns the entry with uncompressed content; its memory is released with the last reference.

        :raises MessageTooBig: the content is too large
        :raises Timeout: memory did not become available in time
        :raises InvalidMessage: the content is damaged
        """
        metadata, size = entry.metadata, entry.metadata.uncompressed_size
        if size > self._most:
            raise MessageTooBig(
                f"{entry.message_id()} has {size} bytes uncompressed; at most {self._most} are accepted"
            )
        try:
            held = await self._room.take(size * self._copies)
        except NoRoom as error:
            raise Timeout(f"{entry.message_id()} has {size} bytes uncompressed: {error}") from error
        try:
            payload = await self._apart(partial(entry.entry.uncompressed_payload, self._most))
        except ProtocolError as error:
            raise InvalidMessage(f"{entry.message_id()}: {error}") from error
        plain = MessageMetadata()
        plain.CopyFrom(metadata)
        plain.compression = CompressionType.NONE
        return entry.with_entry(replace(entry.entry, metadata=plain, payload=payload, held=held))


class Aside:
    """The entry of one consumer that is being uncompressed; later ones wait."""

    def __init__(
        self,
        loop: Loop,
        unpacking: Unpacking | None,
        opened: Callable[[RawEntry], object],
        failed: Callable[[RawEntry, PulsarException], object],
    ) -> None:
        """:param opened: called with an uncompressed entry

        :param failed: called with an entry that cannot be uncompressed, and the error
        """
        self._tasks = TaskScope(loop, "a consumer", self._internal_error)
        self._unpacking = unpacking
        self._opened = opened
        self._failed = failed
        self.entry: RawEntry | None = None
        """None: no entry is being uncompressed."""

    def takes(self, entry: RawEntry) -> bool:
        """Starts to uncompress an entry; false if it is not handled here.

        :raises InvalidMessage: the entry contradicts itself
        """
        if self._unpacking is None or not self._unpacking.is_for(entry.metadata):
            return False
        self.entry = entry
        self._tasks.start(self._open(self._unpacking, entry), "uncompressing an entry")
        return True

    async def _open(self, unpacking: Unpacking, entry: RawEntry) -> None:
        try:
            found = await unpacking.opened(entry)
        except PulsarException as error:
            if self.entry is entry:
                self.entry = None
                self._failed(entry, error)
            return
        if self.entry is entry:
            self.entry = None
            self._opened(found)

    def _internal_error(self, work: str, error: BaseException) -> None:
        entry, self.entry = self.entry, None
        if entry is not None:
            self._failed(entry, UnknownError(f"{work} failed: {type(error).__name__}: {error}"))

    def forget(self) -> int:
        """Drops the entry; returns its number of permits."""
        entry, self.entry = self.entry, None
        return entry.num_messages if entry is not None else 0
