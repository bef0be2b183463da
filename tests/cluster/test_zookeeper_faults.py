"""What becomes of a session when Apache ZooKeeper is killed, stopped, or asked by another client library."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import count

import pytest
from kazoo.client import KazooClient
from polling import until_true
from zookeeper_server import TIMEOUT_MS, ZooKeeperServer, opened

from magnetar.managed_ledger.owned_record import OwnedRecord
from magnetar.metadata.interface import Change, ChangeKind, MetadataUnavailable, SessionEvent
from magnetar.metadata.passing_on import ResolvingStore
from magnetar.metadata.zookeeper.store import ZooKeeperMetadataStore

_roots = count()
PATIENCE = 60.0


@pytest.fixture
def root() -> str:
    return f"/session/{next(_roots)}"


def live(zookeeper: ZooKeeperServer, root: str, life: Callable[..., Awaitable[None]]) -> None:
    """One life of a store, with the events of its session."""

    async def scenario() -> None:
        store = await opened(f"zk:{zookeeper.address}{root}")
        events: list[SessionEvent] = []
        store.listen_session(events.append)
        try:
            await life(store, events)
        finally:
            await store.close()

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE))


def test_a_killed_server_that_comes_back_finds_the_session(zookeeper: ZooKeeperServer, root: str) -> None:
    async def life(store: ZooKeeperMetadataStore, events: list[SessionEvent]) -> None:
        changes: list[Change] = []
        store.listen("/", changes.append)
        await store.put("/own", b"", ephemeral=True)
        await store.put("/kept", b"value")
        number = store.session.session_id
        zookeeper.kill()
        await until_true(lambda: SessionEvent.DISCONNECTED in events)
        asked = asyncio.ensure_future(store.get("/kept"))
        await asyncio.to_thread(zookeeper.start)
        kept, own = await asked, await store.get("/own")
        assert kept is not None
        assert own is not None
        assert (kept.value, own.own, store.session.session_id) == (b"value", True, number)
        assert events == [SessionEvent.CONNECTED, SessionEvent.DISCONNECTED, SessionEvent.RECONNECTED]
        await store.put("/kept", b"2")
        await until_true(lambda: changes[-1] == Change(ChangeKind.CHANGED, "/kept"))

    live(zookeeper, root, life)


def test_a_server_that_is_silent_for_too_long_loses_the_session(
    zookeeper: ZooKeeperServer, root: str
) -> None:
    async def life(store: ZooKeeperMetadataStore, events: list[SessionEvent]) -> None:
        await store.put("/own", b"", ephemeral=True)
        first = store.session.session_id
        zookeeper.signal(signal.SIGSTOP)
        try:
            with pytest.raises(MetadataUnavailable):
                await store.put("/unknown", b"")
            await until_true(lambda: SessionEvent.LOST in events)
        finally:
            zookeeper.signal(signal.SIGCONT)
        await until_true(lambda: events[-1] is SessionEvent.RECONNECTED)
        assert store.session.session_id not in (0, first)
        while await store.exists("/own"):  # noqa: ASYNC110 - nobody tells, it was another session
            # Servers count on after a pause: it ends within another time-out.
            await asyncio.sleep(0.05)

    live(zookeeper, root, life)


@pytest.fixture
def kazoo(zookeeper: ZooKeeperServer) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper.address, timeout=TIMEOUT_MS / 1000)
    client.start()
    yield client
    client.stop()
    client.close()


def test_an_owner_that_slept_through_its_session_does_not_write_to_a_record_that_was_created_again(
    zookeeper: ZooKeeperServer, root: str, kazoo: KazooClient
) -> None:
    """The record has the version that the owner knows: only the session tells the two apart."""
    path = f"{root}/record"

    async def life(store: ZooKeeperMetadataStore, events: list[SessionEvent]) -> None:
        loop = asyncio.get_running_loop()
        record = OwnedRecord(loop, ResolvingStore(store, loop), "/record")
        for value in (b"of the former owner", b"and its first ledger"):
            await record.put(lambda value=value: value)
        await store.put("/bundle", b"", ephemeral=True)
        # Nothing of this process runs meanwhile, as when it is stopped by a signal.
        while kazoo.exists(f"{root}/bundle"):
            time.sleep(0.1)  # noqa: ASYNC251
        kazoo.delete(path)
        kazoo.create(path, b"of the next owner")
        assert kazoo.set(path, b"and its ledger").version == record.version
        with pytest.raises(MetadataUnavailable):
            await record.put(lambda: b"of the former owner, which is awake")
        assert SessionEvent.LOST in events
        assert kazoo.get(path)[0] == b"and its ledger"

    live(zookeeper, root, life)


def test_another_client_library_agrees(zookeeper: ZooKeeperServer, root: str, kazoo: KazooClient) -> None:
    async def life(store: ZooKeeperMetadataStore, _events: list[SessionEvent]) -> None:
        changes: list[Change] = []
        store.listen("/a", changes.append)
        made = await store.put("/a/b", b"ours", ephemeral=True)
        value, stat = await asyncio.to_thread(kazoo.get, f"{root}/a/b")
        assert (value, stat.version, stat.ctime, stat.mtime) == (
            b"ours",
            made.version,
            made.created_ms,
            made.modified_ms,
        )
        assert stat.ephemeralOwner == store.session.session_id
        await asyncio.to_thread(kazoo.set, f"{root}/a/b", b"theirs")
        await asyncio.to_thread(kazoo.create, f"{root}/a/c", b"", ephemeral=True)
        await asyncio.to_thread(kazoo.create, f"{root}/a/n-", b"", sequence=True)
        theirs, others = await store.get("/a/b"), await store.get("/a/c")
        assert theirs is not None
        assert others is not None
        assert (theirs.value, theirs.version, theirs.own) == (b"theirs", 1, True)
        assert (others.ephemeral, others.own) == (True, False)
        assert (await store.put("/a/n-", b"", sequential=True)).path == "/a/n-0000000003"
        await asyncio.to_thread(kazoo.delete, f"{root}/a/c")
        await store.exists("/a")
        told = [(change.kind, change.path) for change in changes]
        for wanted in (
            (ChangeKind.CHANGED, "/a/b"),
            (ChangeKind.CREATED, "/a/c"),
            (ChangeKind.CREATED, "/a/n-0000000002"),
            (ChangeKind.DELETED, "/a/c"),
        ):
            assert told.count(wanted) == 1
        assert sorted(await asyncio.to_thread(kazoo.get_children, f"{root}/a")) == await store.children("/a")

    live(zookeeper, root, life)
