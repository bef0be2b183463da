"""A disk that is too full ends publishing with a reason; what is stored can be consumed meanwhile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from server import Server

pulsar = pytest.importorskip("pulsar")

TOPIC = "persistent://public/default/full-disk"
FULL = {"diskUsageThreshold": "0.01"}


def use(server: Server, settings: dict[str, str]) -> None:
    """Starts it again with these settings."""
    server.stop()
    lines = "".join(f"{key}={value}\n" for key, value in settings.items())
    (server.folder / "standalone.conf").write_text(lines)
    server.start()


def test_producers_are_told_and_consumers_drain(start_server) -> None:  # type: ignore[no-untyped-def]
    server: Server = start_server()
    client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    client.subscribe(TOPIC, "s").close()
    producer = client.create_producer(TOPIC, send_timeout_millis=20_000)
    for number in range(10):
        producer.send(b"%d" % number)

    use(server, FULL)
    assert "(diskUsageThreshold), publishing is refused until it is below 0.5%" in server.log
    # The client that was publishing learns of it, and so does one that comes now.
    with pytest.raises(pulsar.ProducerBlockedQuotaExceededException):
        producer.send(b"lost")
    with pytest.raises(pulsar.ProducerBlockedQuotaExceededException):
        client.create_producer(TOPIC)
    other = client.create_producer("non-persistent://public/default/full-disk")
    other.send(b"what is not stored needs no room")
    consumer = client.subscribe(TOPIC, "s")
    for number in range(10):
        message = consumer.receive(10_000)
        assert message.data() == b"%d" % number
        consumer.acknowledge(message)
    consumer.close()

    use(server, {})
    client.create_producer(TOPIC).send(b"room again")
    consumer = client.subscribe(TOPIC, "s")
    assert consumer.receive(10_000).data() == b"room again"
    client.close()


def test_thresholds_that_contradict_each_other_do_not_start(tmp_path: Path) -> None:
    config = tmp_path / "standalone.conf"
    config.write_text("diskUsageThreshold=0.8\ndiskUsageWarnThreshold=0.9\n")
    command = [sys.executable, "-m", "magnetar", "standalone", "--config", str(config)]
    command += ["--data-dir", str(tmp_path / "data"), "--binary-port", "0", "--http-port", "0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode != 0
    assert "Traceback" not in ended.stderr
    assert "diskUsageWarnThreshold (0.9) must be above 0 and at most" in ended.stderr
