"""The pipelines as commands, killed on their way and run again.

What they bring about is computed by DuckDB from the definition of the generated messages, and topics are read
by the official client. ``MAGNETAR_PIPELINE_MESSAGES`` (20,000) says how many messages,
``MAGNETAR_PIPELINE_KILLS`` how often each is killed (1, those that only read not at all),
``MAGNETAR_PIPELINE_MASTER`` (``local[2]``) where, ``MAGNETAR_FIRST_SEED`` replays. Run with ``-s`` it tells
times and memory; ``MAGNETAR_PIPELINE_KEEP`` keeps the reports in a folder.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pulsar
import pytest
from pipeline_process import Pipelines, Result
from server import Server

from magnetar.admin_client import AdminClient

MESSAGES = int(os.environ.get("MAGNETAR_PIPELINE_MESSAGES", "20000"))
KILLS = int(os.environ.get("MAGNETAR_PIPELINE_KILLS", "1"))
KILLS_OF_READERS = int(os.environ.get("MAGNETAR_PIPELINE_KILLS", "0"))
"""Of pipelines that remember nothing."""
MASTER = os.environ.get("MAGNETAR_PIPELINE_MASTER", "local[2]")
SEED = int(os.environ.get("MAGNETAR_FIRST_SEED", "1"))
TRIES = 6
NAMESPACE = "persistent://public/default"
DAY = 86_400

pytestmark = pytest.mark.timeout(1200 + MESSAGES // 200)

Section = dict[str, Any]


@dataclass
class World:
    """A server, what was brought about on it so far, and what that took."""

    folder: Path
    pipelines: Pipelines
    client: pulsar.Client
    admin: AdminClient
    told: list[str] = field(default_factory=list)

    def run(
        self,
        name: str,
        rows: int,
        section: Callable[[int], Section],
        kills: int = KILLS_OF_READERS,
        code: int = 0,
    ) -> Result:
        """Runs a pipeline through its kills; where it was faster than they were, all of it once more.

        :param section: its configuration; the number of the try makes folders and topics that must be new
        """
        within = 4.0 + rows / 20_000
        for attempt in range(TRIES):
            result, killed = self.pipelines.run(name, section(attempt), within, kills, code)
            if killed == kills:
                self._tell(name, rows, result)
                return result
            within *= 0.6
        pytest.fail(f"{name} was always faster than {kills} kills, seed {SEED}")

    def keep(self, *topics: str) -> None:
        for topic in topics:
            self.client.subscribe(topic, "keep").close()

    def rows(self, topic: str) -> pd.DataFrame:
        """What a topic holds, in its order: ``data``, ``key``, ``event`` in seconds, ``properties``."""
        reader = self.client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=5000)
        found = []
        while reader.has_message_available():
            each = reader.read_next(120_000)
            found.append(
                (each.data(), each.partition_key(), each.event_timestamp() // 1000, each.properties())
            )
        reader.close()
        return pd.DataFrame(found, columns=["data", "key", "event", "properties"])

    def _tell(self, name: str, rows: int, result: Result) -> None:
        peaks = ", ".join(f"{kind} {size / 1e6:,.0f} MB" for kind, size in sorted(result.peaks.items()))
        used = ", ".join(f"{kind} {each:.1f} s" for kind, each in sorted(result.processor_seconds.items()))
        self.told.append(
            f"{name}: {rows:,} messages in {result.seconds:.1f} s, with the start of Spark"
            f" {result.whole_seconds:.1f} s, {rows / result.seconds:,.0f} a second; processors: {used};"
            f" memory: {peaks}"
        )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("pipelines")
    with addresses_in(folder) as addresses:
        yield from world_at(addresses, folder)


@contextmanager
def addresses_in(folder: Path) -> Iterator[dict[str, str]]:
    """Of Magnetar; or, where MAGNETAR_SPARK_SERVICE_URL and _ADMIN_URL say so, of what runs there."""
    url = os.environ.get("MAGNETAR_SPARK_SERVICE_URL")
    if url:
        yield {"service_url": url, "admin_url": os.environ["MAGNETAR_SPARK_ADMIN_URL"]}
        return
    server = Server(folder, {})
    server.start()
    try:
        yield {"service_url": server.url, "admin_url": server.http_url}
    finally:
        server.close()


def world_at(addresses: dict[str, str], folder: Path) -> Iterator[World]:
    pipelines = Pipelines(folder, addresses, MASTER, SEED)
    client = pulsar.Client(addresses["service_url"], logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    found = World(folder, pipelines, client, AdminClient(addresses["admin_url"]))
    try:
        yield found
        print("", *found.told, *found.pipelines.kills, sep="\n")
        kept = os.environ.get("MAGNETAR_PIPELINE_KEEP")
        if kept:
            shutil.copytree(folder / "reports", kept, dirs_exist_ok=True)
    finally:
        client.close()


def wanted_orders() -> duckdb.DuckDBPyRelation:
    """The orders that ``generate`` makes, by their definition."""
    return duckdb.sql(
        f"""select i as id, ['north', 'east', 'south', 'west'][i % 4 + 1] as region,
            (i * 37) % 10000 / 100 as amount, 'order ' || i as text, 'customer-' || i % 1000 as key,
            cast(1700000000 + floor(i * {DAY} / {MESSAGES}) - if(i % 97 = 96, 3600, 0) as bigint) as event
        from range({MESSAGES}) as numbers(i)"""
    )


_ORDER = """cast(json ->> 'id' as bigint) as id, json ->> 'region' as region,
    cast(json ->> 'amount' as double) as amount, json ->> 'text' as text, key, event"""


def differing(found: duckdb.DuckDBPyRelation, wanted: duckdb.DuckDBPyRelation) -> int:
    """How many rows one has more often than the other."""
    assert found is not None
    assert wanted is not None
    more = duckdb.sql("select count(*) from (from found except all from wanted)").fetchall()
    less = duckdb.sql("select count(*) from (from wanted except all from found)").fetchall()
    return int(more[0][0]) + int(less[0][0])


def orders_of(rows: pd.DataFrame) -> duckdb.DuckDBPyRelation:
    assert len(rows)
    return duckdb.sql(f"select {_ORDER} from (select *, decode(data)::json as json from rows)")


@pytest.fixture(scope="module")
def orders(world: World) -> str:
    """A topic with the orders, each once."""

    def section(attempt: int) -> Section:
        topic = f"{NAMESPACE}/orders-{attempt}"
        world.keep(topic)
        work = str(world.folder / f"generated-{attempt}")
        return {"topic": topic, "messages": MESSAGES, "work": work, "seconds": DAY}

    result = world.run("generate", MESSAGES, section, KILLS)
    return str(result.report["configuration"]["generate"]["topic"])


@pytest.fixture(scope="module")
def letters(world: World) -> str:
    """A dead letter topic with all of the orders."""

    def section(attempt: int) -> Section:
        topic = f"{NAMESPACE}/again-{attempt}-billing-DLQ"
        world.keep(topic)
        work = str(world.folder / f"failed-{attempt}")
        origin = f"{NAMESPACE}/again-{attempt}"
        return {"topic": topic, "messages": MESSAGES, "kind": "dead-letters", "origin": origin, "work": work}

    result = world.run("generate", MESSAGES, section)
    return str(result.report["configuration"]["generate"]["topic"])


@pytest.fixture(scope="module")
def lake(world: World, orders: str) -> Path:
    """An archive of the orders."""

    def section(attempt: int) -> Section:
        path = str(world.folder / f"lake-{attempt}")
        batch = max(1000, MESSAGES // 4)
        return {"topic": orders, "path": path, "time": "event", "max_rows_per_batch": batch}

    result = world.run("archive", MESSAGES, section, KILLS)
    return Path(result.report["configuration"]["archive"]["path"])


def test_generated_messages_are_what_their_definition_says(world: World, orders: str) -> None:
    rows = world.rows(orders)
    assert len(rows) == MESSAGES
    assert differing(orders_of(rows), wanted_orders()) == 0
    assert all(each == {"source": "generate"} for each in rows["properties"])


def test_an_archive_has_each_message_once(world: World, lake: Path) -> None:
    files = f"read_parquet('{lake}/data/**/*.parquet', hive_partitioning = true)"
    found = duckdb.sql(
        f"""select {_ORDER} from (select decode(value)::json as json, decode(__key) as key,
            cast(epoch(__eventTime) as bigint) as event from {files})"""
    )
    assert differing(found, wanted_orders()) == 0
    misplaced = f"select count(*) from {files} where strftime(__eventTime, '%Y-%m-%d') <> date"
    assert duckdb.sql(misplaced).fetchall() == [(0,)]


def test_a_replay_publishes_each_message_once_in_order_and_the_mirror_says_so(
    world: World, orders: str, lake: Path
) -> None:
    def section(attempt: int) -> Section:
        copy = f"{NAMESPACE}/copy-{attempt}"
        world.keep(copy)
        return {"path": str(lake), "topic": copy, "work": str(world.folder / f"replay-{attempt}")}

    result = world.run("replay", MESSAGES, section, KILLS)
    copy = str(result.report["configuration"]["replay"]["topic"])
    rows = world.rows(copy)
    found = orders_of(rows)
    assert differing(found, wanted_orders()) == 0
    # Rows keep their order in DuckDB, unlike what it aggregates.
    assert found.select("id").df()["id"].is_monotonic_increasing
    same = world.run("mirror-verify", 2 * MESSAGES, lambda _: {"left": orders, "right": copy})
    names = ("messages left", "messages right", "missing right", "too many right")
    assert [same.report["figures"][name] for name in names] == [MESSAGES, MESSAGES, 0, 0]
    producer = world.client.create_producer(copy)
    producer.send(b"one more")
    producer.close()
    other = world.run("mirror-verify", 2 * MESSAGES, lambda _: {"left": orders, "right": copy}, 0, code=3)
    assert [other.report["figures"][name] for name in names] == [MESSAGES, MESSAGES + 1, 0, 1]
    assert other.report["tables"][0]["rows"] == [["-", "-", "-", "one more", 0, 1]]


def wanted_causes() -> list[tuple[str, int]]:
    return duckdb.sql(
        f"""select if(i % 10 < 5, 'TimeoutException', if(i % 10 < 8, 'ValidationError',
            'NullPointerException')) as cause, count(*) from range({MESSAGES}) as numbers(i)
        group by cause order by cause"""
    ).fetchall()


def test_dead_letters_are_counted_and_sent_again_once(world: World, letters: str) -> None:
    result = world.run("dlq-report", MESSAGES, lambda _: {"topic": letters})
    rows = result.report["tables"][0]["rows"]
    assert sorted((row[0], row[3]) for row in rows) == wanted_causes()
    origin = letters.removesuffix("-billing-DLQ")
    assert {(row[1], row[2], row[4]) for row in rows} == {(origin, "billing", 3)}

    def some(attempt: int) -> Section:
        target = f"{NAMESPACE}/redriven-{attempt}"
        world.keep(target)
        where = "cause = 'ValidationError'"
        return {
            "topic": letters,
            "work": str(world.folder / f"redriven-{attempt}"),
            "where": where,
            "target": target,
        }

    result = world.run("dlq-redrive", MESSAGES, some, KILLS)
    again = result.report["configuration"]["dlq_redrive"]
    _check_redriven(world, again["target"], "id % 10 between 5 and 7")
    rest: Section = {"topic": letters, "work": again["work"], "target": again["target"]}
    world.pipelines.run("dlq-redrive", rest, 2.0 + MESSAGES / 60_000, KILLS_OF_READERS)
    _check_redriven(world, again["target"], "true")


def _check_redriven(world: World, target: str, where: str) -> None:
    rows = world.rows(target)
    assert all(set(each) == {"EXCEPTION", "REDRIVEN_FROM"} for each in rows["properties"])
    sources = {each["REDRIVEN_FROM"] for each in rows["properties"]}
    assert len(sources) == len(rows)
    assert differing(orders_of(rows), wanted_orders().filter(where)) == 0


def test_windows_are_what_duckdb_computes(world: World, orders: str) -> None:
    def section(attempt: int) -> Section:
        return {
            "topic": orders,
            "path": str(world.folder / f"windows-{attempt}"),
            "window": "10 minutes",
            "watermark": "2 hours",
            "max_rows_per_batch": max(1000, MESSAGES // 3),
            "group_by": {"region": "get_json_object(cast(value as string), '$.region')"},
            "aggregates": {
                "orders": "count(*)",
                "amount": "sum(cast(get_json_object(cast(value as string), '$.amount') as double))",
            },
        }

    result = world.run("window-aggregate", MESSAGES, section, KILLS)
    path = result.report["configuration"]["window_aggregate"]["path"]
    everything = wanted_orders()
    assert everything is not None
    wanted = duckdb.sql(
        """select event - event % 600 as start, region, count(*) as orders,
            cast(round(sum(amount), 4) as varchar)
        from everything where event - event % 600 + 600 <= (select max(event) - 7200 from everything)
        group by all"""
    )
    found = duckdb.sql(
        f"""select cast(epoch(window_start) as bigint) as start, region, orders,
            cast(round(amount, 4) as varchar)
        from read_parquet('{path}/data/**/*.parquet', hive_partitioning = false)"""
    )
    assert differing(found, wanted) == 0
    assert duckdb.sql("select count(*) from found").fetchall()[0][0] > 100


def test_capacity_is_what_the_topics_hold(world: World, orders: str, letters: str) -> None:
    history = str(world.folder / "history.jsonl")
    assert orders != letters
    for _ in range(2):
        section = {"history": history, "capacity_gb": 10.0, "tenants": ["public"]}
        result = world.run("capacity-report", 2 * MESSAGES, lambda _, section=section: section)
    stats = [world.admin.topic_stats(each) for each in world.admin.topics("public/default")]
    row = result.report["tables"][0]["rows"][0]
    stored = sum(each["storageSize"] for each in stats)
    waiting = sum(sub["msgBacklog"] for each in stats for sub in each["subscriptions"].values())
    assert row[:3] == ["public", len(stats), stored]
    assert row[4] == waiting > 0
