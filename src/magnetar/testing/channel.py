"""Requests and answers between the process of the tests and the processes of brokers, as lines of JSON over a
socket.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Any

_MOST = 65536
"""Maximum number of bytes per read."""
PATIENCE_SECONDS = 120.0
"""Time-out of an answer in seconds: twice the longest time that a clean shutdown of a broker takes."""


class ChannelClosed(Exception):
    """The other end has closed the channel."""


class Channel:
    """One end of a channel. Calls block; several threads can use :meth:`ask`."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._heard = b""
        self._lock = threading.Lock()

    def ask(self, question: Mapping[str, object], descriptors: Sequence[int] = ()) -> dict[str, object]:
        """Sends a request to the other end, and returns its answer.

        :param descriptors: file descriptors to send with the request
        :raises ChannelClosed: the other end has closed the channel
        :raises BrokerRefused: the other end refused the request
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

    def tell(self, what: Mapping[str, object], descriptors: Sequence[int] = ()) -> None:
        """Sends a message to the other end, with file descriptors if any.

        :raises ChannelClosed: the other end has closed the channel
        """
        line = json.dumps(what).encode() + b"\n"
        try:
            if descriptors:
                # They are sent with the first byte; the rest of a line that does not fit follows.
                line = line[socket.send_fds(self._end, [line], descriptors) :]
            self._end.sendall(line)
        except OSError as error:
            raise ChannelClosed("the process has ended") from error

    def hear(self) -> tuple[dict[str, Any], list[int]] | None:
        """Waits for the next message; returns it with its file descriptors, or None if the other end has
        closed the channel.

        :raises ChannelClosed: no message arrived within the socket's time-out
        """
        files: list[int] = []
        while b"\n" not in self._heard:
            try:
                data, found, _flags, _address = socket.recv_fds(self._end, _MOST, 4)
            except TimeoutError as error:
                raise ChannelClosed(f"no answer came within {PATIENCE_SECONDS:.0f} s") from error
            except OSError:
                # The other end closed without reading everything, which is also an end.
                return None
            files += found
            if not data:
                return None
            self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        return json.loads(line), files

    def close(self) -> None:
        self._end.close()


class BrokerNotStarted(Exception):
    """A broker did not start; the text contains its output, and the end of its log."""


class BrokerEnded(Exception):
    """A broker's process has ended by itself; the text contains the end of its log."""


class BrokerRefused(Exception):
    """A broker cannot carry out a request of a test; the text says why."""
