"""The process that looks for keys: kept for a while, replaced when it fails, and never believed blindly."""

from __future__ import annotations

import errno
from array import array
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keyed import Reader, append, compact, lived, newest, single
from lived import Lived
from simulated_io import SimulatedDisk, SimulatedProcess

from magnetar.broker.compaction import questions
from magnetar.broker.compaction.latest_messages import Copied, Entries
from magnetar.broker.compaction.process import service
from magnetar.broker.compaction.questions import Beginning, EntryIds, Nonsense, QuestionKind
from magnetar.broker.topics.persistent import Topic
from magnetar.protocol.hot_compaction import put_raw

IDS = st.integers(0, 2**62)


def current(life: Lived) -> SimulatedProcess:
    return life.world.simulation.processes[-1]


def failed(life: Lived, topic: Topic) -> str:
    """Compacts, and says why that failed."""
    topic.compaction.start()
    for _ in range(10_000):
        if not topic.compaction.running:
            break
        life.world.wait(0.05)
    assert topic.compaction.status.value == "ERROR"
    life.world.wait(0.5)
    return topic.compaction.last_error


def filled(**options: int) -> tuple[Lived, Topic]:
    """A topic that was compacted, and has more since."""
    life = lived(**options)
    topic = life.topic()
    for value in (b"1", b"2"):
        compact(life, topic)
        append(life, topic, [single(f"k{number % 7}", value) for number in range(20)])
    return life, topic


def newest_are_read(life: Lived, topic: Topic) -> None:
    assert newest(Reader(life, topic).messages()) == {f"k{number}": b"2" for number in range(7)}


def ledgers(life: Lived) -> set[int]:
    return set(life.world.run(life.world.store.ledger_ids()))


def test_it_is_kept_for_the_next_and_ends_when_there_is_none() -> None:
    life, topic = filled()
    compact(life, topic)
    process = current(life)
    assert life.world.simulation.processes == [process]
    life.world.wait(5)
    assert not process.ended
    life.world.wait(10)
    assert process.ended
    append(life, topic, [single("k1", b"2")])
    compact(life, topic)
    assert len(life.world.simulation.processes) == 2
    newest_are_read(life, topic)


def test_one_that_is_needed_again_is_not_ended_meanwhile() -> None:
    life, topic = filled()
    for _ in range(4):
        life.world.wait(7)
        append(life, topic, [single("k1", b"2")])
        compact(life, topic)
    # The first compaction found nothing to do; the three after the first of these used the same process.
    assert [each.ended for each in life.world.simulation.processes] == [False]


def test_it_ends_with_the_broker() -> None:
    life, topic = filled()
    compact(life, topic)
    life.world.run(life.broker.stop())
    assert current(life).ended


class Meddler:
    """Counts answers, and does something to one of them."""

    def __init__(self, life: Lived, number: int, meddle: Callable[[bytes], bytes]) -> None:
        self.left = number
        self._meddle = meddle
        current(life).distort = self

    def __call__(self, answer: bytes) -> bytes:
        self.left -= 1
        return self._meddle(answer) if self.left == -1 else answer


MEDDLES: dict[str, Callable[[bytes], bytes]] = {
    "longer": lambda answer: answer + b"\0",
    "shorter": lambda answer: answer[:-1] or b"\7",
    "wild": lambda answer: b"\xff" * len(answer) or b"\7",
}


ANSWERS = 8
"""Of a compaction of what is there: begin, number (thrice), parts, settle, staying, copy; then remove."""


def test_so_many_answers_are_needed() -> None:
    life, topic = filled()
    meddler = Meddler(life, 0, bytes)
    compact(life, topic)
    assert meddler.left == -ANSWERS - 1


@pytest.mark.parametrize("number", range(ANSWERS))
@pytest.mark.parametrize("meddle", list(MEDDLES))
def test_nonsense_fails_one_compaction_and_nothing_else(meddle: str, number: int) -> None:
    life, topic = filled()
    before = ledgers(life)
    meddler = Meddler(life, number, MEDDLES[meddle])
    assert failed(life, topic).startswith("the compaction process ")
    assert meddler.left < 0
    assert current(life).ended
    assert ledgers(life) == before
    newest_are_read(life, topic)
    compact(life, topic)
    newest_are_read(life, topic)


@pytest.mark.parametrize("number", range(ANSWERS - 1))
def test_one_that_dies_fails_one_compaction_and_nothing_else(number: int) -> None:
    life, topic = filled()
    before = ledgers(life)

    def die(answer: bytes) -> bytes:
        current(life).die()
        return answer

    Meddler(life, number, die)
    assert failed(life, topic) == "the compaction process was ended by SIGKILL"
    assert ledgers(life) == before
    newest_are_read(life, topic)
    compact(life, topic)
    assert len(life.world.simulation.processes) == 2
    newest_are_read(life, topic)


@pytest.mark.parametrize("number", [ANSWERS - 1, ANSWERS])
def test_one_that_dies_when_all_is_copied_harms_nobody(number: int) -> None:
    life, topic = filled()

    def die(answer: bytes) -> bytes:
        current(life).die()
        return answer

    Meddler(life, number, die)
    compact(life, topic)
    newest_are_read(life, topic)


