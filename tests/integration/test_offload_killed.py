"""A broker is killed at each request to an object store: of an offload, of reading, and of deletions.

``MAGNETAR_OFFLOAD_KILLS`` (8) says how many of the moments are tried, evenly spread; ``all`` tries each.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPException
from itertools import count
from typing import Any

import pulsar
import pytest
from faulty_object_store import ObjectStore, object_store
from offloaded_topics import connected, content
from polling import until_wanted
from server import Server

StartServer = Callable[..., Server]
MESSAGES, SIZE = 12, 2000
"""One ledger of a topic is full with ten of them."""
SETTINGS: dict[str, int | str] = {
    "managedLedgerMaxEntriesPerLedger": 10,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "defaultRetentionTimeInMinutes": -1,
    "defaultRetentionSizeInMB": -1,
    "managedLedgerOffloadAutoTriggerSizeThresholdBytes": 0,
    "managedLedgerOffloadDeletionLagMs": 0,
    "triggerOffloadOnTopicLoad": "true",
    # Each reader asks the store.
    "magnetarCacheSizeBytes": 4096,
    "magnetarOffloadCacheSizeMB": 0,
    "brokerDeleteInactiveTopicsEnabled": "false",
}


class Killer:
    """Kills a broker at one request to its store, and starts it again."""

    def __init__(self, server: Server, store: ObjectStore) -> None:
        self._server = server
        self._left = -1
        self._done = False
        self._lock = threading.Lock()
        self._started: threading.Thread | None = None
        self.requests = 0
        store.ends = self._ends

    def aim(self, number: int, *, done: bool) -> None:
        """:param number: of the request from now on, from 0
        :param done: after the store has carried it out, otherwise before
        """
        with self._lock:
            self.requests, self._left, self._done, self._started = 0, number, done, None

    def _ends(self, done: bool) -> bool:
        with self._lock:
            self.requests += not done
            if self._left < 0 or done != self._done or self.requests <= self._left:
                return False
            self._left = -1
            os.kill(self._server.pid, signal.SIGKILL)
            self._started = threading.Thread(target=self._server.restart, kwargs={"kill": True})
            self._started.start()
            return True

    def ended(self) -> bool:
        """Waits until the killed broker runs again; returns whether one was killed."""
        with self._lock:
            self._left = -1
        if self._started is not None:
            self._started.join()
        return self._started is not None


def published(server: Server, topic: str) -> None:
    """Publishes all messages; a client of Pulsar sends again what was not acknowledged."""
    client = connected(server)
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(MESSAGES):
        producer.send(content(number, SIZE))
    client.close()


def read(server: Server, topic: str) -> list[bytes]:
    """Everything in the topic, without what was sent twice."""
    client = connected(server)
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found: dict[bytes, None] = {}
    # The client says that nothing is available while the broker is away.
    while len(found) < MESSAGES or reader.has_message_available():
        found[reader.read_next(60_000).data()] = None
    client.close()
    return list(found)


def answer_of(server: Server, path: str) -> Any:
    """The JSON document of a REST path; None if the broker ended before it had answered."""
    try:
        return json.loads(server.ask("GET", path)[1])
    except (OSError, HTTPException):
        return None


def local_bytes(server: Server, topic: str) -> int | None:
    """What the ledger store has in closed ledgers of the topic that are not only in tiered storage."""
    storage = answer_of(server, "/admin/v2/magnetar/storage")
    stats = answer_of(server, f"/admin/v2/{topic.replace('://', '/')}/internalStats")
    if storage is None or stats is None:
        return None
    rows = [each for each in storage.get("topics", ()) if each["topic"] == topic]
    closed = stats.get("ledgers", ())[:-1]
    if len(rows) != 1 or not closed or not all(each["offloaded"] for each in closed):
        return None
    return int(rows[0]["storedBytes"] - rows[0]["offloadedBytes"])


def objects(store: ObjectStore) -> list[str]:
    """The names of all objects and unfinished uploads; sorted."""
    return sorted(re.findall("<Key>([^<]*)</Key>", store.names()))


def lived(server: Server, store: ObjectStore, topic: str) -> None:
    """Publishes, offloads, reads and deletes a topic, whatever happens to the broker meanwhile."""
    published(server, topic)
    until_wanted(lambda: local_bytes(server, topic), lambda left: left is not None and left < 10 * SIZE)
    assert read(server, topic) == [content(number, SIZE) for number in range(MESSAGES)]
    # A restarted broker closes the last ledger, and offloads it as well.
    until_wanted(lambda: (named(server, topic), objects(store)), lambda both: both[0] == both[1] != [])
    deleted(server, topic)
    until_wanted(lambda: objects(store), lambda left: left == [])


def named(server: Server, topic: str) -> list[str] | None:
    """The names of the objects in the record of the topic, sorted; None if the broker did not answer."""
    answer = answer_of(server, f"/admin/v2/{topic.replace('://', '/')}/internal-info")
    if answer is None or "ledgers" not in answer:
        return None
    ledgers = [each for each in answer["ledgers"] if each["isOffloaded"]]
    data = [f"{each['offloadedContextUuid']}-ledger-{each['ledgerId']}" for each in ledgers]
    return sorted([*data, *(f"{each}-index" for each in data)])


def deleted(server: Server, topic: str) -> None:
    def tried() -> int:
        try:
            return server.ask("DELETE", f"/admin/v2/{topic.replace('://', '/')}?force=true")[0]
        except (OSError, HTTPException):
            return 0

    until_wanted(tried, lambda status: status in (204, 404))


def moments(requests: int) -> list[tuple[int, bool]]:
    """The requests at which a broker is killed, before and after the store has carried them out."""
    every = [(number, done) for number in range(requests) for done in (False, True)]
    wanted = os.environ.get("MAGNETAR_OFFLOAD_KILLS", "8")
    if wanted == "all":
        return every
    # Before and after alternate.
    return [every[int((step + 0.5) * len(every) / int(wanted))] for step in range(int(wanted))]


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


@pytest.mark.timeout(600)
def test_a_broker_killed_at_each_request_loses_nothing_and_leaves_nothing(
    start_server: StartServer, store: ObjectStore
) -> None:
    server = start_server(**SETTINGS, managedLedgerOffloadDriver="aws-s3", **store.settings())
    killer = Killer(server, store)
    names = (f"persistent://public/default/killed-{number}" for number in count())
    lived(server, store, next(names))
    requests = killer.requests
    # Four for the data, two for the index, one before the local deletion, two to read, two to delete.
    assert requests >= 11, store.seen
    killed = 0
    for number, done in moments(requests):
        # How many requests read a topic depends on the time, so one life may end before the last moments.
        for _ in range(3):
            killer.aim(number, done=done)
            lived(server, store, next(names))
            if killer.ended():
                killed += 1
                break
    assert killed == len(moments(requests))
