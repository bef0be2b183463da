"""Two stores as one: what lies where, what is told, and what becomes of two sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from magnetar.io.real import real_io
from magnetar.metadata.divided import DividedStore
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.interface import MUST_NOT_EXIST, Change, Check, Delete, Put, SessionEvent
from magnetar.metadata.passing_on import PassingOnStore

CONNECTED, DISCONNECTED = SessionEvent.CONNECTED, SessionEvent.DISCONNECTED
RECONNECTED, LOST = SessionEvent.RECONNECTED, SessionEvent.LOST


async def opened(directory: Path) -> tuple[EmbeddedMetadataStore, EmbeddedMetadataStore, DividedStore]:
    io = real_io(asyncio.get_running_loop(), directory)
    local = await EmbeddedMetadataStore.open_store(io, "local.db")
    shared = await EmbeddedMetadataStore.open_store(io, "shared.db")
    return local, shared, DividedStore(local, shared)


SHARED = (
    "/admin/clusters/east",
    "/admin/policies/public/default",
    "/admin/partitioned-topics/public/default/persistent/t",
    "/admin/resourcegroups/small",
)
LOCAL = (
    "/admin/configuration",
    "/admin/local-policies/public/default",
    "/admin/policies-of-nobody",
    "/managed-ledgers/public/default/persistent/t",
    "/namespace/public/default/0x00000000_0xffffffff",
    "/schemas/public/default/t",
    "/ledgers/idgen",
)


def test_what_clusters_share_lies_apart(tmp_path: Path) -> None:
    async def scenario() -> None:
        local, shared, both = await opened(tmp_path)
        for path in SHARED + LOCAL:
            await both.put(path, path.encode())
        for path in SHARED + LOCAL:
            assert await shared.exists(path) == (path in SHARED), path
            assert await local.exists(path) == (path in LOCAL), path
        # Another cluster's store, or an older division, may hold what is not read from there.
        await local.put("/admin/policies/stale", b"")
        await shared.put("/admin/local-policies/stale", b"")
        await shared.put("/elsewhere", b"")
        wanted = ["clusters", "configuration", "local-policies", "partitioned-topics"]
        wanted += ["policies", "policies-of-nobody", "resourcegroups"]
        assert await both.children("/admin") == wanted
        assert await both.children("/admin/policies") == ["public"]
        assert "elsewhere" not in await both.children("/")
        await both.close()

    asyncio.run(scenario())


def test_what_lies_in_both_is_not_changed_together(tmp_path: Path) -> None:
    async def scenario() -> None:
        local, shared, both = await opened(tmp_path)
        for paths in (SHARED, LOCAL):
            await both.change_together([Put(path, b"", MUST_NOT_EXIST) for path in paths])
            await both.change_together([Check(path, 0) for path in paths])
        wrong = (
            f"{SHARED[0]} is stored in the configuration store and {LOCAL[0]} is not: "
            "they cannot be changed together"
        )
        for first, second in ((SHARED[0], LOCAL[0]), (LOCAL[0], SHARED[0])):
            with pytest.raises(ValueError, match=wrong):
                await both.change_together([Delete(first), Delete(second)])
        assert await shared.exists(SHARED[0])
        assert await local.exists(LOCAL[0])
        assert await both.change_together([]) == []
        await both.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("root", ["/", "/admin"])
def test_who_listens_above_both_hears_of_each_change_once(tmp_path: Path, root: str) -> None:
    async def scenario() -> None:
        local, shared, both = await opened(tmp_path)
        heard: list[Change] = []
        both.listen(root, heard.append)
        await both.put("/admin/policies/public", b"")
        await both.put("/admin/local-policies/public", b"")
        await local.put("/admin/policies/unread", b"")
        await shared.put("/admin/local-policies/unread", b"")
        await asyncio.sleep(0.05)
        paths = [change.path for change in heard if change.kind.name == "CREATED"]
        assert paths.count("/admin/policies/public") == 1
        assert paths.count("/admin/local-policies/public") == 1
        assert not [path for path in paths if path.endswith("unread")]
        await both.close()

    asyncio.run(scenario())


class Told(PassingOnStore):
    """A store whose session the test speaks for."""

    def listen_session(self, listener: Callable[[SessionEvent], None]) -> None:
        self.tell = listener


@pytest.mark.parametrize(
    ("events", "wanted"),
    [
        ([("local", CONNECTED), ("shared", CONNECTED)], [CONNECTED]),
        ([("shared", DISCONNECTED)], [CONNECTED, DISCONNECTED]),
        (
            [("shared", DISCONNECTED), ("local", DISCONNECTED), ("shared", RECONNECTED)],
            [CONNECTED, DISCONNECTED],
        ),
        (
            [("shared", DISCONNECTED), ("shared", LOST), ("shared", RECONNECTED)],
            [CONNECTED, DISCONNECTED, RECONNECTED],
        ),
        ([("local", DISCONNECTED), ("local", LOST)], [CONNECTED, DISCONNECTED, LOST]),
        (
            [("local", DISCONNECTED), ("local", LOST), ("local", RECONNECTED)],
            [CONNECTED, DISCONNECTED, LOST, RECONNECTED],
        ),
        (
            [("shared", DISCONNECTED), ("local", LOST), ("local", RECONNECTED)],
            [CONNECTED, DISCONNECTED, LOST],
        ),
    ],
)
def test_two_sessions_are_told_as_one(
    tmp_path: Path, events: list[tuple[str, SessionEvent]], wanted: list[SessionEvent]
) -> None:
    async def scenario() -> None:
        local, shared, _both = await opened(tmp_path)
        told = {"local": Told(local), "shared": Told(shared)}
        heard: list[SessionEvent] = []
        both = DividedStore(told["local"], told["shared"])
        both.listen_session(heard.append)
        for name, event in [("local", CONNECTED), ("shared", CONNECTED), *events]:
            told[name].tell(event)
        assert heard == wanted
        await both.close()

    asyncio.run(scenario())
