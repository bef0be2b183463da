"""Commands, however they come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.protocol.errors import FrameError
from magnetar.protocol.frames import encode_command
from magnetar.protocol.pulsar_api_pb2 import BaseCommand
from magnetar.proxy.broker_connection import Commands


def lookup(number: int) -> bytes:
    command = BaseCommand(type=BaseCommand.LOOKUP)
    command.lookupTopic.topic = "t" * (number % 50)
    command.lookupTopic.request_id = number
    return encode_command(command)


@given(st.lists(st.integers(1, 200), max_size=30), st.lists(st.integers(1, 120), min_size=1, max_size=20))
def test_commands_come_out_as_they_went_in(numbers: list[int], sizes: list[int]) -> None:
    data = b"".join(map(lookup, numbers))
    tail = lookup(7)[:-1]
    taken: list[int] = []
    commands = Commands(1000)
    position, turn = 0, 0
    whole = data + tail
    while position < len(whole):
        size = sizes[turn % len(sizes)]
        commands.feed(whole[position : position + size])
        position, turn = position + size, turn + 1
        while (command := commands.next()) is not None:
            taken.append(command.lookupTopic.request_id)
    assert taken == numbers
    assert commands.rest() == tail
    assert commands.rest() == b""


def test_what_is_not_taken_yet_is_left_over() -> None:
    commands = Commands(1000)
    commands.feed(lookup(1) + lookup(2))
    commands.feed(b"abc")
    assert commands.next() is not None
    assert commands.rest() == lookup(2) + b"abc"


def test_what_is_too_large_is_refused() -> None:
    commands = Commands(1000)
    commands.feed((2000).to_bytes(4, "big") + bytes(10))
    with pytest.raises(FrameError):
        commands.next()
