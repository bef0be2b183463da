"""Damage to the files of a data directory, and a look at everything in it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from fuzz_wire import EDGES, TEXTS

from magnetar.broker.namespaces.registry import Namespaces, bootstrap
from magnetar.broker.policies.store import PolicyStore
from magnetar.errors import BrokerError
from magnetar.io.interfaces import Io
from magnetar.io.real import real_io
from magnetar.io.wheel import TimerWheel
from magnetar.ledger.embedded.settings import EmbeddedSettings
from magnetar.ledger.embedded.store import EmbeddedLedgerStore
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.managed_ledger.factory import ManagedLedgerFactory
from magnetar.managed_ledger.position import EARLIEST
from magnetar.managed_ledger.settings import EntryCacheSettings, ManagedLedgerSettings
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.interface import MetadataError
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName

NAMED = (LedgerError, MetadataError, ManagedLedgerError, BrokerError)
"""What damage may lead to: each says what is damaged."""

SECONDS = 20
_TOPICS = "/managed-ledgers/public/default/persistent"
_DATABASE = "metadata/metadata.sqlite"


Entries = dict[tuple[str, int, int], bytes]
"""What is stored, by topic, ledger and entry id."""


def look_at_everything(folder: Path, entries: Entries | None = None) -> list[str]:
    """Opens the stores and reads every entry of every topic; the messages of all errors by name.

    Anything else that goes wrong is raised.

    :param entries: filled with what was read
    """
    return asyncio.run(asyncio.wait_for(_look(folder, {} if entries is None else entries), SECONDS))


async def _look(folder: Path, entries: Entries) -> list[str]:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: unexpected.append(context))
    unexpected: list[dict[str, Any]] = []
    found: list[str] = []
    stopped: list[str] = []
    io = replace(real_io(loop, folder), stop_process=stopped.append)
    settings = EmbeddedSettings(segment_bytes=256 << 10, first_segment_bytes=64 << 10, reserve_bytes=0)
    try:
        store = await EmbeddedLedgerStore.open_store(io, "ledgers", settings)
    except NAMED as error:
        return [str(error)]
    try:
        metadata = await EmbeddedMetadataStore.open_store(io, _DATABASE)
    except NAMED as error:
        await store.close()
        return [str(error)]
    ledgers = ManagedLedgerFactory(
        io, TimerWheel(io.loop), store, metadata, ManagedLedgerSettings(), EntryCacheSettings()
    )
    await _each(found, io, ledgers, metadata, entries)
    if not stopped:
        # A process that stopped closes nothing.
        await metadata.close()
        await store.close()
    assert not unexpected, unexpected
    return found + stopped


async def _each(
    found: list[str], io: Io, ledgers: ManagedLedgerFactory, metadata: EmbeddedMetadataStore, entries: Entries
) -> None:
    namespaces = Namespaces(io, metadata)
    policies = PolicyStore(io, metadata, "standalone")
    default = NamespaceName("public", None, "default")
    parts = TopicName.parse("persistent://public/default/parts")
    steps: list[Callable[[], Awaitable[Any]]] = [
        lambda: bootstrap(metadata, "standalone", "http://h:1", "pulsar://h:2", 4),
        policies.clusters.names,
        lambda: policies.clusters.get("standalone"),
        lambda: policies.tenants.get("public"),
        lambda: policies.of_namespace(default),
        lambda: namespaces.partitioned_topics(default),
        lambda: namespaces.persistent_topics(default),
        lambda: namespaces.partitions(parts),
        lambda: ledgers.orphaned_ledgers(0).look([]),
    ]
    for step in steps:
        try:
            await step()
        except NAMED as error:
            found.append(str(error))
    try:
        topics = await metadata.children(_TOPICS)
    except NAMED as error:
        found.append(str(error))
        return
    for topic in topics:
        try:
            await _read_topic(ledgers, f"public/default/persistent/{topic}", entries)
        except NAMED as error:
            found.append(str(error))


async def _read_topic(ledgers: ManagedLedgerFactory, name: str, entries: Entries) -> None:
    ledger = await ledgers.open(name, create=False)
    try:
        cursor = ledgers.open_reader_cursor(ledger, "reader of everything", EARLIEST)
        while cursor.has_more():
            run = await cursor.read(100, 1 << 20)
            if run is not None:
                for index in range(run.count):
                    entries[name, run.ledger_id, run.first_entry_id + index] = run.entry(index)
        for other in list(ledger.cursors.values()):
            other.backlog()
            other.rewind()
            while other.has_more():
                await other.read(100, 1 << 20)
    finally:
        await ledgers.close(ledger)


def damage(random: Random, folder: Path) -> str:
    """Damages one file of a data directory; says what it did."""
    if random.random() < 0.4:
        return _damage_contents(random, folder / _DATABASE)
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    path = random.choice(files)
    data = path.read_bytes()
    kind = random.randrange(9)
    if kind == 0:
        path.write_bytes(b"")
    elif kind == 1:
        path.write_bytes(data[: random.randrange(len(data) + 1)])
    elif kind == 2:
        path.write_bytes(random.randbytes(random.choice((1, 16, 100, 5000))))
    elif kind == 3:
        path.write_bytes(data + random.randbytes(random.choice((1, 4096))))
    elif kind == 4:
        other = random.choice(files)
        shutil.copyfile(other, folder / "copy")
        os.replace(folder / "copy", path)
    elif kind == 5:
        path.unlink()
    elif kind == 6 and path.name == "VERSION":
        path.write_text(json.dumps(_json(random)))
    else:
        path.write_bytes(_overwritten(random, data))
    return f"{path.relative_to(folder)}, kind {kind}"


def _overwritten(random: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 10))):
        if not changed:
            break
        start = random.randrange(len(changed))
        if random.random() < 0.5:
            start = random.randrange(min(len(changed), 200))
        kind = random.randrange(3)
        if kind == 0:
            changed[start] ^= 1 << random.randrange(8)
        elif kind == 1:
            changed[start : start + 8] = random.choice(EDGES).to_bytes(8, "little")
        else:
            start -= start % 512
            changed[start : start + 512] = random.choice((bytes(512), random.randbytes(512)))
    return bytes(changed[: len(data)])


def _json(random: Random, depth: int = 0) -> Any:
    kind = random.randrange(6 if depth < 2 else 4)
    if kind == 0:
        return random.choice((None, True, 1.5, *EDGES))
    if kind < 4:
        return random.choice(TEXTS)
    if kind == 4:
        return [_json(random, depth + 1) for _ in range(random.randrange(3))]
    keys = ("format", "writer", "store", "partitions", "bundles", "x")
    return {key: _json(random, depth + 1) for key in random.sample(keys, random.randrange(4))}


def _damage_contents(random: Random, path: Path) -> str:
    """A sound database whose nodes are not what a broker writes."""
    with sqlite3.connect(path) as connection:
        kind = random.random()
        if kind < 0.1:
            statement = random.choice(
                (
                    "DROP TABLE nodes",
                    "DROP TABLE sequences",
                    "ALTER TABLE nodes RENAME COLUMN value TO worth",
                    "PRAGMA user_version = 99",
                    "PRAGMA user_version = -1",
                    "PRAGMA user_version = 0",
                    "DELETE FROM nodes",
                    "UPDATE nodes SET version = 'x'",
                    "UPDATE nodes SET parent = '/nowhere'",
                    "DROP INDEX nodes_by_parent",
                )
            )
            connection.execute(statement)
        else:
            statement = _damage_node(random, connection)
    connection.close()
    return statement


def _damage_node(random: Random, connection: sqlite3.Connection) -> str:
    rows = connection.execute("SELECT path, value FROM nodes").fetchall()
    node, value = random.choice([row for row in rows if row[1]] if random.random() < 0.9 else rows)
    kind = random.randrange(6)
    new: Any
    if kind == 0:
        new = _overwritten(random, value)
    elif kind == 1:
        new = value[: random.randrange(len(value) + 1)]
    elif kind == 2:
        new = random.randbytes(random.randrange(40))
    elif kind == 3:
        new = json.dumps(_json(random)).encode()
    elif kind == 4:
        new = random.choice(rows)[1]
    else:
        new = random.choice(("text", 7, 1.5, b"GxE\x00\x00\x00\x00"))
    connection.execute("UPDATE nodes SET value = ? WHERE path = ?", (new, node))
    return f"{node} = {new!r}"
