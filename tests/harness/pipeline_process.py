"""A pipeline as the command that users run, in processes of its own, which can be killed and are measured."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from process_groups import arguments, kill, memory, processes_of, processor_seconds

_END_SECONDS = 1800.0
_LOOK_SECONDS = 0.5


@dataclass
class Result:
    """How a run ended."""

    code: int
    seconds: float
    """From its first step on: without the start of Spark."""
    whole_seconds: float
    processor_seconds: dict[str, float]
    """With the start of Spark, of the ``driver``, the ``JVM`` and the ``workers``."""
    peaks: dict[str, int]
    """Most bytes in memory: of the ``driver``, the ``JVM``, the ``workers``, ``all`` of them together, and of
    the largest ``worker``."""
    report: dict[str, Any] = field(default_factory=dict)


class PipelineProcess:
    """One life of ``magnetar pipeline NAME``."""

    def __init__(self, name: str, config: Path) -> None:
        self.name = name
        self._folder = config.parent
        self._begun = time.monotonic()
        self._first_step: float | None = None
        self._working = threading.Event()
        self._lines: list[str] = []
        self._peaks: dict[str, int] = {}
        self._processor: dict[tuple[str, int], float] = {}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "magnetar", "pipeline", name, "--config", str(config)],
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._threads = [threading.Thread(target=each) for each in (self._read, self._watch)]
        for thread in self._threads:
            thread.start()

    def end(self) -> Result:
        """Waits for its end."""
        try:
            code = self._process.wait(_END_SECONDS)
        finally:
            self.kill("all")
        now = time.monotonic()
        reports = sorted((self._folder / "reports").glob(f"{self.name}-[0-9]*.json"))
        report = json.loads(reports[-1].read_text()) if reports else {}
        used: dict[str, float] = {}
        for (kind, _), seconds in self._processor.items():
            used[kind] = used.get(kind, 0.0) + seconds
        return Result(code, now - (self._first_step or now), now - self._begun, used, self._peaks, report)

    def kill_after(self, seconds: float, victim: str) -> bool:
        """Kills it so long after its first step; False when it had ended before."""
        self._working.wait(_END_SECONDS)
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill(victim)
            return True
        return False

    def kill(self, victim: str) -> None:
        """:param victim: ``driver``, ``JVM`` or ``all``; in the end nothing of it is left"""
        for pid in processes_of(self._process.pid):
            if victim in ("all", self._kind(pid)):
                kill(pid)
        self._process.wait(60)
        if victim == "driver":
            # The JVM ends by itself when its driver is gone, perhaps a moment later.
            time.sleep(random.uniform(0, 1))
        for pid in processes_of(self._process.pid):
            kill(pid)
        for thread in self._threads:
            thread.join()

    @property
    def log(self) -> str:
        """What it wrote to standard error."""
        return "".join(self._lines)

    def _kind(self, pid: int) -> str:
        if pid == self._process.pid:
            return "driver"
        # A process that has ended meanwhile has no arguments.
        return "JVM" if b"java" in next(iter(arguments(pid)), b"") else "workers"

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._lines.append(line)
            if line.startswith(f"{self.name}: ") and "starting Spark" not in line and not self._first_step:
                self._first_step = time.monotonic()
                self._working.set()
        self._working.set()

    def _watch(self) -> None:
        while self._process.poll() is None:
            found: dict[str, int] = {}
            for pid in processes_of(self._process.pid):
                size = memory(pid)
                known = (self._kind(pid), pid)
                self._processor[known] = max(processor_seconds(pid), self._processor.get(known, 0.0))
                for kind in (known[0], "all"):
                    found[kind] = found.get(kind, 0) + size
                if known[0] == "workers":
                    found["worker"] = max(size, found.get("worker", 0))
            for kind, size in found.items():
                self._peaks[kind] = max(size, self._peaks.get(kind, 0))
            time.sleep(_LOOK_SECONDS)


class Pipelines:
    """Runs pipelines in a folder, each killed so many times on its way."""

    def __init__(self, folder: Path, addresses: dict[str, str], master: str, seed: int) -> None:
        """:param addresses: the section ``cluster``"""
        self.folder = folder
        self.kills: list[str] = []
        self._addresses = addresses
        self._master = master
        self._random = random.Random(seed)

    def run(
        self, name: str, section: dict[str, Any], within: float, kills: int, code: int = 0
    ) -> tuple[Result, int]:
        """Runs one to its end, through its kills; they come ``within`` so many seconds of its first step.

        :param code: the exit code that is expected
        :returns: its last life, and how often it was killed before
        """
        killed = 0
        while True:
            process = PipelineProcess(name, self.configured(name, section))
            if killed < kills:
                victim = self._random.choice(("driver", "JVM", "all"))
                moment = self._random.uniform(0, within)
                if process.kill_after(moment, victim):
                    killed += 1
                    self.kills.append(f"{name}: {victim} after {moment:.1f} s")
                    continue
            result = process.end()
            if result.code != code:
                pytest.fail(f"{name}: exit code {result.code}\n{process.log[-3000:]}")
            return result, killed

    def configured(self, name: str, section: dict[str, Any]) -> Path:
        """Writes the configuration of a pipeline; returns its path."""
        path = self.folder / "config.json"
        spark: dict[str, Any] = {"master": self._master}
        if not self._master.startswith("sc:"):
            spark["conf"] = {
                # A JVM that is killed leaves its temporary files behind.
                "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={self.folder}",
                # On a cluster there are 200 otherwise, most of them empty.
                "spark.sql.shuffle.partitions": "8",
            }
        document = {
            "cluster": self._addresses,
            "spark": spark,
            name.replace("-", "_"): section,
        }
        path.write_text(json.dumps(document))
        return path
