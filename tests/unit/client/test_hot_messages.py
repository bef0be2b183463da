"""Messages, entries and acknowledgements that are handled together, in both forms of the hot module."""

from __future__ import annotations

from collections import deque
from types import ModuleType
from typing import Any

import pytest
from codec_forms import interpreted
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_io.loop import SimulatedLoop

from magnetar.client import hot_messages
from magnetar.client.acknowledging import Acknowledgements
from magnetar.client.hot_messages import runs_of
from magnetar.client.message import RawEntry, meant_by
from magnetar.client.message_id import MessageId
from magnetar.client.options import ConsumerOptions
from magnetar.protocol.hot_client_decode import MessageRun, plain_payload
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata

FORMS = {"this process": hot_messages, "interpreted": interpreted("magnetar.client.hot_messages")}


@pytest.fixture(params=FORMS)
def hot(request: pytest.FixtureRequest) -> ModuleType:
    return FORMS[request.param]


def classes(hot: Any) -> tuple[type, type, type]:
    """Returns classes of ids, messages and entries without fields of their own."""

    def made(base: type) -> type:
        return type(f"Own{base.__name__}", (base,), {"__slots__": ()})

    return made(hot.PlainId), made(hot.PlainMessage), made(hot.PlainEntry)


def id_of(kind: type, ledger_id: int, entry_id: int, index: int = -1, size: int = 0) -> Any:
    made: Any = kind.__new__(kind)
    made._partition, made._ledger_id, made._entry_id = -1, ledger_id, entry_id
    made._batch_index, made._batch_size = index, size
    return made


def message_of(hot: Any, *numbers: int) -> Any:
    _, messages, _ = classes(hot)
    return id_of(messages, *numbers)


def test_runs_of_what_is_acknowledged(hot: Any) -> None:
    ids, _, _ = classes(hot)
    taken: deque[Any] = deque(
        [
            *(message_of(hot, 1, 5, index, 4) for index in range(4)),
            message_of(hot, 1, 6, 0, 4),
            message_of(hot, 1, 6, 2, 4),
            message_of(hot, 1, 7),
            id_of(ids, 1, 8),
            message_of(hot, 1, 9),
            message_of(hot, 2, 10),
            message_of(hot, 2, 10),
            message_of(hot, 2, 11, 0, 2),
            message_of(hot, 2, 12, 1, 2),
        ]
    )
    assert hot.runs_of(taken, lambda each: each) == [
        (1, 5, 0, 3, 4),
        (1, 6, 0, 0, 4),
        (1, 6, 2, 2, 4),
        (1, 7, -1, 9, 0),
        (2, 10, -1, 10, 0),
        (2, 10, -1, 10, 0),
        (2, 11, 0, 0, 2),
        (2, 12, 1, 1, 2),
    ]
    assert not taken
    assert hot.runs_of(taken, lambda each: each) == []


IDS = st.tuples(st.integers(1, 2), st.integers(0, 3), st.integers(-1, 3), st.just(4)).map(
    lambda numbers: MessageId(-1, *numbers[:3], 0 if numbers[2] < 0 else 4)
)


@given(ids=st.lists(IDS, max_size=60), group=st.integers(1, 50), by_index=st.booleans())
@settings(deadline=None)
def test_runs_acknowledge_what_single_messages_do(ids: list[MessageId], group: int, by_index: bool) -> None:
    def made() -> Acknowledgements:
        options = ConsumerOptions(ack_group_size=group + 60, batch_index_ack_enabled=by_index)
        return Acknowledgements(SimulatedLoop(), 1, lambda: None, options, timeout=1)

    one_by_one, together = made(), made()
    for each in ids:
        one_by_one.individual(each)
    together.runs(runs_of(deque(ids), meant_by))
    for name in ("_ledgers", "_entries", "_remaining", "_partial", "sent"):
        assert getattr(together, name) == getattr(one_by_one, name)


def test_a_message_makes_its_id_once() -> None:
    buffer = build_entry(MessageMetadata(producer_name="p", sequence_id=1, publish_time=1), b"content")
    made = RawEntry(5, 6, 2, 0, 0, buffer).plain_message("t")
    assert made is not None
    assert made.message_id() == MessageId(2, 5, 6)
    batch = RawEntry(5, 7, 2, 0, 0, buffer).with_entry(RawEntry(5, 7, 2, 0, 0, buffer).entry)
    [message] = batch.messages("t")
    found = message.message_id()
    assert found == MessageId(2, 5, 7)
    assert message.message_id() is found


def test_many_entries_are_acknowledged_in_groups() -> None:
    sent: list[int] = []

    class Groups(Acknowledgements):
        def flush(self) -> None:
            sent.append(len(self._entries))
            super().flush()

    acks = Groups(SimulatedLoop(), 1, lambda: None, ConsumerOptions(ack_group_size=10), timeout=1)
    acks.runs([(1, 0, -1, 34, 0)])
    assert sent == [10, 10, 10]
    assert (acks.sent, len(acks._entries)) == (35, 5)


def entries(hot: Any, *contents: tuple[bytes, int]) -> deque[Any]:
    """Returns entries with contents, in batches of the given sizes; 0: not a batch."""
    run, buffer = MessageRun(), b""
    for number, (content, size) in enumerate(contents):
        metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1)
        if size:
            metadata.num_messages_in_batch = size
        data = build_entry(metadata, content)
        run.ledger_ids[number], run.entry_ids[number], run.redeliveries[number] = 7, number, number
        run.batch_sizes[number] = size
        run.starts[number], run.ends[number] = len(buffer), len(buffer) + len(data)
        buffer += data
    run.count = len(contents)
    _, _, kind = classes(hot)
    return deque(hot.entries_of(kind, buffer, run, 3))


def test_entries_that_are_one_message(hot: Any) -> None:
    _, messages, _ = classes(hot)
    waiting = entries(hot, (b"a", 0), (b"", 0), (b"c", 0), (b"batch", 2), (b"e", 0))
    assert [(each.ledger_id, each.entry_id, each.partition) for each in waiting] == [
        (7, number, 3) for number in range(5)
    ]
    sizes = [len(each.data) for each in waiting]

    def opened(limit: int) -> tuple[list[bytes], int]:
        found, size = hot.plain_messages_of(messages, "t", waiting, limit, plain_payload)
        assert all(each.topic_name() == "t" and each._batch_index == -1 for each in found)
        assert all(each.redelivery_count() == each._entry_id and each._id is None for each in found)
        return [each.data() for each in found], size

    assert opened(2) == ([b"a", b""], sum(sizes[:2]))
    assert opened(9) == ([b"c"], sizes[2])
    assert opened(9) == ([], 0), "a batch is opened elsewhere"
    waiting.popleft()
    waiting[0]._parsed = object()
    assert opened(9) == ([], 0), "an entry that was decrypted is opened elsewhere"
    assert len(waiting) == 1
