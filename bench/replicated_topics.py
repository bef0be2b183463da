"""Many topics with one remote cluster: memory of an idle one, and lag during a backlog of another."""

from __future__ import annotations

import time
from itertools import pairwise

from bench.generators import Void
from bench.replicated_pair import Pair, ask, entries
from bench.replication_lag import Listening
from bench.scale_client import ScaleClient

_AT_A_TIME = 100
_LISTENED_TO = 50
_RATE = 1000
_QUIET_SECONDS = 10.0
_PATIENCE_SECONDS = 600.0


def create(pair: Pair, namespace: str, count: int) -> None:
    """Creates topics in the east."""
    client = ScaleClient(pair.east.port)
    asked = answered = 0
    while answered < count:
        while asked < count and asked - answered < _AT_A_TIME:
            topic = f"persistent://{namespace}/t-{asked}"
            client.request("PRODUCER", "producer", topic=topic, producer_id=asked)
            asked += 1
        client.take("PRODUCER_SUCCESS")
        answered += 1
    client.close()


def wait_until_connected(pair: Pair, namespace: str, count: int) -> None:
    """:raises Void: topics are missing in the west after a long time"""
    patience = time.monotonic() + _PATIENCE_SECONDS
    while len(ask(pair.west, "GET", f"/persistent/{namespace}")) < count:
        if time.monotonic() > patience:
            raise Void(f"not all topics of {namespace} have been connected")
        time.sleep(1)


def memory_of_idle_topics(
    pair: Pair, count: int, settle_seconds: float = 5.0
) -> tuple[str, dict[str, float]]:
    """Returns the namespace of the replicated topics, and their additional KB compared with plain topics."""
    namespaces = [pair.namespace(replicated=replicated) for replicated in (False, True)]
    megabytes = [pair.east.resident_mb()]
    for namespace in namespaces:
        create(pair, namespace, count)
        if namespace == namespaces[1]:
            wait_until_connected(pair, namespace, count)
        time.sleep(settle_seconds)
        megabytes.append(pair.east.resident_mb())
    plain, replicated = ((after - then) * 1000 / count for then, after in pairwise(megabytes))
    return namespaces[1], {
        "KB a topic without replication": plain,
        "KB more for replication": replicated - plain,
    }


def many_topics(pair: Pair, topics: int, noise: int) -> dict[str, float]:
    """Returns the memory of each topic, and the lag of some without and with a backlog in progress."""
    namespace, found = memory_of_idle_topics(pair, topics)
    noisy = f"{pair.namespace(replicated=False)}/noisy"
    stored = pair.fill(noisy, noise, ("-db", "-s", "100"))
    quiet = Listening(pair, f"{namespace}/t", _LISTENED_TO, _RATE)
    quiet.begin()
    time.sleep(_QUIET_SECONDS)
    lags = quiet.end()
    beside = Listening(pair, f"{namespace}/t", _LISTENED_TO, _RATE)
    pair.replicate(noisy.rpartition("/")[0])
    while not entries(pair.west, noisy):
        time.sleep(0.01)
    began = time.monotonic()
    beside.begin()
    while entries(pair.west, noisy) < stored:
        time.sleep(0.25)
    passed = time.monotonic() - began
    beside_lags = beside.end()
    return found | {
        "lag p50 without a backlog, ms": lags["p50"],
        "lag p99 without a backlog, ms": lags["p99"],
        "lag p50 beside one, ms": beside_lags["p50"],
        "lag p99 beside one, ms": beside_lags["p99"],
        "seconds of the backlog": passed,
        "times the p99": beside_lags["p99"] / lags["p99"],
    }
