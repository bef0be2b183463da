"""Bytes of a client taken apart, whatever pieces they come in; no loop, no broker."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.connections.reading import (
    ACKS,
    BAD_SEND,
    CHECKSUM_MISMATCH,
    COMMAND,
    FLOW,
    NOTHING,
    SENDS,
    Reader,
)
from magnetar.protocol.errors import FrameError
from magnetar.protocol.frames import encode_command, encode_with_payload
from magnetar.protocol.hot_codec import AckRun, SendRun
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata

MAX_FRAME = 1 << 20
SENDS_RUN, ACKS_RUN = SendRun(), AckRun()


def reader(max_frame: int = MAX_FRAME) -> Reader:
    return Reader(max_frame, SENDS_RUN, ACKS_RUN)


def send(sequence_id: int, producer_id: int = 1, *, damaged: bool = False) -> bytes:
    command = BaseCommand(type=BaseCommand.SEND)
    command.send.producer_id, command.send.sequence_id = producer_id, sequence_id
    entry = bytearray(build_entry(MessageMetadata(producer_name="p", publish_time=1, sequence_id=0), b"x"))
    if damaged:
        entry[-1] ^= 1
    return encode_with_payload(command, entry)


def ack(entry_id: int, consumer_id: int = 1) -> bytes:
    command = BaseCommand(type=BaseCommand.ACK, ack={"consumer_id": consumer_id, "ack_type": 0})
    command.ack.message_id.add(ledgerId=7, entryId=entry_id)
    return encode_command(command)


def flow(permits: int) -> bytes:
    return encode_command(
        BaseCommand(type=BaseCommand.FLOW, flow={"consumer_id": 3, "messagePermits": permits})
    )


def ping() -> bytes:
    return encode_command(BaseCommand(type=BaseCommand.PING, ping={}))


def found(taken: Reader, most: int = 1000) -> list[Any]:
    """Everything that can be taken now, one item a frame."""
    all_: list[Any] = []
    while taken.position < taken.limit and (kind := taken.next(most)) != NOTHING:
        if kind == SENDS:
            run = taken.sends
            for index in range(run.count):
                entry = taken.buffer[run.starts[index] : run.ends[index]]
                all_.append(("send", run.producer_id, run.sequence_ids[index], len(entry)))
        elif kind == BAD_SEND:
            all_.append(("bad", taken.sends.error, taken.sends.error_sequence_id))
        elif kind == ACKS:
            all_ += [("ack", taken.acks.consumer_id, n) for n in taken.acks.entry_ids[: taken.acks.count]]
        elif kind == FLOW:
            all_.append(("flow", *taken.flow))
        else:
            assert kind == COMMAND
            all_.append(("command", int(taken.command().type)))
    return all_


FRAMES = [
    send(0),
    send(1),
    send(2, 9),
    ack(4),
    ack(5),
    flow(100),
    ping(),
    send(3),
    send(4, damaged=True),
    ping(),
]
SIZE = len(build_entry(MessageMetadata(producer_name="p", publish_time=1, sequence_id=0), b"x"))
WANTED = [
    ("send", 1, 0, SIZE),
    ("send", 1, 1, SIZE),
    ("send", 9, 2, SIZE),
    ("ack", 1, 4),
    ("ack", 1, 5),
    ("flow", 3, 100),
    ("command", BaseCommand.PING),
    ("send", 1, 3, SIZE),
    ("bad", CHECKSUM_MISMATCH, 4),
    ("command", BaseCommand.PING),
]


def test_frames_of_one_read_are_found_in_their_order() -> None:
    taken = reader()
    assert taken.feed(b"".join(FRAMES))
    assert found(taken) == WANTED
    assert taken.partial == 0


@given(st.lists(st.integers(1, 60), min_size=1))
def test_frames_are_found_whatever_pieces_they_come_in(sizes: list[int]) -> None:
    taken, all_, data, at, turn = reader(), [], b"".join(FRAMES), 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        before = taken.partial
        if taken.feed(data[at : at + size]):
            all_ += found(taken)
        else:
            assert taken.partial == before + len(data[at : at + size])
        at += size
        turn += 1
    assert all_ == WANTED
    assert taken.partial == 0


def test_what_comes_while_something_waits_is_put_behind_it() -> None:
    taken = reader()
    taken.feed(FRAMES[0] + FRAMES[1])
    assert taken.next(1) == SENDS
    assert taken.sends.count == 1
    assert taken.position < taken.limit
    assert taken.feed(b"".join(FRAMES[2:]))
    assert found(taken) == WANTED[1:]


def test_a_command_that_is_not_taken_is_found_again() -> None:
    taken = reader()
    taken.feed(ping() + flow(1))
    assert [taken.next(1), taken.next(1)] == [COMMAND, COMMAND]
    assert taken.kind == BaseCommand.PING
    taken.command()
    assert taken.next(1) == FLOW


def test_no_run_is_longer_than_it_may_be() -> None:
    taken = reader()
    taken.feed(b"".join(send(n) for n in range(10)))
    counts = []
    while taken.position < taken.limit:
        assert taken.next(4) == SENDS
        counts.append(taken.sends.count)
    assert counts == [4, 4, 2]


def test_a_frame_that_is_too_large_is_refused_before_it_has_come() -> None:
    taken = reader(100)
    taken.feed((200).to_bytes(4, "big"))
    with pytest.raises(FrameError):
        taken.next(1)


def test_the_beginning_of_a_frame_is_kept_without_what_was_before_it() -> None:
    taken = reader()
    taken.feed(send(0) * 100 + ping()[:-1])
    assert len(found(taken)) == 100
    assert taken.partial == len(ping()) - 1
    assert taken.buffer == b""
    assert taken.feed(ping()[-1:])
    assert found(taken) == [("command", BaseCommand.PING)]


def test_nothing_is_left_of_what_is_dropped() -> None:
    taken = reader()
    taken.feed(ping() + ping()[:3])
    taken.next(1)
    taken.drop()
    assert (taken.buffer, taken.position, taken.limit) == (b"", 0, 0)
    taken.feed(ping()[:3])
    taken.next(1)
    taken.drop()
    assert taken.partial == 0
    taken.feed(flow(2))
    assert found(taken) == [("flow", 3, 2)]
