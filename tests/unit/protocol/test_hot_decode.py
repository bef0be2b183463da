"""Reading frequent frames gives what protobuf gives, and bad frames give the error that fits."""

from __future__ import annotations

from array import array
from contextlib import suppress
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import UNSIGNED, ack_commands, entries, other_frames, send_commands, send_frames, signed

from magnetar.protocol.errors import FrameError, FrameTooLarge
from magnetar.protocol.frames import decode_command, encode_command, encode_with_payload
from magnetar.protocol.metadata import build_entry, parse_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata

MAX_FRAME = 1 << 20


def frame(command: bytes, rest: bytes = b"") -> bytes:
    return (
        (len(command) + 4 + len(rest)).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command + rest
    )


@given(UNSIGNED, st.data())
def test_runs_of_sends(codec: SimpleNamespace, producer_id: int, data: st.DataObject) -> None:
    frames = data.draw(st.lists(send_frames(producer_id), min_size=1, max_size=6))
    tail = data.draw(st.just(b"") | other_frames() | send_frames(producer_id ^ 1))
    before = data.draw(st.binary(max_size=5))
    stream = before + b"".join(frames) + tail
    run = codec.SendRun(8)
    end = codec.read_sends(stream, len(before), len(stream), MAX_FRAME, run, True, 8)
    assert (end, run.count, run.error) == (len(stream) - len(tail), len(frames), 0)
    assert run.producer_id == signed(producer_id)
    position = len(before)
    for index, each in enumerate(frames):
        send = decode_command(each, 0).send
        assert run.sequence_ids[index] == signed(send.sequence_id)
        given_highest = send.HasField("highest_sequence_id")
        assert run.highest_sequence_ids[index] == (signed(send.highest_sequence_id) if given_highest else -1)
        assert run.num_messages[index] == send.num_messages
        assert run.starts[index] == codec.command_bounds(stream, position)[1]
        position += len(each)
        assert run.ends[index] == position


@given(st.lists(send_frames(7), min_size=2, max_size=5), st.integers(1, 4))
def test_runs_end_at_the_count_and_the_capacity(
    codec: SimpleNamespace, frames: list[bytes], limit: int
) -> None:
    stream = b"".join(frames)
    count = min(limit, len(frames))
    for run, wanted in ((codec.SendRun(limit), 9), (codec.SendRun(9), limit)):
        assert codec.read_sends(stream, 0, len(stream), MAX_FRAME, run, True, wanted) == len(
            b"".join(frames[:count])
        )
        assert run.count == count


@given(send_frames(7), send_frames(7), st.data())
def test_an_incomplete_frame_waits(
    codec: SimpleNamespace, first: bytes, second: bytes, data: st.DataObject
) -> None:
    stream = first + second
    limit = len(first) + data.draw(st.integers(0, len(second) - 1))
    run = codec.SendRun()
    for buffer in (stream, stream[:limit]):
        assert codec.read_sends(buffer, 0, limit, MAX_FRAME, run, True, 9) == len(first)
        assert (run.count, run.error) == (1, 0)
        assert codec.read_sends(buffer, len(first), limit, MAX_FRAME, run, True, 9) == len(first)
        assert (run.count, run.error) == (0, 0)
        assert codec.next_frame(buffer, len(first), limit, MAX_FRAME) == 0


@given(send_commands(7, plain=False), entries())
def test_what_is_not_plain_is_left_alone(codec: SimpleNamespace, command: BaseCommand, entry: bytes) -> None:
    good = encode_with_payload(BaseCommand(type=6, send={"producer_id": 7, "sequence_id": 1}), entry)
    bad = encode_with_payload(command, entry)
    run = codec.SendRun()
    stream = good + bad + good
    assert codec.read_sends(stream, 0, len(stream), MAX_FRAME, run, True, 9) == len(good)
    assert run.count == 1
    assert codec.read_sends(stream, len(good), len(stream), MAX_FRAME, run, True, 9) == len(good)
    assert (run.count, run.error) == (0, 2)


