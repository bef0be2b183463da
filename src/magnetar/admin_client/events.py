"""Server-sent events, as a broker tells them while somebody listens."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse

from magnetar.admin_client.errors import AdminError, CannotConnect

EVENTS_TYPE = "text/event-stream"
MOST_LINE = 1 << 20
"""Bytes of a line. A list of 100 topics with the longest names and their history is a quarter of that."""


class EventStream:
    """One answer that goes on. Any thread may close it; one reads it."""

    def __init__(
        self, asked: str, connection: HTTPConnection, opened: socket.socket, response: HTTPResponse
    ) -> None:
        """:param asked: where it comes from, in words

        :param opened: of the connection, which forgets it where nothing else is to be asked
        """
        self._asked = asked
        self._connection = connection
        self._socket = opened
        self._response = response
        self._closed = False

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        """Kind and data of each event, until the broker ends or it is closed; no kind: nothing has changed.

        :raises CannotConnect: the connection broke, or nothing came for as long as an answer may take
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
            # A file that another thread closed is a ValueError.
            if self._closed:
                return b""
            raise CannotConnect(f"cannot ask {self._asked}: {error}") from error
        if len(line) > MOST_LINE:
            raise AdminError(f"{self._asked} sent a line of more than {MOST_LINE} bytes")
        return line

    def close(self) -> None:
        """Whoever reads it comes to its end."""
        self._closed = True
        # The reader may have come to the end, and closed it, already. Of TLS only the socket below is ended:
        # the rest is in use by who reads.
        with suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *_: object) -> None:
        """For who reads it."""
        self.close()
        self._response.close()
        self._connection.close()
