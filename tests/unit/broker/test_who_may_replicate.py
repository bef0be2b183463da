"""Names of replicators, messages of other clusters and markers are not for clients, where roles are asked."""

from __future__ import annotations

import pytest
from peers import TOPIC, Brokers, Peer, send_frame, subscribe_frame
from replicating import NAME, replicated
from secured import Secured

from magnetar.broker.admin.publishing import Publication, PublishingAdmin
from magnetar.errors import AuthorizationFailure, ServerErrorCode, TopicNotFound
from magnetar.protocol.frames import encode_with_payload
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata
from magnetar.security.authentication import Principal

ROLES = ("admin", "broker-of-east", "alice")


@pytest.fixture
def secured() -> Secured:
    """``alice`` and the other cluster's brokers may produce."""
    world = Secured()
    for role in ROLES[1:]:
        world.grant(role, "produce")
    return world


def publish(world: Brokers, peer: Peer, *frames: bytes) -> list[tuple[str, int]]:
    """What became of each SEND: the kind of answer, and its sequence id."""
    peer.forget()
    peer.connection.data_received(b"".join(frames))
    kinds = {BaseCommand.SEND_RECEIPT: "stored", BaseCommand.SEND_ERROR: "refused"}

    def answers() -> list[BaseCommand]:
        return [each for each in peer.told() if each.type in kinds]

    world.until(lambda: len(answers()) == len(frames))
    found = []
    for each in answers():
        receipt = each.type == BaseCommand.SEND_RECEIPT
        number = each.send_receipt.sequence_id if receipt else each.send_error.sequence_id
        found.append((kinds[each.type], number))
    return sorted(found, key=lambda one: one[1])


def refusal(peer: Peer) -> str:
    [error] = peer.received(BaseCommand.ERROR)
    assert error.error.error == ServerErrorCode.AUTHORIZATION
    return error.error.message


@pytest.mark.parametrize("role", ROLES)
def test_names_of_replicators(secured: Secured, role: str) -> None:
    peer = secured.producer(role, NAME)
    if role == "alice":
        assert refusal(peer).startswith("alice may not send messages of other clusters, or markers, to ")
        assert not peer.count(BaseCommand.PRODUCER_SUCCESS)
        assert TOPIC not in secured.broker.topics.loaded
    else:
        assert publish(secured, peer, replicated(1, None), replicated(2, None, marker=10)) == [
            ("stored", 1),
            ("stored", 2),
        ]


def test_a_replicator_still_wants_the_permission_to_produce(secured: Secured) -> None:
    secured.replicators.add("stranger")
    assert "needs the permission produce" in refusal(secured.producer("stranger", NAME))


@pytest.mark.parametrize("role", ROLES)
def test_messages_that_say_they_are_of_another_cluster(secured: Secured, role: str) -> None:
    """A run is published around what is refused."""
    peer = secured.producer(role)
    outcome = "refused" if role == "alice" else "stored"
    frames = [send_frame(1), replicated(2, "7:0"), replicated(3, None), send_frame(4), replicated(5, None)]
    assert publish(secured, peer, *frames, send_frame(6)) == [
        ("stored", 1),
        (outcome, 2),
        (outcome, 3),
        ("stored", 4),
        (outcome, 5),
        ("stored", 6),
    ]
    if role == "alice":
        for error in peer.received(BaseCommand.SEND_ERROR):
            assert error.send_error.error == ServerErrorCode.AUTHORIZATION
            assert "only superusers and the roles in magnetarReplicationRoles may" in error.send_error.message


@pytest.mark.parametrize(
    "foreign",
    [(True,), (True, False), (False, True), (True, True), (False, True, True, False), (True, False, True)],
)
def test_wherever_they_are_in_a_run(secured: Secured, foreign: tuple[bool, ...]) -> None:
    frames = [replicated(n, None) if each else send_frame(n) for n, each in enumerate(foreign)]
    outcomes = [("refused" if each else "stored", n) for n, each in enumerate(foreign)]
    assert publish(secured, secured.producer("alice"), *frames) == outcomes


def test_markers_of_clients(secured: Secured) -> None:
    peer = secured.producer("alice")
    forged = replicated(1, None, marker=13)
    assert publish(secured, peer, forged) == [("refused", 1)]


def test_a_marker_that_is_not_sent_as_one(secured: Secured) -> None:

    command = BaseCommand(type=BaseCommand.SEND)
    command.send.producer_id, command.send.sequence_id = 1, 5
    metadata = MessageMetadata(producer_name="p", sequence_id=5, publish_time=1, marker_type=13)
    forged = encode_with_payload(command, build_entry(metadata, b"moves subscriptions"))
    assert publish(secured, secured.producer("alice"), forged, send_frame(6)) == [
        ("refused", 5),
        ("stored", 6),
    ]
    assert publish(secured, secured.producer("admin"), forged) == [("stored", 5)]


def test_a_role_that_replicates_no_more(secured: Secured) -> None:
    """Its replicators are closed, and what its other producers send is looked at."""
    replicator, other = secured.producer("broker-of-east", NAME), secured.producer("broker-of-east")
    secured.replicators.clear()
    secured.broker.revocation.roles_changed()
    secured.until(lambda: replicator.count(BaseCommand.CLOSE_PRODUCER))
    [producer] = other.connection.session.producers.values()
    secured.until(lambda: producer.guarded)
    assert publish(secured, other, replicated(1, None), send_frame(2)) == [("refused", 1), ("stored", 2)]
    secured.replicators.add("broker-of-east")
    secured.broker.revocation.roles_changed()
    secured.until(lambda: not producer.guarded)
    assert publish(secured, other, replicated(3, None)) == [("stored", 3)]


def test_without_authorization_nothing_is_looked_at() -> None:
    world = Brokers()
    peer = world.publisher()
    [producer] = peer.connection.session.producers.values()
    assert not producer.apart
    assert publish(world, peer, replicated(1, None), send_frame(2)) == [("stored", 1), ("stored", 2)]


def test_names_of_replicators_over_http(secured: Secured) -> None:
    def publish_as(role: str) -> None:
        admin = PublishingAdmin(secured.broker, Principal(role, "word"))
        secured.world.run(admin.publish(TOPIC, Publication([], 0, NAME), "here"))

    with pytest.raises(AuthorizationFailure, match="alice may not send messages of other clusters"):
        publish_as("alice")
    with pytest.raises(TopicNotFound):
        publish_as("admin")


@pytest.mark.parametrize("name", ["pulsar.repl.east", "pulsar.repl", "pulsar.replicated", "pulsar.dedup"])
def test_reserved_names_of_subscriptions(name: str) -> None:
    world = Brokers()
    peer = Peer(world)
    peer.connection.data_received(subscribe_frame(1, name, 0))
    world.until(lambda: peer.count(BaseCommand.ERROR))
    [error] = peer.received(BaseCommand.ERROR)
    assert error.error.error == ServerErrorCode.PRODUCER_BUSY
    assert error.error.message == "Subscription with reserved subscription name attempted"
