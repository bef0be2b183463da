"""What rested on a permission ends when the permission does, and nothing else."""

from __future__ import annotations

from secured import NAMESPACE, TOPIC, Secured

from magnetar.errors import ServerErrorCode
from magnetar.http.websocket.user import User
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.pulsar_api_pb2 import BaseCommand
from magnetar.security.authentication import Claim, Credentials

SECONDS = 1


def test_who_was_granted_nothing_gets_nothing() -> None:
    brokers = Secured()
    for peer in (brokers.producer("ann"), brokers.consumer("ann"), brokers.watcher("ann")):
        [told] = peer.received(BaseCommand.ERROR)
        assert told.error.error == ServerErrorCode.AUTHORIZATION
        assert not peer.closed
    assert TOPIC not in brokers.broker.topics.loaded


def test_a_permission_that_is_gone_ends_what_rested_on_it() -> None:
    brokers = Secured()
    brokers.grant("ann", "produce", "consume")
    brokers.grant("bob", "produce", "consume")
    anns = brokers.producer("ann"), brokers.consumer("ann", "a"), brokers.watcher("ann")
    bobs = brokers.producer("bob"), brokers.consumer("bob", "b"), brokers.watcher("bob")
    brokers.grant("ann", "consume")
    brokers.world.wait(SECONDS)
    topic = brokers.broker.topics.loaded[TOPIC]
    assert anns[0].count(BaseCommand.CLOSE_PRODUCER) == 1
    assert not anns[1].count(BaseCommand.CLOSE_CONSUMER)
    assert len(topic.producers) == 1
    brokers.grant("ann")
    brokers.world.wait(SECONDS)
    assert anns[1].count(BaseCommand.CLOSE_CONSUMER) == 1
    assert topic.subscriptions.consumer_count() == 1
    assert not anns[2].connection.session.topic_watchers
    assert not bobs[0].count(BaseCommand.CLOSE_PRODUCER)
    assert not bobs[1].count(BaseCommand.CLOSE_CONSUMER)
    assert bobs[2].connection.session.topic_watchers


def test_admins_of_a_tenant_and_superusers_are_asked_again() -> None:
    brokers = Secured()

    def admins(*roles: str) -> None:
        def work(record: dict[str, object]) -> None:
            record["adminRoles"] = list(roles)

        brokers.world.run(brokers.broker.policies.tenants.change(NAMESPACE.tenant, work))

    admins("ann")
    ann, admin = brokers.producer("ann"), brokers.producer("admin")
    admins()
    brokers.world.wait(SECONDS)
    assert ann.count(BaseCommand.CLOSE_PRODUCER) == 1
    assert not admin.count(BaseCommand.CLOSE_PRODUCER)
    brokers.superusers.clear()
    brokers.broker.revocation.roles_changed()
    brokers.world.wait(SECONDS)
    assert admin.count(BaseCommand.CLOSE_PRODUCER) == 1


def test_another_namespace_is_not_asked_about() -> None:
    brokers = Secured()
    brokers.grant("ann", "produce")
    ann = brokers.producer("ann")
    brokers.world.wait(SECONDS)
    asked = []
    refusal = brokers.broker.authorizer.refusal

    async def watched(principal: object, operation: object, target: object) -> str | None:
        asked.append((str(operation), str(target)))
        return await refusal(principal, operation, target)  # type: ignore[arg-type]

    brokers.broker.authorizer.refusal = watched  # type: ignore[method-assign]
    brokers.world.run(
        brokers.broker.policies.tenants.create(
            "other", {"adminRoles": ["x"], "allowedClusters": ["standalone"]}
        )
    )
    brokers.world.wait(SECONDS)
    assert asked == []
    brokers.grant("bob", "produce")
    brokers.world.wait(SECONDS)
    assert asked == [("produce", TOPIC), ("replicate", TOPIC)]
    assert not ann.count(BaseCommand.CLOSE_PRODUCER)


def test_messages_that_had_come_before_are_still_acknowledged() -> None:
    brokers = Secured()
    brokers.grant("ann", "produce")
    ann = brokers.producer("ann")
    brokers.publish(ann, 20)
    brokers.grant("ann")
    brokers.world.wait(SECONDS)
    assert ann.count(BaseCommand.CLOSE_PRODUCER) == 1
    assert not ann.closed


def web_socket_of(brokers: Secured, role: str, ends: list[str]) -> User:
    """The user of a WebSocket that publishes and consumes.

    :param ends: gets the reason why it ends
    """
    claim = Claim((Credentials("word", role.encode(), "10.0.0.1:1"),))
    authenticator, authorizer = brokers.broker.authenticator, brokers.broker.authorizer
    principal = brokers.world.run(authenticator.authenticate(claim))
    io = brokers.world.simulation.io
    user = User(io.loop, io.clock, authenticator, authorizer, principal, claim, lambda _user: None)
    brokers.world.run(user.check_produce(TopicName.parse(TOPIC)))
    brokers.world.run(user.check_consume(TopicName.parse(TOPIC), "s"))
    user.until(ends.append)
    brokers.broker.revocation.watch(lambda: [user])
    return user


def test_a_web_socket_ends_within_a_second_of_its_permission() -> None:
    brokers = Secured()
    anns: list[str] = []
    bobs: list[str] = []
    for role, ends in (("ann", anns), ("bob", bobs)):
        brokers.grant(role, "produce", "consume")
        web_socket_of(brokers, role, ends)
    brokers.grant("ann", "consume")
    brokers.world.wait(SECONDS)
    assert len(anns) == 1
    assert "produce" in anns[0]
    assert not bobs


def test_a_web_socket_ends_within_a_second_of_its_proof() -> None:
    brokers = Secured()
    brokers.words.lasts["ann"] = brokers.now() + 10
    ends: dict[str, list[str]] = {"ann": [], "bob": []}
    for role in ends:
        brokers.grant(role, "produce", "consume")
        web_socket_of(brokers, role, ends[role])
    brokers.world.wait(9)
    assert ends == {"ann": [], "bob": []}
    brokers.world.wait(1 + SECONDS)
    assert ends["ann"] == ["The credentials of the client have expired"]
    assert not ends["bob"]
    brokers.words.gone.add("bob")
    brokers.words.changed()
    brokers.world.wait(SECONDS)
    assert ends["bob"] == ["nobody is bob"]
