"""Decompresses large payloads in threads, within a memory limit that several consumers share. The limit is
needed because a payload of a few kilobytes can decompress to 128 MiB.
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
"""Payloads up to this uncompressed size in bytes are decompressed on the event loop, which takes less than a
millisecond.
"""


class Unpacking:
    """Decompresses large payloads in threads, for all consumers whose :attr:`ConsumerOptions.unpacking` is
    this object.
    """

    def __init__(
        self, apart: Callable[[Callable[[], object]], Awaitable[Any]], room: Room, *, most: int, copies: int
    ) -> None:
        """:param apart: runs a function in a thread, and returns its result

        :param most: maximum size of a decompressed payload, in bytes
        :param copies: how many copies of a decompressed payload are in memory at the same time; the limit
            counts all of them
        :param room: the memory limit
        """
        self._apart = apart
        self._room = room
        self._most = most
        self._copies = copies

    @staticmethod
    def is_for(metadata: MessageMetadata) -> bool:
        """Whether the payload must be decompressed in a thread, because it is large and not encrypted."""
        compressed = metadata.compression != CompressionType.NONE and not metadata.encryption_keys
        return compressed and metadata.uncompressed_size > ALONE_BYTES

    async def opened(self, entry: RawEntry) -> RawEntry:
        """Decompresses an entry, and returns it; its reserved memory is released when the last reference to
        the payload is gone.

        :raises MessageTooBig: the decompressed payload would be too large
        :raises Timeout: memory did not become available in time
        :raises InvalidMessage: the payload is damaged
        """
        metadata, size = entry.metadata, entry.metadata.uncompressed_size
        if size > self._most:
            raise MessageTooBig(
                f"{entry.message_id()} has {size} bytes after decompression; at most {self._most} "
                "are accepted"
            )
        try:
            held = await self._room.take(size * self._copies)
        except NoRoom as error:
            raise Timeout(f"{entry.message_id()} has {size} bytes after decompression: {error}") from error
        try:
            payload = await self._apart(partial(entry.entry.uncompressed_payload, self._most))
        except ProtocolError as error:
            raise InvalidMessage(f"{entry.message_id()}: {error}") from error
        plain = MessageMetadata()
        plain.CopyFrom(metadata)
        plain.compression = CompressionType.NONE
        return entry.with_entry(replace(entry.entry, metadata=plain, payload=payload, held=held))


class Aside:
    """Decompresses the entries of one consumer in a thread, one at a time; later entries wait in the queue,
    which keeps the order.
    """

    def __init__(
        self,
        loop: Loop,
        unpacking: Unpacking | None,
        opened: Callable[[RawEntry], object],
        failed: Callable[[RawEntry, PulsarException], object],
    ) -> None:
        """:param opened: called with a decompressed entry

        :param failed: called with an entry that cannot be decompressed, and the error
        """
        self._tasks = TaskScope(loop, "a consumer", self._internal_error)
        self._unpacking = unpacking
        self._opened = opened
        self._failed = failed
        self.entry: RawEntry | None = None
        """The entry that is being decompressed; None: no entry."""

    def takes(self, entry: RawEntry) -> bool:
        """Starts to decompress an entry in a thread, and returns True; returns False if the entry needs no
        thread.

        :raises InvalidMessage: the fields of the entry contradict each other
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
        """Drops the entry that is being decompressed; returns the number of permits that it used."""
        entry, self.entry = self.entry, None
        return entry.num_messages if entry is not None else 0
