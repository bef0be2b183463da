"""Measures one, two and three brokers on the same three bookies: throughput, and CPU per message.

``python -m bench.several_brokers`` prints JSON, figures of each run: six topics spread over the brokers,
messages of 100 bytes one by one, published, delivered and acknowledged as fast as it goes; Magnetar's
brokers, then Apache Pulsar's. All of it, load generator and bookies included, shares the machine's cores.
With few cores these limit the throughput, and the CPU time per message is the figure to compare.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.cluster_servers import ClusterBroker, several, url_of
from bench.conditions import conditions
from bench.generators import Void
from bench.peer_jars import add_jars, chosen_jars
from magnetar.admin_client import AdminClient

Figures = dict[str, Any]
_TOPICS = 6
_NAMESPACE = "public/several"
_LOAD = ("-s", "100", "-db", "-q", "10000", "-t", str(_TOPICS))


def perf(brokers: list[ClusterBroker], topic: str, seconds: float, warm_up: float) -> Figures:
    """:raises Void: messages were lost, or the run failed"""
    command = [sys.executable, "-m", "magnetar.cli.pulsar_perf", "run", topic, "--raw", *_LOAD]
    command += ["-u", url_of(brokers), "-au", brokers[0].admin_url, "--json", "-"]
    command += ["--server-pid", ",".join(str(broker.pid) for broker in brokers)]
    command += ["-time", str(seconds), "--warmup-time", str(warm_up)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise Void(f"pulsar-perf ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    found: Figures = json.loads(done.stdout)
    return found


def measured(brokers: list[ClusterBroker], seconds: float) -> Figures:
    AdminClient(brokers[0].admin_url).create_namespace(_NAMESPACE, {"bundles": {"numBundles": 24}})
    topic = f"persistent://{_NAMESPACE}/t"
    # A JVM is fast only after compiling hot code, and bookies are JVMs.
    perf(brokers, topic, seconds * 2, 0)
    bookkeeper = brokers[0].bookkeeper
    assert bookkeeper is not None
    before = bookkeeper.cpu_seconds()
    each_before = [broker.cpu_seconds() for broker in brokers]
    found = perf(brokers, topic, seconds, 2)
    used = bookkeeper.cpu_seconds() - before
    each = [broker.cpu_seconds() - then for broker, then in zip(brokers, each_before, strict=True)]
    return {
        "brokers": len(brokers),
        "publish_rate": found["publish_rate"],
        "brokers_cpu_us_per_message": found["server_cpu_us_per_message"],
        "brokers_cores": found["server_cores"],
        "share_of_each": [round(part / sum(each), 2) for part in each],
        "bookies_cpu_us_per_message": round(used / found["published"] * 1e6, 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0, help="of one run")
    parser.add_argument("--servers", default="magnetar,pulsar")
    add_jars(parser)
    options = parser.parse_args()
    jars = chosen_jars(options)
    found: Figures = {
        **conditions(),
        "runs": [],
    }
    for name in options.servers.split(","):
        for count in (1, 2, 3):
            with (
                tempfile.TemporaryDirectory(prefix="several-bench-") as folder,
                several(name, Path(folder), jars, count, {}) as brokers,
            ):
                found["runs"].append({"server": name, **measured(brokers, options.seconds)})
            sys.stderr.write(f"{found['runs'][-1]}\n")
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
