"""What is published while the broker's clock is ahead."""

from __future__ import annotations

from magnetar.protocol.frames import decode_command, encode_with_payload
from magnetar.protocol.hot_codec import command_bounds
from magnetar.protocol.metadata import build_entry, parse_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata
from magnetar.testing.wire import put_ahead


def send(metadata: MessageMetadata, payload: bytes = b"payload") -> bytes:
    command = BaseCommand(type=BaseCommand.SEND)
    command.send.producer_id = 3
    command.send.sequence_id = 7
    return encode_with_payload(command, build_entry(metadata, payload))


def metadata(**more: int) -> MessageMetadata:
    return MessageMetadata(producer_name="p", sequence_id=7, publish_time=1_000, **more)


def entry_of(frame: bytes) -> bytes:
    return frame[command_bounds(frame, 0)[1] :]


def test_its_times_are_put_ahead() -> None:
    entry = parse_entry(entry_of(put_ahead(send(metadata(deliver_at_time=5_000)), 3_600_000)))

    assert entry.metadata.publish_time == 3_601_000
    assert entry.metadata.deliver_at_time == 3_605_000
    assert entry.payload == b"payload"


def test_nothing_else_is_changed() -> None:
    before = send(metadata(num_messages_in_batch=5))
    after = put_ahead(before, 10)

    assert decode_command(after, 0) == decode_command(before, 0)
    assert parse_entry(entry_of(after)).metadata == metadata_at(1_010, num_messages_in_batch=5)


def metadata_at(time: int, **more: int) -> MessageMetadata:
    found = metadata(**more)
    found.publish_time = time
    return found


def test_what_is_damaged_stays_damaged() -> None:
    frame = bytearray(send(metadata()))
    frame[-1] ^= 1
    assert put_ahead(bytes(frame), 10) == bytes(frame)
