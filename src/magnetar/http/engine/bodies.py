"""Bodies of requests: the memory limit that all of them share, and bodies with several parts."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.errors import InvalidRequest
from magnetar.http.engine.message import Request

FORM = "multipart/form-data"
_MOST_HEADERS = 8192
"""Maximum size of the headers of one part, in bytes."""
_MOST_BOUNDARY = 70
_LINE = b"\r\n"
SPARED_BYTES = 16 * 1024
"""Bodies up to this size in bytes are never refused because of other bodies."""
Refuse = Callable[[], None]
"""Refuses a request and drops its body; the callback also identifies the request."""


class Parts:
    """Reads the parts of a form one after another, while they arrive.

    The format is https://www.rfc-editor.org/rfc/rfc7578.
    """

    def __init__(self, request: Request) -> None:
        """:raises InvalidRequest: the request is not a form, or its body was already read"""
        # Only uploads of packages need the modules of mail, which take 5 ms to import.
        from email.message import Message
        from email.parser import HeaderParser

        self._parser = HeaderParser()
        told = Message()
        told["Content-Type"] = request.headers.get("content-type", "")
        boundary = told.get_param("boundary")
        if told.get_content_type() != FORM or not isinstance(boundary, str) or request.arriving is None:
            raise InvalidRequest(f"The content type must be {FORM} with a boundary")
        if not 0 < len(boundary) <= _MOST_BOUNDARY or not boundary.isascii():
            raise InvalidRequest(f"The boundary of {FORM} must have 1 to {_MOST_BOUNDARY} characters")
        self._arriving = request.arriving
        self._between = b"\r\n--" + boundary.encode()
        # The first boundary may stand at the very beginning.
        self._came = bytearray(_LINE)
        self._inside = True
        """Whether bytes before the next boundary remain to be read: the rest of the current part or, before
        the first part, of the preamble.
        """

    async def next(self) -> str | None:
        """Skips the rest of the current part, and returns the name of the next part; None: there are no more
        parts.

        :raises InvalidRequest: the body is incomplete, or a part has no name
        """
        while await self.piece():
            pass
        await self._until(2)
        if self._came.startswith(b"--"):
            return None
        while (end := self._came.find(_LINE * 2)) < 0:
            if len(self._came) > _MOST_HEADERS:
                raise InvalidRequest(f"The headers of a part exceed {_MOST_HEADERS} bytes")
            await self._more()
        head = self._parser.parsestr(self._came[:end].decode("utf-8", "replace").lstrip())
        del self._came[: end + len(_LINE)]
        name = head.get_param("name", header="content-disposition")
        if not isinstance(name, str):
            raise InvalidRequest("A part of the form has no name")
        await self._until(len(self._between))
        # A part without contents has the boundary right after its headers.
        del self._came[: 0 if self._came.startswith(self._between) else len(_LINE)]
        self._inside = True
        return name

    async def piece(self) -> bytes:
        """Returns the next bytes of the current part; empty at its end.

        :raises InvalidRequest: the part is incomplete
        """
        while self._inside:
            at = self._came.find(self._between)
            if at == 0:
                del self._came[: len(self._between)]
                self._inside = False
                return b""
            # Only part of the boundary may have arrived.
            size = at if at > 0 else len(self._came) - len(self._between) + 1
            if size > 0:
                data = bytes(memoryview(self._came)[:size])
                del self._came[:size]
                return data
            await self._more()
        return b""

    async def whole(self, most: int) -> bytes:
        """Returns the whole current part.

        :raises InvalidRequest: the part has more than ``most`` bytes, or is incomplete
        """
        found = bytearray()
        while data := await self.piece():
            found += data
            if len(found) > most:
                raise InvalidRequest(f"A part of the form exceeds {most} bytes")
        return bytes(found)

    async def _until(self, size: int) -> None:
        while len(self._came) < size:
            await self._more()

    async def _more(self) -> None:
        data = await self._arriving.next()
        if not data:
            raise InvalidRequest("The form ended before its last boundary")
        self._came += data


class Bodies:
    """Refuses the largest incomplete bodies when the memory limit is exceeded, so that small requests are
    served regardless of large uploads.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self.used = 0
        self._arriving: dict[Refuse, int] = {}
        self._complete: dict[Refuse, int] = {}

    def grew(self, holder: Refuse, size: int) -> None:
        """Counts received bytes of a body.

        If all bodies together then exceed the limit, refuses the largest incomplete bodies before returning,
        possibly including the body of ``holder``.
        """
        self._arriving[holder] = self._arriving.get(holder, 0) + size
        self.used += size
        while self.used > self._max:
            largest = max(self._arriving, key=self._arriving.__getitem__, default=None)
            if largest is None or self._arriving[largest] <= SPARED_BYTES:
                return
            self.gone(largest)
            largest()

    def complete(self, holder: Refuse) -> None:
        """Marks a body as complete; it is counted until its request is answered."""
        if holder in self._arriving:
            self._complete[holder] = self._arriving.pop(holder)

    def gone(self, holder: Refuse) -> None:
        """Stops counting a dropped body; does nothing for an unknown holder."""
        self.used -= self._arriving.pop(holder, 0) + self._complete.pop(holder, 0)
