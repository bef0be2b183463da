"""Frames around protobuf commands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import ack_commands, other_frames, send_frames

from magnetar.protocol.errors import FrameError, FrameTooLarge
from magnetar.protocol.frames import (
    decode_command,
    encode_command,
    encode_with_payload,
    max_frame_size,
    split,
)
from magnetar.protocol.pulsar_api_pb2 import BaseCommand


@given(st.lists(other_frames() | send_frames(), max_size=5), st.integers(0, 12))
def test_complete_frames_split_off(frames: list[bytes], rest: int) -> None:
    stream = b"..." + b"".join(frames) + (send := b"\x00\x00\x01\x00\x00\x00\x00\x10\x08\x06\x32\x0e")[:rest]
    found = list(split(stream, 1 << 20, 3))
    assert [stream[start:end] for _, start, end in found] == frames
    assert [kind for kind, _, _ in found] == [decode_command(frame, 0).type for frame in frames]
    assert len(send) == 12


@given(ack_commands())
def test_commands_read_back(command: BaseCommand) -> None:
    assert decode_command(b"." + encode_command(command), 1) == command


def test_an_entry_follows_the_command() -> None:
    command = BaseCommand(type=BaseCommand.SEND, send={"producer_id": 1, "sequence_id": 2})
    frame = encode_with_payload(command, memoryview(b"entry"))
    assert frame.endswith(b"entry")
    assert list(split(frame, 100)) == [(BaseCommand.SEND, 0, len(frame))]


def test_the_largest_frame_holds_the_largest_payload() -> None:
    assert max_frame_size(5 * 1024 * 1024) == 5 * 1024 * 1024 + 10 * 1024
    with pytest.raises(FrameTooLarge):
        list(split((2000).to_bytes(4, "big"), 1000))


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (b"\x08\x06\x32\x02\x08\x01", "command of type 6 lacks the required "),
        (b"\x08\x06\x32\x7f\x08\x01", "command of 6 bytes cannot be parsed"),
    ],
)
def test_what_is_no_command(command: bytes, reason: str) -> None:
    frame = (len(command) + 4).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command
    with pytest.raises(FrameError, match=reason):
        decode_command(frame, 0)