def test_a_number_beyond_64_bits_is_not_plain(codec: SimpleNamespace) -> None:
    run, acks = codec.SendRun(), codec.AckRun()
    for number in (b"\xff" * 9 + b"\x03", b"\x80" * 9 + b"\x7f", b"\x80" * 10 + b"\x00"):
        body = b"\x08\x07\x10" + number
        send = frame(b"\x08\x06\x32" + bytes((len(body),)) + body, b"\x00\x00\x00\x01..")
        assert codec.read_sends(send, 0, len(send), MAX_FRAME, run, True, 9) == 0
        assert (run.count, run.error) == (0, 2)
        body = b"\x08\x07\x10\x00\x1a" + bytes((len(number) + 3,)) + b"\x08\x01\x10" + number
        ack = frame(b"\x08\x0a\x52" + bytes((len(body),)) + body)
        assert codec.read_acks(ack, 0, len(ack), MAX_FRAME, acks) == 0
        assert acks.count == 0


@given(send_frames(7, checked=True), st.data())
def test_a_changed_byte_is_noticed(codec: SimpleNamespace, good: bytes, data: st.DataObject) -> None:
    start = codec.command_bounds(good, 0)[1]
    position = data.draw(st.integers(start + 10, len(good) - 1))
    bad = bytearray(good)
    bad[position] ^= data.draw(st.integers(1, 255))
    stream = good + bytes(bad) + good
    run = codec.SendRun()
    assert codec.read_sends(stream, 0, len(stream), MAX_FRAME, run, True, 9) == len(good)
    end = codec.read_sends(stream, len(good), len(stream), MAX_FRAME, run, True, 9)
    assert (end, run.count, run.error) == (2 * len(good), 0, 1)
    assert run.error_sequence_id == signed(decode_command(good, 0).send.sequence_id)
    assert codec.read_sends(stream, len(good), len(stream), MAX_FRAME, run, False, 9) == len(stream)


@pytest.mark.parametrize(
    "entry",
    [
        b"",
        b"\x00\x00",
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x00payload",
        b"\x00\x00\x00\x09short",
        b"\xff\xff\xff\xffx",
        b"\x0e\x01",
        b"\x0e\x01\x00\x00\x00\x00",
        b"\x0e\x01\x00\x00\x00\x00\x00\x00\x00\x02x",
        b"\x0e\x02\x00\x00\x00\x00\x00\x00\x00\x02x",
    ],
    ids=bytes.hex,
)
@pytest.mark.parametrize("verify", [True, False])
def test_malformed_entries(codec: SimpleNamespace, entry: bytes, verify: bool) -> None:
    command = BaseCommand(type=6, send={"producer_id": 7, "sequence_id": 300})
    stream = encode_with_payload(command, entry)
    run = codec.SendRun()
    assert codec.read_sends(stream, 0, len(stream), MAX_FRAME, run, verify, 9) == len(stream)
    assert (run.count, run.error, run.error_sequence_id) == (0, 3, 300)


@given(other_frames())
def test_other_kinds_are_no_sends_and_no_acks(codec: SimpleNamespace, stream: bytes) -> None:
    run, acks = codec.SendRun(), codec.AckRun()
    assert codec.read_sends(stream, 0, len(stream), MAX_FRAME, run, True, 9) == 0
    assert (run.count, run.error) == (0, 0)
    assert codec.read_acks(stream, 0, len(stream), MAX_FRAME, acks) == 0
    assert acks.count == 0


@given(UNSIGNED, st.data())
def test_runs_of_acks(codec: SimpleNamespace, consumer_id: int, data: st.DataObject) -> None:
    commands = data.draw(st.lists(ack_commands(consumer_id), min_size=1, max_size=4))
    tail = data.draw(st.just(b"") | other_frames() | ack_commands(consumer_id ^ 1).map(encode_command))
    stream = b"".join(map(encode_command, commands)) + tail
    run = codec.AckRun(16)
    assert codec.read_acks(stream, 0, len(stream), MAX_FRAME, run) == len(stream) - len(tail)
    ids = [identity for command in commands for identity in command.ack.message_id]
    assert run.count == len(ids)
    assert run.consumer_id == signed(consumer_id)
    assert list(run.ledger_ids[: run.count]) == [signed(identity.ledgerId) for identity in ids]
    assert list(run.entry_ids[: run.count]) == [signed(identity.entryId) for identity in ids]


@given(st.lists(ack_commands(7), min_size=1, max_size=6), st.integers(1, 6))
def test_acks_beyond_the_capacity_wait(
    codec: SimpleNamespace, commands: list[BaseCommand], capacity: int
) -> None:
    stream = b"".join(map(encode_command, commands))
    run = codec.AckRun(capacity)
    end = codec.read_acks(stream, 0, len(stream), MAX_FRAME, run)
    taken = 0
    position = 0
    for command in commands:
        if taken + len(command.ack.message_id) > capacity:
            break
        taken += len(command.ack.message_id)
        position += len(encode_command(command))
    assert (end, run.count) == (position, taken)