def test_one_that_does_not_answer_is_given_up() -> None:
    life, topic = filled()
    current(life).worker.longest_delay = 1e6
    assert failed(life, topic) == "the compaction process did not answer within 300 s"
    assert current(life).ended
    compact(life, topic)
    newest_are_read(life, topic)


def test_a_topic_is_unloaded_though_the_process_does_not_answer() -> None:
    life, topic = filled()
    process = current(life)
    process.worker.longest_delay = 1e6
    topic.compaction.start()
    life.world.wait(1)
    began = life.clock.monotonic()
    life.world.run(life.broker.topics.unload_topic(topic))
    assert life.clock.monotonic() - began < 20
    assert process.ended
    again = life.topic()
    compact(life, again)
    newest_are_read(life, again)


def test_a_disk_without_room_for_keys_fails_the_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    life, topic = filled(memory=0)

    def full(_self: SimulatedDisk, _path: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(SimulatedDisk, "make_directory", full)
        error = failed(life, topic)
    assert error == "the compaction process failed: OSError: [Errno 28] No space left on device"
    compact(life, topic)
    newest_are_read(life, topic)


def test_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    life, topic = filled()
    life.world.wait(20)
    io = life.world.simulation.io

    def none(_name: str, _service: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    with monkeypatch.context() as patched:
        # It is frozen for everybody but a test.
        patched.setitem(io.__dict__, "start_process", none)
        assert "Resource temporarily unavailable" in failed(life, topic)
    compact(life, topic)
    newest_are_read(life, topic)


def test_what_a_process_left_on_the_disk_goes_with_the_next_compaction() -> None:
    disk = SimulatedDisk(1)
    disk.make_directory("compaction")
    disk.open("compaction/keys-3", create=True).close()
    answer = service(disk)
    answer(b"".join(questions.begin(Beginning(False, 1 << 20, 1 << 20))))
    assert list(disk.names("compaction")) == []


def test_a_question_out_of_turn_is_refused() -> None:
    answer = service(SimulatedDisk(1))
    with pytest.raises(Exception, match="PARTS was received, but no compaction is in progress"):
        answer(b"".join(questions.plain(QuestionKind.PARTS)))


@st.composite
def entries_of(draw: st.DrawFn) -> tuple[list[bytes], Entries]:
    """Entries with other bytes before, between and behind them."""
    datas = draw(st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=8))
    buffer, starts, ends = draw(st.binary(max_size=9)), array("q"), array("q")
    for data in datas:
        buffer += draw(st.binary(max_size=5))
        starts.append(len(buffer))
        buffer += data
        ends.append(len(buffer))
    extra = array("q", draw(st.lists(IDS, max_size=3)))
    return datas, Entries(buffer + draw(st.binary(max_size=9)), starts + extra, ends + extra, len(datas))


def taken(entries: Entries) -> list[bytes]:
    return [entries.buffer[entries.starts[i] : entries.ends[i]] for i in range(entries.count)]


@given(entries_of())
def test_entries_arrive_as_they_were_sent(case: tuple[list[bytes], Entries]) -> None:
    datas, entries = case
    assert taken(questions.opened_number(b"".join(questions.number(entries)))) == datas


@given(entries_of(), st.booleans(), IDS, IDS, st.integers(-1, 1 << 20), st.integers(-1, 1 << 40))
def test_entries_to_copy_arrive_with_their_places(
    case: tuple[list[bytes], Entries],
    consecutive: bool,
    ledger_id: int,
    first: int,
    partition: int,
    number: int,
) -> None:
    datas, entries = case
    if consecutive:
        places = EntryIds.following(ledger_id, first)
    else:
        places = EntryIds(array("q", range(entries.count)), array("q", range(first, first + entries.count)))
    asked = b"".join(questions.copy(entries, places, partition, number))
    opened, at, *rest = questions.opened_copy(asked)
    assert taken(opened) == datas
    assert at.of_each(opened.count) == places.of_each(entries.count)
    assert rest == [partition, number]


@given(st.lists(st.tuples(IDS, IDS, st.binary(min_size=1, max_size=30)), max_size=5), IDS)
def test_copied_entries_arrive_as_they_were_made(made: list[tuple[int, int, bytes]], read_bytes: int) -> None:
    buffer, ends = bytearray(), array("q")
    for ledger_id, entry_id, data in made:
        put_raw(buffer, ends, ledger_id, entry_id, -1, data)
    answer = b"".join(questions.copied(Copied(buffer, ends, read_bytes)))
    opened = questions.opened_copied(answer, len(made))
    assert opened.buffer[opened.start :] == buffer
    assert [end - opened.start for end in opened.ends] == list(ends)
    assert opened.read_bytes == read_bytes
    if made:
        with pytest.raises(Nonsense):
            questions.opened_copied(answer, len(made) - 1)


@given(st.binary(max_size=200), st.integers(0, 5))
def test_no_bytes_are_taken_for_entries_that_are_none(answer: bytes, at_most: int) -> None:
    try:
        opened = questions.opened_copied(answer, at_most)
    except Nonsense:
        return
    assert len(opened.ends) <= at_most
    assert (opened.ends[-1] if opened.ends else opened.start) == len(answer)
