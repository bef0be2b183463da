"""What was recorded between the official client and Apache Pulsar reads and writes back byte for byte."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any

from google.protobuf.json_format import MessageToDict

from magnetar.protocol.frames import (
    decode_command,
    encode_command,
    encode_with_payload,
    max_frame_size,
    split,
)
from magnetar.protocol.metadata import build_batch, build_entry, parse_entry, split_batch
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

MAX_FRAME = max_frame_size(5 * 1024 * 1024)
Frames = list[dict[str, Any]]


def signed(number: str | int) -> int:
    return (int(number) + (1 << 63)) % (1 << 64) - (1 << 63)


def raw(frame: dict[str, Any]) -> bytes:
    return bytes.fromhex(frame["hex"])


def recorded_part(found: Any, recorded: Any) -> Any:
    """What the recorder knew of: it left out fields that are newer than its own table."""
    if isinstance(found, dict) and isinstance(recorded, dict):
        return {name: recorded_part(found[name], recorded[name]) for name in recorded.keys() & found.keys()}
    return found


def test_there_are_conversations(conversations: Frames) -> None:
    assert len(conversations) == 675
    assert len({frame["case"] for frame in conversations}) == 25


def test_every_command_has_its_type_and_fields(codec: SimpleNamespace, conversations: Frames) -> None:
    for frame in conversations:
        data = raw(frame)
        kind = codec.next_frame(data, 0, len(data), MAX_FRAME)
        assert BaseCommand.Type.Name(kind) == frame["command"]
        assert codec.frame_end(data, 0) == len(data)
        command = decode_command(data, 0)
        (_, body) = command.ListFields()[1]
        fields = MessageToDict(body, preserving_proto_field_name=True)
        assert recorded_part(fields, frame["fields"]) == frame["fields"]


def test_every_frame_writes_back(conversations: Frames) -> None:
    for frame in conversations:
        data = raw(frame)
        command = decode_command(data, 0)
        if "checksum" not in frame:
            assert encode_command(command) == data
            continue
        entry = parse_entry(data[len(encode_command(command)) :])
        again = build_entry(entry.metadata, entry.payload)
        assert encode_with_payload(command, again) == data


def test_a_stream_splits_into_its_frames(conversations: Frames) -> None:
    stream = b"".join(raw(frame) for frame in conversations)
    found = [stream[start:end] for _, start, end in split(stream, MAX_FRAME)]
    assert found == [raw(frame) for frame in conversations]


def test_sends_are_plain(codec: SimpleNamespace, conversations: Frames) -> None:
    run = codec.SendRun(4)
    for frame in conversations:
        if frame["command"] != "SEND":
            continue
        data = raw(frame)
        assert codec.read_sends(data, 0, len(data), MAX_FRAME, run, True, 4) == len(data)
        assert (run.count, run.error) == (1, 0)
        assert run.producer_id == int(frame["fields"]["producer_id"])
        assert run.sequence_ids[0] == signed(frame["fields"]["sequence_id"])
        assert run.num_messages[0] == frame["fields"].get("num_messages", 1)
        assert run.highest_sequence_ids[0] == -1
        entry = data[run.starts[0] : run.ends[0]]
        metadata = parse_entry(entry).metadata
        sizes = array("i", [0])
        codec.batch_sizes(data, run.starts, run.ends, 0, 1, sizes)
        assert sizes[0] == metadata.num_messages_in_batch
        assert codec.publish_time(data, run.starts[0], run.ends[0]) == metadata.publish_time


def test_receipts_are_written_as_pulsar_writes_them(codec: SimpleNamespace, conversations: Frames) -> None:
    for frame in conversations:
        if frame["command"] != "SEND_RECEIPT":
            continue
        fields = frame["fields"]
        identity = fields["message_id"]
        written = codec.encode_receipts(
            int(fields["producer_id"]),
            signed(identity["ledgerId"]),
            signed(identity["entryId"]),
            array("q", [signed(fields["sequence_id"])]),
            array("q", [signed(fields["highest_sequence_id"])]),
            0,
            1,
        )
        assert written == raw(frame)


def test_messages_are_written_as_pulsar_writes_them(codec: SimpleNamespace, conversations: Frames) -> None:
    first_deliveries = 0
    for frame in conversations:
        if frame["command"] != "MESSAGE":
            continue
        data, fields = raw(frame), frame["fields"]
        identity = fields["message_id"]
        ids = (int(fields["consumer_id"]), int(identity["ledgerId"]), int(identity["entryId"]))
        start = codec.command_bounds(data, 0)[1]
        count = fields.get("redelivery_count", 0)
        ack_set = [int(word) for word in fields["ack_set"]] if "ack_set" in fields else None
        partition = identity["partition"]
        written = codec.encode_message(*ids, count, ack_set, None, data, start, len(data), partition)
        assert written == data
        if count == 0 and ack_set is None:
            first_deliveries += 1
            bounds = (array("q", [start]), array("q", [len(data)]))
            assert codec.encode_messages(*ids, data, *bounds, 0, 1, partition) == data
            assert codec.messages_size(*ids, *bounds, 0, 1, partition) == len(data)
    assert first_deliveries > 40


def test_acks_and_flows(codec: SimpleNamespace, conversations: Frames) -> None:
    run = codec.AckRun(4)
    plain = 0
    for frame in conversations:
        data, fields = raw(frame), frame["fields"]
        if frame["command"] == "FLOW":
            assert codec.read_flow(data, 0) == (int(fields["consumer_id"]), fields["messagePermits"])
        if frame["command"] != "ACK":
            continue
        ids = fields["message_id"]
        end = codec.read_acks(data, 0, len(data), MAX_FRAME, run)
        if fields["ack_type"] == "Cumulative" or any("ack_set" in identity for identity in ids):
            assert (end, run.count) == (0, 0)
            continue
        plain += 1
        assert end == len(data)
        assert run.consumer_id == int(fields["consumer_id"])
        found = list(zip(run.ledger_ids[: run.count], run.entry_ids[: run.count], strict=True))
        assert found == [(int(identity["ledgerId"]), int(identity["entryId"])) for identity in ids]
    assert plain == 5


def test_batches_of_every_codec(conversations: Frames) -> None:
    seen = set()
    for frame in conversations:
        if frame["command"] != "SEND" or not frame["case"].startswith("batch of three"):
            continue
        data = raw(frame)
        entry = parse_entry(data[len(encode_command(decode_command(data, 0))) :])
        seen.add(entry.metadata.compression)
        assert entry.batch_size == 3
        payload = entry.uncompressed_payload()
        messages = split_batch(payload, 3)
        for index, message in enumerate(messages):
            assert message.payload == f"message-{index} ".encode() * 10
        assert build_batch((message.metadata, message.payload) for message in messages) == payload
    assert seen == {0, 1, 2, 3, 4}
