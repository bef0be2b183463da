"""Compaction by key in a simulated broker: what is kept, in bounded memory, and what a crash leaves."""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keyed import Message, Reader, append, batch, compact, lived, messages_of, newest, single
from lived import NAME, Lived
from world import World

from magnetar.broker.compaction import compacted_ledger, latest_messages
from magnetar.broker.compaction.compacted_ledger import CompactedLedger
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.errors import Conflict, ServiceNotReady
from magnetar.io.waiting import outcome
from magnetar.ledger.interface import LedgerError, Quorums
from magnetar.managed_ledger.position import LATEST
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import CompressionType, MessageMetadata

KEYS = st.one_of(st.none(), st.integers(0, 6).map(str))
MESSAGES = st.tuples(KEYS, st.sampled_from([b"", b"a", b"bb"]))
ENTRIES = st.one_of(
    MESSAGES.map(lambda m: ([m], single(*m))),
    st.lists(MESSAGES, min_size=1, max_size=5).map(lambda ms: (ms, batch(ms))),
    st.lists(MESSAGES, min_size=1, max_size=5).map(lambda ms: (ms, batch(ms, CompressionType.ZLIB))),
)
ROUNDS = st.lists(st.lists(ENTRIES, max_size=12), min_size=1, max_size=4)


@settings(max_examples=40, deadline=None)
@given(ROUNDS, st.sampled_from([0, 2_000, 1 << 30]))
def test_the_compacted_view_is_the_newest_of_each_key(
    rounds: list[list[tuple[list[Message], bytes]]], memory: int
) -> None:
    life = lived(memory=memory)
    topic = life.topic()
    compact(life, topic)
    known: list[Message] = []
    for entries in rounds:
        append(life, topic, [entry for _messages, entry in entries])
        known += [message for messages, _entry in entries for message in messages]
        before = newest(known)
        assert newest(Reader(life, topic).messages()) == before
        compact(life, topic)
        assert Reader(life, topic).messages() == list(before.items())


def test_messages_without_a_key_stay_where_they_are_to_be_retained() -> None:
    life = lived(retain_keyless=True)
    topic = life.topic()
    compact(life, topic)
    append(
        life, topic, [single(None, b"1"), batch([("k", b"2"), (None, b"3"), ("k", b"4")]), single("k", b"5")]
    )
    compact(life, topic)
    assert Reader(life, topic).messages() == [(None, b"1"), (None, b"3"), ("k", b"5")]


def test_an_encrypted_batch_is_kept_whole() -> None:
    life = lived()
    topic = life.topic()
    compact(life, topic)
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=3)
    metadata.encryption_keys.add(key="k", value=b"v")
    sealed = build_entry(metadata, b"nobody reads this")
    append(life, topic, [single("k", b"1"), sealed, single("k", b"2"), batch([("x", b"1")])[:-3]])
    for _ in range(2):
        compact(life, topic)
        entries = Reader(life, topic).read()
        assert entries[0] == sealed
        assert len(entries) == 3
        append(life, topic, [single("k", b"2")])


def test_a_batch_that_uncompresses_to_very_much_is_kept_whole_and_takes_no_memory() -> None:
    life = lived()
    topic = life.topic()
    compact(life, topic)
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=3)
    metadata.compression = CompressionType.ZLIB
    metadata.uncompressed_size = 128 << 20
    bomb = build_entry(metadata, zlib.compress(bytes(128 << 20)))
    append(life, topic, [single("k", b"1"), bomb, single("k", b"2"), bomb])
    tracemalloc.start()
    try:
        compact(life, topic)
        assert Reader(life, topic).read() == [bomb, single("k", b"2"), bomb]
        current = topic.compaction.current
        assert current is not None
        last = life.world.run(current.last())
        assert last is not None
        assert last[1] == 2
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def chunk(uuid: str, index: int, count: int, key: str) -> bytes:
    metadata = MessageMetadata(
        producer_name="p",
        sequence_id=1,
        publish_time=1,
        partition_key=key,
        uuid=uuid,
        num_chunks_from_msg=count,
        total_chunk_msg_size=10 * count,
        chunk_id=index,
    )
    return build_entry(metadata, b"%d" % index)


