"""Queries that are killed at random moments, and a broker that is: what arrives is what went in, once.

Read, shuffled by a random number, with a random column, written; with another number of cores, another number
of partitions and, by chance, executors in processes of their own in each life. ``MAGNETAR_SPARK_KILLS`` says
how often something is killed (5), ``MAGNETAR_FIRST_SEED`` replays.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from server import MINIATURE, Server
from spark_query import Query
from spark_world import Cluster

from magnetar.admin_client import topic_path
from magnetar.client import BatchingType, InitialPosition, MessageId

pytestmark = pytest.mark.skipif(
    "MAGNETAR_SPARK_SERVICE_URL" in os.environ, reason="it kills and starts its own broker, Magnetar"
)

KILLS = int(os.environ.get("MAGNETAR_SPARK_KILLS", "5"))
"""For both sources together."""
OF_FILES = max(1, KILLS // 5)
IN_TRANSACTIONS = max(2, KILLS // 3)
"""Besides."""
SEED = int(os.environ.get("MAGNETAR_FIRST_SEED", "1"))
BATCHES = 6
"""So many more for each life."""
ROWS = 300
"""In each batch."""
VICTIMS = ("driver", "jvm", "executor", "worker", "broker")
"""All of the query, its JVM, an executor (where there are none: a worker), a Python process, the broker."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Ledgers of seven entries, gone as soon as they are read."""
    running = Server(tmp_path, {**MINIATURE, "transactionCoordinatorEnabled": "true"})
    running.start()
    try:
        yield running
    finally:
        running.close()


def drain(cluster: Cluster, topic: str, name: str, found: dict[MessageId, str]) -> None:
    """Takes and acknowledges all that is there, so that its ledgers are trimmed."""
    consumer = cluster.client.subscribe(topic, name, initial_position=InitialPosition.Earliest)
    last = consumer.get_last_message_id()
    newest = max(found, default=None)
    while last.entry_id() >= 0 and (newest is None or not _is_at_end(newest, last)):
        message = consumer.receive(120_000)
        newest = message.message_id() if newest is None else max(newest, message.message_id())
        key = message.data().decode().split(":")[0]
        assert message.partition_key() == key
        found[message.message_id()] = key
        consumer.acknowledge_cumulative(message)
    consumer.close()


def _is_at_end(read: MessageId, last: MessageId) -> bool:
    whole = read.batch_index() == read.batch_size() - 1 or read.batch_size() == 0
    return read.position >= last.position and whole


class Files:
    """Text files, a batch each."""

    def __init__(self, cluster: Cluster, folder: Path, topic: str) -> None:
        self._folder = folder / "input"
        self._folder.mkdir()
        self.settings: dict[str, Any] = {"source": "files", "input": str(self._folder)}

    def add(self, life: int) -> list[str]:
        """Puts new ids in."""
        added = []
        for number in range(BATCHES):
            ids = [f"{life}.{number}.{row}" for row in range(ROWS)]
            draft = self._folder.with_name("draft")
            draft.write_text("\n".join(ids) + "\n")
            draft.rename(self._folder / f"{life:05}-{number}.txt")
            added += ids
        return added

    def roll(self) -> None:
        """Files stay."""

    def check(self) -> None:
        """They stay to the end."""


