"""Namespaces come and go while topics are made in them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from test_topic_policies import Operated

from magnetar.broker.admin import namespaces
from magnetar.broker.policies.namespaces import divided, new_policies
from magnetar.broker.topics.persistent import Topic
from magnetar.errors import (
    AlreadyExists,
    AuthorizationFailure,
    ClusterNotFound,
    HasChildren,
    InvalidRequest,
    NamespaceNotFound,
    NotAllowed,
    PreconditionFailed,
    TenantNotFound,
)
from magnetar.metadata.interface import MetadataUnavailable
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName
from magnetar.security.authentication import ANONYMOUS, Principal
from magnetar.security.authorization import Operation, Target

NAME = TopicName.parse("persistent://mine/n/t")


class Mine(Operated):
    """A tenant and a namespace of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.run = self.world.run
        self.run(self.admin.tenants.create("mine", {"allowedClusters": ["standalone"]}))
        self.run(self.admin.namespaces.create("mine/n", {}))


def test_a_namespace_with_topics_stays() -> None:
    mine = Mine()
    topic = mine.topic(NAME)
    with pytest.raises(HasChildren):
        mine.run(mine.admin.namespaces.delete("mine/n", force=False))
    # It serves on as if nothing had been asked.
    assert mine.topic(NAME) is topic
    assert not mine.run(mine.admin.namespaces.policies("mine/n"))["deleted"]
    with pytest.raises(HasChildren):
        mine.run(mine.admin.tenants.delete("mine", force=False))
    mine.run(mine.admin.topics.delete(str(NAME), force=False))
    mine.run(mine.admin.namespaces.delete("mine/n", force=False))
    with pytest.raises(NamespaceNotFound):
        mine.topic(NAME)
    mine.run(mine.admin.tenants.delete("mine", force=False))


