"""What every metadata store promises; ``STORES`` names those the suite runs on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from faulty_metadata import Fault, FaultyMetadataStore
from model_zookeeper import ModelZooKeeper
from polling import until_true

from magnetar.io.real import real_io
from magnetar.metadata.divided import DividedStore
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.interface import (
    MAX_STEPS_BYTES,
    MAX_VALUE_BYTES,
    MUST_NOT_EXIST,
    BadVersion,
    Change,
    ChangeKind,
    Check,
    Delete,
    MetadataStore,
    MetadataUnavailable,
    NodeMissing,
    NodeNotEmpty,
    NodeTooLarge,
    Put,
    SessionEvent,
    Step,
)
from magnetar.metadata.passing_on import ResolvingStore
from magnetar.metadata.zookeeper.address import ensemble_address
from magnetar.metadata.zookeeper.session import Outside, SessionSettings
from magnetar.metadata.zookeeper.store import ZooKeeperMetadataStore


async def _embedded(directory: Path) -> MetadataStore:
    io = real_io(asyncio.get_running_loop(), directory)
    return await EmbeddedMetadataStore.open_store(io, "metadata.db")


async def _faulty(directory: Path) -> MetadataStore:
    """Without a fault it is what stands behind it, but tells of changes when they are answered already."""
    store = FaultyMetadataStore(await _embedded(directory), asyncio.get_running_loop())
    store.event_delay = 0.01
    return store


async def _resolving(directory: Path) -> MetadataStore:
    """All answers to the first try of a change are lost."""
    faulty = FaultyMetadataStore(await _embedded(directory), asyncio.get_running_loop())
    tries: Counter[str] = Counter()

    def draw(call: str) -> Fault | None:
        tries[call] += 1
        # A sequential node is not asked for again.
        lost = (call == "put" and tries[call] % 7 == 3) or (call == "change_together" and tries[call] % 2)
        return Fault.AFTER if lost else None

    faulty.draw = draw
    return ResolvingStore(faulty, asyncio.get_running_loop())


async def _divided(directory: Path) -> MetadataStore:
    """What the suite writes lies in either of two stores."""
    for name in ("local", "configuration"):
        (directory / name).mkdir(exist_ok=True)
    return DividedStore(await _embedded(directory / "local"), await _embedded(directory / "configuration"))


_MODELS: dict[Path, ModelZooKeeper] = {}


async def _model_zookeeper(directory: Path) -> MetadataStore:
    """The client of ZooKeeper on the model of simulations, over real sockets; one model for all lives."""
    loop = asyncio.get_running_loop()
    model = _MODELS.setdefault(directory, ModelZooKeeper(loop))
    model.loop = loop
    io = real_io(loop, directory)
    listener = await io.network.listen("127.0.0.1", 0, model.factory)
    outside = Outside(io.loop, io.clock, io.randomness, io.network)
    address = ensemble_address(f"zk:127.0.0.1:{listener.port}")
    return await ZooKeeperMetadataStore.open_store(outside, address, SessionSettings(6000), wait_seconds=10)


Opener = Callable[[Path], Awaitable[MetadataStore]]
STORES: dict[str, Opener] = {
    "embedded": _embedded,
    "faulty": _faulty,
    "resolving": _resolving,
    "divided": _divided,
    "model-zookeeper": _model_zookeeper,
}


@pytest.fixture(params=list(STORES))
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., None]:
    """Runs lives of a store, one after the other, each closed at its end."""
    opener = STORES[request.param]

    def run_lives(*lives: Callable[[MetadataStore], Awaitable[None]]) -> None:
        async def scenario() -> None:
            for life in lives:
                store = await opener(tmp_path)
                try:
                    await life(store)
                finally:
                    await store.close()

        asyncio.run(scenario())

    return run_lives


def test_put_get_delete(run: Callable[..., None]) -> None:
    async def life(store: MetadataStore) -> None:
        assert await store.get("/a/b") is None
        assert not await store.exists("/a")
        made = await store.put("/a/b", b"one")
        assert (made.path, made.value, made.version, made.ephemeral) == ("/a/b", b"one", 0, False)
        assert made.created_ms == made.modified_ms > 0
        assert await store.get("/a/b") == made
        changed = await store.put("/a/b", b"two")
        assert (changed.version, changed.created_ms) == (1, made.created_ms)
        parent = await store.get("/a")
        assert parent is not None
        assert parent.value == b""
        await store.delete("/a/b")
        assert await store.get("/a/b") is None
        with pytest.raises(NodeMissing):
            await store.delete("/a/b")

    async def later(store: MetadataStore) -> None:
        assert await store.exists("/a")
        assert not await store.exists("/a/b")

    run(life, later)


def test_conditions(run: Callable[..., None]) -> None:
    async def life(store: MetadataStore) -> None:
        with pytest.raises(BadVersion):
            await store.put("/n", b"", 0)
        await store.put("/n", b"", MUST_NOT_EXIST)
        with pytest.raises(BadVersion):
            await store.put("/n", b"", MUST_NOT_EXIST)
        with pytest.raises(BadVersion):
            await store.put("/n", b"", 1)
        assert (await store.put("/n", b"x", 0)).version == 1
        with pytest.raises(BadVersion):
            await store.delete("/n", 0)
        await store.delete("/n", 1)
        # A node that is made again counts from the beginning.
        assert (await store.put("/n", b"")).version == 0

    run(life)


def test_a_failed_condition_fails_alone(run: Callable[..., None]) -> None:
    async def life(store: MetadataStore) -> None:
        await store.put("/x", b"")
        outcomes = await asyncio.gather(
            store.put("/a", b"1"),
            store.put("/x", b"no", 7),
            store.put("/y/z", b"no", 7),
            store.delete("/missing"),
            store.put("/b", b"2", MUST_NOT_EXIST),
            store.put("/b", b"3", 0),
            return_exceptions=True,
        )
        kinds = [type(outcome).__name__ for outcome in outcomes]
        assert kinds == ["Node", "BadVersion", "BadVersion", "NodeMissing", "Node", "Node"]
        assert not await store.exists("/y")

    async def later(store: MetadataStore) -> None:
        assert await store.children("/") == ["a", "b", "x"]
        node = await store.get("/b")
        assert node is not None
        assert (node.value, node.version) == (b"3", 1)

    run(life, later)


def test_children_are_direct_names_in_order(run: Callable[..., None]) -> None:
    async def life(store: MetadataStore) -> None:
        for path in ("/t/c", "/t/a/deep", "/t/b", "/t0", "/t-1/x"):
            await store.put(path, b"")
        assert await store.children("/t") == ["a", "b", "c"]
        assert await store.children("/t/a") == ["deep"]
        assert await store.children("/t/b") == []
        assert await store.children("/nothing") == []
        assert await store.children("/") == ["t", "t-1", "t0"]
        with pytest.raises(NodeNotEmpty):
            await store.delete("/t/a")

    run(life)


def test_sequences_grow_and_are_never_used_again(run: Callable[..., None]) -> None:
    async def life(store: MetadataStore) -> None:
        first = await store.put("/s/n-", b"", sequential=True)
        second = await store.put("/s/n-", b"", sequential=True)
        assert (first.path, second.path) == ("/s/n-0000000000", "/s/n-0000000001")
        await store.delete(second.path)
        await store.delete(first.path)

    async def later(store: MetadataStore) -> None:
        assert (await store.put("/s/m-", b"", sequential=True)).path == "/s/m-0000000002"

    run(life, later)


def test_ephemeral_nodes_end_with_the_session(run: Callable[..., None]) -> None:
    async def life(store: MetadataStore) -> None:
        node = await store.put("/brokers/one", b"", ephemeral=True)
        assert node.ephemeral
        assert (await store.put("/brokers/one", b"2")).ephemeral
        await store.put("/brokers/two", b"")

    async def later(store: MetadataStore) -> None:
        assert await store.children("/brokers") == ["two"]

    run(life, later)


def test_changes_are_told_after_they_happened(run: Callable[..., None]) -> None:
    async def life(store: MetadataStore) -> None:
        seen: list[Change] = []
        store.listen("/", seen.append)
        await store.put("/a/b", b"")
        await store.put("/a/b", b"1")
        with pytest.raises(BadVersion):
            await store.put("/a/b", b"", 9)
        await store.delete("/a/b")
        await store.exists("/a")
        end = [Change(ChangeKind.DELETED, "/a/b"), Change(ChangeKind.CHILDREN, "/a")]
        await until_true(lambda: seen[-2:] == end)
        told = [(change.kind, change.path) for change in seen]
        assert told.index((ChangeKind.CREATED, "/a/b")) < told.index((ChangeKind.CHANGED, "/a/b"))
        assert told[-2:] == [(ChangeKind.DELETED, "/a/b"), (ChangeKind.CHILDREN, "/a")]
        assert told.count((ChangeKind.CHANGED, "/a/b")) == 1

    run(life)


def test_who_listens_to_a_node_hears_of_what_is_below_and_of_nothing_else(run: Callable[..., None]) -> None:
    async def life(store: MetadataStore) -> None:
        seen: list[str] = []
        store.listen("/a/b", lambda change: seen.append(change.path))
        for path in ("/a/b", "/a/bc", "/a/b/c/d", "/a", "/x", "/a/b/e"):
            await store.put(path, b"")
        await until_true(lambda: "/a/b/e" in seen)
        assert set(seen) == {"/a/b", "/a/b/c", "/a/b/c/d", "/a/b/e"}
        with pytest.raises(ValueError, match="invalid metadata path"):
            store.listen("/a/", lambda change: None)

    run(life)


def test_session_and_close(run: Callable[..., None]) -> None:
    async def life(store: MetadataStore) -> None:
        events: list[SessionEvent] = []
        store.listen_session(events.append)
        waiting = asyncio.gather(*(store.put(f"/n{number}", b"") for number in range(10)))
        await asyncio.sleep(0)
        await asyncio.gather(store.close(), store.close())
        assert len(await waiting) == 10
        assert events == [SessionEvent.CONNECTED]
        with pytest.raises(MetadataUnavailable):
            await store.get("/n1")

    async def later(store: MetadataStore) -> None:
        assert len(await store.children("/")) == 10

    run(life, later)


@pytest.mark.parametrize(
    "path", ["", "a", "/a/", "//", "/a//b", "/a\0", "/a\ud800", "/.", "/a/..", "/a/./b", "a/b"]
)
def test_wrong_paths_are_refused(run: Callable[..., None], path: str) -> None:
    async def life(store: MetadataStore) -> None:
        with pytest.raises(ValueError, match="invalid metadata path"):
            await store.put(path, b"")

    run(life)


def test_several_nodes_are_changed_together(run: Callable[..., None]) -> None:
    async def life(store: MetadataStore) -> None:
        seen: list[Change] = []
        store.listen("/t", seen.append)
        for path in ("/t/kept", "/t/changed", "/t/gone/below"):
            await store.put(path, b"1")
        made, changed, *others = await store.change_together(
            [
                Put("/t/new/deep", b"2", MUST_NOT_EXIST),
                Put("/t/changed", b"3", 0),
                Check("/t/kept", 0),
                Delete("/t/gone/below", 0),
                Delete("/t/gone"),
            ]
        )
        assert others == [None] * 3
        assert made is not None
        assert changed is not None
        assert made == await store.get("/t/new/deep")
        assert changed == await store.get("/t/changed")
        assert (made.version, changed.value, changed.version) == (0, b"3", 1)
        assert await store.change_together([]) == []
        assert await store.change_together([Check("/t/changed", 1)]) == [None]
        kinds = {ChangeKind.CREATED, ChangeKind.CHANGED, ChangeKind.DELETED}
        await until_true(lambda: any(change == Change(ChangeKind.DELETED, "/t/gone") for change in seen))
        told = [change for change in seen if change.kind in kinds][-5:]
        assert told == [
            Change(ChangeKind.CREATED, "/t/new"),
            Change(ChangeKind.CREATED, "/t/new/deep"),
            Change(ChangeKind.CHANGED, "/t/changed"),
            Change(ChangeKind.DELETED, "/t/gone/below"),
            Change(ChangeKind.DELETED, "/t/gone"),
        ]

    async def later(store: MetadataStore) -> None:
        assert await store.children("/t") == ["changed", "kept", "new"]

    run(life, later)


def test_one_step_that_cannot_be_done_keeps_all_from_being_done(run: Callable[..., None]) -> None:
    put, gone = Put("/t/a", b"2", 0), Delete("/t/gone")
    wrong: list[tuple[Step, type[Exception]]] = [
        (Check("/t/b", 1), BadVersion),
        (Check("/t/none", 0), BadVersion),
        (Put("/t/b", b"", 1), BadVersion),
        (Put("/t/b", b"", MUST_NOT_EXIST), BadVersion),
        (Put("/t/none", b"", 0), BadVersion),
        (Delete("/t/b", 7), BadVersion),
        (Delete("/t/none"), NodeMissing),
        (Delete("/t/none", 3), NodeMissing),
        (Delete("/t/b"), NodeNotEmpty),
    ]

    async def life(store: MetadataStore) -> None:
        await store.put("/t/a", b"1")
        await store.put("/t/b/c", b"")
        await store.put("/t/gone", b"")
        for step, error in wrong:
            for steps in ([step, put, gone], [put, step, gone], [put, gone, step]):
                with pytest.raises(error, match=step.path) as refused:
                    await store.change_together(steps)
                assert refused.value.step == steps.index(step)
        await store.change_together([put, gone])
        with pytest.raises(NodeMissing) as missing:
            await store.delete("/t/none")
        assert missing.value.step is None

    async def later(store: MetadataStore) -> None:
        node = await store.get("/t/a")
        assert node is not None
        assert (node.value, node.version) == (b"2", 1)
        assert await store.children("/t") == ["a", "b"]

    run(life, later)


def test_an_ephemeral_node_is_made_with_others_and_ends_with_the_session(run: Callable[..., None]) -> None:
    async def life(store: MetadataStore) -> None:
        await store.put("/stays", b"")
        node, _ = await store.change_together([Put("/e", b"", MUST_NOT_EXIST, True), Check("/stays", 0)])
        assert node is not None
        assert node.own
        await store.change_together([Put("/gone", b"", MUST_NOT_EXIST, ephemeral=True)])
        await store.change_together([Delete("/gone", 0)])

    async def later(store: MetadataStore) -> None:
        assert await store.children("/") == ["stays"]

    run(life, later)


def test_what_cannot_be_one_change_is_refused(run: Callable[..., None]) -> None:
    async def life(store: MetadataStore) -> None:
        with pytest.raises(ValueError, match="invalid metadata path"):
            await store.change_together([Delete("a")])
        with pytest.raises(ValueError, match="two steps of one change have the same path '/a'"):
            await store.change_together([Check("/a", 0), Delete("/a", 0)])
        with pytest.raises(ValueError, match="'/a/b/c' is below '/a', which the same change deletes"):
            await store.change_together([Put("/a/b/c", b"", MUST_NOT_EXIST), Delete("/a", 0)])
        half = bytes(MAX_STEPS_BYTES // 2)
        with pytest.raises(NodeTooLarge, match=r"/a and 1 more: the change has .* are allowed"):
            await store.change_together([Put(path, half, MUST_NOT_EXIST) for path in ("/a", "/b")])
        paths = [f"/n{number}" for number in range(1000)]
        await store.change_together([Put(path, b"", MUST_NOT_EXIST) for path in paths])
        with pytest.raises(BadVersion):
            await store.change_together([*(Delete(path, 0) for path in paths), Put("/a", half, 0)])
        await store.change_together([Delete(path, 0) for path in paths])
        assert await store.children("/") == []

    run(life)


def test_values_have_a_bound(run: Callable[..., None]) -> None:
    async def life(store: MetadataStore) -> None:
        most = b"x" * MAX_VALUE_BYTES
        assert (await store.put("/a", most)).version == 0
        with pytest.raises(NodeTooLarge, match=f"at most {MAX_VALUE_BYTES} are allowed"):
            await store.put("/a", most + b"x")
        found = await store.get("/a")
        assert found is not None
        assert (found.version, len(found.value)) == (0, MAX_VALUE_BYTES)

    run(life)


def test_a_listener_that_fails_keeps_nobody_from_hearing(run: Callable[..., None]) -> None:
    async def life(store: MetadataStore) -> None:
        heard: list[Change] = []

        def fail(_change: Change) -> None:
            raise KeyError("a defect")

        store.listen("/", fail)
        store.listen("/", heard.append)
        await asyncio.gather(store.put("/a", b""), store.put("/b", b""))
        await store.put("/c", b"")
        await until_true(lambda: any(change.path == "/c" for change in heard))
        made = [change.path for change in heard if change.kind is ChangeKind.CREATED]
        assert made[-3:] == ["/a", "/b", "/c"]

    run(life)
