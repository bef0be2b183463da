"""Where entries come from, compiled and not: as protobuf has it, and the same on any bytes."""

from __future__ import annotations

from array import array
from types import ModuleType

import pytest
from codec_forms import forms_of
from hypothesis import given
from hypothesis import strategies as st

from magnetar.naming.replicators import SOURCE_POSITION
from magnetar.protocol.metadata import build_entry, with_broker_metadata
from magnetar.protocol.pulsar_api_pb2 import BrokerEntryMetadata, MessageMetadata

FORMS = forms_of("magnetar.protocol.hot_origin")
TEXTS = st.text(max_size=40)


@pytest.fixture(scope="module", params=list(FORMS))
def hot(request: pytest.FixtureRequest) -> ModuleType:
    found = FORMS[request.param]
    if found is None:
        pytest.skip("not compiled")
    return found


def run_of(entries: list[bytes]) -> tuple[bytes, array[int], array[int]]:
    """With other bytes between them."""
    buffer, starts, ends = b"", array("q"), array("q")
    for entry in entries:
        buffer += b"\x0e\x01"
        starts.append(len(buffer))
        buffer += entry
        ends.append(len(buffer))
    return buffer, starts, ends


def read(hot: ModuleType, entries: list[bytes]) -> tuple[int, list[tuple[int, int, int]]]:
    buffer, starts, ends = run_of(entries)
    count = len(entries)
    ledgers, numbers = array("q", bytes(8 * count)), array("q", bytes(8 * count))
    marks = array("i", bytes(4 * count))
    found = hot.read_origins(buffer, starts, ends, 0, count, ledgers, numbers, marks)
    return found, list(zip(ledgers, numbers, marks, strict=True))


def metadata(position: str | None = None, **fields: object) -> MessageMetadata:
    made = MessageMetadata(producer_name="alpha", sequence_id=300, publish_time=1 << 40, **fields)  # type: ignore[arg-type]
    if position is not None:
        made.properties.add(key=SOURCE_POSITION, value=position)
    return made


@st.composite
def messages(draw: st.DrawFn) -> tuple[MessageMetadata, tuple[int, int] | None]:
    made = metadata()
    for key, value in draw(st.lists(st.tuples(TEXTS, TEXTS), max_size=3)):
        made.properties.add(key=key, value=value)
    position = draw(st.none() | st.tuples(st.integers(0, 10**18 - 1), st.integers(0, 10**18 - 1)))
    if position is not None:
        made.properties.add(key=SOURCE_POSITION, value=f"{position[0]}:{position[1]}")
    if draw(st.booleans()):
        made.replicated_from = draw(TEXTS)
    if draw(st.booleans()):
        made.marker_type = draw(st.integers(0, 20))
    if draw(st.booleans()):
        made.encryption_keys.add(key=draw(TEXTS), value=draw(st.binary(max_size=300)))
    if draw(st.booleans()):
        made.replicate_to.append("r-b")
        made.event_time = 5
        made.txnid_least_bits = 7
        made.chunk_id = 3
    return made, position


@given(st.lists(messages(), min_size=1, max_size=5), st.booleans())
def test_positions_and_marks_are_those_of_protobuf(
    hot: ModuleType, made: list[tuple[MessageMetadata, tuple[int, int] | None]], marked: bool
) -> None:
    entries = [build_entry(each, b"payload") for each, _ in made]
    if marked:
        entries = [with_broker_metadata(BrokerEntryMetadata(index=5), each) for each in entries]
    some, found = read(hot, entries)
    wanted = []
    for each, position in made:
        marks = hot.POSITION if position is not None else 0
        marks |= hot.REPLICATED if each.HasField("replicated_from") else 0
        marks |= hot.MARKER if each.HasField("marker_type") else 0
        marks |= hot.ENCRYPTED if each.encryption_keys else 0
        wanted.append((*(position or (-1, -1)), marks))
    assert found == wanted
    have, lack = 0, 0
    for _ledger, _entry, marks in wanted:
        have |= marks
        lack |= marks ^ 15
    assert some == have | lack << hot.LACKING
    buffer, starts, ends = run_of(entries)
    foreign = [
        n
        for n, (each, _) in enumerate(made)
        if each.HasField("replicated_from") or each.HasField("marker_type")
    ]
    assert hot.first_foreign(buffer, starts, ends, len(entries)) == (foreign[0] if foreign else -1)


@pytest.mark.parametrize(
    "position",
    [
        "",
        ":",
        "7",
        "7:",
        ":1",
        "7:1:2",
        "-1:0",
        "7:-1",
        "+7:1",
        " 7:1",
        "7:1 ",
        "7.1",
        "a:b",
        "7:" + "9" * 19,
        "٣:1",
    ],
)
def test_what_is_no_position(hot: ModuleType, position: str) -> None:
    _some, found = read(hot, [build_entry(metadata(position), b"")])
    assert found == [(-1, -1, 0)]


def test_the_last_position_counts(hot: ModuleType) -> None:
    """A client may publish the properties of a message that it consumed."""
    made = metadata("1:1")
    made.properties.add(key=SOURCE_POSITION, value="7:2")
    other = metadata("1:1")
    other.properties.add(key=SOURCE_POSITION, value="damaged")
    _some, found = read(hot, [build_entry(made, b""), build_entry(other, b"")])
    assert found == [(7, 2, hot.POSITION), (-1, -1, 0)]


@given(st.lists(st.binary(max_size=80), min_size=1, max_size=3), st.binary(max_size=60))
def test_both_forms_agree_on_whatever_bytes(entries: list[bytes], raw: bytes) -> None:
    """Nothing raises, either."""
    framed = len(raw).to_bytes(4, "big") + raw
    compiled = FORMS["compiled"]
    answers = [read(form, [*entries, framed]) for form in FORMS.values() if form is not None]
    assert answers[0] == answers[-1]
    buffer, starts, ends = run_of([*entries, framed])
    firsts = [
        form.first_foreign(buffer, starts, ends, len(starts)) for form in FORMS.values() if form is not None
    ]
    assert firsts[0] == firsts[-1]
    assert compiled is None or len(answers) == 2
