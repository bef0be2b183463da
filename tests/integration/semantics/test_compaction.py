"""Compaction by key, with the official Python client."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pulsar
import pytest
from process_signals import stop
from server import Server


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(
        tmp_path_factory.mktemp("compaction"),
        {"managedLedgerMaxEntriesPerLedger": 50, "managedLedgerMinLedgerRolloverTimeMinutes": 0},
    )
    running.start()
    yield running
    running.close()


@pytest.fixture
def client(one: Server) -> Iterator[pulsar.Client]:
    connected = pulsar.Client(one.url)
    yield connected
    connected.close()


def path(topic: str) -> str:
    return f"/admin/v2/{topic.replace('://', '/')}"


def compact(server: Server, topic: str) -> None:
    status, body = server.ask("PUT", path(topic) + "/compaction")
    assert status == 204, body
    compacted(server, topic)


def compacted(server: Server, topic: str) -> None:
    """Returns when no compaction of the topic runs."""
    assert settled(server, topic) == {"status": "SUCCESS", "lastError": ""}


def settled(server: Server, topic: str) -> dict[str, str]:
    """What became of the compaction that was begun last, when it runs no more."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        _status, body = server.ask("GET", path(topic) + "/compaction")
        told = json.loads(body)
        if told["status"] != "RUNNING":
            break
    return told


def processes(server: Server) -> list[int]:
    """Those that the broker has started, and that have not ended."""
    found = []
    for thread in Path(f"/proc/{server.pid}/task").iterdir():
        found += [int(child) for child in (thread / "children").read_text().split() if lives(int(child))]
    return found


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ended(pid: int) -> bool:
    """Waits for the end of a process; False when it does not come."""
    deadline = time.monotonic() + 30
    while lives(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not lives(pid)


def read(client: pulsar.Client, topic: str, compacted: bool = True) -> list[tuple[str, bytes]]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=compacted)
    found = []
    while reader.has_message_available():
        message = reader.read_next(5000)
        # The client in C++ gives what is marked as gone inside a batch, too: without key and content.
        if message.partition_key():
            found.append((message.partition_key(), message.data()))
    reader.close()
    return found


@pytest.mark.parametrize("batching", [False, True])
def test_the_newest_of_each_key_is_read(
    one: Server, client: pulsar.Client, topic: str, batching: bool
) -> None:
    producer = client.create_producer(
        topic, batching_enabled=batching, batching_max_messages=7, compression_type=pulsar.CompressionType.LZ4
    )
    compact(one, topic)
    newest: dict[str, bytes] = {}
    for number in range(300):
        key = f"k{number * 7919 % 23}"
        value = b"" if number % 11 == 10 else b"%d" % number
        producer.send_async(value, None, partition_key=key)
        newest.pop(key, None)
        if value:
            newest[key] = value
    producer.send_async(b"keyless", None)
    producer.flush()
    compact(one, topic)
    assert read(client, topic) == list(newest.items())
    producer.send(b"later", partition_key="k1")
    assert read(client, topic) == [*newest.items(), ("k1", b"later")]
    compact(one, topic)
    newest.pop("k1", None)
    assert read(client, topic) == [*newest.items(), ("k1", b"later")]


