"""What was recorded of Apache Pulsar's transactions reads and writes back byte for byte."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recording_proxy import decoded_entry, decoded_frame
from transaction_bytes import record, written_back

from magnetar.managed_ledger.records_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from magnetar.protocol.frames import decode_command, encode_command

_FOLDER = Path(__file__).parents[2] / "vectors" / "transactions"
_CONVERSATIONS = ("java_client", "go_client", "errors", "views", "off")
_LOGS = ("TransactionMetadataEntry", "PendingAckMetadataEntry")


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (_FOLDER / f"{name}.jsonl").read_text().splitlines()]


def frames(name: str) -> Iterator[tuple[dict[str, Any], bytes]]:
    for row in rows(name):
        if "command" in row:
            yield row, bytes.fromhex(row["hex"])


@pytest.mark.parametrize("name", _CONVERSATIONS)
def test_transaction_frames_have_their_fields(name: str) -> None:
    for row, data in frames(name):
        found = decoded_frame(data)
        assert found == {key: row[key] for key in found}


@pytest.mark.parametrize("name", _CONVERSATIONS)
def test_transaction_frames_write_back(name: str) -> None:
    seen = 0
    for row, data in frames(name):
        if "TXN" in row["command"] or row["command"].startswith("TC_"):
            assert encode_command(decode_command(data, 0)) == data
            seen += 1
    assert seen > 5


@pytest.mark.parametrize("name", ["entries", "batched_entries"])
def test_transaction_entries_write_back(name: str) -> None:
    seen = set()
    for row in rows(name):
        data = bytes.fromhex(row["hex"])
        (log,) = [key for key in row if key.removeprefix("Batched") in _LOGS] or [None]
        if log is None:
            found = decoded_entry(data)
            assert found == {key: row[key] for key in found}
        else:
            assert record(log.removeprefix("Batched"), data) == {log: row[log]}
            assert written_back({log: row[log]}) == data
        seen.add(log)
    assert {log.removeprefix("Batched") for log in seen if log is not None} == set(_LOGS)


@pytest.mark.parametrize("name", ["metadata", "batched_metadata"])
def test_transaction_metadata_writes_back(name: str) -> None:
    for row in rows(name):
        kind = ManagedLedgerInfo if "ManagedLedgerInfo" in row else ManagedCursorInfo
        assert kind.FromString(bytes.fromhex(row["hex"])).SerializeToString().hex() == row["hex"]
