"""Pulsar's rules of who may do what."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Set
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName
from magnetar.security import authorization
from magnetar.security.authentication import BROKER, Principal
from magnetar.security.authorization import (
    BROKER_ITSELF,
    BrokerOperation,
    ClusterOperation,
    NamespaceOperation,
    Operation,
    PolicyName,
    PolicyOperation,
    Target,
    TenantOperation,
    TopicOperation,
)
from magnetar.security.rules import ANYBODY, BY_PERMISSION, OF_TENANT_ADMINS, NamespaceGrants, PulsarRules

T = TypeVar("T")
NAMESPACE = NamespaceName.parse("t/n")
LEGACY = NamespaceName.parse("t/c/n")
TOPIC = Target.of_topic(TopicName.parse("persistent://t/n/x"))

ENUMS = (ClusterOperation, BrokerOperation, TenantOperation, NamespaceOperation, TopicOperation)
EVERY_OPERATION: tuple[Operation, ...] = (
    *(operation for enum in ENUMS for operation in enum),
    *(PolicyOperation(name, write) for name in PolicyName for write in (False, True)),
)


@dataclass
class Given:
    """What was granted, by namespace."""

    admins: Mapping[str, Set[str]] = field(default_factory=lambda: {"t": {"owner"}, "other": {"neighbour"}})
    grants: dict[str, NamespaceGrants] = field(default_factory=dict)

    async def tenant_admins(self, tenant: str) -> Set[str]:
        return self.admins.get(tenant, frozenset())

    async def of_namespace(self, namespace: NamespaceName) -> NamespaceGrants:
        return self.grants.get(str(namespace), NamespaceGrants())

    def listen(self, changed: Callable[[NamespaceName | str | None], None]) -> None:
        """Nothing of it changes."""


def principal(role: str, original: str | None = None) -> Principal:
    return Principal(role, "token", original)


def target_of(operation: Operation) -> Target:
    """Something of the tenant ``t`` that the operation can be asked of."""
    if isinstance(operation, (ClusterOperation, BrokerOperation)):
        return BROKER_ITSELF
    if isinstance(operation, TenantOperation):
        return Target.of_tenant("t")
    return Target.of_namespace(NAMESPACE) if isinstance(operation, NamespaceOperation) else TOPIC


def at_once(work: Coroutine[object, object, T]) -> T:
    """The result of work that waits for nothing: thousands of event loops would take minutes."""
    try:
        work.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    raise AssertionError("it waits")


class World:
    def __init__(self, *, wildcards: bool = False, superusers: Set[str] = frozenset({"root"})) -> None:
        self.given = Given()
        self.superusers = frozenset(superusers)
        self.rules = PulsarRules(self.given, lambda: self.superusers, wildcards=wildcards)

    def grant(self, namespace: str = "t/n", **parts: object) -> None:
        self.given.grants[namespace] = NamespaceGrants(**parts)  # type: ignore[arg-type]

    def may(self, who: Principal | str, operation: Operation, target: Target | None = None) -> bool:
        asking = principal(who) if isinstance(who, str) else who
        asked_of = target_of(operation) if target is None else target
        return at_once(self.rules.refusal(asking, operation, asked_of)) is None


@pytest.fixture
def world() -> World:
    return World()


def allowed(world: World, who: Principal | str) -> set[Operation]:
    return {operation for operation in EVERY_OPERATION if world.may(who, operation)}


OF_ADMINS = {
    operation
    for operation in EVERY_OPERATION
    if isinstance(operation, (NamespaceOperation, TopicOperation, PolicyOperation))
} - {
    NamespaceOperation.UNLOAD,
    NamespaceOperation.UPDATE_MIGRATION,
    NamespaceOperation.EXPLAIN_PLACEMENT,
    NamespaceOperation.GET_RESOURCE_AVAILABILITY,
    NamespaceOperation.GET_BUNDLE_QUOTA,
    NamespaceOperation.UPDATE_BUNDLE_QUOTA,
    PolicyOperation(PolicyName.BOOKIE_AFFINITY, write=False),
    PolicyOperation(PolicyName.BOOKIE_AFFINITY, write=True),
    TopicOperation.REPLICATE,
}


def test_operations_of_one_name_on_different_things_are_not_the_same() -> None:
    assert len(set(EVERY_OPERATION)) == len(EVERY_OPERATION)
    assert NamespaceOperation.GET_METADATA not in BY_PERMISSION
    assert str(NamespaceOperation.GET_METADATA) == str(TopicOperation.GET_METADATA) == "get_metadata"


def test_a_stranger_may_what_everybody_may_and_nobody_else_may_less(world: World) -> None:
    assert allowed(world, "stranger") == ANYBODY
    assert allowed(world, "") == ANYBODY
    assert allowed(world, "neighbour") == ANYBODY


def test_superusers_and_the_broker_itself_may_everything(world: World) -> None:
    assert allowed(world, "root") == set(EVERY_OPERATION)
    assert allowed(world, BROKER) == set(EVERY_OPERATION)
    assert allowed(world, Principal("broker", "token")) == ANYBODY


def test_who_is_a_superuser_is_asked_each_time(world: World) -> None:
    world.superusers = frozenset({"another"})
    assert allowed(world, "root") == ANYBODY
    assert allowed(world, "another") == set(EVERY_OPERATION)


def test_replicators_are_named_by_a_setting_and_still_want_the_permission_to_produce(world: World) -> None:
    roles = frozenset({"other-cluster", ""})
    world.rules = PulsarRules(world.given, lambda: world.superusers, replicators=lambda: roles)
    assert allowed(world, "other-cluster") == ANYBODY | {TopicOperation.REPLICATE}
    assert TopicOperation.REPLICATE not in allowed(world, "owner") | allowed(world, "")
    behind = Principal("proxy", "token", "other-cluster")
    assert not world.may(behind, TopicOperation.REPLICATE), "the proxy has to be allowed, too"
    reason = asyncio.run(world.rules.refusal(principal("owner"), TopicOperation.REPLICATE, TOPIC))
    assert reason is not None
    assert "magnetarReplicationRoles" in reason


def test_nobody_is_a_superuser_by_an_empty_name() -> None:
    world = World(superusers={"", "root"})
    assert allowed(world, "") == ANYBODY


def test_an_admin_may_everything_of_its_tenant_and_nothing_of_others(world: World) -> None:
    assert allowed(world, "owner") == OF_ADMINS | OF_TENANT_ADMINS | ANYBODY
    for operation in OF_ADMINS | OF_TENANT_ADMINS:
        elsewhere = Target.of_topic(TopicName.parse("persistent://other/n/x"))
        assert not world.may("owner", operation, elsewhere), operation


def test_delays_are_set_for_a_namespace_by_superusers_and_for_topics_by_admins(world: World) -> None:
    of_namespace = Target.of_namespace(NAMESPACE)
    for write in (False, True):
        delays = PolicyOperation(PolicyName.DELAYED_DELIVERY, write)
        assert world.may("owner", delays, of_namespace) is not write
        assert world.may("owner", delays, TOPIC)
        assert world.may("root", delays, of_namespace)


def test_an_empty_role_administers_nothing(world: World) -> None:
    world.given.admins = {"t": {"", "owner"}}
    assert allowed(world, "") == ANYBODY


@pytest.mark.parametrize("action", ["produce", "consume", "packages"])
def test_a_permission_allows_what_the_table_says(world: World, action: str) -> None:
    world.grant(of_namespace={"r": frozenset({action})})
    wanted = {operation for operation, actions in BY_PERMISSION.items() if action in actions}
    assert allowed(world, "r") == wanted | ANYBODY
    assert allowed(world, "R") == ANYBODY


@pytest.mark.parametrize("action", ["functions", "sources", "sinks"])
def test_other_permissions_allow_nothing_of_topics(world: World, action: str) -> None:
    world.grant(of_namespace={"r": frozenset({action})})
    assert allowed(world, "r") == ANYBODY


def test_an_empty_role_has_no_permissions() -> None:
    world = World(wildcards=True)
    world.grant(of_namespace={"": frozenset({"produce", "consume"}), "*": frozenset({"produce", "consume"})})
    assert allowed(world, "") == ANYBODY
    assert world.may("somebody", TopicOperation.PRODUCE)


def test_patterns_of_roles_count_where_they_are_switched_on() -> None:
    for wildcards in (False, True):
        world = World(wildcards=wildcards)
        world.grant(of_namespace={"app-*": frozenset({"produce"})})
        assert world.may("app-1", TopicOperation.PRODUCE) is wildcards
        assert not world.may("app-1", TopicOperation.CONSUME)
        assert not world.may("web-1", TopicOperation.PRODUCE)


def test_patterns_stand_for_no_superuser_and_no_admin() -> None:
    world = World(wildcards=True, superusers={"ro*"})
    world.given.admins = {"t": {"own*"}}
    assert allowed(world, "root") == ANYBODY
    assert allowed(world, "owner") == ANYBODY


def test_permissions_of_a_topic_are_for_it_and_its_partitions(world: World) -> None:
    world.grant(of_topics={"persistent://t/n/x": {"r": frozenset({"produce"})}})
    for name, may in (
        ("persistent://t/n/x", True),
        ("persistent://t/n/x-partition-0", True),
        ("persistent://t/n/x-partition-12", True),
        ("persistent://t/n/y", False),
        ("persistent://t/n/x-partition-", False),
        ("non-persistent://t/n/x", False),
        ("persistent://t/other/x", False),
    ):
        target = Target.of_topic(TopicName.parse(name))
        assert world.may("r", TopicOperation.PRODUCE, target) is may, name
    for operation in (
        NamespaceOperation.GET_TOPICS,
        TopicOperation.DELETE_TOPIC,
        TopicOperation.GET_BUNDLE_RANGE,
    ):
        assert not world.may("r", operation), operation


def test_a_legacy_namespace_grants_nothing_for_the_one_without_a_cluster(world: World) -> None:
    world.grant(str(LEGACY), of_namespace={"r": frozenset({"produce"})})
    legacy = Target.of_topic(TopicName.parse("persistent://t/c/n/x"))
    assert world.may("r", TopicOperation.PRODUCE, legacy)
    assert world.may("owner", TopicOperation.DELETE_TOPIC, legacy)
    assert not world.may("r", TopicOperation.PRODUCE)
    assert not world.may("neighbour", TopicOperation.PRODUCE, legacy)


CONSUMES = {"reader": frozenset({"consume"}), "second": frozenset({"consume"})}


def of_subscription(name: str) -> Target:
    return Target.of_topic(TopicName.parse("persistent://t/n/x"), name)


def test_a_subscription_may_be_kept_for_some_roles(world: World) -> None:
    world.grant(
        of_namespace=CONSUMES, of_subscriptions={"s": frozenset({"reader", "blind"}), "open": frozenset()}
    )
    for operation in (TopicOperation.CONSUME, TopicOperation.UNSUBSCRIBE, TopicOperation.RESET_CURSOR):
        assert world.may("reader", operation, of_subscription("s"))
        assert not world.may("second", operation, of_subscription("s"))
        # To be named does not allow to consume.
        assert not world.may("blind", operation, of_subscription("s"))
        assert world.may("second", operation, of_subscription("other"))
        assert world.may("second", operation, of_subscription("open"))
        assert world.may("owner", operation, of_subscription("s"))
        assert world.may("root", operation, of_subscription("s"))


def test_subscriptions_may_have_to_begin_with_the_role(world: World) -> None:
    world.grant(of_namespace=CONSUMES, prefixed=True)
    for name, may in (
        ("reader", True),
        ("reader-1", True),
        ("reader1", False),
        ("my-reader-1", False),
        ("second-1", False),
        ("-reader", False),
    ):
        assert world.may("reader", TopicOperation.CONSUME, of_subscription(name)) is may, name
    assert world.may("owner", TopicOperation.CONSUME, of_subscription("any"))


def test_behind_a_proxy_both_have_to_be_allowed(world: World) -> None:
    world.grant(of_namespace={"reader": frozenset({"consume"}), "proxy": frozenset({"consume", "produce"})})
    consume, produce = TopicOperation.CONSUME, TopicOperation.PRODUCE
    assert world.may(principal("proxy", "reader"), consume)
    assert not world.may(principal("proxy", "reader"), produce)
    assert not world.may(principal("proxy", "stranger"), consume)
    assert not world.may(principal("stranger", "reader"), consume)
    assert world.may(principal("proxy", "root"), consume)
    assert not world.may(principal("proxy", "root"), TopicOperation.DELETE_TOPIC)
    assert allowed(world, principal("root", "stranger")) == ANYBODY
    assert allowed(world, principal("root", "owner")) == OF_ADMINS | OF_TENANT_ADMINS | ANYBODY
    assert not world.may(principal("root", ""), consume)


def test_behind_a_proxy_each_is_asked_by_its_own_name_where_subscriptions_begin_with_it(
    world: World,
) -> None:
    world.grant(
        of_namespace={"reader": frozenset({"consume"}), "proxy": frozenset({"consume"})}, prefixed=True
    )
    who = principal("root", "reader")
    assert world.may(who, TopicOperation.CONSUME, of_subscription("reader-1"))
    assert not world.may(who, TopicOperation.CONSUME, of_subscription("root-1"))


def test_a_refusal_says_who_and_what(world: World) -> None:
    async def reason(who: str, operation: Operation, target: Target) -> str | None:
        return await world.rules.refusal(principal(who), operation, target)

    refusals = [
        asyncio.run(reason("r", TopicOperation.PRODUCE, TOPIC)),
        asyncio.run(reason("r", authorization.TopicOperation.DELETE_TOPIC, TOPIC)),
        asyncio.run(reason("", NamespaceOperation.GET_TOPICS, Target.of_namespace(NAMESPACE))),
        asyncio.run(reason("r", TenantOperation.DELETE_TENANT, Target.of_tenant("t"))),
    ]
    assert refusals == [
        "r may not produce on persistent://t/n/x: it needs the permission produce",
        "r may not delete topic on persistent://t/n/x: it is not an administrator of the tenant",
        "A client without a role may not get topics on namespace t/n: "
        "it needs the permission consume or produce",
        "Only superusers may delete tenant",
    ]
