"""The stations of a connection, and what ends with it."""

from __future__ import annotations

import pytest

from magnetar.broker.connections.session import Session, SessionState
from magnetar.security.authentication import ANONYMOUS, Principal

ALICE = Principal("alice", "test")


class Task:
    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


def test_the_usual_way() -> None:
    session = Session()
    assert (session.state, session.principal, session.ended) == (SessionState.NEW, ANONYMOUS, False)
    session.connecting()
    assert not session.ended
    session.open(ALICE)
    assert session.principal is ALICE
    session.closing()
    assert session.ended
    session.closed()
    assert (session.state, session.ended) == (SessionState.CLOSED, True)


def test_nothing_is_skipped_and_nothing_comes_back() -> None:
    session = Session()
    with pytest.raises(RuntimeError, match="cannot change from NEW to OPEN"):
        session.open(ALICE)
    session.connecting()
    with pytest.raises(RuntimeError):
        session.connecting()
    session.closed()
    assert session.principal is ANONYMOUS
    for step in (session.connecting, session.closing, session.closed, lambda: session.open(ALICE)):
        with pytest.raises(RuntimeError):
            step()


def test_whoever_asks_who_the_client_is_stops_when_that_is_gone() -> None:
    for end in (Session.closing, Session.closed):
        session, task = Session(), Task()
        session.connecting()
        session.handshake = task
        end(session)
        assert task.cancelled


def test_ids_of_closed_producers_are_remembered_for_a_while() -> None:
    session = Session()
    for number in range(1500):
        session.remember_closed(number)
    assert session.was_closed(1499)
    assert session.was_closed(500)
    assert not session.was_closed(499)