@pytest.mark.parametrize("kind", range(8))
def test_acks_that_are_not_plain(codec: SimpleNamespace, kind: int) -> None:
    command = BaseCommand(type=BaseCommand.ACK, ack={"consumer_id": 7, "ack_type": 0})
    ack = command.ack
    identity = ack.message_id.add(ledgerId=1, entryId=2)
    good = encode_command(command)
    match kind:
        case 0:
            identity.ack_set.append(3)
        case 1:
            ack.request_id = 1
        case 2:
            ack.txnid_least_bits = 1
        case 3:
            ack.validation_error = 0
        case 4:
            ack.ack_type = 1
        case 5:
            identity.first_chunk_message_id.ledgerId = identity.first_chunk_message_id.entryId = 1
        case 6:
            ack.ClearField("message_id")
        case _:
            ack.properties.add(key="a", value=1)
    bad = encode_command(command)
    run = codec.AckRun()
    assert codec.read_acks(bad, 0, len(bad), MAX_FRAME, run) == 0
    assert run.count == 0
    assert codec.read_acks(good + bad, 0, len(good + bad), MAX_FRAME, run) == len(good)
    assert run.count == 1


@given(UNSIGNED, st.integers(0, 2**32 - 1))
def test_flow(codec: SimpleNamespace, consumer_id: int, permits: int) -> None:
    flow = BaseCommand(type=BaseCommand.FLOW, flow={"consumer_id": consumer_id, "messagePermits": permits})
    assert codec.read_flow(b"." + encode_command(flow), 1) == (signed(consumer_id), permits)


@pytest.mark.parametrize(
    "command",
    [
        b"\x08\x0b\x5a\x02\x08\x01",
        b"\x08\x0b\x5a\x05\x08\x01\x10\x01\x18",
        b"\x08\x0b\x5a\x09\x08\x01\x10\x01",
    ],
    ids=bytes.hex,
)
def test_flow_that_is_not_plain(codec: SimpleNamespace, command: bytes) -> None:
    assert codec.read_flow(frame(command), 0) is None


@given(st.lists(entries(), min_size=1, max_size=4), st.binary(max_size=30))
def test_what_the_metadata_says(codec: SimpleNamespace, chosen: list[bytes], broker_metadata: bytes) -> None:
    extra = b"\x0e\x02" + len(broker_metadata).to_bytes(4, "big") + broker_metadata
    stored = [extra + entry if index % 2 else entry for index, entry in enumerate(chosen)]
    buffer = b"".join(stored)
    starts, ends = array("q"), array("q")
    for entry in stored:
        starts.append(ends[-1] if ends else 0)
        ends.append(starts[-1] + len(entry))
    sizes = array("i", bytes(4 * len(stored)))
    timed = codec.batch_sizes(buffer, starts, ends, 0, len(stored), sizes)
    found = [parse_entry(entry).metadata for entry in chosen]
    assert timed == sum(m.HasField("deliver_at_time") for m in found)
    for index, metadata in enumerate(found):
        assert codec.deliver_at(buffer, starts[index], ends[index]) == metadata.deliver_at_time
        assert sizes[index] == metadata.num_messages_in_batch
        assert codec.publish_time(buffer, starts[index], ends[index]) == signed(metadata.publish_time)


@given(st.lists(st.none() | st.integers(0, 30), min_size=1, max_size=6), st.booleans())
def test_markers_have_no_messages(codec: SimpleNamespace, kinds: list[int | None], delayed: bool) -> None:
    buffer, starts, ends = b"", array("q"), array("q")
    for kind in kinds:
        metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, txnid_least_bits=1)
        if kind is not None:
            metadata.marker_type = kind
        if delayed:
            metadata.deliver_at_time = 7
        starts.append(len(buffer))
        buffer += build_entry(metadata, b"payload")
        ends.append(len(buffer))
    sizes = array("i", bytes(4 * len(kinds)))
    found = codec.batch_sizes(buffer, starts, ends, 0, len(kinds), sizes)
    assert list(sizes) == [1 if kind is None else 0 for kind in kinds]
    assert found & codec.MARKED == (codec.MARKED if set(kinds) != {None} else 0)
    assert found & codec.TRANSACTIONAL == (codec.TRANSACTIONAL if None in kinds else 0)
    assert found & ~(codec.MARKED | codec.TRANSACTIONAL) == (kinds.count(None) if delayed else 0)


