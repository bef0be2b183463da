"""Spark sessions in separate processes: with this Python, and in the environment of the JVM connector."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_PYSPARK = "pyspark==3.1.3"
"""The connector's newest release is made for Spark 3.1."""
_OPENED = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)
_COMMON = {
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


class QueryFailed(Exception):
    """A session ended instead of answering."""


@dataclass(frozen=True)
class Took:
    """The result of a query, and its seconds: wall-clock, and CPU (driver, JVM, Python workers)."""

    found: Any
    wall: float
    cpu: float


class Session:
    """One session, as a context manager."""

    def __init__(self, python: Path, master: str, conf: dict[str, str], magnetar: bool, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "session.log"
        reading, writing = os.pipe()
        conf = {**_COMMON, "spark.local.dir": str(folder), "spark.sql.warehouse.dir": f"{folder}/w", **conf}
        opened = " ".join(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(python), str(Path(__file__).parent / "query.py"), str(writing)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[writing],
                text=True,
                cwd=folder,
                env={**os.environ, "SPARK_SUBMIT_OPTS": opened},
            )
        os.close(writing)
        self._answers = os.fdopen(reading)
        self._say({"master": master, "conf": conf, "magnetar": magnetar})

    def _say(self, words: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()

    def ask(self, do: str, **what: Any) -> Took:
        """Runs one query.

        :raises QueryFailed: the session ended; the text names its log
        """
        self._say({"do": do, **what})
        answer = self._answers.readline()
        if not answer:
            raise QueryFailed(f"{do} failed:\n{self._log.read_text()[-3000:]}")
        return Took(**json.loads(answer))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._answers.close()


def own_session(master: str, folder: Path) -> Session:
    """Starts a session with ``magnetar.spark``, in this Python."""
    return Session(Path(sys.executable), master, {}, True, folder)


def connector_session(master: str, folder: Path, cache: Path) -> Session:
    """Starts a session with the JVM connector, which is fetched if it is missing."""
    python, jars = fetch_connector(cache)
    scala = next(jars.glob("scala-library-*.jar"))
    connector = next(jars.glob("pulsar-spark-connector*.jar"))
    conf = {"spark.jars": str(connector), "spark.driver.extraClassPath": str(scala)}
    return Session(python, master, conf, False, folder)


def fetch_connector(cache: Path) -> tuple[Path, Path]:
    """Returns a Python with the connector's PySpark, and the folder of its jars."""
    environment, jars = cache / "spark-connector", cache / "spark-connector-jars"
    python, complete = environment / "bin" / "python", cache / "spark-connector.complete"
    if not complete.exists():
        venv.create(environment, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "-q", _PYSPARK], check=True)
        pom = Path(__file__).parent.parent / "peers" / "spark" / "pom.xml"
        command = ["mvn", "-B", "-q", "-ntp", "-f", str(pom), "dependency:copy-dependencies"]
        subprocess.run([*command, f"-DoutputDirectory={jars}", "-DincludeScope=runtime"], check=True)
        complete.touch()
    return python, jars
