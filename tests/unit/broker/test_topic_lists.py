"""Lists of topics that are watched: who hears of what, and what is kept."""

from __future__ import annotations

from typing import Any

import pytest
from world import World

from magnetar.broker.namespaces import lists as topic_lists
from magnetar.broker.namespaces.lists import TopicList, TopicLists
from magnetar.broker.namespaces.registry import Namespaces, bootstrap
from magnetar.errors import NotAllowed, TooManyRequests
from magnetar.io.wheel import TimerWheel
from magnetar.naming.hashes import topic_list_hash
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName

NAMESPACE = NamespaceName("public", None, "default")
PATTERN = "public/default/a.*"
Update = tuple[int, list[str], list[str], str]


def full(local: str) -> str:
    return f"persistent://public/default/{local}"


class WatchingSession:
    def __init__(self) -> None:
        self.topic_watchers: dict[int, TopicList] = {}


class Watching:
    """A connection that keeps what it is told."""

    def __init__(self) -> None:
        self.closed = False
        self.session = WatchingSession()
        self.updates: list[Update] = []

    def send(self, command: Any) -> None:
        update = command.watchTopicUpdate
        told = (list(update.new_topics), list(update.deleted_topics), update.topics_hash)
        self.updates.append((update.watcher_id, *told))


class Lists:
    """The topics of a simulated world, and who watches them."""

    def __init__(self, **settings: Any) -> None:
        self.world = World()
        io, metadata = self.world.simulation.io, self.world.metadata
        urls = ("http://127.0.0.1:8080", "pulsar://127.0.0.1:6650")
        self.world.run(bootstrap(metadata, "standalone", *urls, 4))
        wheel = TimerWheel(io.loop)
        self.lists = TopicLists(io, wheel, Namespaces(io, metadata), metadata, **settings)

    def make(self, *locals_: str) -> None:
        for local in locals_:
            self.world.run(self.world.managed.open(TopicName.parse(full(local)).path, create=True))

    def delete(self, local: str) -> None:
        ledger = self.world.managed.opened[TopicName.parse(full(local)).path]
        self.world.run(self.world.managed.delete(ledger))

    def watch(self, connection: Watching, watcher_id: int = 1, pattern: str = PATTERN) -> list[str]:
        found = self.world.run(self.lists.watch(connection, watcher_id, NAMESPACE, pattern))
        assert found is not None
        return list(found.names)


def test_a_watcher_hears_of_what_matches_and_of_nothing_else() -> None:
    lists, watching = Lists(), Watching()
    lists.make("a1", "b1", "a2-partition-0", "__change_events")
    assert lists.watch(watching) == [full("a1"), full("a2-partition-0")]
    lists.make("a3", "b2", "__a")
    lists.world.wait(1)
    names = [full("a1"), full("a2-partition-0"), full("a3")]
    assert watching.updates == [(1, [full("a3")], [], topic_list_hash(names))]
    lists.delete("a1")
    lists.world.wait(1)
    assert watching.updates[1:] == [(1, [], [full("a1")], topic_list_hash(names[1:]))]


def test_cursors_are_no_topics() -> None:
    lists, watching = Lists(), Watching()
    lists.make("a1")
    lists.watch(watching, pattern=".*")
    ledger = next(iter(lists.world.managed.opened.values()))
    lists.world.run(lists.world.managed.open_cursor(ledger, "s", (-1, -1), {}))
    lists.world.wait(1)
    assert not watching.updates


def test_what_is_made_and_deleted_at_once_is_not_told() -> None:
    lists, watching = Lists(), Watching()
    lists.watch(watching)
    lists.lists._tell(watching.session.topic_watchers[1], full("a1"), exists=True)
    lists.lists._tell(watching.session.topic_watchers[1], full("a1"), exists=False)
    lists.world.wait(1)
    assert not watching.updates