def test_a_subscription_goes_on_where_it_was(one: Server, client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    compact(one, topic)
    for number in range(120):
        producer.send(b"%d" % number, partition_key=f"k{number % 10}")
    compact(one, topic)

    def subscribe() -> pulsar.Consumer:
        return client.subscribe(
            topic,
            "s",
            initial_position=pulsar.InitialPosition.Earliest,
            is_read_compacted=True,
        )

    consumer = subscribe()
    messages = [consumer.receive(5000) for _ in range(10)]
    assert [message.data() for message in messages] == [b"%d" % number for number in range(110, 120)]
    consumer.acknowledge_cumulative(messages[3])
    consumer.close()
    producer.send(b"later", partition_key="k0")
    consumer = subscribe()
    messages = [consumer.receive(5000) for _ in range(7)]
    assert [message.data() for message in messages] == [*(b"%d" % n for n in range(114, 120)), b"later"]
    consumer.close()


def test_a_reader_goes_back_to_what_only_compaction_has(
    one: Server, client: pulsar.Client, topic: str
) -> None:
    producer = client.create_producer(topic)
    compact(one, topic)
    ids = [producer.send(b"%d" % number, partition_key=f"k{number}") for number in range(60)]
    middle = int(time.time() * 1000) + 1
    time.sleep(0.01)
    ids += [producer.send(b"%d" % number, partition_key=f"k{number}") for number in range(60, 120)]
    producer.send(b"", partition_key="k119")
    compact(one, topic)
    reader = client.create_reader(topic, ids[30], is_read_compacted=True, start_message_id_inclusive=True)
    assert reader.read_next(5000).data() == b"30"
    reader.seek(ids[90])
    assert reader.read_next(5000).data() in (b"90", b"91")
    reader.seek(middle)
    assert reader.read_next(5000).data() == b"60"
    reader.seek(pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(5000).data())
    assert found == [b"%d" % number for number in range(119)]
    reader.close()


def test_a_table_view_is_the_newest_of_each_key(one: Server, client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    compact(one, topic)
    for number in range(100):
        producer.send(b"%d" % number, partition_key=f"k{number % 7}")
    producer.send(b"", partition_key="k3")
    compact(one, topic)
    producer.send(b"new", partition_key="k0")
    view = client.create_table_view(topic)
    found: dict[str, bytes] = {}
    view.for_each(lambda key, value: found.__setitem__(key, value))
    newest = {f"k{number % 7}": b"%d" % number for number in range(93, 100)}
    del newest["k3"]
    newest["k0"] = b"new"
    assert found == newest
    view.close()


def test_whom_a_broker_keeps_away_from_its_data_asks_it(
    one: Server, client: pulsar.Client, topic: str
) -> None:
    producer = client.create_producer(topic)
    for number in range(20):
        producer.send(b"%d" % number, partition_key=f"k{number % 3}")
    command = [sys.executable, "-m", "magnetar", "compact-topic", "-t", topic]
    run = subprocess.run(
        [*command, "--data-dir", str(one.folder / "data"), "--admin-url", one.http_url],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stdout) == (0, f"{topic} was compacted\n"), run.stderr
    assert [value for _key, value in read(client, topic)] == [b"17", b"18", b"19"]


def test_the_data_of_a_stopped_broker_is_compacted(start_server: Callable[..., Server]) -> None:
    server = start_server()
    topic = "persistent://public/default/stopped"
    client = pulsar.Client(server.url)
    producer = client.create_producer(topic)
    # Else nothing holds back what nobody has subscribed to.
    compact(server, topic)
    for number in range(20):
        producer.send(b"%d" % number, partition_key=f"k{number % 3}")
    client.close()
    command = [sys.executable, "-m", "magnetar", "compact-topic"]
    server.stop()
    for name, code in ((topic, 0), (topic + "-missing", 1)):
        run = subprocess.run(
            [*command, "-t", name, "--data-dir", str(server.folder / "data")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == code, run.stderr
    server.start()
    client = pulsar.Client(server.url)
    assert [value for _key, value in read(client, topic)] == [b"17", b"18", b"19"]
    client.close()


def test_a_topic_beyond_its_threshold_is_compacted_by_itself(start_server: Callable[..., Server]) -> None:
    server = start_server(
        brokerServiceCompactionThresholdInBytes=1000, brokerServiceCompactionMonitorIntervalInSeconds=1
    )
    topic = "persistent://public/default/threshold"
    client = pulsar.Client(server.url)
    producer = client.create_producer(topic)
    for number in range(100):
        producer.send(b"%d" % number, partition_key=f"k{number % 3}")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        _status, body = server.ask("GET", path(topic) + "/internalStats")
        if json.loads(body)["compactedLedger"]["ledgerId"] >= 0:
            break
        time.sleep(0.1)
    assert [value for _key, value in read(client, topic)][-3:] == [b"97", b"98", b"99"]
    policies = "/admin/v2/persistent/public/default/threshold/maxProducers"
    for number in range(20):
        assert server.ask("POST", policies, str(number))[0] == 204
    events = "persistent://public/default/__change_events"
    # It may be compacting itself just now.
    server.ask("PUT", path(events) + "/compaction")
    compacted(server, events)
    server.restart(kill=True)
    assert server.ask("GET", policies) == (200, b"19")
    client.close()


def test_a_killed_broker_has_compacted_or_has_not(start_server: Callable[..., Server]) -> None:
    server = start_server(managedLedgerMaxEntriesPerLedger=50, managedLedgerMinLedgerRolloverTimeMinutes=0)
    topic = "persistent://public/default/killed"
    client = pulsar.Client(server.url)
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=10, block_if_queue_full=True
    )
    compact(server, topic)
    newest: dict[str, bytes] = {}
    for turn in range(3):
        for number in range(2_000):
            key, value = f"k{number * 31 % 97}", b"%d-%d" % (turn, number)
            producer.send_async(value, None, partition_key=key)
            newest.pop(key, None)
            newest[key] = value
        producer.flush()
        server.ask("PUT", path(topic) + "/compaction")
        time.sleep(0.004 * turn)
        server.restart(kill=True)
        assert dict(read(client, topic)) == newest
    compact(server, topic)
    assert read(client, topic) == list(newest.items())
    client.close()


def test_a_process_that_is_killed_fails_its_compaction_only(
    one: Server, client: pulsar.Client, topic: str
) -> None:
    producer = client.create_producer(topic)
    compact(one, topic)
    for number in range(50):
        producer.send(b"%d" % number, partition_key=f"k{number % 5}")
    compact(one, topic)
    (process,) = processes(one)
    stop(process)
    producer.send(b"newest", partition_key="k1")
    status, body = one.ask("PUT", path(topic) + "/compaction")
    assert status == 204, body
    # Meanwhile everything else goes on.
    producer.send(b"beside", partition_key="k2")
    assert json.loads(one.ask("GET", path(topic) + "/compaction")[1])["status"] == "RUNNING"
    os.kill(process, signal.SIGKILL)
    failed = {"status": "ERROR", "lastError": "the compaction process was ended by SIGKILL"}
    assert settled(one, topic) == failed
    assert ended(process)
    compact(one, topic)
    assert process not in processes(one)
    newest = {f"k{number % 5}": b"%d" % number for number in range(50)}
    assert dict(read(client, topic)) == newest | {"k1": b"newest", "k2": b"beside"}


@pytest.mark.parametrize("kill", [False, True])
def test_no_process_is_left_when_the_broker_ends(start_server: Callable[..., Server], kill: bool) -> None:
    server = start_server()
    client = pulsar.Client(server.url)
    topic = "persistent://public/default/left"
    producer = client.create_producer(topic)
    compact(server, topic)
    producer.send(b"1", partition_key="k")
    compact(server, topic)
    (process,) = processes(server)
    client.close()
    if kill:
        server.kill()
    else:
        server.stop()
    assert ended(process)
    assert "Traceback" not in server.log
