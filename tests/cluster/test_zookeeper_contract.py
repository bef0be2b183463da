"""The contract of metadata stores, on Apache ZooKeeper: the tests that all stores pass; kazoo beside it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException, RolledBackError, RuntimeInconsistency
from zookeeper_server import ZooKeeperServer, opened

from magnetar.metadata.interface import (
    MUST_NOT_EXIST,
    BadVersion,
    Check,
    Delete,
    MetadataStore,
    NodeMissing,
    NodeNotEmpty,
    Put,
    Step,
)

sys.path.append(str(Path(__file__).parents[1] / "unit" / "metadata"))
from test_metadata_contract import *  # noqa: F403 - all of its tests, with another fixture

_roots = count()


@pytest.fixture
def run(zookeeper: ZooKeeperServer) -> Callable[..., None]:
    """Runs lives of a store, one after the other, each closed at its end, below a root of their own."""
    address = f"zk:{zookeeper.address}/contract/{next(_roots)}"

    def run_lives(*lives: Callable[[MetadataStore], Awaitable[None]]) -> None:
        async def scenario() -> None:
            for life in lives:
                store = await opened(address)
                try:
                    await life(store)
                finally:
                    await store.close()

        asyncio.run(scenario())

    return run_lives


@pytest.fixture
def kazoo(zookeeper: ZooKeeperServer) -> Iterator[KazooClient]:
    """With a root of its own."""
    root = f"/contract/{next(_roots)}"
    without, client = KazooClient(zookeeper.address), KazooClient(f"{zookeeper.address}{root}")
    try:
        without.start(timeout=30)
        without.ensure_path(root)
        client.start(timeout=30)
        yield client
    finally:
        for each in (client, without):
            each.stop()
            each.close()


def _transaction(kazoo: KazooClient, steps: Sequence[Step]) -> list[object]:
    """The same steps asked for by kazoo."""
    transaction = kazoo.transaction()
    for step in steps:
        if isinstance(step, Check):
            transaction.check(step.path, step.expected_version)
        elif isinstance(step, Delete):
            transaction.delete(step.path, -1 if step.expected_version is None else step.expected_version)
        elif step.expected_version == MUST_NOT_EXIST:
            transaction.create(step.path, step.value, ephemeral=step.ephemeral)
        else:
            transaction.set_data(step.path, step.value, step.expected_version)
    return list(transaction.commit())


def _nodes(kazoo: KazooClient, path: str) -> dict[str, tuple[bytes, int, bool]]:
    value, stat = kazoo.get(path)
    found = {path: (value, stat.version, bool(stat.ephemeralOwner))}
    for name in kazoo.get_children(path):
        found |= _nodes(kazoo, f"{path}/{name}")
    return found


def test_kazoo_changes_the_same_together_and_is_refused_the_same(
    zookeeper: ZooKeeperServer, kazoo: KazooClient
) -> None:
    for root in ("/theirs", "/ours"):
        kazoo.ensure_path(f"{root}/with/children")
        kazoo.create(f"{root}/node", b"1")

    def steps(root: str) -> list[list[Step]]:
        made, changed = Put(f"{root}/made", b"2", MUST_NOT_EXIST), Put(f"{root}/node", b"3", 0)
        return [
            [made, changed, Delete(f"{root}/missing")],
            [made, Check(f"{root}/with", 3), changed],
            [Delete(f"{root}/with"), made],
            [changed, Put(f"{root}/with", b"", MUST_NOT_EXIST), made],
            [made, Check(f"{root}/with", 0), changed, Delete(f"{root}/with/children", 0)],
            [Put(f"{root}/mine", b"4", MUST_NOT_EXIST, ephemeral=True), Delete(f"{root}/made", 0)],
        ]

    theirs = [_transaction(kazoo, each) for each in steps("/theirs")]

    async def scenario() -> None:
        store = await opened(f"zk:{zookeeper.address}{kazoo.chroot}")
        try:
            refusals = [(NodeMissing, 2), (BadVersion, 1), (NodeNotEmpty, 0), (BadVersion, 1)]
            for wrong, (error, at) in zip(steps("/ours")[:4], refusals, strict=True):
                with pytest.raises(error) as refused:
                    await store.change_together(wrong)
                assert refused.value.step == at
            for right in steps("/ours")[4:]:
                await store.change_together(right)
            ours = {path.removeprefix("/ours"): node for path, node in _nodes(kazoo, "/ours").items()}
        finally:
            await store.close()
        nodes = _nodes(kazoo, "/theirs").items()
        assert ours == {path.removeprefix("/theirs"): node for path, node in nodes}
        assert sorted(ours) == ["", "/mine", "/node", "/with"]

    asyncio.run(scenario())
    failed = [next(at for at, each in enumerate(answers) if _is_reason(each)) for answers in theirs[:4]]
    assert failed == [2, 1, 0, 1]
    assert isinstance(theirs[1][1], BadVersionError)
    assert not any(isinstance(each, KazooException) for answers in theirs[4:] for each in answers)


def _is_reason(answer: object) -> bool:
    return isinstance(answer, KazooException) and not isinstance(
        answer, RolledBackError | RuntimeInconsistency
    )
