"""The workloads of each system, and their figures."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bench.servers import Server
from bench.spark.filling import COLUMNS, content, fill, make_topic, messages_in
from bench.spark.sessions import Session
from magnetar.admin_client import AdminClient

_topics = itertools.count()


class Void(Exception):
    """A run without valid figures: the rows are not those that were published."""


@dataclass
class System:
    """A way to use Spark with a server.

    :ivar options: options of a query besides the topic
    :ivar reads: whether it takes part in reading; :ivar writes: in writing
    :ivar stores: how it writes a topic to files: by ``parquet`` of Spark, or by a pipeline: ``archive``, or
        ``table`` in a format, ``delta`` or ``iceberg``; empty: it does not
    """

    name: str
    title: str
    server: Server
    open: Callable[[str, Path], Session]
    options: dict[str, str] = field(default_factory=dict)
    reads: bool = True
    writes: bool = True
    once: bool = False
    stores: str = ""

    def of(self, topic: str | None = None, **more: str) -> dict[str, str]:
        urls = {"service.url": self.server.url, "admin.url": self.server.admin_url}
        return {**urls, **({"topic": topic} if topic else {}), **self.options, **more}


def read_topic(server: Server, kind: str, size: int, rows: int) -> str:
    """Creates a topic with ``rows`` messages of a kind."""
    topic = f"persistent://public/default/read-{kind}-{size}"
    make_topic(server.admin_url, topic, kind)
    fill(server.url, topic, kind, size, rows)
    return topic


def read(system: System, session: Session, topic: str, kind: str, size: int, rows: int) -> dict[str, Any]:
    """Runs one query over a whole topic.

    :raises Void: the query found other rows
    """
    before = system.server.cpu_seconds()
    took = session.ask("read", options=system.of(topic), columns=COLUMNS[kind])
    server = system.server.cpu_seconds() - before
    if took.found[0] != rows or (kind == "bytes" and took.found[1] != rows * len(content(kind, size))):
        raise Void(f"{took.found} of {rows} rows")
    return _figures(rows, took.wall, took.cpu, server)


def write(system: System, session: Session, size: int, rows: int, staging: Path) -> dict[str, Any]:
    """Writes rows that Spark holds in memory to a new topic.

    :raises Void: the topic has another number of messages
    """
    number = next(_topics)
    topic = f"persistent://public/default/write-{number}"
    make_topic(system.server.admin_url, topic)
    session.ask("hold", rows=rows, size=size, parts=2, topic=topic)
    once = {"writeId": f"write-{number}", "stagingDir": str(staging)} if system.once else {}
    before = system.server.cpu_seconds()
    took = session.ask("write", options=system.of(**once))
    server = system.server.cpu_seconds() - before
    found = messages_in(system.server.url, system.server.admin_url, topic)
    AdminClient(system.server.admin_url).delete_partitioned_topic(topic, force=True)
    if found != rows:
        raise Void(f"{found} messages of {rows} rows")
    return _figures(rows, took.wall, took.cpu, server)


def store(system: System, session: Session, topic: str, rows: int, folder: Path) -> dict[str, Any]:
    """Writes a whole topic to Parquet files.

    :raises Void: the files have another number of rows
    """
    before = system.server.cpu_seconds()
    if system.stores == "parquet":
        took = session.ask("store", options=system.of(topic), folder=str(folder))
    else:
        name = "archive" if system.stores == "archive" else "table"
        config = folder.with_suffix(".json")
        config.write_text(json.dumps(_pipeline(system, name, topic, folder)))
        took = session.ask("pipeline", name=name, config=str(config))
        config.unlink()
    server = system.server.cpu_seconds() - before
    stored = sum(pq.read_metadata(each).num_rows for each in folder.rglob("*.parquet"))
    shutil.rmtree(folder)
    if stored != rows:
        raise Void(f"{stored} rows of {rows} are in files")
    return _figures(rows, took.wall, took.cpu, server)


def _pipeline(system: System, name: str, topic: str, folder: Path) -> dict[str, Any]:
    """Returns the configuration of a pipeline that writes a topic to files of one folder."""
    section: dict[str, Any] = {"topic": topic, "path": f"{folder}/data"}
    if name == "table":
        section = {"topics": [topic], "path": f"{folder}/data", "format": system.stores}
    return {
        "cluster": {"service_url": system.server.url, "admin_url": system.server.admin_url},
        "report": {"path": f"{folder}/reports"},
        name: section,
    }


def _figures(rows: int, wall: float, cpu: float, server: float) -> dict[str, Any]:
    return {
        "rows": rows,
        "rows_per_second": rows / wall,
        "rows_per_cpu_second": rows / cpu,
        "cpu_seconds_per_million": cpu / rows * 1e6,
        "server_cpu_seconds_per_million": server / rows * 1e6,
    }