@given(st.binary(max_size=60))
def test_metadata_that_cannot_be_read(codec: SimpleNamespace, entry: bytes) -> None:
    sizes = array("i", [0])
    buffer = b"\xff" * 8 + entry + b"\xff" * 8
    codec.batch_sizes(buffer, array("q", [8]), array("q", [8 + len(entry)]), 0, 1, sizes)
    assert sizes[0] >= 1 or b"\xa0\x01" in entry
    codec.publish_time(buffer, 8, 8 + len(entry))


@given(UNSIGNED.map(lambda kind: kind or 1))
def test_the_type_may_come_last(codec: SimpleNamespace, request_id: int) -> None:
    body = encode_command(
        BaseCommand(
            type=BaseCommand.CLOSE_PRODUCER, close_producer={"producer_id": 1, "request_id": request_id}
        )
    )[8:]
    stream = frame(body[2:] + body[:2])
    assert codec.next_frame(stream, 0, len(stream), MAX_FRAME) == BaseCommand.CLOSE_PRODUCER
    assert decode_command(stream, 0).close_producer.request_id == request_id


@pytest.mark.parametrize(
    "stream",
    [
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x05",
        b"\x00\x00\x00\x06\x00\x00\x00\x03",
        b"\x00\x00\x00\x06\x00\x00\x00\x01",
        b"\x00\x00\x00\x06\xff\xff\xff\xff",
        frame(b"\x08\x00"),
        frame(b"\x10\x01"),
        frame(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        frame(b"\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"),
        frame(b"\x12\x7fabc"),
        frame(b"\x0b\x01\x01"),
        frame(b"\x09abc"),
    ],
    ids=bytes.hex,
)
def test_sizes_that_lie(codec: SimpleNamespace, stream: bytes) -> None:
    with pytest.raises(FrameError):
        codec.next_frame(stream, 0, len(stream), MAX_FRAME)
    with pytest.raises(FrameError):
        codec.read_sends(stream, 0, len(stream), MAX_FRAME, codec.SendRun(), True, 9)
    with pytest.raises(FrameError):
        codec.read_acks(stream, 0, len(stream), MAX_FRAME, codec.AckRun())


def test_the_largest_frame(codec: SimpleNamespace) -> None:
    stream = frame(b"\x08\x12", bytes(90))
    assert codec.next_frame(stream, 0, len(stream), 100) == BaseCommand.PING
    with pytest.raises(FrameTooLarge, match="the frame has 100 bytes; at most 99"):
        codec.next_frame(stream[:4], 0, 4, 99)
    send = encode_with_payload(BaseCommand(type=6, send={"producer_id": 7, "sequence_id": 1}), bytes(90))
    with pytest.raises(FrameTooLarge):
        codec.read_sends(send, 0, len(send), len(send) - 1, codec.SendRun(), True, 9)
    with pytest.raises(FrameTooLarge):
        codec.next_frame(b"\xff\xff\xff\xff", 0, 4, MAX_FRAME)


@given(st.data())
def test_garbage_never_does_more_than_close_the_connection(
    codec: SimpleNamespace, data: st.DataObject
) -> None:
    stream = data.draw(st.binary(max_size=80) | send_frames() | ack_commands().map(encode_command))
    changed = bytearray(stream)
    for _ in range(data.draw(st.integers(0, 3))):
        if changed:
            changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    stream = bytes(changed)
    limit = data.draw(st.integers(0, len(stream)))
    send_run, ack_run = codec.SendRun(2), codec.AckRun(2)
    for call in (
        lambda: codec.next_frame(stream, 0, limit, MAX_FRAME),
        lambda: codec.read_sends(stream, 0, limit, MAX_FRAME, send_run, True, 2),
        lambda: codec.read_acks(stream, 0, limit, MAX_FRAME, ack_run),
    ):
        with suppress(FrameError):
            assert call() >= 0
    for index in range(send_run.count):
        assert 0 < send_run.starts[index] < send_run.ends[index] <= limit
    try:
        complete = codec.next_frame(stream, 0, limit, MAX_FRAME)
    except FrameError:
        return
    if complete == BaseCommand.FLOW:
        codec.read_flow(stream, 0)
    if complete:
        assert codec.frame_end(stream, 0) <= limit
        try:
            command = decode_command(stream, 0)
        except FrameError:
            return
        if send_run.count:
            assert command.send.num_messages == send_run.num_messages[0]
            assert signed(command.send.sequence_id) == send_run.sequence_ids[0]
            assert signed(command.send.producer_id) == send_run.producer_id
        if ack_run.count and command.type == BaseCommand.ACK:
            assert ack_run.ledger_ids[0] == signed(command.ack.message_id[0].ledgerId)


@st.composite
def ascending(draw: st.DrawFn) -> list[int]:
    """Ids that mostly ascend by one, as producers and consumers make them."""
    first = draw(st.sampled_from([0, 120, 126, 127, 128, 254, 255, 16380, 2**32 - 3, 2**63 - 3, 2**64 - 200]))
    steps = draw(st.lists(st.sampled_from([1, 1, 1, 1, 1, 0, 2, 127, 128, -127, -1]), max_size=12))
    ids = [first]
    for step in steps:
        ids.append((ids[-1] + step) % 2**64)
    return ids


@given(ascending(), st.booleans(), st.booleans(), st.data())
def test_sends_that_repeat_each_other(
    codec: SimpleNamespace, ids: list[int], chunks: bool, same_highest: bool, data: st.DataObject
) -> None:
    entry = data.draw(entries(checked=True))
    others = data.draw(st.lists(entries(checked=True), min_size=1, max_size=3))
    frames = []
    for index, each in enumerate(ids):
        command = BaseCommand(type=6, send={"producer_id": 300, "sequence_id": each})
        if chunks:
            command.send.is_chunk = True
        if same_highest:
            command.send.highest_sequence_id = 12345
        frames.append(encode_with_payload(command, others[index % len(others)] if index % 5 == 4 else entry))
    damaged = data.draw(st.none() | st.integers(0, len(frames) - 1))
    if damaged is not None:
        frames[damaged] = frames[damaged][:-1] + bytes((frames[damaged][-1] ^ 1,))
    stream = b"".join(frames)
    limit = len(stream) - data.draw(st.integers(0, 3))
    run = codec.SendRun(16)
    position = codec.read_sends(stream, 0, limit, MAX_FRAME, run, True, 16)
    expected = len(frames) if limit == len(stream) else len(frames) - 1
    if damaged is not None:
        expected = min(expected, damaged)
    assert run.count == expected
    if expected or damaged is None:
        assert position == len(b"".join(frames[:expected]))
    assert list(run.sequence_ids[:expected]) == [signed(each) for each in ids[:expected]]
    assert list(run.highest_sequence_ids[:expected]) == [12345 if same_highest else -1] * expected
    assert list(run.num_messages[:expected]) == [1] * expected
    assert run.chunks == (expected if chunks else 0)
    ends = [len(b"".join(frames[: index + 1])) for index in range(expected)]
    assert list(run.ends[:expected]) == ends
    for index in range(expected):
        assert stream[run.starts[index] : run.ends[index]] == (
            others[index % len(others)] if index % 5 == 4 else entry
        )


def test_a_sequence_that_goes_back(codec: SimpleNamespace) -> None:
    entry = build_entry(MessageMetadata(producer_name="p", sequence_id=1, publish_time=2), b"payload")
    ids = [253, 254, 255, 128, 129]
    frames = [BaseCommand(type=6, send={"producer_id": 7, "sequence_id": each}) for each in ids]
    stream = b"".join(encode_with_payload(command, entry) for command in frames)
    run = codec.SendRun()
    assert codec.read_sends(stream, 0, len(stream), MAX_FRAME, run, True, 9) == len(stream)
    assert list(run.sequence_ids[: run.count]) == ids


@given(ascending(), st.booleans(), st.integers(1, 16), st.integers(0, 3))
def test_acks_that_repeat_each_other(
    codec: SimpleNamespace, ids: list[int], partition: bool, capacity: int, cut: int
) -> None:
    frames = []
    for each in ids:
        command = BaseCommand(type=BaseCommand.ACK, ack={"consumer_id": 300, "ack_type": 0})
        identity = command.ack.message_id.add(ledgerId=77, entryId=each)
        if partition:
            identity.partition = -1
        frames.append(encode_command(command))
    stream = b"".join(frames)
    run = codec.AckRun(capacity)
    count = min(capacity, len(ids) - (1 if cut else 0))
    end = codec.read_acks(stream, 0, len(stream) - cut, MAX_FRAME, run)
    assert (end, run.count) == (len(b"".join(frames[:count])), count)
    assert list(run.entry_ids[:count]) == [signed(each) for each in ids[:count]]
    assert list(run.ledger_ids[:count]) == [77] * count