def test_a_namespace_that_cannot_be_looked_at_again_serves_on(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Mine()
    look = mine.broker.namespaces.persistent_topics
    looked: list[NamespaceName] = []

    async def gone_at_second(name: NamespaceName) -> list[str]:
        looked.append(name)
        if len(looked) == 2:
            raise MetadataUnavailable("gone")
        return await look(name)

    with monkeypatch.context() as patched:
        patched.setattr(mine.broker.namespaces, "persistent_topics", gone_at_second)
        with pytest.raises(MetadataUnavailable):
            mine.run(mine.admin.namespaces.delete("mine/n", force=False))
    assert not mine.run(mine.admin.namespaces.policies("mine/n"))["deleted"]
    assert mine.topic(NAME).full_name == str(NAME)


def test_who_makes_a_topic_meanwhile_keeps_the_namespace_or_gets_none() -> None:
    for turns in range(12):
        mine = Mine()
        loop = mine.world.simulation.loop
        deleting = loop.create_task(mine.admin.namespaces.delete("mine/n", force=False))
        for _ in range(turns):
            mine.run(_nothing())
        making = loop.create_task(mine.broker.topics.load(NAME, create=True))
        deleted = _outcome(mine, deleting)
        made = _outcome(mine, making)
        if isinstance(made, Topic):
            assert isinstance(deleted, HasChildren), turns
            assert mine.run(mine.broker.topic_names("mine/n")) == [str(NAME)]
        else:
            assert isinstance(made, NamespaceNotFound), turns
            assert deleted is None, turns
            assert not mine.run(mine.broker.managed_ledgers.exists(NAME.path))


@pytest.mark.parametrize("role", [" r", "r ", "\t"])
def test_names_of_administrators_have_no_white_space_around_them(role: str) -> None:
    mine = Mine()
    info = {"allowedClusters": ["standalone"], "adminRoles": ["a b", role]}
    with pytest.raises(PreconditionFailed, match="whitespace"):
        mine.run(mine.admin.tenants.create("other", info))
    with pytest.raises(PreconditionFailed, match="whitespace"):
        mine.run(mine.admin.tenants.update("mine", info))


async def _nothing() -> None:
    """One turn of the loop, or a few."""


def _outcome(mine: Mine, task: object) -> object:
    try:
        found: object = mine.run(task)
    except (HasChildren, NamespaceNotFound) as error:
        return error
    return found


def test_the_systems_topics_do_not_keep_a_namespace() -> None:
    mine = Mine()
    mine.topic(NAME)
    mine.set("maxProducerPerTopic", 3, str(NAME))
    mine.run(mine.admin.topics.delete(str(NAME), force=False))
    mine.run(mine.admin.namespaces.delete("mine/n", force=False))
    assert not mine.run(mine.broker.managed_ledgers.exists("mine/n/persistent/__change_events"))
    mine.run(mine.admin.namespaces.create("mine/n", {}))
    assert mine.topic(NAME).policies.max_producers == 0
    mine.set("maxProducerPerTopic", 2, str(NAME))
    assert mine.topic(NAME).policies.max_producers == 2


def test_force_is_switched_off_unless_it_is_allowed() -> None:
    mine = Mine()
    with pytest.raises(NotAllowed):
        mine.run(mine.admin.namespaces.delete("mine/n", force=True))
    with pytest.raises(NotAllowed):
        mine.run(mine.admin.tenants.delete("mine", force=True))


def test_what_cannot_be_made() -> None:
    mine = Mine()
    create = mine.admin.namespaces.create
    with pytest.raises(TenantNotFound):
        mine.run(create("none/n", {}))
    with pytest.raises(AuthorizationFailure):
        mine.run(create("mine/x", {"replication_clusters": ["elsewhere"]}))
    with pytest.raises(InvalidRequest):
        mine.run(create("mine/x", {"retention_policies": 3}))
    with pytest.raises(InvalidRequest):
        mine.run(create("mine/x", {"bundles": {"numBundles": 100_000}}))
    with pytest.raises(PreconditionFailed):
        mine.run(mine.admin.tenants.create("t", {"allowedClusters": ["elsewhere"]}))
    assert mine.run(mine.broker.policies.namespaces.of_tenant("mine")) == ["mine/n"]


def test_bundles_are_unloaded_one_by_one() -> None:
    mine = Mine()
    topics = [mine.topic(TopicName.parse(f"persistent://mine/n/t{number}")) for number in range(12)]
    mine.run(mine.admin.bundles.unload("mine/n", "0x00000000_0x40000000", None))
    closed = [topic.closing for topic in topics]
    assert closed == [topic.name.bundle_hash < 0x40000000 for topic in topics]
    assert True in closed
    assert False in closed
    with pytest.raises(PreconditionFailed):
        mine.run(mine.admin.bundles.unload("mine/n", "0x00000000_0x50000000", None))


LOCAL_OF_MINE = "/admin/local-policies/mine/n"
STALE = {"bundles": {"boundaries": ["0x00000000", "0xffffffff"]}, "bookieAffinityGroup": {"primary": "gone"}}


def _new_local(mine: Mine) -> dict[str, object]:
    """Of a namespace of that name that was created just now."""
    mine.run(mine.admin.namespaces.create("mine/n", {"bundles": {"numBundles": 2}}))
    return dict(mine.run(mine.admin.namespaces.local_policies("mine/n")))


def test_a_new_namespace_inherits_nothing_from_a_deleted_one() -> None:
    mine = Mine()
    mine.run(mine.admin.namespaces.delete("mine/n", force=False))
    mine.run(mine.world.metadata.put(LOCAL_OF_MINE, json.dumps(STALE).encode()))
    found = _new_local(mine)
    assert found == {"bundles": divided(2), "migrated": False}
    assert len(mine.run(mine.broker.bundles.of_namespace(NAME.namespace_name))) == 2


@pytest.mark.parametrize("step", range(1, 4))
def test_a_deletion_of_a_namespace_that_stops_half_way_can_be_repeated(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = Mine()
    mine.run(mine.world.metadata.put("/namespace/mine/n/0x00000000_0xffffffff", b"{}"))
    mine.run(mine.world.metadata.put(LOCAL_OF_MINE, json.dumps(STALE).encode()))
    delete, deleted = mine.world.metadata.delete, list[str]()

    async def stops(path: str, expected_version: int | None = None) -> None:
        if len(deleted) == step:
            raise MetadataUnavailable("killed")
        deleted.append(path)
        await delete(path, expected_version)

    with monkeypatch.context() as patch:
        patch.setattr(mine.world.metadata, "delete", stops)
        with pytest.raises(MetadataUnavailable):
            mine.run(mine.admin.namespaces.delete("mine/n", force=False))
    assert mine.run(mine.admin.namespaces.policies("mine/n"))["deleted"]
    mine.run(mine.admin.namespaces.delete("mine/n", force=False))
    assert not mine.run(mine.world.metadata.exists("/namespace/mine/n"))
    assert _new_local(mine) == {"bundles": divided(2), "migrated": False}


def test_a_creation_that_comes_late_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Mine()
    mine.run(mine.admin.namespaces.delete("mine/n", force=False))
    records, exists = mine.broker.policies.namespaces, mine.broker.policies.namespaces.exists

    async def others_create(name: NamespaceName) -> bool:
        found = await exists(name)
        monkeypatch.undo()
        await records.create(name, new_policies([], divided(3)))
        return found

    monkeypatch.setattr(records, "exists", others_create)
    with pytest.raises(AlreadyExists):
        mine.run(records.create(NAME.namespace_name, new_policies([], divided(2))))
    assert mine.run(mine.admin.namespaces.local_policies("mine/n"))["bundles"] == divided(3)


def test_a_namespace_above_others_is_not_touched() -> None:
    mine = Mine()
    mine.run(mine.admin.clusters.create("n", {}))
    mine.run(mine.admin.tenants.update("mine", {"allowedClusters": ["standalone", "n"]}))
    mine.run(mine.admin.namespaces.create("mine/n/legacy", {}))
    local = mine.run(mine.admin.namespaces.local_policies("mine/n"))
    with pytest.raises(PreconditionFailed):
        mine.run(mine.admin.namespaces.delete("mine/n", force=False))
    assert mine.run(mine.admin.namespaces.local_policies("mine/n")) == local
    assert not mine.run(mine.admin.namespaces.policies("mine/n"))["deleted"]


def test_the_cluster_in_a_legacy_name_exists_and_the_tenant_may_use_it() -> None:
    mine = Mine()
    create = mine.admin.namespaces.create
    with pytest.raises(AuthorizationFailure, match=r"Cluster \[us-west\] is not in the list of allowed"):
        mine.run(create("mine/us-west/n", {}))
    mine.run(mine.admin.clusters.create("us-west", {"serviceUrl": "http://west:8080"}))
    with pytest.raises(AuthorizationFailure):
        mine.run(create("mine/us-west/n", {}))
    mine.run(mine.admin.tenants.update("mine", {"allowedClusters": ["standalone", "us-west"]}))
    mine.run(create("mine/us-west/n", {}))
    with pytest.raises(TenantNotFound):
        mine.run(create("nobody/us-west/n", {}))
    assert mine.run(mine.admin.namespaces.of_tenant_and_cluster("mine", "us-west")) == ["mine/us-west/n"]
    with pytest.raises(ClusterNotFound):
        mine.run(mine.admin.namespaces.of_tenant_and_cluster("mine", "nowhere"))


def test_a_cluster_that_was_deleted_since_it_was_allowed_is_not_found() -> None:
    mine = Mine()
    mine.run(mine.admin.clusters.create("us-west", {}))
    mine.run(mine.admin.tenants.update("mine", {"allowedClusters": ["standalone", "us-west"]}))
    mine.run(mine.admin.clusters.delete("us-west"))
    with pytest.raises(ClusterNotFound):
        mine.run(mine.admin.namespaces.create("mine/us-west/n", {}))


def test_global_is_a_cluster_of_legacy_names_alone() -> None:
    mine = Mine()
    mine.run(mine.admin.namespaces.create("mine/global/n", {}))
    name = TopicName.parse("persistent://mine/global/n/t")
    assert mine.topic(name).full_name == str(name)
    assert mine.run(mine.admin.clusters.get("global"))["serviceUrl"] == ""
    assert mine.run(mine.admin.clusters.names()) == ["standalone"]
    assert mine.run(mine.admin.namespaces.of_tenant_and_cluster("mine", "global")) == ["mine/global/n"]
    with pytest.raises(PreconditionFailed, match="Clusters do not exist"):
        mine.run(mine.admin.tenants.update("mine", {"allowedClusters": ["standalone", "global"]}))


def test_a_cluster_that_legacy_namespaces_have_in_their_names_stays_allowed() -> None:
    mine = Mine()
    update = mine.admin.tenants.update
    for cluster in ("us-west", "us-east"):
        mine.run(mine.admin.clusters.create(cluster, {}))
    mine.run(update("mine", {"allowedClusters": ["standalone", "us-west", "us-east"]}))
    mine.run(mine.admin.namespaces.create("mine/us-west/n", {}))
    with pytest.raises(PreconditionFailed, match="Active namespaces"):
        mine.run(update("mine", {"allowedClusters": ["standalone", "us-east"]}))
    assert "us-west" in mine.run(mine.admin.tenants.get("mine"))["allowedClusters"]
    # Namespaces of two parts do not count, though they are replicated to the cluster: so in Pulsar.
    mine.run(update("mine", {"allowedClusters": ["us-west"]}))
    mine.run(mine.admin.namespaces.delete("mine/us-west/n", force=False))
    mine.run(update("mine", {"allowedClusters": ["standalone"]}))
    with pytest.raises(TenantNotFound):
        mine.run(update("nobody", {"allowedClusters": ["standalone"]}))


class _Granting:
    """An authorizer that allows what is named."""

    asks = True

    def __init__(self, *allowed: str) -> None:
        self.allowed = set(allowed)
        self.asked: list[str] = []

    async def refusal(self, _principal: Principal, _operation: Operation, target: Target) -> str | None:
        self.asked.append(str(target))
        return None if str(target) in self.allowed else "no"


def _granted(mine: Mine, namespace: str, *topics: str) -> list[str]:
    """Creates a namespace with permissions on topics; returns their names."""
    mine.run(mine.admin.namespaces.create(namespace, {}))
    names = [f"persistent://{namespace}/{topic}" for topic in topics]
    for name in names:
        mine.run(mine.admin.topics.create(name, {}))
        mine.run(mine.admin.topics.set_permissions(name, "somebody", ["produce"]))
    return names


def _reached(mine: Mine, authorizer: _Granting, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(mine.broker, "authorizer", authorizer)
    return mine.run(mine.admin.namespaces.reachable(ANONYMOUS))


def test_what_a_role_may_see_is_named_completely(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Mine()
    topics = _granted(mine, "mine/m", "a", "b", "c")
    found = _reached(mine, _Granting("namespace mine/n", topics[1]), monkeypatch)
    assert found == {"namespaces": ["mine/n"], "topics": [topics[1]], "complete": True}


def test_names_that_a_role_may_see_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Mine()
    topics = _granted(mine, "mine/m", "a", "b", "c", "d")
    # At the bound it is complete, and beyond it says that there may be more, also within one namespace.
    monkeypatch.setattr(namespaces, "_MOST_REACHABLE", 3)
    found = _reached(mine, _Granting(*topics), monkeypatch)
    assert found == {"namespaces": [], "topics": topics[:3], "complete": False}
    monkeypatch.setattr(namespaces, "_MOST_REACHABLE", 5)
    found = _reached(mine, _Granting(*topics), monkeypatch)
    assert found == {"namespaces": [], "topics": topics, "complete": True}


def test_places_that_are_looked_at_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Mine()
    topics = _granted(mine, "mine/m", "a", "b", "c", "d")
    everything = _Granting(topics[3])
    assert _reached(mine, everything, monkeypatch)["complete"]
    for most in range(len(everything.asked) + 1):
        monkeypatch.setattr(namespaces, "_MOST_LOOKED_AT", most)
        some = _Granting(topics[3])
        found = _reached(mine, some, monkeypatch)
        assert some.asked == everything.asked[:most]
        assert found["complete"] == (most == len(everything.asked))
        assert found["topics"] == ([topics[3]] if topics[3] in some.asked else [])
