"""Bytes that Apache BookKeeper 4.17.2 and its clients send and store are read and made alike."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.ledger.bookkeeper.digests import Digest, DigestType, master_key
from magnetar.ledger.bookkeeper.frames import (
    Answer,
    AnswerReader,
    Flag,
    FrameError,
    Operation,
    add_head,
    batch_read_request,
    read_request,
)
from magnetar.ledger.bookkeeper.ledger_record import (
    LedgerRecord,
    Segment,
    decoded,
    encoded,
    ledger_id_of,
    ledger_path,
)
from magnetar.ledger.interface import DataDamaged, LedgerState, Quorums

RECORDED = [
    json.loads(line) for line in (Path(__file__).parent / "data" / "recorded.jsonl").read_text().splitlines()
]
SENT = [row for row in RECORDED if row["kind"] == "frame" and row["sent"]]
ANSWERED = [row for row in RECORDED if row["kind"] == "frame" and not row["sent"]]
RECORDS = [row for row in RECORDED if row["kind"] == "record"]
NAMES = {"HMAC": "MAC"}


def digest_of(kind: str, password: bytes = b"") -> Digest:
    return Digest(DigestType[NAMES.get(kind, kind)], password)


def check_body(given_body: bytes, wanted: dict[str, Any]) -> None:
    password = b"secret" if wanted["digest"] == "HMAC" else b""
    digest = digest_of(wanted["digest"], password)
    found = digest.check(wanted["ledger"], wanted["entry"], given_body)
    assert (found.last_add_confirmed, found.length) == (wanted["confirmed"], wanted["length"])
    payload = given_body[found.start :]
    assert payload.hex() == wanted["payload"]
    head = digest.head(wanted["ledger"], wanted["entry"], wanted["confirmed"], wanted["length"], payload)
    assert head + payload == given_body


@pytest.mark.parametrize("row", SENT, ids=lambda row: row["frame"][:60])
def test_requests_are_what_other_clients_send(row: dict[str, Any]) -> None:
    frame = bytes.fromhex(row["frame"])
    flags, key = Flag(row.get("flags", 0)), bytes.fromhex(row.get("key") or "")
    if row["operation"] == "ADD":
        body = frame[28:]
        assert add_head(key, len(body), flags) + body == frame
        for wanted in row["bodies"]:
            check_body(body, wanted)
    elif row["operation"] == "READ":
        assert read_request(row["ledger"], row["entry"], flags, key) == frame
    elif not flags:
        made = batch_read_request(row["ledger"], row["entry"], row["request"], row["entries"], row["bytes"])
        assert made == frame


@pytest.mark.parametrize("row", ANSWERED, ids=lambda row: row["frame"][:60])
@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_answers_are_read_however_they_are_cut(row: dict[str, Any], step: int) -> None:
    frame = bytes.fromhex(row["frame"])
    reader = AnswerReader()
    found: list[Answer] = []
    for at in range(0, len(frame), step):
        found += reader.feed(frame[at : at + step])
    [answer] = found
    assert Operation(answer.operation).name == row["operation"]
    assert (answer.status, answer.ledger_id, answer.entry_id) == (row["status"], row["ledger"], row["entry"])
    assert answer.request_id == row.get("request", 0)
    assert len(answer.bodies) == len(row["bodies"])
    for body, wanted in zip(answer.bodies, row["bodies"], strict=True):
        check_body(body, wanted)


@given(st.binary(max_size=200), st.integers(1, 50))
def test_bytes_of_no_bookie_are_refused_and_nothing_else(data: bytes, step: int) -> None:
    reader = AnswerReader()
    try:
        for at in range(0, len(data), step):
            for answer in reader.feed(data[at : at + step]):
                assert answer.operation in (1, 2, 7)
    except FrameError:
        pass


def test_master_keys() -> None:
    assert master_key(b"").hex() == "850bf1071c5e3d8c24235676f8816ae0cbe2f14f"
    assert master_key(b"secret").hex() == "e793cbc379107648537183605cd361d3bb789a39"


@pytest.mark.parametrize("kind", DigestType)
@given(data=st.data())
def test_a_body_that_was_changed_is_found_out(kind: DigestType, data: st.DataObject) -> None:
    digest = Digest(kind, b"p")
    payload = data.draw(st.binary(max_size=100))
    body = digest.head(5, 9, 3, 1000, payload) + payload
    found = digest.check(5, 9, body)
    assert body[found.start :] == payload
    assert digest.check(5, -1, body) == found
    with pytest.raises(DataDamaged):
        digest.check(6, 9, body)
    with pytest.raises(DataDamaged):
        digest.check(5, 8, body)
    place = data.draw(st.integers(0, len(body) - 1))
    changed = body[:place] + bytes([body[place] ^ (1 << data.draw(st.integers(0, 7)))]) + body[place + 1 :]
    if kind is not DigestType.DUMMY or place < 16:
        with pytest.raises(DataDamaged):
            digest.check(5, 9, changed)


@pytest.mark.parametrize("row", RECORDS, ids=lambda row: row["what"])
def test_ledger_metadata_is_read_and_written_alike(row: dict[str, Any]) -> None:
    value = bytes.fromhex(row["value"])
    record = decoded(value, row["path"])
    assert record.quorums == Quorums(row["ensemble"], row["write"], row["ack"])
    assert list(LedgerState).index(record.state) + 1 == row["state"]
    assert (record.length, record.last_entry_id, record.token) == (row["length"], row["last"], row["token"])
    assert [[first, list(bookies)] for first, bookies in record.segments] == row["segments"]
    assert list(DigestType).index(record.digest) + 1 == row["digest"]
    assert decoded(encoded(record), row["path"]) == record
    assert sorted(encoded(record)) == sorted(value), "but for the order of what is custom"
    assert ledger_path(ledger_id_of(row["path"]) or 0) == row["path"]


def test_fields_of_a_newer_release_are_kept() -> None:
    record = LedgerRecord(Quorums(1, 1, 1), (Segment(0, ("b",)),))
    value = encoded(record)
    header, _, body = value.partition(b"3\n")
    newer = header + b"3\n" + bytes([body[0] + 4]) + body[1:] + b"\xf8\x07\x96\x01"
    found = decoded(newer, "/p")
    assert encoded(found) == newer
    assert b"\xf8\x07\x96\x01" in encoded(found.closed(5, 10))


def test_text_is_read() -> None:
    text = (
        b"BookieMetadataFormatVersion\t2\nquorumSize: 2\nensembleSize: 3\nlength: 0\n"
        b"lastEntryId: -1\nstate: OPEN\n"
        b'segment {\n  ensembleMember: "a:1"\n  ensembleMember: "b:1"\n  ensembleMember: "c:1"\n'
        b'  firstEntryId: 0\n}\ndigestType: CRC32\npassword: ""\nackQuorumSize: 2\n'
    )
    record = decoded(text, "/p")
    assert record.segments == (Segment(0, ("a:1", "b:1", "c:1")),)
    assert record.digest is DigestType.CRC32


GOOD = encoded(LedgerRecord(Quorums(3, 2, 2), (Segment(0, ("a", "b", "c")), Segment(4, ("a", "d", "c")))))


def test_who_has_what() -> None:
    record = decoded(GOOD, "/p")
    assert record.ensemble_of(3) == ("a", "b", "c")
    assert record.ensemble_of(4) == record.ensemble_of(400) == ("a", "d", "c")
    assert [record.write_set(entry) for entry in range(4)] == [(0, 1), (1, 2), (2, 0), (0, 1)]
    changed = record.with_ensemble(4, ("x", "y", "z"))
    assert changed.segments == (record.segments[0], Segment(4, ("x", "y", "z")))
    assert record.with_ensemble(9, ("x", "y", "z")).segments[-1].first_entry_id == 9


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255))
def test_damaged_metadata_is_refused_or_sound(place: int, byte: int) -> None:
    try:
        record = decoded(GOOD[:place] + bytes([byte]) + GOOD[place + 1 :], "/p")
    except DataDamaged:
        return
    assert all(len(segment.ensemble) == record.quorums.ensemble for segment in record.segments)


@given(st.integers(0, (1 << 63) - 1))
def test_paths_lead_there_and_back(ledger_id: int) -> None:
    assert ledger_id_of(ledger_path(ledger_id)) == ledger_id


@pytest.mark.parametrize(
    "path", ["/available", "/00/0000/L00", "/idgen", "/00/0000/L0008/x", "/0/00000/L0008", "/LAYOUT"]
)
def test_other_paths_are_no_ledgers(path: str) -> None:
    assert ledger_id_of(path) is None


def test_states_follow_each_other() -> None:
    record = replace(decoded(GOOD, "/p"), token=7)
    assert record.in_recovery().state is LedgerState.IN_RECOVERY
    closed = record.in_recovery().closed(11, 99)
    assert (closed.state, closed.last_entry_id, closed.length, closed.token) == (
        LedgerState.CLOSED,
        11,
        99,
        0,
    )


def test_a_large_answer_is_put_together_once() -> None:
    """However many pieces it comes in: what is copied besides is counted by the pieces that are kept."""
    body = bytes(1 << 20)
    answer = struct.pack(">IBBHiqq", 24 + len(body), 2, Operation.READ, 0, 0, 7, 3) + body
    reader = AnswerReader()
    kept = []
    for at in range(0, len(answer), 1 << 12):
        found = list(reader.feed(answer[at : at + (1 << 12)]))
        kept.append(max(map(len, reader._pieces), default=0))
    [only] = found
    assert only.bodies == [body]
    assert max(kept) <= 1 << 12
    assert list(reader.feed(answer[:2])) == []
    assert [each.entry_id for each in reader.feed(answer[2:] + answer)] == [3, 3]
