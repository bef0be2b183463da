"""Stored entries as SEND frames for another cluster: byte for byte what Apache's replicator sends."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from codec_forms import forms_of
from hypothesis import given
from hypothesis import strategies as st

from magnetar.protocol.frames import decode_command
from magnetar.protocol.hot_codec import command_bounds
from magnetar.protocol.metadata import build_entry, parse_entry
from magnetar.protocol.pulsar_api_pb2 import BrokerEntryMetadata, KeyValue, MessageMetadata

FORMS = forms_of("magnetar.protocol.hot_replication")
RECORDED = json.loads((Path(__file__).parent / "data" / "replicated_frames.json").read_text())["frames"]
SOURCE = "__MSG_PROP_REPL_SOURCE_POSITION"
LARGE = 1 << 30


@pytest.fixture(scope="module", params=list(FORMS))
def hot(request: pytest.FixtureRequest) -> ModuleType:
    found = FORMS[request.param]
    if found is None:
        pytest.skip("not compiled")
    return found


def entry_of_frame(frame: bytes) -> tuple[MessageMetadata, bytes]:
    entry = parse_entry(frame[command_bounds(frame, 0)[1] :])
    return entry.metadata, bytes(entry.payload)


def metadata(**fields: Any) -> MessageMetadata:
    return MessageMetadata(**({"producer_name": "p", "sequence_id": 1, "publish_time": 1000} | fields))


def encoded(hot: ModuleType, run: Any, entries: list[bytes], **options: int) -> tuple[int, list[bytes]]:
    """How far it came, and the frames."""
    buffer, starts, ends = b"??", array("q"), array("q")
    for entry in entries:
        starts.append(len(buffer))
        buffer += entry
        ends.append(len(buffer))
        buffer += b"between"
    first = options.get("first", 0)
    producer_id = options.get("producer_id", 7)
    oldest = options.get("oldest_ms", 0)
    ledger_id, entry_id = options.get("ledger_id", 3), options.get("entry_id", 10)
    end = hot.encode_replicated(
        run, producer_id, buffer, starts, ends, first, len(entries), ledger_id, entry_id, oldest
    )
    out, frames = bytes(run.frames), []
    while out:
        size = 4 + int.from_bytes(out[:4], "big")
        frames.append(out[:size])
        out = out[size:]
    return end, frames


def run_to(hot: ModuleType, remote: bytes = b"r-b", local: bytes = b"r-a") -> Any:
    run = hot.ReplicationRun(local, remote)
    run.max_frame = LARGE
    return run


@pytest.mark.parametrize("case", RECORDED, ids=[f"{n}-{each['case']}" for n, each in enumerate(RECORDED)])
def test_frames_are_those_of_apache(hot: ModuleType, case: Any) -> None:
    frame = bytes.fromhex(case["frame"])
    told, payload = entry_of_frame(frame)
    assert told.properties[-1].key == SOURCE
    del told.properties[-1]
    told.ClearField("replicated_from")
    ledger_id, entry_id = map(int, case["position"].split(":"))
    run = run_to(hot, case["remote"].encode(), case["local"].encode())
    run.versions[told.schema_version] = told.schema_version
    options = {"producer_id": case["producer_id"], "ledger_id": ledger_id, "entry_id": entry_id}
    assert encoded(hot, run, [build_entry(told, payload)], **options) == (1, [frame])


def test_broker_metadata_stay_and_transaction_ids_go(hot: ModuleType) -> None:
    told = metadata(
        txnid_least_bits=5, txnid_most_bits=6, event_time=9, properties=[KeyValue(key="k", value="v")]
    )
    stored = build_entry(told, b"payload")
    index = BrokerEntryMetadata(broker_timestamp=1, index=2).SerializeToString()
    stored = b"\x0e\x02" + len(index).to_bytes(4, "big") + index + stored
    end, frames = encoded(hot, run_to(hot), [stored])
    found, payload = entry_of_frame(frames[0])
    expected = metadata(event_time=9, replicated_from="r-a")
    expected.properties.extend([KeyValue(key="k", value="v"), KeyValue(key=SOURCE, value="3:10")])
    assert (end, found, payload) == (1, expected, b"payload")


WHATEVER = {
    "plain": metadata(),
    "with a schema": metadata(schema_version=b"\x07"),
    "from another cluster": metadata(replicated_from="r-c"),
    "for another cluster": metadata(replicate_to=["r-c"]),
    "marker": metadata(marker_type=11),
    "old": metadata(publish_time=1),
}


@pytest.mark.parametrize("told", WHATEVER.values(), ids=list(WHATEVER))
def test_a_shadow_is_sent_everything_with_its_position(hot: ModuleType, told: MessageMetadata) -> None:
    run = hot.ReplicationRun(b"r-a", b"", placed=True)
    run.max_frame = LARGE
    end, frames = encoded(hot, run, [build_entry(told, b"payload")], ledger_id=1 << 40, entry_id=300)
    send = decode_command(frames[0], 0).send
    assert (end, send.message_id.ledgerId, send.message_id.entryId) == (1, 1 << 40, 300)
    found, payload = entry_of_frame(frames[0])
    assert (found.schema_version, payload) == (told.schema_version, b"payload")


SKIPPED = {
    "came by replication": metadata(replicated_from="r-c"),
    "for another": metadata(replicate_to=["r-c"]),
    "for nobody": metadata(replicate_to=["__local__"]),
    "marker of a transaction": metadata(marker_type=21),
}


@pytest.mark.parametrize("told", SKIPPED.values(), ids=list(SKIPPED))
def test_what_is_not_for_the_cluster_is_skipped(hot: ModuleType, told: MessageMetadata) -> None:
    run = run_to(hot)
    entries = [
        build_entry(metadata(), b"1"),
        build_entry(told, b"2"),
        build_entry(metadata(replicate_to=["x", "r-b"]), b"3"),
    ]
    end, frames = encoded(hot, run, entries)
    assert (end, [entry_of_frame(each)[1] for each in frames]) == (3, [b"1", b"3"])
    assert list(run.kinds[:3]) == [hot.SENT, hot.SKIPPED, hot.SENT]
    assert (run.sent, run.messages) == (2, 2)


def test_what_has_expired_is_told_apart(hot: ModuleType) -> None:
    run = run_to(hot)
    entries = [build_entry(metadata(publish_time=time), b"") for time in (999, 1000)]
    assert len(encoded(hot, run, entries, oldest_ms=1000)[1]) == 1
    assert list(run.kinds[:2]) == [hot.EXPIRED, hot.SENT]


def test_markers_are_sent_as_markers(hot: ModuleType) -> None:
    run = run_to(hot)
    frames = encoded(hot, run, [build_entry(metadata(marker_type=10), b"request")])[1]
    assert decode_command(frames[0], 0).send.marker
    assert run.kinds[0] == hot.MARKER


def test_an_unknown_schema_stops_it_and_is_translated_then(hot: ModuleType) -> None:
    run = run_to(hot)
    entries = [build_entry(metadata(schema_version=version), b"") for version in (b"1", b"1", b"22")]
    run.versions[b"1"] = b"remote"
    end, frames = encoded(hot, run, entries)
    assert (end, run.stopped, run.version) == (2, hot.UNKNOWN_SCHEMA, b"22")
    assert [entry_of_frame(each)[0].schema_version for each in frames] == [b"remote"] * 2
    run.versions[b"22"] = b"x"
    end, frames = encoded(hot, run, entries, first=end)
    assert (end, run.stopped) == (3, hot.DONE)
    found = entry_of_frame(frames[0])[0]
    assert (found.schema_version, found.properties[0].value) == (b"x", "3:12")


def test_what_exceeds_the_remote_limit_stops_it(hot: ModuleType) -> None:
    run = run_to(hot)
    entries = [build_entry(metadata(), b"x" * size) for size in (10, 5000)]
    run.max_frame = 2000
    end, frames = encoded(hot, run, entries)
    assert (end, len(frames), run.stopped) == (1, 1, hot.TOO_LARGE)
    run.max_frame = LARGE
    _, frames = encoded(hot, run, entries, first=1)
    run.max_frame = len(frames[0])
    assert encoded(hot, run, entries, first=1) == (2, frames)


@given(st.binary(max_size=80))
def test_whatever_lies_there_both_forms_agree(noise: bytes) -> None:
    found = []
    whole = build_entry(metadata(), b"x")
    for form in FORMS.values():
        if form is None:
            continue
        for entry in (noise, whole[:10] + noise, whole + noise, b"\x0e\x02" + noise, whole[:6] + noise):
            run = run_to(form)
            end, frames = encoded(form, run, [entry, whole])
            found.append((end, frames, list(run.kinds[:2])))
    half = len(found) // len([each for each in FORMS.values() if each is not None])
    assert found[:half] * (len(found) // half) == found


@given(
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**62),
    st.integers(0, 2**63 - 1),
    st.binary(max_size=6000),
    st.text(max_size=20),
    st.booleans(),
)
def test_every_field_arrives(
    ledger_id: int, entry_id: int, sequence_id: int, payload: bytes, text: str, has_key: bool
) -> None:
    told = metadata(sequence_id=sequence_id, deliver_at_time=17, uuid=text, num_messages_in_batch=3)
    if has_key:
        told.partition_key = text
    for form in FORMS.values():
        if form is None:
            continue
        run = run_to(form)
        _, frames = encoded(form, run, [build_entry(told, payload)], ledger_id=ledger_id, entry_id=entry_id)
        found, arrived = entry_of_frame(frames[0])
        expected = MessageMetadata()
        expected.CopyFrom(told)
        expected.replicated_from = "r-a"
        expected.properties.add(key=SOURCE, value=f"{ledger_id}:{entry_id}")
        assert (found, arrived) == (expected, payload)
        sent = decode_command(frames[0], 0).send
        assert (sent.sequence_id, sent.num_messages, run.sequence_ids[0]) == (sequence_id, 3, sequence_id)


def test_entries_without_a_position_are_sent_without_the_property(hot: ModuleType) -> None:
    run = run_to(hot)
    told = metadata(properties=[KeyValue(key="k", value="v")])
    end, frames = encoded(hot, run, [build_entry(told, b"payload")], ledger_id=hot.NO_POSITION)
    expected = metadata(replicated_from="r-a", properties=told.properties)
    assert (end, [entry_of_frame(each) for each in frames]) == (1, [(expected, b"payload")])


def test_what_is_for_the_cluster_is_counted_without_being_encoded(hot: ModuleType) -> None:
    entries = [build_entry(each, b"") for each in SKIPPED.values()]
    entries += [build_entry(metadata(num_messages_in_batch=3), b""), build_entry(metadata(), b"")]
    starts, ends, buffer = array("q"), array("q"), b""
    for entry in entries:
        starts.append(len(buffer))
        buffer += entry
        ends.append(len(buffer))
    assert hot.count_replicated(run_to(hot), buffer, starts, ends, 0, len(entries)) == 4
    assert hot.count_replicated(run_to(hot), buffer, starts, ends, 0, len(entries) - 1) == 3


@pytest.mark.parametrize(
    ("stored", "positions", "found"),
    [
        ([5, 5], [(3, 1), (3, 2)], 2),
        ([-1, -1], [(3, 0), (2, 9)], 2),
        ([-1, -1], [(3, 0), (3, 1)], 1),
        ([5, -1, -1], [(3, 1), (4, 0), (4, 1)], 1),
        ([-1], [(5, -(2**63))], 1),
        ([], [], 0),
    ],
    ids=["stored", "known before", "behind the known one", "a later ledger", "marker", "none"],
)
def test_the_first_entry_that_cannot_be_a_duplicate_is_found(
    hot: ModuleType, stored: list[int], positions: list[tuple[int, int]], found: int
) -> None:
    ledgers, entries = (array("q", [each[side] for each in positions]) for side in (0, 1))
    assert hot.first_dropped(array("q", stored), ledgers, entries, len(stored), 3, 0) == found
