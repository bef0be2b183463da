"""Clients prove who they are again before their proof ends, or when what they were let in by has changed."""

from __future__ import annotations

from peers import Peer
from secured import Secured, encoded

from magnetar.errors import ServerErrorCode
from magnetar.protocol.pulsar_api_pb2 import BaseCommand


def respond(peer: Peer, role: str) -> None:
    command = BaseCommand(type=BaseCommand.AUTH_RESPONSE)
    command.authResponse.response.auth_method_name = "word"
    command.authResponse.response.auth_data = role.encode()
    peer.connection.data_received(encoded(command))


def refusal(peer: Peer) -> int:
    [told] = peer.received(BaseCommand.ERROR)
    assert told.error.request_id == 2**64 - 1
    return int(told.error.error)


def test_a_client_is_asked_again_before_its_proof_ends_and_stays() -> None:
    brokers = Secured()
    brokers.words.lasts["ann"] = brokers.now() + 100
    peer = brokers.peer("ann")
    brokers.world.wait(49)
    assert not peer.count(BaseCommand.AUTH_CHALLENGE)
    brokers.world.wait(2)
    [challenge] = peer.received(BaseCommand.AUTH_CHALLENGE)
    assert challenge.authChallenge.challenge.auth_method_name == "word"
    assert challenge.authChallenge.challenge.auth_data == b"PulsarAuthRefresh"
    brokers.words.lasts["ann"] = brokers.now() + 1_000
    respond(peer, "ann")
    brokers.world.wait(900)
    assert not peer.closed
    assert peer.connection.session.principal.expires == brokers.words.lasts["ann"]
    brokers.world.wait(105)
    assert peer.count(BaseCommand.AUTH_CHALLENGE) == 2
    assert peer.closed
    assert refusal(peer) == ServerErrorCode.AUTHENTICATION


def test_a_client_that_does_not_answer_is_closed_when_its_proof_ends() -> None:
    brokers = Secured()
    brokers.words.lasts["ann"] = brokers.now() + 100
    peer = brokers.peer("ann")
    brokers.world.wait(99)
    assert not peer.closed
    brokers.world.wait(2)
    assert peer.closed


def test_a_client_that_cannot_refresh_is_closed_when_its_proof_ends() -> None:
    brokers = Secured()
    brokers.words.lasts["ann"] = brokers.now() + 100
    peer = brokers.peer("ann", refreshes=False)
    brokers.world.wait(99)
    assert not peer.closed
    assert not peer.count(BaseCommand.AUTH_CHALLENGE)
    brokers.world.wait(2)
    assert peer.closed


def test_nobody_becomes_somebody_else_by_a_fresh_proof() -> None:
    brokers = Secured()
    brokers.words.lasts["ann"] = brokers.now() + 100
    peer = brokers.peer("ann")
    brokers.world.wait(55)
    respond(peer, "bob")
    brokers.world.wait(1)
    assert peer.closed
    assert refusal(peer) == ServerErrorCode.AUTHENTICATION


def test_an_answer_without_a_challenge_ends_the_connection() -> None:
    brokers = Secured()
    peer = brokers.peer("ann")
    respond(peer, "ann")
    assert peer.closed


def test_a_proof_of_years_is_no_timer_of_years() -> None:
    brokers = Secured()
    brokers.words.lasts["ann"] = brokers.now() + 40 * 365 * 86_400
    peer = brokers.peer("ann")
    brokers.world.wait(3 * 86_400)
    assert not peer.closed
    assert not peer.count(BaseCommand.AUTH_CHALLENGE)


def test_who_is_known_no_more_is_closed_and_others_stay() -> None:
    brokers = Secured()
    ann, bob = brokers.peer("ann"), brokers.peer("bob")
    brokers.words.gone.add("ann")
    brokers.words.changed()
    brokers.world.wait(1)
    assert ann.closed
    assert refusal(ann) == ServerErrorCode.AUTHENTICATION
    assert not bob.closed


def test_what_goes_while_it_is_asked_leaves_nothing_behind() -> None:
    brokers = Secured()
    brokers.words.lasts["ann"] = brokers.now() + 100
    peer = brokers.peer("ann")
    brokers.words.changed()
    peer.connection.connection_lost(None)
    brokers.world.wait(200)
    assert not brokers.broker.connections.all


def test_a_client_whose_proofs_are_short_is_not_asked_on_end() -> None:
    brokers = Secured()
    brokers.words.lasts["ann"] = brokers.now() + 8
    peer = brokers.peer("ann")
    for _ in range(200):
        brokers.world.wait(0.05)
        if peer.closed:
            break
        respond_if_asked(peer)
    assert peer.closed, "it gave the same proof again and again"
    assert peer.count(BaseCommand.AUTH_CHALLENGE) <= 5


def respond_if_asked(peer: Peer) -> None:
    if peer.connection.session.authenticating._challenged:
        respond(peer, "ann")


def test_an_answer_that_is_on_its_way_while_something_else_is_asked_counts_still() -> None:
    brokers = Secured()
    brokers.words.lasts["ann"] = brokers.now() + 100
    peer = brokers.peer("ann")
    brokers.world.wait(55)
    assert peer.count(BaseCommand.AUTH_CHALLENGE) == 1
    brokers.words.changed()
    brokers.world.wait(3)
    assert peer.count(BaseCommand.AUTH_CHALLENGE) == 1
    brokers.words.lasts["ann"] = brokers.now() + 1_000
    respond(peer, "ann")
    brokers.world.wait(200)
    assert not peer.closed


def test_whom_a_proxy_speaks_for_is_known_to_have_been_let_in_before() -> None:
    brokers = Secured()
    peer = brokers.peer("ann", original="bob")
    brokers.words.changed()
    brokers.world.wait(1)
    assert not peer.closed
    assert brokers.words.claims[-1].original is not None
    assert [claim.original and claim.original.again for claim in brokers.words.claims] == [False, True]
    assert [claim.credentials[0].again for claim in brokers.words.claims] == [False, True]
