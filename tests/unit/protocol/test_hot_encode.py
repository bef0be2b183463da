"""Writing frequent frames gives what protobuf gives."""

from __future__ import annotations

from array import array
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st
from strategies import UNSIGNED, signed

from magnetar.protocol.frames import encode_command, encode_with_payload
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

# Ids ascend from here: near the places where the number of bytes changes.
FIRST = st.sampled_from([0, 100, 127, 16380, 2**32 - 3, 2**63 - 20, 2**64 - 20]) | st.integers(0, 2**63 - 20)
INCREMENTS = st.lists(st.sampled_from([1, 1, 1, 2, 100, 128, 1000]), min_size=1, max_size=12)


def unsigned(number: int) -> int:
    return number % (1 << 64)


def receipt(producer_id: int, ledger_id: int, entry_id: int, sequence_id: int, highest: int) -> bytes:
    command = BaseCommand(type=BaseCommand.SEND_RECEIPT)
    command.send_receipt.producer_id = producer_id
    command.send_receipt.sequence_id = unsigned(sequence_id)
    command.send_receipt.message_id.ledgerId = ledger_id
    command.send_receipt.message_id.entryId = unsigned(entry_id)
    command.send_receipt.highest_sequence_id = unsigned(highest)
    return encode_command(command)


def message(
    consumer_id: int,
    ledger_id: int,
    entry_id: int,
    partition: int,
    entry: bytes,
    redelivery_count: int = 0,
    ack_set: list[int] | None = None,
    consumer_epoch: int | None = None,
) -> bytes:
    command = BaseCommand(type=BaseCommand.MESSAGE)
    command.message.consumer_id = consumer_id
    command.message.message_id.ledgerId = ledger_id
    command.message.message_id.entryId = unsigned(entry_id)
    command.message.message_id.partition = partition
    if redelivery_count:
        command.message.redelivery_count = redelivery_count
    command.message.ack_set.extend(ack_set or [])
    if consumer_epoch is not None:
        command.message.consumer_epoch = consumer_epoch
    return encode_with_payload(command, entry)


@given(UNSIGNED, UNSIGNED, FIRST, FIRST, INCREMENTS, st.booleans(), st.integers(0, 3))
def test_receipts(
    codec: SimpleNamespace,
    producer_id: int,
    ledger_id: int,
    first_entry_id: int,
    first_sequence_id: int,
    increments: list[int],
    batches: bool,
    before: int,
) -> None:
    sequences, highest = array("q", [7] * before), array("q", [9] * before)
    expected = b""
    sequence_id = first_sequence_id
    for index, increment in enumerate(increments):
        sequences.append(signed(unsigned(sequence_id)))
        highest.append(signed(unsigned(sequence_id + increment - 1)) if batches else -1)
        expected += receipt(
            producer_id, ledger_id, signed(first_entry_id) + index, sequences[-1], highest[-1]
        )
        sequence_id += increment
    written = codec.encode_receipts(
        signed(producer_id),
        signed(ledger_id),
        signed(first_entry_id),
        sequences,
        highest,
        before,
        len(increments),
    )
    assert written == expected


@given(FIRST, st.lists(UNSIGNED, min_size=1, max_size=8))
def test_receipts_of_any_sequence(codec: SimpleNamespace, first_entry_id: int, ids: list[int]) -> None:
    sequences = array("q", map(signed, ids))
    expected = b"".join(
        receipt(1, 2, signed(first_entry_id) + index, each, sequences[-1 - index])
        for index, each in enumerate(sequences)
    )
    highest = array("q", reversed(sequences))
    assert codec.encode_receipts(1, 2, signed(first_entry_id), sequences, highest, 0, len(ids)) == expected


def test_many_receipts(codec: SimpleNamespace) -> None:
    count = 40_000
    sequences, highest = array("q", range(count)), array("q", [-1] * count)
    written = bytes(codec.encode_receipts(1, 2, 50, sequences, highest, 0, count))
    for index in (0, 77, 78, 127, 128, 205, 206, 16333, 16334, 16383, 16384, count - 1):
        assert receipt(1, 2, 50 + index, index, -1) in written
    expected_size = sum(len(receipt(1, 2, 50 + index, index, -1)) for index in range(count))
    assert len(written) == expected_size


@given(
    UNSIGNED,
    UNSIGNED,
    FIRST,
    st.lists(st.binary(max_size=300) | st.just(b"0123456789"), min_size=1, max_size=8),
    st.integers(-1, 2**31 - 1),
    st.integers(0, 3),
)
def test_messages(
    codec: SimpleNamespace,
    consumer_id: int,
    ledger_id: int,
    first_entry_id: int,
    entries: list[bytes],
    partition: int,
    before: int,
) -> None:
    buffer = b""
    starts, ends = array("q", [0] * before), array("q", [0] * before)
    expected = b""
    for index, entry in enumerate(entries):
        buffer += b"gap"
        starts.append(len(buffer))
        buffer += entry
        ends.append(len(buffer))
        expected += message(consumer_id, ledger_id, signed(first_entry_id) + index, partition, entry)
    ids = (signed(consumer_id), signed(ledger_id), signed(first_entry_id))
    written = codec.encode_messages(*ids, buffer, starts, ends, before, len(entries), partition)
    assert written == expected
    assert codec.messages_size(*ids, starts, ends, before, len(entries), partition) == len(expected)


