"""Questions and answers between a test and the processes it has: a line of JSON each, over a socket."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from magnetar.testing.errors import BrokerRefused

_MOST = 65536
"""Bytes that are read at once."""
PATIENCE_SECONDS = 120.0
"""How long an answer is waited for: twice as long as a broker may take to stop in order."""


class ChannelClosed(Exception):
    """Nobody is at the other end any more."""


class Channel:
    """One end. Blocks; several threads may ask."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._heard = b""
        self._lock = threading.Lock()

    def ask(self, question: Mapping[str, Any], descriptors: Sequence[int] = ()) -> dict[str, Any]:
        """What the other end answers.

        :param descriptors: files that go along
        :raises ChannelClosed: it is gone
        :raises BrokerRefused: it cannot do that
        """
        with self._lock:
            self.tell(question, descriptors)
            heard = self.hear()
        if heard is None:
            raise ChannelClosed("the process has ended")
        answer, _files = heard
        if "refused" in answer:
            raise BrokerRefused(str(answer["refused"]))
        return answer

    def tell(self, what: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        """:raises ChannelClosed: the other end is gone"""
        line = json.dumps(what).encode() + b"\n"
        try:
            if descriptors:
                # They go with the first byte; the rest of a line that has no room at once follows.
                line = line[socket.send_fds(self._end, [line], descriptors) :]
            self._end.sendall(line)
        except OSError as error:
            raise ChannelClosed("the process has ended") from error

    def hear(self) -> tuple[dict[str, Any], list[int]] | None:
        """The next line and the files that came with it; None when there is nobody any more.

        :raises ChannelClosed: the socket has a time-out, and it is over
        """
        files: list[int] = []
        while b"\n" not in self._heard:
            try:
                data, found, _flags, _address = socket.recv_fds(self._end, _MOST, 4)
            except TimeoutError as error:
                raise ChannelClosed(f"no answer came within {PATIENCE_SECONDS:.0f} s") from error
            except OSError:
                # It ended without having read everything: that is an end, too.
                return None
            files += found
            if not data:
                return None
            self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        return json.loads(line), files

    def close(self) -> None:
        self._end.close()