def test_a_message_in_chunks_stays_or_goes_with_all_of_them() -> None:
    life = lived()
    topic = life.topic()
    compact(life, topic)
    first = [chunk("a", index, 3, "k") for index in range(3)]
    second = [chunk("b", index, 3, "k") for index in range(3)]
    append(life, topic, [*first, *second[:2]])
    compact(life, topic)
    assert Reader(life, topic).read() == [*first, *second[:2]]
    append(life, topic, second[2:])
    compact(life, topic)
    assert Reader(life, topic).read() == second


def test_more_chunks_than_are_remembered_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latest_messages, "_MOST_CHUNKS", 5)
    life = lived()
    topic = life.topic()
    compact(life, topic)
    first = [chunk("a", index, 2, "k") for index in range(2)]
    endless = [chunk(f"e{number}", 0, 2, "k") for number in range(4)]
    second = [chunk("b", index, 2, "k") for index in range(2)]
    third = [single("k", b"3")]
    append(life, topic, [*first, *endless, *second, *third])
    compact(life, topic)
    assert Reader(life, topic).read() == [*endless, *second, *third]


@pytest.mark.parametrize(
    "ask",
    [
        CompactedLedger.entries,
        CompactedLedger.size,
        CompactedLedger.last,
        lambda ledger: ledger.first_published_at(0),
    ],
)
def test_who_asks_a_compacted_ledger_is_answered_though_it_is_replaced_meanwhile(
    ask: Callable[[CompactedLedger], Coroutine[Any, Any, Any]],
) -> None:
    def answer(*, replaced: bool) -> Any:
        life = lived()
        topic = life.topic()
        compact(life, topic)
        append(life, topic, [single(f"k{number}", b"1") for number in range(25)])
        compact(life, topic)
        ledger = topic.compaction.current
        assert ledger is not None
        loop = life.world.simulation.loop
        asked = loop.create_task(ask(ledger))
        if replaced:
            # After its first step, which waits for the ledger to be opened.
            loop.call_soon(ledger.replaced)
        return life.world.run(outcome(loop, asked))

    assert answer(replaced=True) == answer(replaced=False)


def test_who_reads_goes_on_when_another_compaction_replaces_what_is_read() -> None:
    life = lived()
    topic = life.topic()
    compact(life, topic)
    append(life, topic, [single(f"k{number}", b"1") for number in range(25)])
    compact(life, topic)
    reader = Reader(life, topic)
    found = [message for entry in reader.read(7) for message in messages_of(entry)]
    before = topic.compaction.current
    assert before is not None
    append(life, topic, [single("k1", b""), single("k20", b"2")])
    compact(life, topic)
    assert before.ledger_id in life.world.run(life.world.store.ledger_ids())
    found += reader.messages()
    assert newest(found) == newest(Reader(life, topic).messages())
    life.world.wait(1)
    assert before.ledger_id not in life.world.run(life.world.store.ledger_ids())


def test_a_crash_leaves_what_the_cursor_names() -> None:
    life = lived()
    topic = life.topic()
    compact(life, topic)
    append(life, topic, [single(f"k{number % 3}", b"%d" % number) for number in range(40)])
    compact(life, topic)
    current = topic.compaction.current
    assert current is not None
    other = World(life.world.crash())
    assert current.ledger_id in other.run(other.store.ledger_ids())
    ledger, _listener = other.open(NAME.path)
    assert ledger.cursors["__compaction"].describe_properties() == {"CompactedTopicLedger": current.ledger_id}