class Topic:
    """A topic; its ledgers roll between lives, and are trimmed: only the query's subscription keeps them."""

    def __init__(self, cluster: Cluster, folder: Path, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic + "-source"
        self._taken: dict[MessageId, str] = {}
        read = {"topic": self._topic, "startingOffsets": "earliest", "maxRowsPerTrigger": str(ROWS)}
        # Several tasks read a batch.
        read["maxEntriesPerPartition"] = "10"
        self.settings: dict[str, Any] = {"source": "topic", "read": cluster.options(**read)}
        # Until the query has a subscription of its own.
        drain(cluster, self._topic, "others", self._taken)
        self._trimmed = 0

    def add(self, life: int) -> list[str]:
        """Publishes new ids."""
        added = [f"{life}.{row}" for row in range(BATCHES * ROWS)]
        producer = self._cluster.client.create_producer(
            self._topic,
            batching_enabled=True,
            batching_max_messages=17,
            batching_type=BatchingType.Default,
            block_if_queue_full=True,
        )
        taken: list[MessageId | None] = []
        for each in added:
            producer.send_async(each.encode(), lambda _, place: taken.append(place), partition_key=each)
        producer.flush()
        producer.close()
        assert len(taken) == len(added)
        assert None not in taken, "not all of the input was published"
        return added

    def roll(self) -> None:
        """Everybody else takes all; the ledger is closed, and what nobody wants is trimmed."""
        before = self._ledgers()
        if not self._subscriptions():
            return
        drain(self._cluster, self._topic, "others", self._taken)
        self._cluster.admin.unload_topic(self._topic)
        self._cluster.admin._http.ask("POST", topic_path(self._topic) + "/trim")
        self._trimmed += len(before - self._ledgers())

    def check(self) -> None:
        """One subscription, that of the checkpoint, and no more than the last batch is left."""
        assert len(self._subscriptions()) == 1, self._subscriptions()
        assert self._trimmed > 0
        # Those of the last batch, which is let go of with the next one, and the open one.
        assert len(self._ledgers()) <= 6
        print(f"{self._trimmed} ledgers of the source were trimmed between lives")

    def _ledgers(self) -> set[int]:
        stats = self._cluster.admin.topic_internal_stats(self._topic)
        return {int(each["ledgerId"]) for each in stats["ledgers"]}

    def _subscriptions(self) -> list[str]:
        """Of queries."""
        cursors = self._cluster.admin.topic_internal_stats(self._topic)["cursors"]
        return [name for name in cursors if name.startswith("spark-pulsar")]


def life_settings(
    random_: random.Random, cluster: Cluster, folder: Path, topic: str, delivery: str
) -> dict[str, Any]:
    cores = random_.randrange(1, 4)
    apart = f"local-cluster[2,{1 + cores // 3},1024]"
    return {
        "master": apart if random_.random() < 0.5 else f"local[{cores},4]",
        "partitions": random_.randrange(1, 5),
        "folder": str(folder / "spark"),
        "topic": topic,
        "checkpoint": str(folder / "checkpoint"),
        "write": cluster.options(delivery=delivery, **{"pulsar.producer.batchingMaxMessages": "20"}),
    }


def strike(query: Query, server: Server, random_: random.Random, checkpoint: Path) -> str:
    """Kills something after a while, mostly after some batches more have begun; what it was, if anything."""
    assert query.await_running(), "the query did not start: see query.log"
    wanted = _batches(checkpoint) + random_.choice([0, 0, 1, 2, 3, 4])
    end = time.monotonic() + 90
    while _batches(checkpoint) < wanted and not query.has_ended() and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(random_.uniform(0, 4))
    victim = random_.choice(VICTIMS)
    if victim == "broker":
        server.restart(kill=True)
    elif query.has_ended():
        return ""
    elif victim == "driver":
        query.kill()
    elif not query.kill_one(victim, random_):
        victim = "worker" if query.kill_one("worker", random_) else ""
    return victim


def _batches(checkpoint: Path) -> int:
    """How many were begun so far."""
    return sum(1 for _ in (checkpoint / "offsets").glob("[0-9]*"))


@pytest.mark.timeout(900 + 120 * KILLS)
@pytest.mark.parametrize(
    ("source", "delivery", "wanted"),
    [
        (Topic, "exactly-once", KILLS - OF_FILES),
        (Files, "exactly-once", OF_FILES),
        pytest.param(
            Topic,
            "transactional",
            IN_TRANSACTIONS,
            marks=pytest.mark.skipif(
                "MAGNETAR_SPARK_KILLS" not in os.environ,
                reason="tools/soak does so; test_transactional_batches.py kills at each step",
            ),
        ),
    ],
)
def test_every_row_is_written_once_whatever_is_killed(
    server: Server, tmp_path: Path, topic: str, source: type[Files | Topic], delivery: str, wanted: int
) -> None:
    random_ = random.Random(SEED)
    expected: Counter[str] = Counter()
    cluster = Cluster(server.url, server.http_url)
    found: dict[MessageId, str] = {}
    drain(cluster, topic, "check", found)
    given = source(cluster, tmp_path, topic)
    kills: Counter[str] = Counter()
    for life in range(3 * wanted + 20):
        if kills.total() < wanted:
            expected.update(given.add(life))
        settings = {**life_settings(random_, cluster, tmp_path, topic, delivery), **given.settings}
        query = Query(settings, tmp_path / "query.log")
        try:
            if kills.total() < wanted:
                victim = strike(query, server, random_, tmp_path / "checkpoint")
                kills.update([victim] if victim else [])
            done = query.end()
        except BaseException:
            query.kill()
            raise
        drain(cluster, topic, "check", found)
        assert len(set(found.values())) == len(found), f"seed {SEED}, life {life}, {kills}"
        given.roll()
        if done and kills.total() >= wanted:
            break
    else:
        pytest.fail(f"the query never ended:\n{(tmp_path / 'query.log').read_text()[-3000:]}")
    ledgers = cluster.admin.topic_internal_stats(topic)["ledgers"]
    given.check()
    cluster.close()
    assert Counter(found.values()) == expected, f"seed {SEED}, {kills}"
    assert int(ledgers[0]["ledgerId"]) > 0
    print(f"{kills} in {life + 1} lives, {len(expected)} rows, {len(ledgers)} ledgers are left")
