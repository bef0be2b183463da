"""Creates a data directory with this release and keeps it for the tests of later releases.

    python tools/keep_data_directory.py VERSION

Writes ``tests/integration/data_directories/VERSION.tar.gz``. Run it once per release, before the tag.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "harness"))

import pulsar  # noqa: E402
import pulsar.schema  # noqa: E402
from server import MINIATURE, Server  # noqa: E402


class Order(pulsar.schema.Record):  # type: ignore[misc]
    number = pulsar.schema.Integer()


def fill(client: pulsar.Client) -> None:
    """Publishes what tests/integration/test_data_directories.py expects."""
    for topic in ("persistent://public/default/kept", "persistent://sample/standalone/ns1/kept"):
        consumer = client.subscribe(topic, "half", initial_position=pulsar.InitialPosition.Earliest)
        client.subscribe(topic, "none", initial_position=pulsar.InitialPosition.Earliest).close()
        producer = client.create_producer(topic, batching_enabled=False)
        for number in range(30):
            producer.send(f"message {number}".encode(), properties={"number": str(number)})
        for number in range(20):
            message = consumer.receive(5000)
            if number < 10 or number % 2 == 0:
                consumer.acknowledge(message)
        time.sleep(0.5)
    schema = pulsar.schema.JsonSchema(Order)
    orders = client.create_producer("persistent://public/default/kept-orders", schema=schema)
    orders.send(Order(number=7))


def main(version: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), MINIATURE | {"managedLedgerMaxUnackedRangesToPersist": 10_000})
        server.start()
        client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        fill(client)
        # Killed, not stopped, so that the tail of the log must be replayed.
        server.kill()
        client.shutdown()
        target = ROOT / "tests" / "integration" / "data_directories" / f"{version}.tar.gz"
        with tarfile.open(target, "w:gz") as archive:
            archive.add(Path(folder) / "data", "data")
        print(target.relative_to(ROOT), target.stat().st_size)


if __name__ == "__main__":
    main(sys.argv[1])
