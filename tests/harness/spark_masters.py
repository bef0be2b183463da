"""Spark as servers of their own, from what ``pip install pyspark`` brings: standalone, and Spark Connect."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest
from process_groups import kill, processes_of

__all__ = ["connect_server", "standalone_cluster"]

_READY_SECONDS = 90.0
_HOME = Path(pyspark.__file__).parent


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[str]:
    """A master and a worker with two cores; its URL, like ``spark://127.0.0.1:40001``."""
    with ExitStack() as stack:
        command = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0"]
        ready = re.compile(r"Starting Spark master at (spark://\S+)")
        url = stack.enter_context(_server("spark-class", [*command, "--webui-port", "0"], folder, ready))
        command = ["org.apache.spark.deploy.worker.Worker", url, "--host", "127.0.0.1", "--webui-port", "0"]
        command += ["--cores", "2", "--memory", "2g", "--work-dir", str(folder / "work")]
        ready = re.compile("Successfully registered with master (spark://.*)")
        stack.enter_context(_server("spark-class", command, folder, ready))
        yield url


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """A server of Spark Connect in ``local[2]``; its URL, like ``sc://127.0.0.1:40001``."""
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # It is killed in the end, and would leave its temporary files behind.
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={folder}",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    given = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    command = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]"]
    ready = re.compile(r"Spark Connect server started at: \S+:(\d+)")
    with _server("spark-submit", [*command, *given, "spark-internal"], folder, ready) as port:
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def _server(program: str, command: Sequence[str], folder: Path, ready: re.Pattern[str]) -> Iterator[str]:
    """A process until the end of the block; what ``ready`` finds in its log."""
    settings = {
        "SPARK_HOME": str(_HOME),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_MEMORY": "1g",
        "SPARK_DAEMON_JAVA_OPTS": f"-Djava.io.tmpdir={folder}",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2] / "src"), *sys.path]),
    }
    process = subprocess.Popen(
        [str(_HOME / "bin" / program), *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=folder,
        env={**os.environ, **settings},
    )
    found: list[str] = []
    told = threading.Event()
    log = folder / f"{program}-{process.pid}.log"

    def read() -> None:
        assert process.stderr is not None
        with log.open("w") as file:
            for line in process.stderr:
                file.write(line)
                file.flush()
                match = ready.search(line)
                if match and not found:
                    found.append(match[1])
                    told.set()
        told.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        told.wait(_READY_SECONDS)
        if not found:
            pytest.fail(f"{program} does not start:\n{log.read_text()[-3000:]}")
        yield found[0]
    finally:
        for pid in processes_of(process.pid):
            kill(pid)
        process.wait()
        reader.join()
