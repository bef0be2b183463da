"""A real broker whose metadata are lost after a SIGKILL: it refuses to start; its ledgers restore them."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from server import Server

from magnetar.io.real import real_io
from magnetar.ledger.embedded.settings import EmbeddedSettings
from magnetar.ledger.embedded.store import EmbeddedLedgerStore
from magnetar.ledger.journal.reading import find_journals

pulsar = pytest.importorskip("pulsar")

TOPIC = "persistent://public/default/kept"
MESSAGES = 3000


@pytest.fixture
def server(tmp_path: Path) -> Server:
    """Killed, with acknowledged messages, a subscription that has read some, and policies."""
    server = Server(tmp_path, {"brokerDeleteInactiveTopicsEnabled": "false"})
    server.start()
    client = connected(server)
    consumer = client.subscribe(TOPIC, "reader", initial_position=pulsar.InitialPosition.Earliest)
    producer = client.create_producer(TOPIC, batching_enabled=False, max_pending_messages=MESSAGES)
    for number in range(MESSAGES):
        producer.send_async(b"message %d" % number, None)
    producer.flush()
    for _ in range(100):
        consumer.acknowledge(consumer.receive(10_000))
    # The client gathers acknowledgements, and the broker writes a cursor every 100 ms.
    time.sleep(1)
    assert server.ask("POST", "/admin/v2/namespaces/public/default/messageTTL", "86400")[0] == 204
    shutil.copytree(tmp_path / "data" / "metadata", tmp_path / "earlier")
    assert server.ask("PUT", "/admin/v2/namespaces/public/made-later")[0] == 204
    client.shutdown()
    # The journal is a commit of the log behind what is answered, unless an acknowledged entry comes after it.
    time.sleep(1)
    server.kill()
    return server


def connected(server: Server) -> pulsar.Client:
    return pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def stored_bytes(server: Server) -> int:
    return sum(path.stat().st_size for path in (server.folder / "data/ledgers").glob("segment-*.log"))


def run(server: Server, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "magnetar", *arguments]
    return subprocess.run(command, cwd=server.folder, capture_output=True, text=True, timeout=120)


def lose(server: Server, what: str) -> None:
    metadata = server.folder / "data/metadata"
    database, write_ahead = metadata / "metadata.sqlite", metadata / "metadata.sqlite-wal"
    assert write_ahead.stat().st_size > 4096
    if what == "everything":
        shutil.rmtree(metadata)
    elif what == "the database":
        database.unlink()
    elif what == "its contents":
        database.write_bytes(b"")
    elif what == "the write-ahead log":
        write_ahead.unlink()
    elif what == "64 bytes of the write-ahead log":
        with write_ahead.open("r+b") as file:
            file.seek(32)
            file.write(bytes(64))
    else:
        for path in metadata.iterdir():
            path.unlink()
        for path in (server.folder / "earlier").iterdir():
            shutil.copy(path, metadata)


LOSSES = (
    "everything",
    "the database",
    "its contents",
    "the write-ahead log",
    "64 bytes of the write-ahead log",
    "all but an earlier copy",
)


@pytest.mark.parametrize("what", LOSSES)
def test_lost_metadata_are_refused_and_recovered(server: Server, what: str) -> None:
    lose(server, what)
    refused = run(server, "standalone", "--data-dir", "data", "--binary-port", "0", "--http-port", "0")
    assert refused.returncode == 1, refused.stderr
    assert "magnetar recover-metadata --data-dir" in refused.stderr
    assert "metadata/metadata.sqlite" in refused.stderr
    assert stored_bytes(server) > 40 * MESSAGES, "segments were deleted"

    checked = run(server, "recover-metadata", "--data-dir", "data", "--check")
    assert checked.returncode == 0, checked.stderr
    assert "nothing was changed" in checked.stdout
    recovered = run(server, "recover-metadata", "--data-dir", "data")
    assert recovered.returncode == 0, recovered.stderr
    assert "read the metadata journal" in recovered.stdout

    server.start()
    client = connected(server)
    try:
        consumer = client.subscribe(TOPIC, "reader")
        found = [consumer.receive(10_000).data() for _ in range(MESSAGES - 100)]
        assert found == [b"message %d" % number for number in range(100, MESSAGES)]
    finally:
        client.shutdown()
    assert server.ask("GET", "/admin/v2/namespaces/public/default/messageTTL") == (200, b"86400")
    assert b"public/made-later" in server.ask("GET", "/admin/v2/namespaces/public")[1]
    server.stop()


@pytest.mark.parametrize("how", ["missing", "empty", "another broker's"])
def test_lost_ledgers_are_refused_and_no_ledger_id_is_given_out_twice(server: Server, how: str) -> None:
    data = server.folder / "data"
    (data / "ledgers").rename(server.folder / "kept")
    if how == "empty":
        (data / "ledgers").mkdir()
    elif how != "missing":
        (server.folder / "other").mkdir()
        other = Server(server.folder / "other", {})
        other.start()
        other.stop()
        shutil.copytree(other.folder / "data/ledgers", data / "ledgers")
    refused = run(server, "standalone", "--data-dir", "data", "--binary-port", "0", "--http-port", "0")
    assert refused.returncode == 1, refused.stderr
    assert "ledgers" in refused.stderr
    assert "metadata/metadata.sqlite" in refused.stderr
    assert "Restore" in refused.stderr
    shutil.rmtree(data / "ledgers")
    (server.folder / "kept").rename(data / "ledgers")
    server.start()
    client = connected(server)
    try:
        reader = client.subscribe(TOPIC, "reader")
        found = [reader.receive(10_000).data() for _ in range(MESSAGES - 100)]
        assert found == [b"message %d" % number for number in range(100, MESSAGES)]
    finally:
        client.shutdown()
    server.stop()


async def delete_journals(server: Server) -> None:
    io = real_io(asyncio.get_running_loop(), server.folder / "data")
    ledgers = await EmbeddedLedgerStore.open_store(io, "ledgers", EmbeddedSettings())
    try:
        for journal in await find_journals(ledgers):
            for ledger_id in journal.ledgers:
                await ledgers.delete(ledger_id)
    finally:
        await ledgers.close()


def test_without_a_journal_subscriptions_are_recovered_from_their_ledgers(server: Server) -> None:
    asyncio.run(delete_journals(server))
    lose(server, "everything")
    recovered = run(server, "recover-metadata", "--data-dir", "data")
    assert recovered.returncode == 0, recovered.stderr
    assert "no metadata journal found" in recovered.stdout
    assert "subscription reader of public/default/persistent/kept: its state in ledger" in recovered.stdout

    server.start()
    client = connected(server)
    try:
        reader = client.subscribe(TOPIC, "reader")
        assert reader.receive(10_000).data() == b"message 100", "its last state was durable"
        holder = client.subscribe(TOPIC, "magnetar-recovered")
        found = [holder.receive(10_000).data() for _ in range(MESSAGES)]
        assert found == [b"message %d" % number for number in range(MESSAGES)]
    finally:
        client.shutdown()
    server.stop()


def test_recovery_without_anything_to_recover(tmp_path: Path) -> None:
    server = Server(tmp_path, {})
    nothing = run(server, "recover-metadata", "--data-dir", "nowhere")
    assert nothing.returncode == 1
    assert "nowhere contains no ledgers of a broker" in nothing.stderr
    server.start()
    running = run(server, "recover-metadata", "--data-dir", "data")
    assert running.returncode == 1
    assert "in use by another process" in running.stderr
    server.close()