def test_what_happens_while_the_list_is_made_is_not_lost() -> None:
    lists, watching = Lists(), Watching()
    lists.make("a1")
    loop = lists.world.simulation.loop
    begun = loop.create_task(lists.lists.watch(watching, 1, NAMESPACE, PATTERN))
    making = loop.create_task(
        lists.world.managed.open(TopicName.parse(full("a2")).path, create=True),
    )
    found = lists.world.run(begun)
    lists.world.run(making)
    lists.world.wait(1)
    told = {name for _id, new, _deleted, _digest in watching.updates for name in new}
    assert found is not None
    assert found.names == [full("a1"), full("a2")]
    assert lists.lists.held == 2 + topic_lists._LIST_PRICE + topic_lists._WATCHER_PRICE
    assert told <= {full("a2")}


def test_watchers_of_one_pattern_share_a_list_and_newcomers_hear_nothing_twice() -> None:
    lists, first, second = Lists(), Watching(), Watching()
    lists.watch(first)
    lists.lists._tell(first.session.topic_watchers[1], full("a1"), exists=True)
    assert lists.watch(second, 7) == [full("a1")]
    lists.world.wait(1)
    assert [update[1] for update in first.updates] == [[full("a1")]]
    assert not second.updates
    assert first.session.topic_watchers[1] is second.session.topic_watchers[7]


def test_an_id_that_is_taken_keeps_its_list() -> None:
    lists, watching = Lists(), Watching()
    lists.make("a1", "b1")
    lists.watch(watching)
    assert lists.watch(watching, 1, "public/default/b.*") == [full("a1")]


def test_nothing_is_kept_of_watchers_that_left() -> None:
    lists, watching = Lists(), Watching()
    lists.make("a1")
    for watcher_id in range(3):
        lists.watch(watching, watcher_id)
    lists.watch(watching, 3, "public/default/b.*")
    lists.lists.close(watching, 0)
    lists.lists.close(watching, 0)
    lists.make("a2")
    lists.lists.close_all(watching)
    lists.world.wait(1)
    assert lists.lists.held == 0
    assert not lists.lists._by_path
    assert not [update for update in watching.updates if update[0] == 0]


def test_who_leaves_before_the_list_is_made_is_not_answered() -> None:
    lists, watching = Lists(), Watching()
    begun = lists.world.simulation.loop.create_task(lists.lists.watch(watching, 1, NAMESPACE, PATTERN))
    lists.world.simulation.loop.call_soon(lists.lists.close_all, watching)
    assert lists.world.run(begun) is None
    assert lists.lists.held == 0


def test_who_left_before_it_was_its_turn_leaves_nothing() -> None:
    lists, watching = Lists(), Watching()
    watching.closed = True
    assert lists.world.run(lists.lists.watch(watching, 1, NAMESPACE, PATTERN)) is None
    assert lists.lists.held == 0
    assert not watching.session.topic_watchers


@pytest.mark.parametrize(
    ("pattern", "settings", "refusal"),
    [
        ("a" * 51, {}, NotAllowed),
        ("abcdef", {"max_pattern_length": 5}, NotAllowed),
        ("a", {"enabled": False}, NotAllowed),
        ("a([", {}, NotAllowed),
        ("(?!a).*", {}, NotAllowed),
    ],
)
def test_patterns_that_are_not_watched(
    pattern: str, settings: dict[str, Any], refusal: type[Exception]
) -> None:
    lists, watching = Lists(**settings), Watching()
    with pytest.raises(refusal):
        lists.watch(watching, pattern=pattern)
    assert lists.lists.held == 0
    assert not watching.session.topic_watchers


def test_what_is_watched_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    lists, watching = Lists(), Watching()
    monkeypatch.setattr(topic_lists, "MAX_HELD", 100)
    lists.watch(watching)
    with pytest.raises(TooManyRequests):
        lists.watch(watching, 2, "public/default/b.*")
    lists.lists.close_all(watching)
    lists.watch(watching, 2, "public/default/b.*")


def test_a_list_that_cannot_be_made_is_tried_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    lists, watching = Lists(), Watching()

    async def fail(_namespace: NamespaceName) -> list[str]:
        raise OSError("no")

    with monkeypatch.context() as patch:
        patch.setattr(lists.lists._namespaces, "persistent_topics", fail)
        with pytest.raises(OSError, match="no"):
            lists.watch(watching)
    assert lists.lists.held == 0
    assert lists.watch(watching) == []
