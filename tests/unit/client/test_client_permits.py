"""How many messages a consumer asks for ahead."""

from __future__ import annotations

from magnetar.client.receiving import Permits


def test_half_a_queue_is_given_back_at_once() -> None:
    given: list[int] = []
    permits = Permits(10, given.append)
    permits.attached(listened=False, waited=False)
    for _ in range(4):
        permits.use(1)
    assert given == [10]
    permits.use(3)
    assert given == [10, 7]


def test_a_new_connection_gives_a_whole_queue_whatever_was_taken_before() -> None:
    given: list[int] = []
    permits = Permits(10, given.append)
    permits.use(4)
    permits.attached(listened=True, waited=True)
    permits.use(1)
    assert given == [10]


def test_a_wider_queue_gives_the_difference_and_a_narrower_one_nothing() -> None:
    given: list[int] = []
    permits = Permits(10, given.append)
    permits.widen(5)
    permits.widen(25)
    permits.attached(listened=False, waited=False)
    permits.use(11)
    permits.use(1)
    assert given == [15, 25, 12]


def test_without_a_queue_one_is_asked_for_until_it_comes() -> None:
    given: list[int] = []
    permits = Permits(0, given.append)
    permits.attached(listened=False, waited=False)
    permits.use(5)
    permits.ask_for_one()
    permits.ask_for_one()
    assert given == [1]
    permits.one_is_asked_for = False
    permits.ask_for_one()
    assert given == [1, 1]


def test_without_a_queue_a_new_connection_is_asked_for_one_only_when_somebody_wants_it() -> None:
    given: list[int] = []
    permits = Permits(0, given.append)
    permits.attached(listened=True, waited=False)
    assert given == []
    permits.attached(listened=False, waited=True)
    assert given == [1]
    permits.ask_for_one()
    assert given == [1]
    permits.attached(listened=True, waited=False)
    assert given == [1, 1]
    permits.attached(listened=False, waited=False)
    permits.ask_for_one()
    assert given == [1, 1, 1]
