"""Server-sent events from a broker."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse

from magnetar.admin_client.errors import AdminError, CannotConnect

EVENTS_TYPE = "text/event-stream"
MOST_LINE = 1 << 20
"""Maximum size of a line, in bytes. A list of 100 topics with the longest names and their history takes a
quarter of this size.
"""


class EventStream:
    """A continuous response with events. One thread must read it; any thread can close it."""

    def __init__(
        self, asked: str, connection: HTTPConnection, opened: socket.socket, response: HTTPResponse
    ) -> None:
        """:param asked: description of the source, for errors
        :param opened: the socket of the connection; :meth:`close` needs it, because ``connection`` may no
            longer refer to the socket after the response's head was read
        """
        self._asked = asked
        self._connection = connection
        self._socket = opened
        self._response = response
        self._closed = False

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        """Yields the kind and the data of each event, until the broker or :meth:`close` ends the stream; an
        empty kind means a heartbeat.

        :raises CannotConnect: the connection was lost, or nothing arrived within the timeout
        :raises AdminError: a line is longer than :data:`MOST_LINE`
        """
        kind = ""
        while line := self._line():
            field, _, value = line.rstrip(b"\r\n").partition(b": ")
            if field == b"event":
                kind = value.decode("utf-8", "replace")
            elif field == b"data":
                yield kind, value
            elif line.startswith(b":"):
                yield "", b""

    def _line(self) -> bytes:
        try:
            line = self._response.readline(MOST_LINE + 1)
        except (OSError, HTTPException, ValueError) as error:
            # Reading a file that another thread closed raises ValueError.
            if self._closed:
                return b""
            raise CannotConnect(f"cannot reach {self._asked}: {error}") from error
        if len(line) > MOST_LINE:
            raise AdminError(f"{self._asked} sent a line of more than {MOST_LINE} bytes")
        return line

    def close(self) -> None:
        """Ends the stream, also for a thread that is reading."""
        self._closed = True
        # The reader may have closed it already. With TLS only the underlying socket is shut down, because the
        # reading thread uses the rest.
        with suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the stream at the end of the ``with`` statement."""
        self.close()
        self._response.close()
        self._connection.close()
