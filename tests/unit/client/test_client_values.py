"""Message ids, service URLs, places, delays, exceptions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.client.exceptions import (
    InvalidMessage,
    InvalidUrl,
    ProducerFenced,
    PulsarException,
    Result,
    ServiceUnitNotReady,
    UnknownError,
    exception_of,
    is_fatal,
    is_retryable,
    server_exception,
)
from magnetar.client.message_id import MessageId
from magnetar.client.receiving import StartPosition
from magnetar.client.security import Address, parse_service_url
from magnetar.client.timing import Backoff
from magnetar.errors import ServerErrorCode

IDS = st.builds(
    MessageId,
    st.integers(-1, 100),
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 1000),
    st.integers(0, 1000),
)


@given(IDS)
def test_ids_survive_being_written(message_id: MessageId) -> None:
    again = MessageId.deserialize(message_id.serialize())
    assert again == message_id
    assert hash(again) == hash(message_id)
    assert again.batch_size() == message_id.batch_size()


@given(IDS, IDS)
def test_ids_are_ordered_by_place(first: MessageId, second: MessageId) -> None:
    assert (first < second) + (first == second) + (first > second) == 1
    if first.position != second.position:
        assert (first < second) == (first.position < second.position)


def test_the_ends_and_what_is_no_id() -> None:
    assert (MessageId.earliest.ledger_id(), MessageId.earliest.entry_id()) == (-1, -1)
    assert MessageId.latest.ledger_id() == MessageId.latest.entry_id() == 2**63 - 1
    assert str(MessageId(1, 2, 3, 4)) == "(2,3,1,4)"
    assert MessageId() != "x"
    for wrong in (b"\xff", b""):
        with pytest.raises(InvalidMessage):
            MessageId.deserialize(wrong)


def test_service_urls() -> None:
    assert parse_service_url("pulsar://a") == (Address("a", 6650),)
    assert parse_service_url("pulsar://a:1,b:2/") == (Address("a", 1), Address("b", 2))
    assert parse_service_url("pulsar://[::1]:1,[::2]") == (Address("::1", 1), Address("::2", 6650))
    assert str(Address("::1", 1)) == "[::1]:1"
    for wrong in ("a", "pulsar://", "pulsar://a,", "pulsar://a:", "pulsar://[::1", "pulsar://a:0"):
        if wrong == "pulsar://a:":
            continue
        with pytest.raises(InvalidUrl):
            parse_service_url(wrong)
    assert parse_service_url("pulsar+ssl://a,b:1") == (Address("a", 6651), Address("b", 1))


@pytest.mark.parametrize(
    ("start", "inclusive", "skipped", "delivered"),
    [
        (MessageId(-1, 1, 5), False, [(1, 4, -1), (1, 5, -1), (0, 9, -1)], [(1, 6, -1), (2, 0, -1)]),
        (MessageId(-1, 1, 5), True, [(1, 4, -1), (0, 9, 3)], [(1, 5, -1), (1, 6, -1)]),
        (MessageId(-1, 1, 5, 2, 5), False, [(1, 5, 0), (1, 5, 2)], [(1, 5, 3), (1, 6, 0)]),
        (MessageId(-1, 1, 5, 2, 5), True, [(1, 5, 0), (1, 5, 1)], [(1, 5, 2), (1, 6, 0)]),
        (MessageId(-1, 1, 5), False, [(1, 5, 0), (1, 5, 4)], [(1, 6, 0)]),
        (MessageId.earliest, False, [], [(0, 0, -1)]),
        (MessageId.latest, False, [], [(0, 0, -1)]),
        (None, False, [], [(0, 0, -1)]),
    ],
)
def test_places(
    start: MessageId | None,
    inclusive: bool,
    skipped: list[tuple[int, int, int]],
    delivered: list[tuple[int, int, int]],
) -> None:
    place = StartPosition(start, inclusive)
    for ledger, entry, index in skipped:
        assert place.skips(MessageId(-1, ledger, entry, index))
        assert place.is_before(MessageId(-1, ledger, entry, index)) is False
    for ledger, entry, index in delivered:
        assert place.is_before(MessageId(-1, ledger, entry, index)) in (True, None)
        assert not place.skips(MessageId(-1, ledger, entry, index))


class Fractions:
    """Randomness that says what it is told."""

    def __init__(self, fraction: float) -> None:
        self._fraction = fraction

    def below(self, bound: int) -> int:
        return 0

    def fraction(self) -> float:
        return self._fraction

    def token(self, length: int) -> bytes:
        return bytes(length)


def test_delays_double_up_to_a_bound_and_begin_anew() -> None:
    backoff = Backoff(Fractions(0.0), 1, 5)
    assert [backoff.next() for _ in range(5)] == [1, 2, 4, 5, 5]
    backoff.reset()
    assert backoff.next() == 1
    assert Backoff(Fractions(0.999), 1, 5).next() == pytest.approx(0.8, abs=0.001)


def test_every_error_of_a_broker_has_an_exception() -> None:
    kinds = {type(server_exception(code, "x")) for code in ServerErrorCode}
    assert len(kinds) == len(ServerErrorCode)
    assert isinstance(server_exception(999, "x"), UnknownError)
    assert isinstance(server_exception(6, "x"), ServiceUnitNotReady)
    for result in Result:
        if result is not Result.Ok:
            error = exception_of(result, "text")
            assert (error.error(), str(error)) == (result, "text")
            assert isinstance(error, PulsarException)


def test_what_is_worth_another_attempt() -> None:
    assert is_retryable(ServiceUnitNotReady("x"))
    assert not is_retryable(ProducerFenced("x"))
    assert is_fatal(ProducerFenced("x"))
    assert not is_fatal(ServiceUnitNotReady("x"))
    assert is_fatal(ValueError("a defect"))
