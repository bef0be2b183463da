"""Controls the warm process of a test session (see ``keeper``); runs in the process of the tests."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from typing import Any

from magnetar.testing.channel import PATIENCE_SECONDS, BrokerNotStarted, Channel, ChannelClosed


def _ends() -> tuple[socket.socket, socket.socket]:
    """Returns the two ends of a new channel: the local end, which has a time-out, and the end for the other
    process.
    """
    own, others = socket.socketpair()
    own.settimeout(PATIENCE_SECONDS)
    return own, others


class Keeper:
    """The warm process, as the process of the tests sees it. The constructor starts the process without
    waiting until its imports are done.
    """

    def __init__(self) -> None:
        own, others = _ends()
        # The file has no name, so that nothing is left behind.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        with others:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "magnetar.testing.keeper", str(others.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=[others.fileno()],
                # Ctrl-C must reach only the test runner: brokers stay until the tests have ended.
                start_new_session=True,
            )
        self._channel = Channel(own)
        self._warm = False

    def fork(self, wanted: dict[str, object], log: str) -> tuple[int, Channel]:
        """Starts a broker in a fork of the warm process; returns the broker's process id, and the channel to
        it.

        :param wanted: fields of ``served.WantedBroker``
        :param log: the log file of the broker
        :raises BrokerNotStarted: the warm process itself did not start
        """
        own, others = _ends()
        with others:
            answer = self._ask({"do": "fork", "wanted": wanted, "log": log}, [others.fileno()])
        return int(answer["pid"]), Channel(own)

    def end(self, pid: int, *, kill: bool) -> int:
        """Waits until a broker's process has ended; returns its exit code, or the negative number of the
        signal that ended it.

        :param kill: whether to kill the broker with SIGKILL first
        """
        return int(self._ask({"do": "kill" if kill else "wait", "pid": pid})["status"])

    def _ask(self, question: dict[str, object], files: tuple[int, ...] | list[int] = ()) -> dict[str, Any]:
        try:
            if not self._warm:
                if self._channel.hear() is None:
                    raise ChannelClosed("the process that starts brokers ended before it was ready")
                self._warm = True
            return self._channel.ask(question, files)
        except ChannelClosed as error:
            code = self._process.wait()
            said = os.pread(self._log.fileno(), 10_000, 0).decode(errors="replace")
            raise BrokerNotStarted(f"the process that starts brokers ended with {code}:\n{said}") from error

    def close(self) -> None:
        """Ends the warm process, and all brokers that it has started."""
        self._channel.close()
        self._process.wait()
        self._log.close()
