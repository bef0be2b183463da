"""The parts of ``bench/replication.py`` work: small runs on a pair of Magnetar's clusters."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.replicated_pair import Pair, ask, entries, started_pair
from bench.replicated_topics import memory_of_idle_topics
from bench.replication import catch_up, table
from bench.replication_lag import Lag, quantiles

_COUNT = 2_000


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with started_pair("magnetar", tmp_path_factory.mktemp("pair"), None) as started:
        yield started


def test_a_backlog_is_caught_up_and_its_topic_deleted(pair: Pair) -> None:
    found = catch_up(pair, _COUNT, ("-db", "-s", "100"))
    assert found["sender, µs"] > 0
    assert found["receiver, µs"] > 0
    assert "| backlog, 100 B one by one | Magnetar |" in table({"backlog": {"magnetar": [found]}}, [pair])
    for server in (pair.east, pair.west):
        assert ask(server, "GET", "/persistent/geo/n1") == []


def test_each_message_has_a_lag(pair: Pair) -> None:
    prefix = f"{pair.namespace(replicated=True)}/lag"
    lag = Lag(pair.east.port, pair.west.port, [f"persistent://{prefix}-{number}" for number in range(3)])
    lag.run(1000, lambda _: len(lag.lags) < 30)
    assert len(lag.lags) == sum(entries(pair.west, f"{prefix}-{number}") for number in range(3))
    assert quantiles(lag.lags)["p50"] <= quantiles(lag.lags)["p99"]


def test_idle_topics_are_made_and_connected(pair: Pair) -> None:
    namespace, _ = memory_of_idle_topics(pair, 20, settle_seconds=0)
    assert len(ask(pair.west, "GET", f"/persistent/{namespace}")) == 20
