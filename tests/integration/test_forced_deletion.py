"""A partitioned topic is deleted by force while clients use it and come back."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pulsar
from server import Server

PARTITIONS = 12
ADMIN = "/admin/v2/persistent/public/default"


def test_no_partition_outlives_its_topic(tmp_path: Path) -> None:
    server = Server(tmp_path, {"allowAutoTopicCreation": "false"})
    server.start()
    client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        assert server.ask("PUT", f"{ADMIN}/p/partitions", str(PARTITIONS))[0] == 204
        producer = client.create_producer("persistent://public/default/p", send_timeout_millis=5000)
        client.subscribe("persistent://public/default/p", "s", consumer_type=pulsar.ConsumerType.Shared)
        for number in range(PARTITIONS):
            producer.send(f"{number}".encode())
        status, body = server.ask("DELETE", f"{ADMIN}/p/partitions?force=true")
        assert status == 204, body
        # Clients come back with growing pauses: some of them after the deletion.
        for _ in range(20):
            assert json.loads(server.ask("GET", f"{ADMIN}")[1]) == []
            time.sleep(0.1)
    finally:
        client.shutdown()
        server.close()
