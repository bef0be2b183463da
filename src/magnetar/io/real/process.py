"""A child process and the socket to it."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from magnetar.io.interfaces import Buffer, Future, ProcessFailed, Service, Transport
from magnetar.io.real.child import ANSWER, BUFFER_BYTES, QUESTION, service_name
from magnetar.io.serving import understood
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import fail, settle

MOST_ANSWERED = 128 << 20
"""The maximum size of an answer in bytes; the program that was started never sends a larger answer."""

_LOOK_SECONDS = 0.01
_PATIENCE_SECONDS = 1.0
"""The time in seconds that a process gets to end after it has closed its socket; then it is killed."""


class ChildProcess(asyncio.Protocol):
    """A child process, and the connection to it; answers come in the order of the requests.

    :raises OSError: the system cannot start a process
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, service: Service, root: Path) -> None:
        self._loop = loop
        self._name = name
        self._transport: Transport | None = None
        self._unsent: list[Buffer] = []
        """Requests that were made before the transport was ready."""
        self._asked: deque[Future[bytes]] = deque()
        self._pieces: list[bytes] = []
        self._size = 0
        """The total size of the pieces in bytes."""
        self._ended = ""
        """The reason why the process ended; empty while it runs."""
        self._patience = _PATIENCE_SECONDS
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        command = [sys.executable, "-m", "magnetar.io.real.child", service_name(service), str(root)]
        try:
            # Not in a new session: the scheduler balances processes of one session against each other.
            self._process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._tasks = TaskScope(loop, f"the {name} process", self._not_connected)
        self._tasks.start(self._connect(ours), "connecting")

    async def _connect(self, ours: socket.socket) -> None:
        try:
            await self._loop.create_unix_connection(lambda: self, sock=ours)
        except BaseException:
            ours.close()
            raise

    def _not_connected(self, _name: str, error: BaseException) -> None:
        self._end(f"the {self._name} process cannot be reached: {error}")

    @property
    def pid(self) -> int:
        return self._process.pid

    # Requests

    def ask(self, question: Sequence[Buffer]) -> Future[bytes]:
        asked = self._loop.create_future()
        if self._ended:
            fail(asked, ProcessFailed(self._ended))
            return asked
        self._asked.append(asked)
        parts = [QUESTION.pack(sum(len(part) for part in question)), *question]
        if self._transport is None:
            self._unsent += parts
        else:
            self._transport.writelines(parts)
        return asked

    def close(self) -> None:
        self._end(f"the {self._name} process was ended")

    # Its socket

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        unsent, self._unsent = self._unsent, []
        if self._ended:
            transport.abort()
        elif unsent:
            transport.writelines(unsent)

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        while not self._ended and self._size >= ANSWER.size:
            head = self._pieces[0]
            if len(head) < ANSWER.size:
                head = self._pieces[0] = b"".join(self._pieces)
                del self._pieces[1:]
            how, size = ANSWER.unpack_from(head)
            if size > MOST_ANSWERED or not self._asked:
                self._end(f"the {self._name} process sent an answer without a question")
                return
            end = ANSWER.size + size
            if self._size < end:
                return
            whole = head if len(head) == self._size else b"".join(self._pieces)
            self._pieces = [whole[end:]] if self._size > end else []
            self._size -= end
            self._answered(how, whole[ANSWER.size : end])

    def _answered(self, how: int, answer: bytes) -> None:
        asked = self._asked.popleft()
        try:
            settle(asked, understood(self._name, how, answer))
        except ProcessFailed as failed:
            fail(asked, failed)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self._ended:
            self._look_after()

    # Its end

    def _look_after(self) -> None:
        """Called when the process has closed the socket; waits for its exit status, and then reports its
        end.
        """
        code = self._process.poll()
        if code is None and self._patience > 0:
            self._patience -= _LOOK_SECONDS
            self._loop.call_later(_LOOK_SECONDS, self._look_after)
        else:
            self._end(f"the {self._name} process {_how(code)}")

    def _end(self, reason: str) -> None:
        if self._ended:
            return
        self._ended = reason
        self._process.kill()
        if self._transport is not None:
            self._transport.abort()
        self._pieces, self._unsent = [], []
        while self._asked:
            fail(self._asked.popleft(), ProcessFailed(reason))
        self._take_leave()

    def _take_leave(self) -> None:
        """Polls the exit status until the process has ended, so that no zombie remains."""
        if self._process.poll() is None:
            self._loop.call_later(_LOOK_SECONDS, self._take_leave)


def _how(code: int | None) -> str:
    if code is None:
        return "no longer listens"
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended by itself with exit code {code}"
