"""Measures how exactly dispatch rates are kept, and what a topic with a limit costs.

``python -m bench.rates`` prints figures as JSON: for each rate, what the broker sends in a minute from a
backlog of single messages to a consumer without a limit, after a warm-up of two periods. ``docs/rates.md``
has the results.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from bench.conditions import conditions
from bench.generators import Void, start_perf
from bench.process import end
from bench.servers import Magnetar
from magnetar.admin_client import AdminClient

_WARM_UP_SECONDS = 2.5
_SPARE_SECONDS = 5.0
"""Seconds of backlog beyond what is sent during the measurement."""

Figures = dict[str, Any]


def sent(admin: AdminClient, topic: str) -> int:
    """Returns the number of messages sent to the topic's consumers."""
    found: int = admin.topic_stats(topic)["msgOutCounter"]
    return found


def bound(server: Magnetar, topic: str, rate: int) -> None:
    """Sets the dispatch rate of a topic."""
    path = f"/admin/v2/{topic.replace('://', '/')}/dispatchRate"
    body = json.dumps({"dispatchThrottlingRateInMsg": rate, "ratePeriodInSecond": 1})
    connection = HTTPConnection("127.0.0.1", server.http_port, timeout=30)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        status = connection.getresponse().status
    finally:
        connection.close()
    if status != 204:
        raise Void(f"the rate was not set: {status}")


def fill(server: Magnetar, topic: str, count: int) -> None:
    """:raises Void: not all messages were stored"""
    producer = start_perf(server, "produce", topic, "-m", str(count), "-db", "-s", "100", "-r", "0")
    try:
        producer.wait(600)
    finally:
        end(producer)
    stored = AdminClient(server.admin_url).topic_stats(topic)["msgInCounter"]
    if stored != count:
        raise Void(f"{stored} messages were stored instead of {count}")


def measure(server: Magnetar, rate: int, seconds: float, kind: str) -> Figures:
    """:raises Void: the backlog was too small"""
    admin = AdminClient(server.admin_url)
    topic = f"persistent://public/default/rate-{rate}-{kind.lower()}"
    count = int(rate * (seconds + _WARM_UP_SECONDS + _SPARE_SECONDS))
    fill(server, topic, count)
    bound(server, topic, rate)
    consumer = start_perf(server, "consume", topic, "-st", kind, "-sp", "Earliest")
    try:
        while not sent(admin, topic):
            time.sleep(0.02)
        time.sleep(_WARM_UP_SECONDS)
        before, began, cpu = sent(admin, topic), time.monotonic(), server.cpu_seconds()
        time.sleep(seconds)
        passed, used = time.monotonic() - began, server.cpu_seconds() - cpu
        messages = sent(admin, topic) - before
    finally:
        end(consumer)
    backlog = admin.topic_stats(topic)["backlogSize"]
    if not backlog:
        raise Void(f"the backlog of {topic} came to its end")
    admin.delete_topic(topic, force=True)
    return {
        "messages a second": messages / passed,
        "off by, share": messages / passed / rate - 1,
        "server, cores": used / passed,
        "server, µs a message": used / max(1, messages) * 1e6,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="of each run")
    parser.add_argument("--rates", type=int, nargs="+", default=[10, 1_000, 100_000])
    parser.add_argument("--types", nargs="+", default=["Exclusive", "Shared"])
    options = parser.parse_args()
    found: Figures = {
        **conditions(),
        "seconds": options.seconds,
    }
    with tempfile.TemporaryDirectory(prefix="magnetar-rates-") as name:
        server = Magnetar("magnetar", "Magnetar", "magnetar", Path(name))
        server.start()
        try:
            for rate in options.rates:
                for kind in options.types:
                    found[f"{rate} a second, {kind}"] = measure(server, rate, options.seconds, kind)
        finally:
            server.stop()
    print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
