"""Markers of replicated subscriptions, by the bytes of Apache's brokers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from magnetar.broker.replication.subscriptions.markers import (
    REQUEST,
    RESPONSE,
    SNAPSHOT,
    UPDATE,
    TakenSnapshot,
    decode_request,
    decode_response,
    decode_snapshot,
    decode_update,
    encode_request,
    encode_response,
    encode_snapshot,
    encode_update,
    marker_entry,
)
from magnetar.broker.subscriptions.persistent import REPLICATED
from magnetar.managed_ledger.position import Position
from magnetar.managed_ledger.records import decode_position
from magnetar.protocol.errors import EntryError
from magnetar.protocol.metadata import parse_entry

_RECORDED = json.loads((Path(__file__).parent / "subscription_markers.json").read_text())
MARKERS = _RECORDED["markers"]
OWN = [each for each in MARKERS if not each["replicated_from"]]


def position(found: Mapping[str, str]) -> Position:
    return int(found["ledger_id"]), int(found["entry_id"])


def positions(fields: Mapping[str, Any]) -> dict[str, Position]:
    return {each["cluster"]: position(each["message_id"]) for each in fields["clusters"]}


def payload_of(kind: int, fields: Mapping[str, Any]) -> bytes:
    if kind == REQUEST:
        return encode_request(fields["snapshot_id"], fields["source_cluster"])
    if kind == RESPONSE:
        answer = fields["cluster"]
        return encode_response(fields["snapshot_id"], answer["cluster"], position(answer["message_id"]))
    if kind == SNAPSHOT:
        local = position(fields["local_message_id"])
        return encode_snapshot(TakenSnapshot(fields["snapshot_id"], local, positions(fields)))
    return encode_update(fields["subscription_name"], positions(fields))


@pytest.mark.parametrize("marker", OWN, ids=[each["name"] for each in OWN])
def test_they_are_written_as_apache_writes_them(marker: dict[str, Any]) -> None:
    to = next(iter(marker["replicate_to"]), None)
    payload = payload_of(marker["kind"], marker["fields"])
    assert marker_entry(marker["kind"], payload, marker["publish_time"], to).hex() == marker["entry"]


@pytest.mark.parametrize("marker", MARKERS, ids=[each["name"] for each in MARKERS])
def test_they_are_read(marker: dict[str, Any]) -> None:
    fields = marker["fields"]
    payload = bytes(parse_entry(bytes.fromhex(marker["entry"])).payload)
    if marker["kind"] == REQUEST:
        assert decode_request(payload) == (fields["snapshot_id"], fields["source_cluster"])
    elif marker["kind"] == RESPONSE:
        answer = fields["cluster"]
        expected = (fields["snapshot_id"], answer["cluster"], position(answer["message_id"]))
        assert decode_response(payload) == expected
    elif marker["kind"] == SNAPSHOT:
        local = position(fields["local_message_id"])
        assert decode_snapshot(payload) == TakenSnapshot(fields["snapshot_id"], local, positions(fields))
    else:
        assert marker["kind"] == UPDATE
        assert decode_update(payload) == (fields["subscription_name"], positions(fields))


def test_the_position_of_an_empty_ledger_is_kept() -> None:
    assert decode_response(encode_response("id", "west", (7, -1))) == ("id", "west", (7, -1))


@pytest.mark.parametrize("decode", [decode_request, decode_response, decode_snapshot, decode_update])
def test_what_is_no_marker_is_refused(decode: Any) -> None:
    with pytest.raises(EntryError):
        decode(b"\xff")


@pytest.mark.parametrize("cursor", _RECORDED["cursors"], ids=[each["name"] for each in _RECORDED["cursors"]])
def test_the_record_of_a_cursor_says_that_its_subscription_is_replicated(cursor: dict[str, str]) -> None:
    _state, found = decode_position(bytes.fromhex(cursor["record"]), "cursor")
    assert found == {REPLICATED: 1}
