"""A streaming query as a process that is killed: driver, executors and Python workers."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

__all__ = ["Query"]

SCRIPT = Path(__file__).parents[1] / "spark" / "query_process.py"
END_SECONDS = 400.0


class Query:
    """One life of a query: ``query_process.py`` with the JVMs and the Python workers that it starts."""

    def __init__(self, settings: dict[str, Any], log: Path) -> None:
        given = os.environ.get("PYTHONPATH")
        path = os.pathsep.join([str(SCRIPT.parent), str(Path(__file__).parent), *([given] if given else [])])
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, str(SCRIPT), json.dumps(settings)],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": path},
            )
        self._settled = threading.Event()
        self._runs = False
        self._done = False
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == "RUNNING":
                self._runs = True
                self._settled.set()
            self._done = self._done or line.strip() == "DONE"
        self._settled.set()

    def await_running(self) -> bool:
        """Waits until its query runs; false when it ended before it did."""
        self._settled.wait(END_SECONDS)
        return self._runs

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def kill_one(self, kind: str, random_: random.Random) -> bool:
        """Kills a ``jvm`` (of the driver), an ``executor`` or a ``worker``; whether there was one."""
        found = [pid for pid in self._all() if _kind(pid) == kind]
        if found:
            _kill(random_.choice(found))
        return bool(found)

    def kill(self) -> None:
        """Kills all of it."""
        for pid in self._all():
            _kill(pid)
        self.end()

    def end(self) -> bool:
        """Waits for the end; whether all was done."""
        try:
            self._process.wait(END_SECONDS)
        finally:
            for pid in self._all():
                _kill(pid)
            self._reader.join()
        return self._done

    def _all(self) -> list[int]:
        """The processes of its session; nothing that it starts leaves it."""
        return [int(each.name) for each in Path("/proc").iterdir() if self._is_mine(each)]

    def _is_mine(self, entry: Path) -> bool:
        try:
            return entry.name.isdigit() and os.getsid(int(entry.name)) == self._process.pid
        except ProcessLookupError:
            return False


def _kind(pid: int) -> str:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    if command[0].endswith(b"java"):
        return "executor" if any(b"ExecutorBackend" in each for each in command) else "jvm"
    return "worker" if any(each.startswith(b"pyspark.") for each in command) else ""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
