"""The client's half of the hot codec, in both forms: it agrees with protobuf, or leaves the frame to it."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any

import pytest
from codec_forms import forms_of
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import UNSIGNED, entries, signed

from magnetar.protocol.errors import EntryError
from magnetar.protocol.frames import decode_command, encode_command, encode_with_payload
from magnetar.protocol.hot_codec import command_bounds, frame_end
from magnetar.protocol.metadata import parse_entry, split_batch
from magnetar.protocol.pulsar_api_pb2 import (
    BaseCommand,
    MessageIdData,
    MessageMetadata,
    SingleMessageMetadata,
)

MAX_FRAME = 1 << 20
_DECODE = forms_of("magnetar.protocol.hot_client_decode")
_ENCODE = forms_of("magnetar.protocol.hot_client_encode")
NUMBER = st.sampled_from([-1, 0, 1, 127, 128, 2**31, 2**63 - 1, -(2**63)]) | st.integers(-(2**63), 2**63 - 1)


METADATA = st.builds(
    lambda required, optional: MessageMetadata(**required, **optional),
    st.fixed_dictionaries(
        {"producer_name": st.text(max_size=4), "sequence_id": UNSIGNED, "publish_time": UNSIGNED}
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "partition_key": st.text(max_size=4),
            "compression": st.sampled_from([0, 0, 0, 2]),
            "uncompressed_size": st.integers(0, 300),
            "event_time": UNSIGNED,
            "schema_version": st.binary(max_size=9),
            "null_value": st.booleans(),
            "deliver_at_time": st.integers(-9, 9),
            **{
                name: st.integers(1, 3)
                for name in ("num_messages_in_batch", "num_chunks_from_msg", "chunk_id")
            },
            "encryption_algo": st.just("AES"),
        },
    ).map(lambda found: dict(list(found.items())[:4])),
)


@pytest.fixture(params=["interpreted", "compiled"], scope="module")
def hot(request: pytest.FixtureRequest) -> SimpleNamespace:
    decode, encode = _DECODE[request.param], _ENCODE[request.param]
    if decode is None or encode is None:
        pytest.skip("the hot modules are not compiled: python -m magnetar.hot build")
    return SimpleNamespace(**vars(decode), **{k: v for k, v in vars(encode).items() if k not in vars(decode)})


@st.composite
def ids(draw: st.DrawFn) -> MessageIdData:
    data = MessageIdData(ledgerId=draw(UNSIGNED), entryId=draw(UNSIGNED))
    if draw(st.booleans()):
        data.partition = draw(st.sampled_from([-1, 0, 7]))
    if draw(st.booleans()):
        data.batch_index = draw(st.sampled_from([-1, 0, 7]))
    return data


@st.composite
def receipts(draw: st.DrawFn, producer_id: int) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.SEND_RECEIPT)
    receipt = command.send_receipt
    receipt.producer_id, receipt.sequence_id = producer_id, draw(UNSIGNED)
    receipt.message_id.CopyFrom(draw(ids()))
    if draw(st.booleans()):
        receipt.highest_sequence_id = draw(UNSIGNED)
    return command


@st.composite
def messages(draw: st.DrawFn, consumer_id: int, epoch: int) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.MESSAGE)
    message = command.message
    message.consumer_id = consumer_id
    message.message_id.CopyFrom(draw(ids()))
    if draw(st.booleans()):
        message.redelivery_count = draw(st.integers(0, 2**31 - 1))
    if epoch >= 0:
        message.consumer_epoch = epoch
    return command


@settings(max_examples=150, deadline=None)
@given(data=st.data(), producer_id=UNSIGNED)
def test_receipts(hot: SimpleNamespace, data: st.DataObject, producer_id: int) -> None:
    commands = data.draw(st.lists(receipts(producer_id), min_size=1, max_size=5))
    buffer = b"".join(encode_command(command) for command in commands)
    run = hot.ReceiptRun(4)
    after = hot.read_receipts(buffer, 0, len(buffer), MAX_FRAME, run)
    taken = commands[: run.count]
    assert run.count == min(4, len(commands))
    assert after == sum(len(encode_command(command)) for command in taken)
    assert run.producer_id == signed(producer_id)
    wanted = [command.send_receipt for command in taken]
    assert list(run.sequence_ids[: run.count]) == [signed(each.sequence_id) for each in wanted]
    assert list(run.ledger_ids[: run.count]) == [signed(each.message_id.ledgerId) for each in wanted]
    assert list(run.entry_ids[: run.count]) == [signed(each.message_id.entryId) for each in wanted]


@settings(max_examples=150, deadline=None)
@given(data=st.data(), consumer_id=UNSIGNED, epoch=st.sampled_from([-1, 0, 1, 2**40]))
def test_messages(hot: SimpleNamespace, data: st.DataObject, consumer_id: int, epoch: int) -> None:
    parts = data.draw(st.lists(st.tuples(messages(consumer_id, epoch), entries()), min_size=1, max_size=4))
    frames = [encode_with_payload(command, entry) for command, entry in parts]
    buffer = b"".join(frames)
    run = hot.MessageRun()
    assert hot.read_messages(buffer, 0, len(buffer), MAX_FRAME, run, True) == len(buffer)
    assert (run.count, run.error) == (len(parts), 0)
    assert (run.consumer_id, run.epoch) == (signed(consumer_id), epoch)
    total = 0
    for index, (command, entry) in enumerate(parts):
        message = command.message
        assert run.ledger_ids[index] == signed(message.message_id.ledgerId)
        assert run.entry_ids[index] == signed(message.message_id.entryId)
        assert run.redeliveries[index] == message.redelivery_count
        assert buffer[run.starts[index] : run.ends[index]] == entry
        size = parse_entry(entry).batch_size
        assert run.batch_sizes[index] == (size or 0)
        total += size or 1
    assert run.total_messages == total


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_mutated_frames_are_read_as_protobuf_reads_them_or_left_to_it(
    hot: SimpleNamespace, data: st.DataObject
) -> None:
    if data.draw(st.booleans()):
        frame = bytearray(encode_command(data.draw(receipts(5))))
    else:
        frame = bytearray(encode_with_payload(data.draw(messages(5, -1)), data.draw(entries(True))))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(8, len(frame) - 1))] = data.draw(st.integers(0, 255))
    buffer = bytes(frame)
    receipt_run, message_run = hot.ReceiptRun(), hot.MessageRun()
    hot.read_receipts(buffer, 0, len(buffer), MAX_FRAME, receipt_run)
    hot.read_messages(buffer, 0, len(buffer), MAX_FRAME, message_run, True)
    if receipt_run.count:
        receipt = decode_command(buffer, 0).send_receipt
        assert receipt_run.sequence_ids[0] == signed(receipt.sequence_id)
        assert receipt_run.ledger_ids[0] == signed(receipt.message_id.ledgerId)
    if message_run.count:
        message = decode_command(buffer, 0).message
        assert message_run.entry_ids[0] == signed(message.message_id.entryId)
        assert message_run.starts[0] == command_bounds(buffer, 0)[1]
        assert message_run.ends[0] == frame_end(buffer, 0)


def test_what_is_not_plain_is_left_alone(hot: SimpleNamespace) -> None:
    send = bytes(hot.encode_send(1, 1, -1, 1, b"\x0a\x01p", 1, b"", b"x"))
    entry = send[command_bounds(send, 0)[1] :]
    command = BaseCommand(type=BaseCommand.MESSAGE)
    command.message.consumer_id = 1
    command.message.message_id.CopyFrom(MessageIdData(ledgerId=1, entryId=2))
    run = hot.MessageRun()

    def read(buffer: bytes) -> tuple[int, int, int]:
        after = hot.read_messages(buffer, 0, len(buffer), MAX_FRAME, run, True)
        return after, run.count, run.error

    whole = encode_with_payload(command, entry)
    damaged = whole[:-1] + b"y"
    assert read(damaged) == (0, 0, 1)
    assert read(whole + damaged) == (len(whole), 1, 0)
    assert read(whole[:-1]) == (0, 0, 0)
    assert read(encode_with_payload(command, b"\x0e\x01\0\0")) == (0, 0, 3)
    command.message.ack_set.append(1)
    assert read(encode_with_payload(command, entry)) == (0, 0, 2)
    other = BaseCommand(type=BaseCommand.MESSAGE)
    other.message.consumer_id = 2
    other.message.message_id.CopyFrom(MessageIdData(ledgerId=1, entryId=2))
    assert read(whole + encode_with_payload(other, entry)) == (len(whole), 1, 0)


@settings(max_examples=150, deadline=None)
@given(
    numbers=st.tuples(*[st.integers(0, 2**63 - 1)] * 3),
    highest=st.sampled_from([-1, 0, 2**62]),
    count=st.sampled_from([1, 2, 1000]),
    name=st.text(max_size=20),
    payload=st.binary(max_size=300),
)
def test_sends(
    hot: SimpleNamespace, numbers: tuple[int, int, int], highest: int, count: int, name: str, payload: bytes
) -> None:
    producer_id, sequence_id, publish_time = numbers
    head = MessageMetadata(producer_name=name).SerializePartialToString()
    tail = MessageMetadata(partition_key="k").SerializePartialToString()
    frame = bytes(
        hot.encode_send(producer_id, sequence_id, highest, count, head, publish_time, tail, payload)
    )
    send = decode_command(frame, 0).send
    assert (send.producer_id, send.sequence_id, send.num_messages) == (producer_id, sequence_id, count)
    assert send.HasField("highest_sequence_id") == (highest >= 0)
    assert frame_end(frame, 0) == len(frame)
    entry = parse_entry(frame[command_bounds(frame, 0)[1] :])
    assert entry.payload == payload
    metadata = entry.metadata
    assert (metadata.producer_name, metadata.sequence_id) == (name, sequence_id)
    assert (metadata.publish_time, metadata.partition_key) == (publish_time, "k")


@settings(max_examples=100, deadline=None)
@given(
    consumer_id=st.integers(0, 2**63 - 1),
    positions=st.lists(st.tuples(NUMBER, NUMBER), min_size=1, max_size=30),
    request_id=st.sampled_from([-1, 0, 5, 2**40]),
    kind=st.sampled_from([0, 1]),
)
def test_acks(
    hot: SimpleNamespace, consumer_id: int, positions: list[tuple[int, int]], request_id: int, kind: int
) -> None:
    ledgers = array("q", [0, *(position[0] for position in positions)])
    entry_ids = array("q", [0, *(position[1] for position in positions)])
    frame = bytes(hot.encode_acks(consumer_id, kind, ledgers, entry_ids, 1, len(positions), request_id))
    ack = decode_command(frame, 0).ack
    assert frame_end(frame, 0) == len(frame)
    assert (ack.consumer_id, ack.ack_type) == (consumer_id, kind)
    assert ack.HasField("request_id") == (request_id >= 0)
    found = [(signed(each.ledgerId), signed(each.entryId)) for each in ack.message_id]
    assert found == positions


@settings(max_examples=100, deadline=None)
@given(contents=st.lists(st.binary(max_size=2000), min_size=1, max_size=20), first=st.integers(0, 2**62))
def test_batches(hot: SimpleNamespace, contents: list[bytes], first: int) -> None:
    batch = hot.BatchBuffer()
    metadata = SingleMessageMetadata(partition_key="k").SerializePartialToString()
    for _ in range(2):
        for index, content in enumerate(contents):
            batch.add(metadata if index % 2 else b"", first + index, content)
        assert batch.count == len(contents)
        payload = batch.take()
        assert (batch.count, batch.size) == (0, 0)
        split = split_batch(payload, len(contents))
        assert [message.payload for message in split] == contents
        assert [message.metadata.sequence_id for message in split] == [
            first + index for index in range(len(contents))
        ]
        places: list[tuple[int, int, int]] = hot.split_places(payload, len(contents))
        assert [payload[middle:end] for _, middle, end in places] == contents
        assert [payload[start:middle] for start, middle, _ in places] == [
            message.metadata.SerializeToString() for message in split
        ]


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damaged_batches(hot: SimpleNamespace, data: st.DataObject) -> None:
    batch = hot.BatchBuffer()
    for index in range(3):
        batch.add(b"", index, b"content")
    payload = bytearray(batch.take())
    payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(payload[: data.draw(st.integers(0, len(payload)))])
    places: Any = hot.split_places(cut, 3)
    try:
        expected = [message.payload for message in split_batch(cut, 3)]
    except EntryError:
        return
    if places is not None:
        assert [cut[middle:end] for _, middle, end in places] == expected


def is_plain(metadata: MessageMetadata) -> bool:
    fields = ("num_messages_in_batch", "encryption_algo", "encryption_param", "num_chunks_from_msg")
    others = ("total_chunk_msg_size", "chunk_id")
    has_any = any(metadata.HasField(name) for name in (*fields, *others))
    return metadata.compression == 0 and not metadata.encryption_keys and not has_any


@settings(max_examples=300, deadline=None)
@given(metadata=METADATA, payload=st.binary(max_size=20), checksum=st.booleans())
def test_plain_payloads(
    hot: SimpleNamespace, metadata: MessageMetadata, payload: bytes, checksum: bool
) -> None:
    raw = metadata.SerializeToString()
    entry = (b"\x0e\x01\0\0\0\0" if checksum else b"") + len(raw).to_bytes(4, "big") + raw + payload
    start = hot.plain_payload(entry)
    assert (start >= 0) == is_plain(metadata)
    if start >= 0:
        assert entry[start:] == payload


@settings(max_examples=300, deadline=None)
@given(metadata=METADATA, data=st.data())
def test_damaged_plain_payloads(hot: SimpleNamespace, metadata: MessageMetadata, data: st.DataObject) -> None:
    raw = metadata.SerializeToString()
    entry = bytearray(len(raw).to_bytes(4, "big") + raw + b"payload")
    entry[data.draw(st.integers(0, len(entry) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(entry[: data.draw(st.integers(0, len(entry)))])
    start = hot.plain_payload(cut)
    assert -1 <= start <= len(cut)
    try:
        parsed = parse_entry(cut, verify_checksum=False)
    except EntryError:
        # Only what the payload does not depend on can be damaged, such as the inside of a property.
        return
    if start >= 0:
        assert is_plain(parsed.metadata)
        assert cut[start:] == parsed.payload


@given(
    ledger=NUMBER,
    entry=NUMBER,
    partition=st.integers(-1, 2**31 - 1),
    index=st.integers(-1, 2**31 - 1),
    size=st.integers(0, 2**31 - 1),
)
def test_ids_for_others(
    hot: SimpleNamespace, ledger: int, entry: int, partition: int, index: int, size: int
) -> None:
    expected = MessageIdData(ledgerId=ledger % 2**64, entryId=entry % 2**64)
    if partition >= 0:
        expected.partition = partition
    if index >= 0:
        expected.batch_index = index
    if size > 0:
        expected.batch_size = size
    written = hot.encode_message_id(ledger, entry, partition, index, size)
    assert written == expected.SerializeToString()
    assert hot.decode_message_id(written) == (ledger, entry, partition, index, size)


@given(data=st.binary(max_size=40) | st.builds(lambda each: bytes(each.SerializeToString()), ids()))
def test_ids_are_read_as_protobuf_reads_them_or_left_to_it(hot: SimpleNamespace, data: bytes) -> None:
    found = hot.decode_message_id(data)
    if found is not None:
        read = MessageIdData.FromString(data)
        assert not read.ack_set
        assert not read.HasField("first_chunk_message_id")
        told = (signed(read.ledgerId), signed(read.entryId), read.partition, read.batch_index)
        assert found == (*told, read.batch_size)