@given(st.integers(-1, 2**63 - 1), UNSIGNED, UNSIGNED, UNSIGNED, st.integers(1, 300))
def test_messages_with_an_epoch(
    codec: SimpleNamespace, epoch: int, consumer_id: int, ledger_id: int, first: int, count: int
) -> None:
    buffer = b"entry"
    starts, ends = array("q", [0] * count), array("q", [index % 6 for index in range(count)])
    ids = (signed(consumer_id), signed(ledger_id))
    written = codec.encode_messages(*ids, signed(first), buffer, starts, ends, 0, count, -1, epoch)
    wanted = None if epoch < 0 else epoch
    each = (
        codec.encode_message(*ids, signed(first + index), 0, None, wanted, buffer, 0, ends[index], -1)
        for index in range(count)
    )
    assert written == b"".join(each)


def test_many_messages(codec: SimpleNamespace) -> None:
    count = 1000
    buffer = bytes(range(256)) * 10
    starts = array("q", [index % 7 for index in range(count)])
    ends = array("q", [100 + index % 5 * 100 for index in range(count)])
    written = bytes(codec.encode_messages(3, 4, 120, buffer, starts, ends, 0, count))
    expected = b"".join(
        message(3, 4, 120 + index, -1, buffer[starts[index] : ends[index]]) for index in range(count)
    )
    assert written == expected


@given(
    UNSIGNED,
    UNSIGNED,
    UNSIGNED,
    st.integers(0, 2**32 - 1),
    st.none() | st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20),
    st.none() | UNSIGNED,
    st.binary(max_size=50),
    st.integers(-1, 2**31 - 1),
)
def test_one_message_with_everything(
    codec: SimpleNamespace,
    consumer_id: int,
    ledger_id: int,
    entry_id: int,
    redelivery_count: int,
    ack_set: list[int] | None,
    epoch: int | None,
    entry: bytes,
    partition: int,
) -> None:
    written = codec.encode_message(
        signed(consumer_id),
        signed(ledger_id),
        signed(entry_id),
        redelivery_count,
        ack_set,
        None if epoch is None else signed(epoch),
        b"xx" + entry + b"yy",
        2,
        2 + len(entry),
        partition,
    )
    assert written == message(
        consumer_id, ledger_id, entry_id, partition, entry, redelivery_count, ack_set, epoch
    )


@given(UNSIGNED, UNSIGNED, FIRST, st.lists(st.integers(0, 9), unique=True, max_size=10), st.integers(-1, 3))
def test_chosen_messages(
    codec: SimpleNamespace,
    consumer_id: int,
    ledger_id: int,
    first_entry_id: int,
    picked: list[int],
    partition: int,
) -> None:
    entries = [bytes([65 + index]) * (index * 7) for index in range(10)]
    buffer = b"-".join(entries)
    starts = array("q", [sum(len(e) + 1 for e in entries[:index]) for index in range(10)])
    ends = array("q", [start + len(entry) for start, entry in zip(starts, entries, strict=True)])
    chosen = array("q", sorted(picked))
    found = codec.encode_chosen(
        signed(consumer_id), signed(ledger_id), signed(first_entry_id), buffer, starts, ends, chosen,
        len(chosen), partition,
    )  # fmt: skip
    assert bytes(found) == b"".join(
        message(consumer_id, ledger_id, (first_entry_id + index) % 2**64, partition, entries[index])
        for index in chosen
    )


@given(UNSIGNED, FIRST, UNSIGNED, st.integers(-1, 1000), st.lists(st.binary(max_size=300), max_size=9))
def test_messages_that_share_an_id(
    codec: SimpleNamespace,
    ledger_id: int,
    entry_id: int,
    consumer_id: int,
    partition: int,
    entries: list[bytes],
) -> None:
    buffer, starts, ends = b"", array("q", [0]), array("q", [0])
    for entry in entries:
        starts.append(len(buffer) + 3)
        buffer += b"..." + entry
        ends.append(len(buffer))
    written = codec.encode_alike(
        signed(consumer_id),
        signed(ledger_id),
        signed(entry_id),
        buffer,
        starts,
        ends,
        1,
        len(entries),
        partition,
    )
    expected = (message(consumer_id, ledger_id, entry_id, partition, entry) for entry in entries)
    assert bytes(written) == b"".join(expected)


@given(UNSIGNED, st.sampled_from([0, -1, 127, 5000]), FIRST, st.lists(st.integers(1, 3), min_size=1))
def test_receipts_that_share_an_id(
    codec: SimpleNamespace, producer_id: int, entry_id: int, first: int, increments: list[int]
) -> None:
    sequences, sequence_id = array("q"), first
    for increment in increments:
        sequences.append(signed(unsigned(sequence_id)))
        sequence_id += increment
    highest = array("q", [-1] * len(sequences))
    written = codec.encode_receipts(
        signed(producer_id), entry_id, entry_id, sequences, highest, 0, len(sequences), 0
    )
    expected = (receipt(producer_id, unsigned(entry_id), entry_id, sequence, -1) for sequence in sequences)
    assert bytes(written) == b"".join(expected)
