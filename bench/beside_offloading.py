"""Measures what publishing to other topics costs while ledgers move to tiered storage, and are read from it.

``python -m bench.beside_offloading`` publishes on a fixed schedule to one topic. Meanwhile nothing happens,
or all ledgers of another topic are offloaded, or a reader reads them back. It prints figures as JSON, with
``--server pulsar`` those of Apache Pulsar. ``docs/measurements/tiered-storage.md`` has results.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.conditions import conditions
from bench.generators import Void
from bench.peer_jars import add_jars
from bench.process import end
from bench.servers import Server
from bench.tiered_storage import TOPIC, add_server, bytes_read, chosen, client_of, fill, move, read
from magnetar.admin_client import AdminClient

_OTHER = "persistent://public/default/other"
_WARM_SECONDS = 3.0
_SIZE = 1000


def latencies(server: Server, rate: int, out: Path, work: Callable[[], object]) -> dict[str, float]:
    """Returns the latencies of messages to another topic that were due during some work, in milliseconds."""
    # The publisher looks nothing up: the topic has to be loaded.
    client = client_of(server)
    client.create_producer(_OTHER)
    client.close()
    arguments = (server.port, _OTHER, rate, _SIZE, out)
    command = [sys.executable, "-m", "bench.paced_publisher", *map(str, arguments)]
    publisher = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        time.sleep(_WARM_SECONDS)
        began = time.monotonic()
        work()
        ended = time.monotonic()
        publisher.communicate(timeout=120)
    finally:
        end(publisher)
    values = array("d", out.read_bytes())
    half = len(values) // 2
    took = sorted(
        took for due, took in zip(values[:half], values[half:], strict=True) if began <= due < ended
    )
    if len(took) < rate:
        raise Void(f"only {len(took)} messages were due meanwhile: offload more (--messages)")
    found = {f"p{part}, ms": round(took[int(len(took) * part / 100)] * 1e3, 2) for part in (50, 99)}
    return found | {"seconds": round(ended - began, 1)}


def one_round(server: Server, options: argparse.Namespace, out: Path) -> dict[str, dict[str, float]]:
    """:raises Void: ledgers were not offloaded, or not read from tiered storage"""
    found = {"undisturbed": latencies(server, options.rate, out, lambda: time.sleep(options.seconds))}
    fill(server, options.messages, _SIZE)
    found["offloading"] = latencies(server, options.rate, out, lambda: move(server))
    # No entry is left in memory.
    server.stop()
    server.start()
    found["reading"] = latencies(server, options.rate, out, lambda: read(server, options.messages, _SIZE))
    if bytes_read(server) < options.messages * _SIZE * 0.8:
        raise Void("the messages did not come from tiered storage")
    AdminClient(server.admin_url).delete_topic(TOPIC, force=True)
    return found


def measure(server: Server, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """:raises Void: a round was not valid"""
    rounds = []
    for number in range(options.rounds):
        rounds.append(one_round(server, options, folder / "out"))
        sys.stderr.write(f"{number + 1}/{options.rounds} {json.dumps(rounds[-1])}\n")
    medians = {
        case: {
            name: round(statistics.median(each[case][name] for each in rounds), 2) for name in rounds[0][case]
        }
        for case in rounds[0]
    }
    return {"medians": medians, "rounds": rounds}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=300_000, help="of 1 KB, which are offloaded and read")
    parser.add_argument("--rate", type=int, default=1000, help="messages per second to the other topic")
    parser.add_argument("--seconds", type=float, default=10.0, help="of the undisturbed case")
    parser.add_argument("--rounds", type=int, default=5)
    add_server(parser)
    add_jars(parser)
    options = parser.parse_args()
    try:
        with chosen(options) as server, tempfile.TemporaryDirectory(prefix="beside-") as folder:
            server.start()
            try:
                found = conditions() | {"server": server.title, "driver": options.driver}
                found |= measure(server, options, Path(folder))
            finally:
                server.stop()
    except Void as void:
        sys.stderr.write(f"void: {void}\n")
        return 1
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
