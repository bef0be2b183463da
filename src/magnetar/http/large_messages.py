"""Responses with stored messages: small ones are sent at once, large ones within a memory limit that all
requests share.

Producers can declare any decompressed size, and clients can send requests without reading the responses.
Therefore a large payload counts against the limit from the time before its decompression, which runs in a
thread, until its last piece is sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

from magnetar.broker.admin.messages import ExaminedEntry
from magnetar.http.engine.message import JSON_TYPE, Abandoned, Response, error_response
from magnetar.io.interfaces import Io, Loop, Worker
from magnetar.io.locks import Held, Mutex, NoRoom, Room
from magnetar.io.waiting import run_job

if TYPE_CHECKING:
    from magnetar.http.shapes.stored_message import StoredMessage

Read = Callable[[], Awaitable[ExaminedEntry]]

ROOM_BYTES = 128 << 20
"""The memory limit for the large payloads of all requests, in bytes; during decompression, a payload can need
twice its size.
"""
SMALL_BYTES = 64 * 1024
_PIECE_BYTES = 64 * 1024
_WAITING = 4
"""Maximum number of requests that wait for memory; it is limited because each keeps an entry in memory
meanwhile.
"""
_WAIT_SECONDS = 10.0
_SECONDS_BEFORE_OTHERS = 15.0
"""While other requests wait for memory, a client must read its response within this time, in seconds."""


class LargeMessages:
    """Creates the responses of one server that contain stored messages."""

    def __init__(self, io: Io, room_bytes: int = ROOM_BYTES) -> None:
        self._io = io
        self._room = Room(io.loop, room_bytes, waiting=_WAITING, seconds=_WAIT_SECONDS)
        self._reading = Mutex(io.loop)
        self._worker: Worker | None = None
        self._parse: type[StoredMessage] | None = None

    async def answer(self, read: Read) -> Response:
        """Returns the response with the entry that ``read`` returns.

        The status is 413 if twice the size of the payload exceeds the memory limit, and 503 if too many
        requests wait for memory or the memory does not become free in time.

        :raises PersistenceFailure: the entry cannot be parsed, or its payload cannot be decompressed
        :raises BrokerError: an error of ``read``
        """
        async with self._reading:
            # One after another, so that a waiting request holds no entry.
            if self._parse is None:
                self._parse = await run_job(self._io.loop, self._its_worker(), _load)
            message = self._parse(await read())
        size = message.size
        if size <= SMALL_BYTES:
            return Response(HTTPStatus.OK, message.payload(SMALL_BYTES), JSON_TYPE, message.headers())
        try:
            held = await self._room.take(size * 2)
        except NoRoom as error:
            return _refused(message, error, self._room.size // 2)
        try:
            pieces = await run_job(self._io.loop, self._its_worker(), partial(message.pieces, size))
        except BaseException:
            held.release()
            raise
        length = sum(map(len, pieces))
        held.shrink(length)
        headers = [*message.headers(), ("Content-Length", str(length))]
        streamed = _Pieces(self._io.loop, self._room, held, pieces)
        return Response(HTTPStatus.OK, content_type=JSON_TYPE, headers=headers, streamed=streamed)

    def _its_worker(self) -> Worker:
        if self._worker is None:
            self._worker = self._io.start_worker("http-messages")
        return self._worker

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None


def _load() -> type[StoredMessage]:
    """Imports :class:`StoredMessage` for the first message, not earlier, because importing protobuf takes 50
    ms."""
    from magnetar.http.shapes.stored_message import StoredMessage

    return StoredMessage


class _Pieces:
    """The body of a response with a large payload; see :class:`magnetar.http.engine.message.Streamed`."""

    def __init__(self, loop: Loop, room: Room, held: Held, pieces: list[bytes]) -> None:
        self._loop = loop
        self._room = room
        self._held = held
        self._later = deque(pieces)
        self._rest = memoryview(b"")
        self._began = loop.time()

    async def next(self) -> bytes:
        """Returns the next piece of the response; empty at the end.

        :raises Abandoned: other requests wait for memory, and this client has read too slowly
        """
        if self._room.is_wanted and self._loop.time() - self._began > _SECONDS_BEFORE_OTHERS:
            raise Abandoned("the client reads the answer too slowly, and other requests need the memory")
        if not self._rest and self._later:
            self._rest = memoryview(self._later.popleft())
        piece = bytes(self._rest[:_PIECE_BYTES])
        self._rest = self._rest[_PIECE_BYTES:]
        return piece

    def close(self) -> None:
        self._rest = memoryview(b"")
        self._later.clear()
        self._held.release()


def _refused(message: StoredMessage, error: NoRoom, most: int) -> Response:
    named = f"The message at {message.name} has {message.size} bytes uncompressed"
    if not error.ever:
        reason = f"{named}; at most {most} are sent over HTTP: read it with a consumer"
        return error_response(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason)
    reason = f"{named}, and there is not enough memory for it at present ({error}): try again later"
    return error_response(HTTPStatus.SERVICE_UNAVAILABLE, reason, [("Retry-After", "5")])
