"""Shares one rendering of ``/metrics`` among all scrapes that arrive while it is in progress.

With thousands of topics, a rendering takes seconds, and the text takes hundreds of megabytes. Therefore the
text is kept compressed, to a thirtieth of its size, while scrapes read it.
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
"""New scrapes only join a rendering that began less than this number of seconds ago, because a slow scrape
can delay a rendering.
"""

Render = Callable[[str], Awaitable[Iterator[str]]]
"""Collects metrics; returns their text in pieces, in the format of the given content type."""


class Scrapes:
    """The renderings in progress, by content type."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._shared: WeakValueDictionary[str, SharedText] = WeakValueDictionary()
        self.rendered = 0
        """Number of renderings that were started."""

    async def text(self, kind: str, render: Render) -> SharedText:
        """Returns the text of the rendering in progress for one more scrape; starts a rendering if none is in
        progress that began recently.

        :param kind: the content type
        :param render: collects the metrics for a new rendering
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
    """The text of one rendering, with several readers; the reader that is furthest ahead renders the next
    piece.
    """

    def __init__(self, began: float, figures: Any) -> None:
        """:param began: when the rendering began, in the loop's time

        :param figures: a future that is done once the metrics are collected
        """
        self.began = began
        self.figures = figures
        self.done = False
        self._pieces: Iterator[str] = iter(())
        self._packer = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, GZIP_BITS)
        self._blocks: list[bytes] = []

    def begin(self, pieces: Iterator[str]) -> None:
        """Starts rendering the text; called once the metrics are collected."""
        self._pieces = pieces
        self.figures.set_result(None)

    def fail(self, error: BaseException) -> None:
        """Lets the readers fail, because the metrics cannot be collected."""
        self.figures.set_exception(ServiceNotReady(f"The metrics cannot be collected: {error}"))
        # Marks the exception as retrieved, because no scrape may be waiting.
        self.figures.exception()

    def gzipped(self) -> Iterator[bytes]:
        """Yields the compressed text. Some pieces are empty, so that the caller can do other work."""
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
        """Yields the text without compression, in small pieces, because one compressed block can contain a
        megabyte of text.
        """
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
