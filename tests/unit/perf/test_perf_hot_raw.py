"""The load generator's inner loops, in both forms: what is made can be read, and what is wrong is counted."""

from __future__ import annotations

from array import array
from types import SimpleNamespace

import pytest
from codec_forms import forms_of
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.cli.perf.measure import percentile
from magnetar.protocol.hot_client_decode import MessageRun, ReceiptRun, read_messages, read_receipts
from magnetar.protocol.hot_codec import SendRun, encode_messages, encode_receipts, read_sends

MAX_FRAME = 1 << 24
_FORMS = forms_of("magnetar.cli.perf.hot_raw")
HEAD = b"\x0a\x03abc"
NOW = 1_700_000_000_000_000_000


@pytest.fixture(params=["interpreted", "compiled"], scope="module")
def hot(request: pytest.FixtureRequest) -> SimpleNamespace:
    module = _FORMS[request.param]
    if module is None:
        pytest.skip("the hot modules are not compiled: python -m magnetar.hot build")
    return SimpleNamespace(**vars(module))


def open_window(hot: SimpleNamespace) -> object:
    window = hot.Window()
    window.first = 0
    return window


@pytest.mark.parametrize("batch", [1, 7, 1000])
@pytest.mark.parametrize("size", [0, 10, 24, 100])
@pytest.mark.parametrize("first", [0, 120, 16380, 2**21 - 3])
def test_what_is_sent_comes_back(hot: SimpleNamespace, batch: int, size: int, first: int) -> None:
    window = open_window(hot)
    sender = hot.RawSender(5, 3, HEAD, b"x" * size, batch, 100, window)
    sender.next_sequence = sender.next_receipt = first
    order = hot.OrderCheck(4)
    order.expected[3] = first
    receiver = hot.RawReceiver(order, window)
    sends, messages, receipts = SendRun(), MessageRun(), ReceiptRun()
    for round_ in range(3):
        frames = bytes(sender.make(20, NOW + round_, 1000, NOW // 1_000_000))
        position = 0
        while position < len(frames):
            position = read_sends(frames, position, len(frames), MAX_FRAME, sends, True, 1000)
            assert sends.error == 0
            assert sends.producer_id == 5
            out = bytes(encode_messages(1, 2, 3, frames, sends.starts, sends.ends, 0, sends.count))
            assert read_messages(out, 0, len(out), MAX_FRAME, messages, True) == len(out)
            receiver.take(
                out, messages.starts, messages.ends, messages.batch_sizes, messages.count, NOW + 10**9
            )
            told = bytes(
                encode_receipts(5, 2, 3, sends.sequence_ids, sends.highest_sequence_ids, 0, sends.count)
            )
            assert read_receipts(told, 0, len(told), MAX_FRAME, receipts) == len(told)
            sender.receipts(receipts.sequence_ids, receipts.count, NOW + 10**9)
    assert (receiver.messages, receiver.size) == (60, 60 * size)
    assert (sender.next_sequence, sender.next_receipt, sender.errors) == (first + 60, first + 60, 0)
    assert (receiver.foreign == 0) == (size >= 24)
    if size >= 24:
        assert order.expected[3] == first + 60
    assert (order.duplicates, order.disorder, order.missing) == (0, 0, set())
    assert sender.latencies.total == receiver.latencies.total == 60


def test_receipts_that_do_not_fit(hot: SimpleNamespace) -> None:
    sender = hot.RawSender(1, 0, HEAD, b"x" * 30, 1, 10, open_window(hot))
    sender.make(3, 0, 0, 1)
    assert sender.receipts(array("q", [0, 2, 1, 2, 3]), 5, 1) == 3
    assert sender.errors == 2


def test_lost_doubled_and_overtaken(hot: SimpleNamespace) -> None:
    order = hot.OrderCheck(2)
    receiver = hot.RawReceiver(order, hot.Window())

    def content(producer: int, sequence: int) -> bytes:
        return b"MgPf" + producer.to_bytes(4, "big") + sequence.to_bytes(8, "big") + bytes(8)

    for producer, sequence in [(0, 0), (0, 3), (0, 2), (1, 0), (0, 2), (1, 0), (1, 1)]:
        receiver.take_content(content(producer, sequence), 0, 0)
    assert order.missing == {(0, 1)}
    assert (order.disorder, order.duplicates) == (1, 2)
    receiver.take_content(content(9, 0), 0, 0)
    assert order.duplicates == 3
    receiver.take_content(b"somebody else's message, long enough", 0, 0)
    assert receiver.foreign == 1


def test_only_what_was_due_in_the_window_is_measured(hot: SimpleNamespace) -> None:
    window = hot.Window()
    window.first, window.last = 100, 200
    sender = hot.RawSender(1, 0, HEAD, b"x", 1, 10, window)
    sender.make(4, 50, 50, 1)
    sender.receipts(array("q", [0, 1, 2, 3]), 4, 1000)
    assert sender.latencies.total == 2


@settings(max_examples=200, deadline=None)
@given(values=st.lists(st.integers(0, 2**46), min_size=1, max_size=50))
def test_percentiles_are_within_a_hundredth(hot: SimpleNamespace, values: list[int]) -> None:
    histogram = hot.Histogram()
    for value in values:
        histogram.record(value)
    assert (histogram.total, histogram.maximum) == (len(values), max(values))
    ordered = sorted(values)
    for fraction in (0.5, 0.9, 1.0):
        exact = ordered[max(1, round(len(values) * fraction)) - 1]
        found = percentile(histogram.counts, histogram.total, fraction)
        assert found == pytest.approx(exact, rel=0.01, abs=1)


def test_values_beyond_the_range(hot: SimpleNamespace) -> None:
    histogram = hot.Histogram()
    histogram.record(-5)
    histogram.record(2**62, 3)
    assert histogram.total == 4
    assert histogram.counts[0] == 1
