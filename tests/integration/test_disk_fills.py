"""A disk that really fills: publishing ends with the reason, all the rest goes on, and space comes back."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from server import Server

pulsar = pytest.importorskip("pulsar")

MIB = 1 << 20
WAIT_SECONDS = 90.0
FAST = "persistent://public/default/fast"
COUNTED = "persistent://public/default/counted"
REFUSED = pulsar.ProducerBlockedQuotaExceededException

MakeServer = Callable[..., Server]


def mount(image: Path, place: Path, megabytes: int) -> None:
    """A file system of its own at ``place``; skips the test where nobody may mount one."""
    with image.open("wb") as file:
        file.truncate(megabytes * MIB)
    place.mkdir()
    try:
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be mounted here: {error}")


@pytest.fixture
def on_device(tmp_path: Path) -> Iterator[MakeServer]:
    """Makes a server whose data directory is a device of its own."""
    made: list[Server] = []

    def make(megabytes: int, **settings: int | str) -> Server:
        mount(tmp_path / "image", tmp_path / "data", megabytes)
        server = Server(tmp_path, settings)
        made.append(server)
        server.start()
        return server

    yield make
    for server in made:
        server.close()
        subprocess.run(["umount", str(tmp_path / "data")], check=True, capture_output=True)


def connect(server: Server) -> pulsar.Client:
    return pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def flood(server: Server, size: int) -> subprocess.Popen[str]:
    """Publishes as fast as can be, until it is refused."""
    command = [sys.executable, "-m", "magnetar.cli.pulsar_perf", "produce", FAST, "-u", server.url]
    command += ["-au", server.http_url, "--raw", "-s", str(size), "-r", "0", "-bm", "100", "-time", "300"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def send_until_refused(producer: pulsar.Producer, size: int) -> int:
    """How many messages were acknowledged before one was refused with the reason."""
    acknowledged = 0
    try:
        while True:
            producer.send(acknowledged.to_bytes(8, "big").ljust(size, b"-"))
            acknowledged += 1
    except REFUSED:
        return acknowledged


def publish_until_refused(server: Server, client: pulsar.Client, size: int) -> int:
    """Fills the disk with two publishers; how many of the counted one's messages were acknowledged."""
    producer = client.create_producer(COUNTED, send_timeout_millis=60_000)
    fast = flood(server, size)
    try:
        acknowledged = send_until_refused(producer, size)
        _, told = fast.communicate(timeout=WAIT_SECONDS)
        assert "the broker closed a producer" in told, told
    finally:
        fast.kill()
        fast.wait()
    assert acknowledged > 0
    return acknowledged


def assert_readable(client: pulsar.Client, acknowledged: int) -> None:
    """What was acknowledged is there, in order; acknowledges all there is."""
    consumer = client.subscribe(COUNTED, "s")
    for number in range(acknowledged):
        message = consumer.receive(20_000)
        assert message.data()[:8] == number.to_bytes(8, "big")
        consumer.acknowledge(message)
    consumer.close()


def numbers_left(consumer: pulsar.Consumer) -> set[int]:
    """Of the messages that nobody has acknowledged."""
    found = set()
    try:
        while True:
            found.add(int.from_bytes(consumer.receive(2_000).data()[:8], "big"))
    except pulsar.Timeout:
        return found


def publish_when_possible(client: pulsar.Client) -> None:
    ends = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            producer = client.create_producer(COUNTED)
            producer.send(b"room again")
        except REFUSED:
            assert time.monotonic() < ends, "nothing can be published although there is room"
            time.sleep(0.5)
        else:
            producer.close()
            return


def delete(server: Server, topic: str) -> None:
    path = topic.replace("persistent://", "/admin/v2/persistent/")
    status, body = server.ask("DELETE", f"{path}?force=true")
    assert status == 204, body


def fill_with_something_else(place: Path) -> None:
    """Takes the last free byte."""
    with (place / "foreign").open("wb", buffering=0) as file:
        step = MIB
        while step:
            try:
                file.write(bytes(step))
                os.fsync(file.fileno())
            except OSError:
                step //= 4
    figures = os.statvfs(place)
    assert figures.f_bavail * figures.f_frsize < 64 << 10


DEVICES = [
    pytest.param(1024, 300, {"magnetarSegmentSizeBytes": 16 * MIB, "magnetarDiskReserveBytes": 32 * MIB}),
    pytest.param(2048, 900, {}),
    pytest.param(8192, 500, {"magnetarDiskReserveBytes": 0, "diskUsageThreshold": "1.0"}),
]


@pytest.mark.parametrize(("size", "megabytes", "settings"), DEVICES)
def test_publishing_ends_and_comes_back(
    on_device: MakeServer, size: int, megabytes: int, settings: dict[str, int | str]
) -> None:
    server = on_device(megabytes, **settings)
    client = connect(server)
    for topic in (FAST, COUNTED):
        client.subscribe(topic, "s").close()
    acknowledged = publish_until_refused(server, client, size)
    with pytest.raises(REFUSED):
        client.create_producer(COUNTED)
    assert_readable(client, acknowledged)
    delete(server, FAST)
    publish_when_possible(client)
    client.close()
    server.stop()


def test_a_full_disk_starts_after_a_kill(on_device: MakeServer, tmp_path: Path) -> None:
    server = on_device(400, magnetarDiskReserveBytes=32 * MIB)
    client = connect(server)
    for topic in (FAST, COUNTED):
        client.subscribe(topic, "s").close()
    acknowledged = publish_until_refused(server, client, 2048)
    fill_with_something_else(tmp_path / "data")
    client.subscribe(FAST, "made-when-full").close()
    client.close()
    server.restart(kill=True)
    client = connect(server)
    with pytest.raises(REFUSED):
        client.create_producer(COUNTED)
    assert_readable(client, acknowledged)
    client.close()
    # They are written some 100 ms after they came: those of the last moment may be lost with a kill.
    time.sleep(2)
    # What was acknowledged while nothing was free is remembered.
    server.restart(kill=True)
    client = connect(server)
    consumer = client.subscribe(COUNTED, "s")
    assert numbers_left(consumer) <= {acknowledged}
    consumer.close()
    delete(server, FAST)
    publish_when_possible(client)
    client.close()
    server.stop()


def test_a_disk_that_something_else_fills(on_device: MakeServer, tmp_path: Path) -> None:
    server = on_device(400, magnetarDiskReserveBytes=32 * MIB)
    client = connect(server)
    for topic in (FAST, COUNTED):
        client.subscribe(topic, "s").close()
    producer = client.create_producer(COUNTED, send_timeout_millis=60_000)
    fill_with_something_else(tmp_path / "data")
    acknowledged = send_until_refused(producer, 1 << 16)
    assert_readable(client, acknowledged)
    (tmp_path / "data" / "foreign").unlink()
    publish_when_possible(client)
    client.close()
    server.stop()
