"""The warm process of a test session. It has already imported a broker's modules, so that it can fork brokers
quickly; it has only one thread, so that forking is safe. This process and the brokers that it forks end when
the process of the tests ends, for any reason.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from contextlib import suppress

from magnetar.testing.channel import Channel, ChannelClosed
from magnetar.testing.served import WantedBroker, run


class _Keeper:
    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._channel = Channel(end)
        self._children: set[int] = set()

    def serve(self) -> None:
        """Serves requests until the other end closes the channel."""
        try:
            self._channel.tell({"ready": True})
            while (heard := self._channel.hear()) is not None:
                asked, files = heard
                if asked["do"] == "fork":
                    self._channel.tell(
                        {"pid": self._fork(WantedBroker(**asked["wanted"]), asked["log"], files[0])}
                    )
                else:
                    self._channel.tell({"status": self._end_of(asked["pid"], kill=asked["do"] == "kill")})
        except ChannelClosed:
            # The same as an orderly end.
            pass
        finally:
            for pid in list(self._children):
                self._end_of(pid, kill=True)

    def _fork(self, wanted: WantedBroker, log: str, control: int) -> int:
        pid = os.fork()
        if not pid:
            self._be_broker(wanted, log, control)
        self._children.add(pid)
        os.close(control)
        # In both processes, because either may be first; the child may have ended already.
        with suppress(OSError):
            os.setpgid(pid, pid)
        return pid

    def _be_broker(self, wanted: WantedBroker, log: str, control: int) -> None:
        """Runs a broker; called in the forked process, and never returns."""
        code = 1
        try:
            os.setpgid(0, 0)
            self._end.close()
            file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(file, 1)
            os.dup2(file, 2)
            os.close(file)
            code = run(socket.socket(fileno=control), wanted)
        except BaseException:  # noqa: BLE001 - of a process of its own: nobody above may hear of it
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _end_of(self, pid: int, *, kill: bool) -> int:
        """Waits until a broker's process has ended; returns its exit code, or the negative number of the
        signal that ended it.

        :param kill: whether to kill the broker with SIGKILL first
        """
        if pid not in self._children:
            return 0
        if kill:
            # Also ends processes that the broker started.
            os.killpg(pid, signal.SIGKILL)
        _pid, status = os.waitpid(pid, 0)
        self._children.discard(pid)
        return os.waitstatus_to_exitcode(status)


def main() -> None:
    """Runs ``python -m magnetar.testing.keeper DESCRIPTOR``; the argument is the descriptor of the channel's
    socket.
    """
    gc.collect()
    gc.freeze()
    _Keeper(socket.socket(fileno=int(sys.argv[1]))).serve()


if __name__ == "__main__":
    main()
