"""Whatever a server says is read, or ends the connection; nothing else is raised, and nobody waits on."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from simulated_io import simulated_io

from magnetar.metadata.zookeeper.connection import Request, ZooKeeperConnection
from magnetar.metadata.zookeeper.messages import (
    OK,
    JuteError,
    JuteReader,
    Operation,
    failed,
    take_results,
    take_stat,
)

GREETING = struct.pack(">iiqi", 0, 6000, 7, 16) + bytes(17)


class Owner:
    """Remembers how a connection ended."""

    def __init__(self) -> None:
        self.answered = 0
        self.lost: list[str] = []
        self.unanswered: list[Request] = []

    def on_answer(self, *_given: Any) -> None:
        self.answered += 1

    def on_lost(self, unanswered: list[Request], reason: str) -> None:
        self.lost.append(reason)
        self.unanswered += unanswered

    def heard(self, *_given: Any) -> None:
        """Of no interest."""

    on_greeting = on_alive = on_event = on_zxid = on_refused = heard


class Transport:
    def write(self, data: bytes) -> None:
        """Goes nowhere."""

    def abort(self) -> None:
        """Has nothing."""


NUMBERS = st.sampled_from([-1, -2, -4, -8, 0, 1, 2, 3, 4, 1 << 30, -(1 << 31)])
PACKETS = st.one_of(
    st.binary(max_size=80),
    st.builds(
        lambda xid, error, rest: struct.pack(">iqi", xid, 5, error) + rest,
        NUMBERS,
        NUMBERS,
        st.binary(max_size=100),
    ),
)


@given(st.lists(PACKETS, max_size=6), st.integers(1, 40), NUMBERS)
def test_a_server_may_say_anything(packets: list[bytes], step: int, last_length: int) -> None:
    simulation = simulated_io(1)
    owner = Owner()
    connection = ZooKeeperConnection(owner, simulation.loop, simulation.clock)
    connection.connection_made(Transport())
    said = b"".join(struct.pack(">i", len(packet)) + packet for packet in (GREETING, *packets))
    said += struct.pack(">i", last_length)
    asked = 4
    for operation, take in (
        (Operation.GET_DATA, lambda reader: (reader.take_bytes(), take_stat(reader))),
        (Operation.GET_CHILDREN, JuteReader.take_texts),
        (Operation.CREATE2, lambda reader: (reader.take_text(), take_stat(reader))),
        (Operation.MULTI, lambda reader: take_results(reader, [Operation.CREATE2, Operation.CHECK])),
    ):
        connection.send(Request(operation, "/", b"", take, simulation.loop.create_future(), False, 0.0))
    for at in range(0, len(said), step):
        connection.data_received(said[at : at + step])
    connection.connection_lost(None)
    assert len(owner.lost) == 1
    assert owner.answered + len(owner.unanswered) == asked


TOGETHER = (Operation.CREATE2, Operation.DELETE, Operation.SET_DATA, Operation.CHECK)
STEPS = st.builds(
    lambda kind, end, error, rest: struct.pack(">i?i", kind, end, error) + rest,
    st.sampled_from([-1, 2, 5, 13, 15, 21]),
    st.sampled_from([False, False, True]),
    NUMBERS,
    st.one_of(st.just(b""), st.just(bytes(4)), st.just(bytes(68)), st.binary(max_size=90)),
)


@given(st.lists(STEPS, max_size=6), st.lists(st.sampled_from(TOGETHER), max_size=3))
def test_a_server_may_say_anything_of_several_operations(steps: list[bytes], asked: list[Operation]) -> None:
    said = b"".join(steps)
    try:
        results = take_results(JuteReader(said), asked)
    except JuteError:
        return
    at = failed(results)
    assert len(results) == len(asked)
    assert at is None or results[at].error != OK
