"""The client side of one bookie: a connection that is opened on demand, requests, answers, timeouts.

Requests of one turn of the loop are written together. Each request is answered exactly once, by the bookie or
with :data:`Status.LOST` or :data:`Status.TIMED_OUT`; a later answer is dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from magnetar.invariants import violated
from magnetar.io.interfaces import Buffer, Cancellable, Clock, ConnectingNetwork, Loop, Task, Transport
from magnetar.io.tasks import TaskScope
from magnetar.ledger.bookkeeper.adds import AddStream
from magnetar.ledger.bookkeeper.authentication import AuthProvider, connect_authenticated
from magnetar.ledger.bookkeeper.frames import (
    MAX_FRAME_BYTES,
    Answer,
    Flag,
    FrameError,
    Operation,
    Status,
    batch_read_request,
)
from magnetar.ledger.bookkeeper.hot_adds import AddedRun
from magnetar.ledger.bookkeeper.wire import VERSION_2, Wire

log = logging.getLogger(__name__)

Told = Callable[[int, list[bytes]], object]
"""Called with a status and, for successful reads, the bodies of entries."""
Key = tuple[int, int, int]
"""Identifies a request: (operation, ledger id, entry id), or (operation, request number, 0) for a request
with a number."""


_LOOKS = 8
"""The number of checks for overdue requests during one request timeout."""


_DOUBT_SECONDS = 10.0
"""The seconds for which a failed connection attempt counts as recent; the bookie may be back later."""


class BookieSettings(NamedTuple):
    request_seconds: float = 30.0
    """The timeout of a request; requests fail up to an eighth later (bookkeeperClientTimeoutInSeconds)."""
    connect_seconds: float = 10.0
    retry_seconds: float = 0.2
    """The seconds after a failed connection attempt in which requests fail as LOST without a new attempt."""
    wire: Wire = VERSION_2
    auth_provider: AuthProvider | None = None
    """The client's authentication; None: the client does not authenticate."""
    max_frame_bytes: int = MAX_FRAME_BYTES
    """The maximum size of an add request; bookies must accept as much (``nettyMaxFrameSizeBytes``)."""


Where = Callable[[], tuple[str, int] | None]
"""Returns the current host and port of a bookie; called before each connection. None if they are unknown."""


class _Asked(NamedTuple):
    told: Told
    at: float


