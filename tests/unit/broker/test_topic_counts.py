"""How many topics a namespace has, without listing it each time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from world import World

from magnetar.broker.namespaces.creation import TopicCounts
from magnetar.naming.namespace_name import NamespaceName

NAMESPACE = NamespaceName.parse("a/b")
ROOT = "/managed-ledgers/a/b/persistent"


class Counted:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = World()
        self.metadata = self.world.metadata
        self.listed = 0
        children = self.metadata.children

        async def counting(path: str) -> Sequence[str]:
            self.listed += 1
            return await children(path)

        monkeypatch.setattr(self.metadata, "children", counting)
        self.counts = TopicCounts(self.metadata)

    def run(self, work: Any) -> Any:
        return self.world.run(work)

    def count(self) -> int:
        found: int = self.run(self.counts.persistent(NAMESPACE))
        return found


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def test_a_namespace_is_listed_once(counted: Counted) -> None:
    """For each topic that was made all were looked at."""
    for number in range(100):
        assert counted.count() == number
        counted.run(counted.metadata.put(f"{ROOT}/t{number}", b""))
    counted.run(counted.metadata.delete(f"{ROOT}/t7"))
    assert counted.count() == 99
    assert counted.listed == 1


def test_what_is_not_a_topic_of_it_does_not_count(counted: Counted) -> None:
    assert counted.count() == 0
    for path in (
        f"{ROOT}/t",
        f"{ROOT}/t/cursor",
        f"{ROOT}/__change_events",
        "/managed-ledgers/a/c/persistent/t",
        "/admin/a/b/persistent/t",
    ):
        counted.run(counted.metadata.put(path, b""))
    assert counted.count() == 1
    assert counted.listed == 1


def test_what_happens_while_it_is_listed_counts_once(counted: Counted) -> None:
    loop = counted.world.simulation.loop
    counted.run(counted.metadata.put(f"{ROOT}/there", b""))
    works = [
        counted.metadata.put(f"{ROOT}/before", b""),
        counted.metadata.delete(f"{ROOT}/there"),
        counted.counts.persistent(NAMESPACE),
        counted.metadata.put(f"{ROOT}/after", b""),
        counted.counts.persistent(NAMESPACE),
        counted.metadata.delete(f"{ROOT}/before"),
    ]
    tasks = [loop.create_task(work) for work in works]
    for task in tasks:
        counted.run(task)
    assert counted.count() == 1
    counted.run(counted.metadata.put(f"{ROOT}/more", b""))
    assert counted.count() == 2


def test_a_tenant_is_listed_again_for_a_new_namespace_only(
    counted: Counted,
) -> None:
    def count() -> int:
        found: int = counted.run(counted.counts.of_tenant("a"))
        return found

    assert count() == 0
    for number in range(3):
        counted.run(counted.metadata.put(f"{ROOT}/t{number}", b""))
    counted.run(counted.metadata.put("/managed-ledgers/a/legacy/ns/persistent/t", b""))
    counted.run(counted.metadata.put("/managed-ledgers/other/ns/persistent/t", b""))
    assert count() == 4
    listed = counted.listed
    for number in range(3, 20):
        counted.run(counted.metadata.put(f"{ROOT}/t{number}", b""))
        assert count() == number + 2
    counted.run(counted.metadata.delete(f"{ROOT}/t0"))
    assert count() == 20
    assert counted.listed == listed
    counted.run(counted.metadata.put("/managed-ledgers/a/new/persistent/t", b""))
    assert count() == 21
