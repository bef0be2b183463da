"""Commands and entries over their full ranges."""

from __future__ import annotations

from crc32c import crc32c
from hypothesis import strategies as st

from magnetar.protocol.frames import encode_command, encode_with_payload
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata

EDGES = [0, 1, 127, 128, 16383, 16384, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 129, 2**64 - 1]
UNSIGNED = st.sampled_from(EDGES) | st.integers(0, 2**64 - 1)
SMALL = st.integers(0, 1000)


def signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


@st.composite
def entries(draw: st.DrawFn, checked: bool | None = None) -> bytes:
    """An entry with or without checksum, a batch or not."""
    metadata = MessageMetadata(
        producer_name=draw(st.text(max_size=8)),
        sequence_id=draw(UNSIGNED),
        publish_time=draw(UNSIGNED),
    )
    for key in draw(st.lists(st.text(max_size=3), max_size=2)):
        metadata.properties.add(key=key, value="X" * draw(st.integers(0, 200)))
    if draw(st.booleans()):
        metadata.num_messages_in_batch = draw(st.integers(1, 2**31 - 1))
    if draw(st.booleans()):
        metadata.schema_version = draw(st.binary(max_size=8))
    if draw(st.booleans()):
        metadata.deliver_at_time = draw(st.integers(-(1 << 63), (1 << 63) - 1))
    raw = metadata.SerializeToString()
    body = len(raw).to_bytes(4, "big") + raw + draw(st.binary(max_size=40))
    if draw(st.booleans()) if checked is None else checked:
        return b"\x0e\x01" + crc32c(body).to_bytes(4, "big") + body
    return body


@st.composite
def send_commands(draw: st.DrawFn, producer_id: int | None = None, plain: bool = True) -> BaseCommand:
    """SEND with everything that is allowed in a plain one; otherwise with something that is not."""
    command = BaseCommand(type=BaseCommand.SEND)
    send = command.send
    send.producer_id = draw(UNSIGNED) if producer_id is None else producer_id
    send.sequence_id = draw(UNSIGNED)
    if draw(st.booleans()):
        send.num_messages = draw(st.integers(1, 2**31 - 1))
    if draw(st.booleans()):
        send.highest_sequence_id = draw(UNSIGNED)
    if draw(st.booleans()):
        send.is_chunk = draw(st.booleans())
    if draw(st.booleans()):
        send.marker = False
    if not plain:
        match draw(st.integers(0, 4)):
            case 0:
                send.txnid_least_bits = draw(st.integers(1, 2**64 - 1))
            case 1:
                send.txnid_most_bits = draw(st.integers(1, 2**64 - 1))
            case 2:
                send.marker = True
            case 3:
                send.message_id.ledgerId = send.message_id.entryId = 1
            case _:
                send.num_messages = draw(st.integers(-(2**31), 0))
    return command


@st.composite
def send_frames(draw: st.DrawFn, producer_id: int | None = None, checked: bool | None = None) -> bytes:
    return encode_with_payload(draw(send_commands(producer_id)), draw(entries(checked)))


@st.composite
def ack_commands(draw: st.DrawFn, consumer_id: int | None = None) -> BaseCommand:
    """Plain individual ACKs."""
    command = BaseCommand(type=BaseCommand.ACK)
    command.ack.consumer_id = draw(UNSIGNED) if consumer_id is None else consumer_id
    command.ack.ack_type = 0
    for _ in range(draw(st.integers(1, 4))):
        identity = command.ack.message_id.add(ledgerId=draw(UNSIGNED), entryId=draw(UNSIGNED))
        if draw(st.booleans()):
            identity.partition = draw(st.integers(-1, 2**31 - 1))
        if draw(st.booleans()):
            identity.batch_index = draw(st.integers(-1, 100))
            identity.batch_size = draw(st.integers(0, 100))
    return command


@st.composite
def other_frames(draw: st.DrawFn) -> bytes:
    """Complete frames of infrequent kinds."""
    command = BaseCommand()
    match draw(st.integers(0, 2)):
        case 0:
            command.type = BaseCommand.PING
            command.ping.SetInParent()
        case 1:
            command.type = BaseCommand.CLOSE_PRODUCER
            command.close_producer.producer_id = draw(UNSIGNED)
            command.close_producer.request_id = draw(UNSIGNED)
        case _:
            command.type = BaseCommand.FLOW
            command.flow.consumer_id = draw(UNSIGNED)
            command.flow.messagePermits = draw(st.integers(0, 2**32 - 1))
    return encode_command(command)