class Bookie:
    """The requests to one bookie. The argument ``told`` of a method is called on the loop with the outcome of
    the request, always after the method has returned."""

    def __init__(
        self,
        loop: Loop,
        clock: Clock,
        network: ConnectingNetwork,
        bookie_id: str,
        where: Where,
        settings: BookieSettings | None = None,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._network = network
        self.bookie_id = bookie_id
        self._where = where
        self._settings = settings or BookieSettings()
        self._asked: dict[Key, list[_Asked]] = {}
        """The unanswered requests by key; requests with the same key are in the order of sending."""
        self._streams: dict[int, list[AddStream]] = {}
        """The streams of each ledger with unanswered entries, in the order in which they began."""
        self.pending_bytes = 0
        """Bytes of unanswered runs of adds."""
        self._waiting: list[AddStream] = []
        """Streams that have entries to send."""
        self._out: list[Buffer] = []
        self._flushing = False
        self._link: _Link | None = None
        self._tasks = TaskScope(loop, bookie_id, self._internal_error)
        self._connecting: Task[None] | None = None
        self._failed_at = -1e9
        self._sweep: Cancellable | None = None
        self._requests = 0
        self._closed = False
        self._trouble = ""
        """The reason why the last attempt to connect failed; empty: the attempt succeeded."""

    @property
    def in_progress(self) -> int:
        """The number of unanswered requests; a stream of adds counts as one."""
        return sum(map(len, self._asked.values())) + sum(map(len, self._streams.values()))

    @property
    def wire(self) -> Wire:
        return self._settings.wire

    @property
    def trouble(self) -> str:
        """The reason why a recent connection attempt failed; empty: no recent attempt failed."""
        return self._trouble if self._clock.monotonic() - self._failed_at < _DOUBT_SECONDS else ""

    @property
    def unreachable(self) -> bool:
        """Whether a recent connection attempt failed."""
        return bool(self.trouble)

    def add_soon(self, stream: AddStream) -> None:
        """Queues a stream of adds; its requests are encoded when they are sent."""
        if stream.ended or stream.waits:
            # If it has ended, its owner is about to be notified.
            return
        if self._takes_nothing(self._clock.monotonic()):
            stream.ended = True
            self._loop.call_soon(stream.tell_not_added, Status.LOST)
            return
        stream.waits = True
        self._waiting.append(stream)
        self._flush_soon()

    def add(
        self,
        ledger_id: int,
        entry_id: int,
        key: bytes,
        body: Sequence[Buffer],
        told: Told,
        flags: Flag = Flag.NONE,
    ) -> None:
        """Adds one entry; ``told`` is called with the outcome.

        :param key: the ledger's master key
        :param body: the entry's body, in pieces
        """
        size = sum(len(piece) for piece in body)
        head = self.wire.add_head(ledger_id, entry_id, key, size, flags)
        self._ask((Operation.ADD, ledger_id, entry_id), (head, *body), told)

    def read(
        self, ledger_id: int, entry_id: int, told: Told, flags: Flag = Flag.NONE, key: bytes = b""
    ) -> None:
        """Reads one entry; ``told`` is called with the outcome.

        :param entry_id: the id of the entry; -1: the last entry that the bookie has
        """
        wire = self.wire
        self._requests += 1
        request = wire.read_request(self._requests, ledger_id, entry_id, flags, key)
        which = (self._requests, 0) if wire.numbered else (ledger_id, entry_id)
        self._ask((Operation.READ, *which), (request,), told)

    def read_batch(self, ledger_id: int, first: int, entries: int, max_bytes: int, told: Told) -> None:
        self._requests += 1
        request = batch_read_request(ledger_id, first, self._requests, entries, max_bytes)
        self._ask((Operation.BATCH_READ, self._requests, 0), (request,), told)

    def ask(self, operation: int, request: Callable[[int], bytes], told: Told) -> None:
        """Sends a request that only a wire format with request numbers supports.

        :param request: returns the bytes of the request for a request number
        """
        self._requests += 1
        self._ask((operation, self._requests, 0), (request(self._requests),), told)

    def close(self) -> None:
        """Closes the connection; unanswered requests fail as LOST."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        self._end("closed")

    def _ask(self, key: Key, pieces: Sequence[Buffer], told: Told) -> None:
        now = self._clock.monotonic()
        if self._takes_nothing(now):
            self._loop.call_soon(told, Status.LOST, [])
            return
        self._asked.setdefault(key, []).append(_Asked(told, now))
        self._send(pieces)

    def _takes_nothing(self, now: float) -> bool:
        return self._closed or now - self._failed_at < self._settings.retry_seconds

    def _send(self, pieces: Sequence[Buffer]) -> None:
        self._out += pieces
        self._flush_soon()

    def _flush_soon(self) -> None:
        if self._link is None:
            if self._connecting is None:
                self._connecting = self._tasks.start(self._connect(), "a connection")
        elif not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)
        if self._sweep is None:
            self._look_later()

    def _flush(self) -> None:
        self._flushing = False
        if self._link is None:
            return
        if self._waiting:
            self._take_adds()
        if self._out:
            out, self._out = self._out, []
            self._link.transport.writelines(out)

    def _take_adds(self) -> None:
        """Collects the queued adds, which are sent after earlier requests."""
        now = self._clock.monotonic()
        waiting, self._waiting = self._waiting, []
        for stream in waiting:
            stream.waits = False
            if stream.ended:
                continue
            pieces, last, size = stream.listener.sending(stream)
            if not size:
                continue
            if not stream.pending:
                self._streams.setdefault(stream.ledger_id, []).append(stream)
            stream.sent(last, now, size)
            self.pending_bytes += size
            self._out += pieces

    async def _connect(self) -> None:
        where = self._where()
        if where is None:
            self._connecting = None
            self._has_failed("its address is unknown")
            return
        link = _Link(self, self._settings)
        attempt = self._tasks.answer(self._connected(where, link))
        limit = self._loop.call_later(self._settings.connect_seconds, attempt.cancel)
        try:
            await attempt
        except Exception as error:  # noqa: BLE001 - logged, and reported to the callers
            # Not only OSError: the address that a bookie has registered may be invalid.
            self._has_failed(str(error))
            return
        except BaseException:
            if attempt.cancelled() and not self._closed:
                self._has_failed("it does not answer")
                return
            raise
        finally:
            limit.cancel()
            self._connecting = None
        if link.ended:
            self._has_failed("it closed the connection")
            return
        self._link = link
        self._trouble = ""
        log.info("connected to a bookie", extra={"bookie": self.bookie_id})
        self._flush()

    async def _connected(self, where: tuple[str, int], link: _Link) -> None:
        auth_provider = self._settings.auth_provider
        if auth_provider is None:
            await self._network.connect(*where, lambda: link)
        else:
            version_3 = self.wire.numbered
            await connect_authenticated(
                self._loop, self._network, where, link, auth_provider, version_3=version_3
            )

    def _internal_error(self, _work: str, error: BaseException) -> None:
        self._connecting = None
        self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Closes the connection, and fails all requests, after an internal error."""
        self._has_failed(f"an internal error: {error}")

    def _has_failed(self, reason: str) -> None:
        self._failed_at = self._clock.monotonic()
        self._trouble = reason or "unknown reason"
        log.warning("cannot connect to a bookie", extra={"bookie": self.bookie_id, "reason": reason})
        self._end(reason)

    def _end(self, reason: str) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.ended = True
            link.transport.abort()
        self._out.clear()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        asked, self._asked = self._asked, {}
        streams, self._streams = self._streams, {}
        waiting, self._waiting = self._waiting, []
        self.pending_bytes = 0
        for row in asked.values():
            for each in row:
                self._loop.call_soon(each.told, Status.LOST, [])
        for those in streams.values():
            for stream in those:
                stream.give_up()
                self._loop.call_soon(stream.tell_not_added, Status.LOST)
        for stream in waiting:
            stream.give_up()
            self._loop.call_soon(stream.tell_not_added, Status.LOST)

    def _look_for_late(self) -> None:
        self._sweep = None
        oldest = self._clock.monotonic() - self._settings.request_seconds
        for key, row in list(self._asked.items()):
            while row and row[0].at <= oldest:
                self._loop.call_soon(row.pop(0).told, Status.TIMED_OUT, [])
            if not row:
                del self._asked[key]
        for streams in list(self._streams.values()):
            for stream in list(streams):
                if stream.oldest <= oldest:
                    self._loop.call_soon(stream.tell_not_added, Status.TIMED_OUT)
                    self.pending_bytes -= stream.give_up()
                    self._drop(stream)
        if self._asked or self._streams:
            self._look_later()

    def _drop(self, stream: AddStream) -> None:
        """Stops waiting for answers to the stream."""
        streams = self._streams[stream.ledger_id]
        streams.remove(stream)
        if not streams:
            del self._streams[stream.ledger_id]

    def _look_later(self) -> None:
        seconds = self._settings.request_seconds / _LOOKS
        self._sweep = self._loop.call_later(seconds, self._look_for_late)

    def heard(self, link: _Link, data: bytes) -> None:
        """Handles data received from the bookie."""
        if link is not self._link:
            return
        try:
            for answer in link.reader.feed(data):
                self._answered(answer)
                if link.ended:
                    return
        except FrameError as error:
            log.error(
                "closing the connection: a bookie violated the protocol",
                extra={"bookie": self.bookie_id, "reason": str(error)},
            )
            self._has_failed(str(error))

    def _answered(self, answer: Answer) -> None:
        if answer.operation == Operation.ADD:
            stream = self._stream(answer.ledger_id, answer.entry_id, answer.entry_id)
            if stream is not None:
                stream.stripe.answered_one(answer.entry_id)
                self._settle(stream)
                if answer.status == Status.OK:
                    stream.tell_added()
                else:
                    stream.tell_not_added(answer.status)
                return
        if answer.request_id:
            key = (answer.operation, answer.request_id, 0)
        else:
            key = (answer.operation, answer.ledger_id, answer.entry_id)
        row = self._asked.get(key)
        if row is None:
            # The request has timed out.
            return
        asked = row.pop(0)
        if not row:
            del self._asked[key]
        asked.told(answer.status, answer.bodies)

    def added(self, link: _Link, run: AddedRun) -> None:
        """Handles successful answers to adds."""
        if link is not self._link:
            return
        ids = run.entry_ids
        stream = self._stream(run.ledger_id, ids[0], ids[run.count - 1])
        if stream is not None:
            stream.stripe.answered(ids, run.count)
            self._settle(stream)
            stream.tell_added()
            return
        for entry_id in ids[: run.count]:
            self._answered(Answer(Operation.ADD, Status.OK, run.ledger_id, entry_id, 0, []))

    def _stream(self, ledger_id: int, first: int, last: int) -> AddStream | None:
        """Returns the ledger's first stream that expects answers for these entries; None: no stream does."""
        for stream in self._streams.get(ledger_id, ()):
            if stream.expects(first) and stream.expects(last):
                return stream
        return None

    def _settle(self, stream: AddStream) -> None:
        """Updates the bytes in progress after answers to a stream; drops the stream when all answers have
        arrived."""
        size = stream.done()
        self.pending_bytes -= size
        if self.pending_bytes < 0:
            what = f"bytes that wait for an answer of bookie {self.bookie_id}"
            violated(self._fail, what, "at least 0", self.pending_bytes)
        if not stream.pending:
            self._drop(stream)

    def lost(self, link: _Link, reason: str) -> None:
        """Handles the end of the connection."""
        if link is self._link:
            log.warning("connection to a bookie lost", extra={"bookie": self.bookie_id, "reason": reason})
            self._end(reason)


class _Link:
    """The ``StreamProtocol`` of a connection."""

    def __init__(self, bookie: Bookie, settings: BookieSettings) -> None:
        self._bookie = bookie
        # A batch of entries may be as large as two of the largest requests.
        limit = 2 * settings.max_frame_bytes
        self.reader = settings.wire.answers(partial(bookie.added, self), limit)
        self.transport: Transport
        self.ended = False

    def connection_made(self, transport: Transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._bookie.heard(self, data)

    def eof_received(self) -> bool | None:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._bookie.lost(self, str(exc) if exc is not None else "it closed the connection")
        self.ended = True

    def pause_writing(self) -> None:
        """Does nothing, because the writers limit the bytes in progress."""

    def resume_writing(self) -> None:
        """Does nothing; see :meth:`pause_writing`."""
