"""One rendering of ``/metrics`` for all scrapes that come while it is under way.

With thousands of topics a rendering takes seconds and the text hundreds of megabytes. So the text is kept
compressed, which is a thirtieth of that, as long as a scrape still reads it.
"""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from weakref import WeakValueDictionary

from magnetar.errors import ServiceNotReady
from magnetar.http.gzipped import GZIP_BITS, GZIP_LEVEL
from magnetar.io.interfaces import Loop
from magnetar.io.waiting import outcome

_PLAIN_BYTES = 16 << 10
_JOIN_SECONDS = 10.0
"""A rendering that was begun longer ago is not for new scrapes: a slow one may hold it up."""

Render = Callable[[str], Awaitable[Iterator[str]]]
"""Takes figures, and gives their text piece by piece in the form of a content type."""


class Scrapes:
    """The renderings that are under way, by the form of the text."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._shared: WeakValueDictionary[str, SharedText] = WeakValueDictionary()
        self.rendered = 0
        """Renderings begun."""

    async def text(self, kind: str, render: Render) -> SharedText:
        """The text for one more scrape.

        :param kind: its content type
        :param render: begins a rendering, if none is under way
        """
        loop = self._loop
        shared = self._shared.get(kind)
        if shared is not None and not shared.done and loop.time() - shared.began < _JOIN_SECONDS:
            await outcome(loop, shared.figures)
            return shared
        shared = self._shared[kind] = SharedText(loop.time(), loop.create_future())
        self.rendered += 1
        try:
            shared.begin(await render(kind))
        except BaseException as error:
            self._shared.pop(kind, None)
            shared.fail(error)
            raise
        return shared


class SharedText:
    """A text that several read, and that whoever is ahead renders on."""

    def __init__(self, began: float, figures: Any) -> None:
        """:param began: on the loop's clock

        :param figures: a future that is done when the figures are there
        """
        self.began = began
        self.figures = figures
        self.done = False
        self._pieces: Iterator[str] = iter(())
        self._packer = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, GZIP_BITS)
        self._blocks: list[bytes] = []

    def begin(self, pieces: Iterator[str]) -> None:
        """The figures are there."""
        self._pieces = pieces
        self.figures.set_result(None)

    def fail(self, error: BaseException) -> None:
        """There will be no figures."""
        self.figures.set_exception(ServiceNotReady(f"The metrics cannot be collected: {error}"))
        # Perhaps nobody else waits for them.
        self.figures.exception()

    def gzipped(self) -> Iterator[bytes]:
        """All of it, compressed. Some pieces are empty: other work may come between."""
        at = 0
        while True:
            if at < len(self._blocks):
                yield self._blocks[at]
                at += 1
            elif self.done:
                return
            else:
                self._render_on()
                yield b""

    def plain(self) -> Iterator[bytes]:
        """A block may be a megabyte of text, which is not to be sent in one go."""
        unpacker = zlib.decompressobj(GZIP_BITS)
        for block in self.gzipped():
            if not block:
                yield b""
            left = block
            while left:
                yield unpacker.decompress(left, _PLAIN_BYTES)
                left = unpacker.unconsumed_tail
        yield unpacker.flush()

    def _render_on(self) -> None:
        piece = next(self._pieces, None)
        if piece is None:
            self.done = True
            self._pieces = iter(())
            block = self._packer.flush()
        else:
            block = self._packer.compress(piece.encode())
        if block:
            self._blocks.append(block)
