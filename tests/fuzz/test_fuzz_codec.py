"""Compiled, interpreted, and protobuf give the same answer on every input."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from codec_forms import CODECS
from fuzz_talk import Talker
from fuzz_wire import entry, mutated

from magnetar.protocol.errors import EntryError, FrameError
from magnetar.protocol.frames import decode_command
from magnetar.protocol.metadata import parse_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

MAX_FRAME = 20_000
_SEEDS = int(os.environ.get("MAGNETAR_FUZZ_CODEC_SEEDS", "6"))
_STREAMS = 1500


def signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def answer(call: Callable[[], Any]) -> Any:
    """What a call returns, or the kind and text of its FrameError."""
    try:
        return call()
    except FrameError as error:
        return type(error).__name__, str(error)


def sends(codec: SimpleNamespace, stream: bytes, position: int, *, verify: bool) -> Any:
    run = codec.SendRun(8)
    behind = answer(lambda: codec.read_sends(stream, position, len(stream), MAX_FRAME, run, verify, 8))
    slots = [
        list(a[: run.count])
        for a in (run.sequence_ids, run.highest_sequence_ids, run.num_messages, run.starts, run.ends)
    ]
    producer_id = run.producer_id if run.count else None
    return behind, run.count, run.chunks, run.error, run.error_sequence_id, producer_id, slots


def acks(codec: SimpleNamespace, stream: bytes, position: int) -> Any:
    run = codec.AckRun(8)
    behind = answer(lambda: codec.read_acks(stream, position, len(stream), MAX_FRAME, run))
    consumer_id = run.consumer_id if run.count else None
    return behind, run.count, consumer_id, list(run.ledger_ids[: run.count]), list(run.entry_ids[: run.count])


def readings(codec: SimpleNamespace, stream: bytes, position: int) -> list[Any]:
    """Everything the codec makes of what is at a position."""
    kind = answer(lambda: codec.next_frame(stream, position, len(stream), MAX_FRAME))
    found = [kind, sends(codec, stream, position, verify=True), sends(codec, stream, position, verify=False)]
    found.append(acks(codec, stream, position))
    if isinstance(kind, int) and kind:
        found += [codec.frame_end(stream, position), codec.command_bounds(stream, position)]
        if kind == BaseCommand.FLOW:
            found.append(codec.read_flow(stream, position))
    return found


def check_against_protobuf(stream: bytes, position: int, found: list[Any]) -> None:
    """What the codec took is what protobuf reads."""
    behind, count, _chunks, _error, _sequence, producer_id, slots = found[1]
    if count:
        for index in range(count):
            send = decode_command(stream, position).send
            assert signed(send.producer_id) == producer_id
            assert signed(send.sequence_id) == slots[0][index]
            assert send.num_messages == slots[2][index]
            assert not send.marker
            assert not send.HasField("message_id")
            position = slots[4][index]
        assert position == behind
        return
    behind, count, consumer_id, ledger_ids, entry_ids = found[3]
    if count:
        ids: list[tuple[int, int]] = []
        while position < behind:
            ack = decode_command(stream, position).ack
            assert signed(ack.consumer_id) == consumer_id
            assert not any(each.ack_set for each in ack.message_id)
            ids += [(signed(each.ledgerId), signed(each.entryId)) for each in ack.message_id]
            position = position + 4 + int.from_bytes(stream[position : position + 4], "big")
        assert ids == list(zip(ledger_ids, entry_ids, strict=True))
        return
    if len(found) > 6 and found[6] is not None:
        flow = decode_command(stream, position).flow
        assert (signed(flow.consumer_id), flow.messagePermits) == found[6]


def streams(random: Random) -> bytes:
    talker = Talker(random, random.choice((0.5, 0.9, 1.0)))
    talker.producers += [1, 2**64 - 1]
    talker.consumers += [1, 2**63]
    talker.positions.append((random.getrandbits(64), random.getrandbits(62)))
    stream = b"".join(talker.say()[0] for _ in range(random.choice((1, 3, 8))))
    kind = random.random()
    if kind < 0.3:
        return mutated(random, stream)
    return stream[: random.randrange(len(stream) + 1)] if kind < 0.4 else stream


@pytest.fixture(scope="module")
def both() -> tuple[SimpleNamespace, SimpleNamespace]:
    interpreted, compiled = CODECS["interpreted"], CODECS["compiled"]
    if interpreted is None or compiled is None:
        pytest.skip("the hot modules are not compiled: python -m magnetar.hot build")
    return interpreted, compiled


@pytest.mark.parametrize("seed", range(_SEEDS))
def test_both_forms_and_protobuf_read_the_same(
    both: tuple[SimpleNamespace, SimpleNamespace], seed: int
) -> None:
    random = Random(seed)
    for _ in range(_STREAMS):
        stream = streams(random)
        position = 0
        while position < len(stream):
            found = [readings(codec, stream, position) for codec in both]
            assert found[0] == found[1], (stream.hex(), position)
            check_against_protobuf(stream, position, found[0])
            if not isinstance(found[0][0], int) or not found[0][0]:
                break
            position = found[0][4]


@pytest.mark.parametrize("seed", range(_SEEDS))
def test_both_forms_and_protobuf_find_the_same_in_entries(
    both: tuple[SimpleNamespace, SimpleNamespace], seed: int
) -> None:
    random = Random(seed)
    for _ in range(_STREAMS):
        entries = [entry(random, random.getrandbits(63)) for _ in range(random.randrange(1, 5))]
        buffer = b"".join(entries)
        ends = array("q")
        for each in entries:
            ends.append((ends[-1] if ends else 0) + len(each))
        starts = array("q", [0, *ends[:-1]])
        sizes = []
        for codec in both:
            out = array("i", bytes(4 * len(entries)))
            codec.batch_sizes(buffer, starts, ends, 0, len(entries), out)
            times = [codec.publish_time(buffer, s, e) for s, e in zip(starts, ends, strict=True)]
            sizes.append((list(out), times))
        assert sizes[0] == sizes[1], buffer.hex()
        for index, each in enumerate(entries):
            check_entry(each, sizes[0][0][index], sizes[0][1][index])


def check_entry(data: bytes, size: int, time: int) -> None:
    try:
        metadata = parse_entry(data, verify_checksum=False).metadata
    except EntryError:
        return
    marker = metadata.HasField("marker_type")
    assert size == (0 if marker else max(1, metadata.num_messages_in_batch))
    assert time == signed(metadata.publish_time)


@pytest.mark.parametrize("seed", range(_SEEDS))
def test_both_forms_write_the_same(both: tuple[SimpleNamespace, SimpleNamespace], seed: int) -> None:
    random = Random(seed)
    edges = [-(2**63), -1, 0, 1, 127, 128, 2**31, 2**62, 2**63 - 1]

    def number() -> int:
        return random.choice(edges) if random.random() < 0.5 else signed(random.getrandbits(64))

    for _ in range(_STREAMS):
        count = random.randrange(1, 12)
        first_sequence = signed((number() + random.randrange(3)) & (2**64 - 1))
        step = random.choice((0, 1, 1, 2))
        sequences = array("q", [signed((first_sequence + step * i) & (2**64 - 1)) for i in range(count)])
        highest = array("q", [random.choice((-1, number())) for _ in range(count)])
        first_entry = random.choice((0, 100, 2**31, 2**62))
        arguments = (number(), number(), first_entry, sequences, highest, 0, count)
        assert len({bytes(codec.encode_receipts(*arguments)) for codec in both}) == 1
        buffer = random.randbytes(50)
        cuts = sorted(random.randrange(51) for _ in range(count + 1))
        starts, ends = array("q", cuts[:-1]), array("q", cuts[1:])
        partition = random.choice((-1, 0, 7, 2**31 - 1))
        arguments = (number(), number(), first_entry, buffer, starts, ends, 0, count, partition)
        assert len({bytes(codec.encode_messages(*arguments)) for codec in both}) == 1
        words = None if random.random() < 0.5 else [number() for _ in range(random.randrange(1, 4))]
        epoch = None if random.random() < 0.5 else number()
        arguments = (number(), number(), first_entry, random.randrange(2**31), words, epoch)
        arguments += (buffer, cuts[0], cuts[-1], partition)
        frames = [bytes(codec.encode_message(*arguments)) for codec in both]
        assert frames[0] == frames[1]
        message = decode_command(frames[0], 0).message
        assert signed(message.consumer_id) == arguments[0]
        assert list(message.ack_set) == (words or [])
