"""Two clusters of one server each that replicate to each other, both of the same product."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from bench.generators import Void, start_perf
from bench.process import end
from bench.servers import ApachePulsar, Magnetar, Server

_TENANT = "geo"
_LOOK_SECONDS = 0.1
_FILL_SECONDS = 900
_SETTINGS = {"replicationStartAt": "earliest"}
_MEMORY = ["-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=1g"]
_NEVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
CLUSTERS = ("east", "west")


def ask(server: Server, method: str, path: str, body: object = None) -> Any:
    """Returns the answer of the admin interface below ``/admin/v2``; None if it is empty.

    :raises Void: the server refused
    """
    connection = HTTPConnection("127.0.0.1", server.http_port, timeout=120)
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, f"/admin/v2{path}", data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    if answer.status not in (200, 204):
        raise Void(f"{server.title} answers {answer.status} to {method} {path}: {content[-300:]!r}")
    return json.loads(content) if content else None


class Pair:
    """A sender, east, and a receiver, west."""

    def __init__(self, name: str, title: str, east: Server, west: Server) -> None:
        self.name = name
        self.title = title
        self.east = east
        self.west = west
        self._namespaces = 0

    def connect(self) -> None:
        """Creates the record of the other cluster in each server."""
        servers = (self.east, self.west)
        for server, other, cluster in zip(servers, servers[::-1], CLUSTERS[::-1], strict=True):
            record = {"serviceUrl": other.admin_url, "brokerServiceUrl": other.url}
            ask(server, "PUT", f"/clusters/{cluster}", record)
            ask(server, "PUT", f"/tenants/{_TENANT}", {"allowedClusters": CLUSTERS})

    def namespace(self, *, replicated: bool) -> str:
        """Creates a namespace that retains all messages; unless it is replicated, the east sends nothing."""
        self._namespaces += 1
        name = f"{_TENANT}/n{self._namespaces}"
        here = CLUSTERS if replicated else CLUSTERS[:1]
        for server, clusters in ((self.east, here), (self.west, CLUSTERS)):
            ask(server, "PUT", f"/namespaces/{name}", {"replication_clusters": clusters})
            ask(server, "POST", f"/namespaces/{name}/retention", _NEVER)
        return name

    def fill(self, topic: str, count: int, flags: Sequence[str]) -> int:
        """Publishes messages in the east as fast as possible; returns the number of entries.

        :param flags: of ``pulsar-perf``
        :raises Void: not all messages were stored
        """
        arguments = ("-m", str(count), "-r", "0", *flags)
        producer = start_perf(self.east, "produce", f"persistent://{topic}", *arguments)
        try:
            producer.wait(_FILL_SECONDS)
        finally:
            end(producer)
        stored = ask(self.east, "GET", f"/persistent/{topic}/stats")["msgInCounter"]
        if stored != count:
            raise Void(f"{stored} messages of {topic} were stored instead of {count}")
        return entries(self.east, topic)

    def replicate(self, namespace: str) -> None:
        """Starts replication from the east to the west, beginning with stored messages."""
        ask(self.east, "POST", f"/namespaces/{namespace}/replication", CLUSTERS)

    def cpu_seconds(self) -> tuple[float, float]:
        """Returns the CPU time of the sender and of the receiver since their start."""
        return self.east.cpu_seconds(), self.west.cpu_seconds()

    def backlog(self, topic: str) -> int:
        """Returns the number of entries that the west has not confirmed yet, or -1 without a replicator."""
        stats = ask(self.east, "GET", f"/persistent/{topic}/stats")
        found: int = stats["replication"].get(CLUSTERS[1], {}).get("replicationBacklog", -1)
        return found

    def wait_until_replicated(self, topic: str, seconds: float = 900.0) -> None:
        """:raises Void: it takes longer than the time-out"""
        end = time.monotonic() + seconds
        while self.backlog(topic):
            if time.monotonic() > end:
                raise Void(f"{topic} was not replicated within {seconds:g} s")
            time.sleep(_LOOK_SECONDS)

    def delete(self, topic: str) -> None:
        """Deletes the topic in both clusters."""
        namespace = topic.rpartition("/")[0]
        for server, cluster in zip((self.east, self.west), CLUSTERS, strict=True):
            ask(server, "POST", f"/namespaces/{namespace}/replication", [cluster])
        for server in (self.east, self.west):
            try:
                ask(server, "DELETE", f"/persistent/{topic}?force=true")
            except TimeoutError:
                # Apache's broker sometimes never answers. The topic stays, and nothing uses it any more.
                sys.stderr.write(f"{server.title} did not answer to the deletion of {topic}\n")


def entries(server: Server, topic: str) -> int:
    """Returns the number of entries of a topic; 0 if it does not exist."""
    try:
        found: int = ask(server, "GET", f"/persistent/{topic}/internalStats")["numberOfEntries"]
    except Void:
        return 0
    return found


def _server(peer: str, cluster: str, folder: Path, jars: Path | None) -> Server:
    settings = {"clusterName": cluster, **_SETTINGS}
    if peer == "magnetar":
        return Magnetar(cluster, f"Magnetar, {cluster}", peer, folder, settings=settings)
    assert jars is not None
    title = f"Apache Pulsar, {cluster}"
    return ApachePulsar(cluster, title, peer, folder, jars=jars, memory=_MEMORY, settings=settings)


@contextmanager
def started_pair(peer: str, folder: Path, jars: Path | None) -> Iterator[Pair]:
    """:param peer: ``magnetar`` or ``pulsar``, which needs its jars"""
    started = [_server(peer, cluster, folder / cluster, jars) for cluster in CLUSTERS]
    try:
        for server in started:
            server.start()
        pair = Pair(peer, "Magnetar" if peer == "magnetar" else "Apache Pulsar", *started)
        pair.connect()
        yield pair
    finally:
        for server in started:
            server.stop()