def test_a_ledger_that_was_not_named_yet_goes_after_a_crash() -> None:
    life = lived()
    topic = life.topic()
    compact(life, topic)
    append(life, topic, [single("k", b"1")])
    made = life.world.run(
        compacted_ledger.begin(life.world.store, Quorums(), life.world.simulation.io.loop, str(NAME), (0, 0))
    )
    other = World(life.world.crash())
    assert other.orphans
    assert made.ledger_id not in other.run(other.store.ledger_ids())


@pytest.mark.parametrize("ending", ["delete", "unsubscribe"])
def test_the_compacted_ledger_goes_with_its_cursor(ending: str) -> None:
    life = lived()
    topic = life.topic()
    compact(life, topic)
    append(life, topic, [single("k", b"1")])
    compact(life, topic)
    current = topic.compaction.current
    assert current is not None
    if ending == "delete":
        life.world.run(life.broker.topics.delete_topic(topic))
    else:
        life.world.run(topic.subscriptions.unsubscribe("__compaction"))
        assert topic.compaction.status.value == "NOT_RUN"
        assert topic.compaction.current is None
    life.world.wait(1)
    assert current.ledger_id not in life.world.run(life.world.store.ledger_ids())


def test_nobody_moves_its_cursor_but_compaction() -> None:
    life = lived()
    topic = life.topic()
    compact(life, topic)
    append(life, topic, [single("k", b"1")])
    subscription = topic.subscriptions["__compaction"]
    assert subscription.skip_to(LATEST) == 0
    assert subscription.backlog() == 1


def test_a_threshold_is_looked_at_now_and_then() -> None:
    life = Lived(EffectivePolicies(compaction_threshold=500), compaction_check_seconds=60)
    topic = life.topic()
    assert "__compaction" in topic.subscriptions
    append(life, topic, [single("k", b"1")])
    life.world.wait(70)
    assert topic.compaction.status.value == "NOT_RUN"
    append(life, topic, [single("k", b"%d" % number) for number in range(20)])
    life.world.wait(130)
    assert topic.compaction.status.value == "SUCCESS"
    assert Reader(life, topic).messages() == [("k", b"19")]


def test_one_at_a_time_and_none_while_the_topic_closes() -> None:
    life = lived()
    topic = life.topic()
    compact(life, topic)
    append(life, topic, [single("k", b"1")])
    topic.compaction.start()
    with pytest.raises(Conflict):
        topic.compaction.start()
    life.world.run(life.broker.topics.unload_topic(topic))
    assert topic.compaction.status.value == "ERROR"
    with pytest.raises(ServiceNotReady):
        topic.compaction.start()
    again = life.topic()
    compact(life, again)
    assert Reader(life, again).messages() == [("k", b"1")]


def test_it_is_compacted_on_where_its_cursor_could_not_be_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    life = lived()
    topic = life.topic()
    compact(life, topic)

    async def fails(_name: str) -> None:
        raise LedgerError("not now")

    with monkeypatch.context() as patched:
        patched.setattr(topic.managed_ledger.cursors, "delete", fails)
        with pytest.raises(LedgerError):
            life.world.run(topic.subscriptions.unsubscribe("__compaction"))
    append(life, topic, [single("k", b"1"), single("k", b"2")])
    compact(life, topic)
    assert Reader(life, topic).messages() == [("k", b"2")]


def test_a_cap_of_subscriptions_does_not_count_for_it() -> None:
    life = Lived(EffectivePolicies(max_subscriptions=1))
    topic = life.topic()
    life.subscribe(topic)
    compact(life, topic)
    assert topic.compaction.cursor is not None


def test_what_was_trimmed_before_it_was_read_comes_from_compaction() -> None:
    life = lived()
    topic = life.topic()
    compact(life, topic)
    append(life, topic, [single(f"k{number}", b"1") for number in range(30)])
    reader = Reader(life, topic)
    found = [message for entry in reader.read(5) for message in messages_of(entry)]
    compact(life, topic)
    assert len(topic.managed_ledger.ledgers) < 3
    append(life, topic, [single("k1", b"2")])
    found += reader.messages()
    assert newest(found) == newest(Reader(life, topic).messages())
    assert len(found) == 31
