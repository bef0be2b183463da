"""What the broker knows of the metadata, after a while in which nobody told it of changes."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from faulty_metadata import FaultyMetadataStore
from lived import NAME, Lived

from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.schemas.data import SchemaData, SchemaType
from magnetar.errors import NamespaceNotFound, ServiceNotReady
from magnetar.naming.topic_name import TopicName

NAMESPACE = NAME.namespace_name


class Away(Lived):
    """A broker that misses what others do."""

    def __init__(self) -> None:
        super().__init__(EffectivePolicies())
        self.metadata: FaultyMetadataStore = self.world.faulty_metadata

    def meanwhile(self, *changes: tuple[str, bytes | None]) -> None:
        self.metadata.disconnect()
        for path, value in changes:
            inner = self.metadata.inner
            self.world.run(inner.delete(path) if value is None else inner.put(path, value))
        self.metadata.reconnect()


def test_namespaces_and_partitions() -> None:
    away = Away()
    namespaces = away.broker.namespaces
    other = TopicName.parse("persistent://public/default/p")
    away.world.run(namespaces.check(NAMESPACE))
    assert away.world.run(namespaces.partitions(other)) == 0
    away.meanwhile(
        ("/admin/partitioned-topics/public/default/persistent/p", b'{"partitions": 3}'),
        ("/admin/policies/public/default", None),
    )
    assert away.world.run(namespaces.partitions(other)) == 3
    with pytest.raises(NamespaceNotFound):
        away.world.run(namespaces.check(NAMESPACE))


def test_policies_reach_live_topics() -> None:
    away = Away()
    topic = away.topic()
    node = away.world.run(away.metadata.get("/admin/policies/public/default"))
    assert node is not None
    record: dict[str, Any] = json.loads(node.value)
    record["max_consumers_per_topic"] = 7
    away.meanwhile((node.path, json.dumps(record).encode()))
    away.world.wait(5)
    assert topic.policies.max_consumers == 7


@pytest.mark.parametrize("delay", [0.0, 5.0])
def test_own_changes_count_when_they_are_answered(delay: float) -> None:
    away = Away()
    topic = away.topic()
    away.metadata.event_delay = delay

    def work(record: dict[str, Any]) -> None:
        record["max_consumers_per_topic"] = 7

    away.world.run(away.broker.policies.change_namespace(NAMESPACE, work))
    assert topic.policies.max_consumers == 7
    away.world.wait(10)
    assert topic.policies.max_consumers == 7


def test_policies_that_cannot_be_read_at_first_are_read_later() -> None:
    away = Away()
    topic = away.topic()
    node = away.world.run(away.metadata.get("/admin/policies/public/default"))
    assert node is not None
    record = {**json.loads(node.value), "max_consumers_per_topic": 7}
    losing = [True]

    def draw(call: str) -> Any:
        from faulty_metadata import Fault

        return Fault.BEFORE if losing[0] and call == "get" else None

    away.metadata.draw = draw
    away.world.run(away.metadata.inner.put(node.path, json.dumps(record).encode()))
    away.world.wait(5)
    losing.clear()
    losing.append(False)
    away.world.wait(5)
    assert topic.policies.max_consumers == 7


def test_schemas() -> None:
    away = Away()
    schemas = away.broker.schemas
    schema = SchemaData(SchemaType.STRING, b"")
    path = NAME.schema_path
    away.world.run(schemas.put_if_absent(path, schema, "FULL"))
    assert away.world.run(schemas.get(path)) is not None
    away.meanwhile((f"/schemas/{path}", None))
    assert away.world.run(schemas.get(path)) is None


class Watcher:
    """A connection that watches topics."""

    def __init__(self) -> None:
        self.closed = False
        self.session = SimpleNamespace(topic_watchers={})
        self.sent: list[Any] = []

    def send(self, command: Any) -> None:
        self.sent.append(command.watchTopicUpdate)


@pytest.mark.parametrize("failing", [False, True])
def test_watched_lists_and_counts(failing: bool) -> None:
    from faulty_metadata import Fault

    away = Away()
    root = "/managed-ledgers/public/default/persistent"
    for name in ("a", "b"):
        away.world.run(away.metadata.put(f"{root}/{name}", b""))
    watcher = Watcher()
    lists = away.broker.topic_lists
    away.world.run(lists.watch(watcher, 1, NAMESPACE, ".*"))
    if failing:
        away.metadata.fail_next("children", Fault.BEFORE)
    away.meanwhile((f"{root}/a", None), (f"{root}/c", b""))
    away.world.wait(10)
    assert [list(sent.new_topics) for sent in watcher.sent] == [["persistent://public/default/c"]]
    assert [list(sent.deleted_topics) for sent in watcher.sent] == [["persistent://public/default/a"]]
    away.metadata.reconnect()
    away.world.run(away.metadata.put(f"{root}/d", b""))
    away.world.wait(10)
    assert [list(sent.new_topics) for sent in watcher.sent[1:]] == [["persistent://public/default/d"]]
    lists.close_all(watcher)
    assert lists.held == 0


def test_a_lost_session_ends_what_the_broker_serves() -> None:
    away = Away()
    topic = away.topic()
    subscription = away.subscribe(topic)
    away.publish(topic, 3)
    node = away.world.run(away.metadata.get(topic.managed_ledger.path))
    subscription.cursor.mark_delete_to(topic.managed_ledger.last_confirmed)
    away.world.run(away.metadata.lose_session())
    away.world.wait(5)
    assert not away.broker.topics.loaded
    assert topic.closing
    with pytest.raises(ServiceNotReady):
        away.world.run(away.broker.lookups.look_up(NAME))
    with pytest.raises(ServiceNotReady):
        away.topic()
    assert away.world.run(away.metadata.inner.get(topic.managed_ledger.path)) == node
    away.metadata.reconnect()
    away.world.run(away.broker.lookups.look_up(NAME))
    again = away.topic()
    assert again is not topic
    assert again.managed_ledger.ledgers.total_entries() == 3


def test_a_topic_that_is_loaded_while_the_session_is_lost_is_not_served() -> None:
    away = Away()
    away.topic()
    loading = away.world.simulation.loop.create_task(
        away.broker.topics.load(TopicName.parse("persistent://public/default/other"), create=True)
    )
    away.world.wait(0)
    away.world.run(away.metadata.lose_session())
    away.metadata.reconnect()
    with pytest.raises(ServiceNotReady):
        away.world.run(loading)
    away.world.wait(5)
    assert not away.broker.topics.loaded
