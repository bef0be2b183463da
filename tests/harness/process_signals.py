"""Signals to processes of a test."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

_STOPPED_SECONDS = 60.0


def stop(pid: int) -> None:
    """Sends SIGSTOP to a process, and waits until each of its threads has stopped.

    The kernel lets a process go on until one of its threads has seen the signal, which takes a while if all
    processors are busy.
    """
    os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + _STOPPED_SECONDS
    while not _stopped(pid):
        assert time.monotonic() < end, f"process {pid} does not stop"
        time.sleep(0.001)


def send(process: subprocess.Popen[str] | subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Sends a signal to a child process unless it has ended; SIGSTOP as in :func:`stop`."""
    if number is signal.SIGSTOP:
        stop(process.pid)
    else:
        process.send_signal(number)


def _stopped(pid: int) -> bool:
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    try:
        # The state follows the name, which is in brackets and may contain any character.
        return all(thread.read_text().rpartition(")")[2].split()[0] in "TtZX" for thread in threads)
    except (FileNotFoundError, ProcessLookupError):
        # A thread ended after it was listed, so the process still ran.
        return False
