"""The handshake, and frames that lie: they cost the connection they came on, and nobody else."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator

import pytest
from raw_client import Client, Refused, command, entry_of
from raw_connection import RawConnection
from server import Server

from magnetar.errors import ServerErrorCode
from magnetar.protocol.frames import encode_command, encode_with_payload
from magnetar.protocol.pulsar_api_pb2 import AuthMethodNone, BaseCommand, FeatureFlags, KeyValue

MAX_FRAME = 5 * 1024 * 1024 + 10 * 1024


@pytest.fixture
def good(server: Server, topic: str) -> Iterator[Client]:
    """A client that must be able to go on, whatever others do."""
    client = Client(server.port)
    producer, _ = client.produce(topic)
    consumer = client.subscribe(topic, "s", permits=100)
    client.published(producer, [b"before"])
    assert client.message(consumer)[1] == b"before"
    yield client
    assert client.published(producer, [b"after"])
    assert client.message(consumer)[1] == b"after"
    client.close()


def test_connected_tells_version_limits_and_features(server: Server) -> None:
    client = Client(server.port, protocol_version=20)
    connected = client.connected
    assert connected.protocol_version == 20
    assert connected.max_message_size == 5 * 1024 * 1024
    assert connected.server_version
    assert connected.feature_flags.supports_topic_watchers
    assert Client(server.port, protocol_version=99).connected.protocol_version == 21


def test_connect_takes_feature_flags_and_authentication_none(server: Server) -> None:
    flags = FeatureFlags(supports_broker_entry_metadata=True, supports_partial_producer=True)
    Client(server.port, feature_flags=flags, auth_method=AuthMethodNone, auth_method_name="none").barrier()


def test_a_client_that_names_the_broker_it_wants_is_served(server: Server, topic: str) -> None:
    client = Client(server.port, proxy_to_broker_url="pulsar://localhost:6650")
    producer, _ = client.produce(topic)
    assert client.published(producer, [b"m"])


@pytest.mark.parametrize("kind", [BaseCommand.PING, BaseCommand.LOOKUP, BaseCommand.SEND])
def test_the_first_command_is_connect(server: Server, kind: int) -> None:
    fields = {
        BaseCommand.PING: {},
        BaseCommand.LOOKUP: {"topic": "t", "request_id": 1},
        BaseCommand.SEND: {"producer_id": 1, "sequence_id": 1},
    }[kind]
    connection = RawConnection(server.port)
    connection.send(command(kind, **fields), entry_of(b"m") if kind == BaseCommand.SEND else b"")
    assert connection.receive() is None


def test_a_second_connect_closes(server: Server) -> None:
    client = Client(server.port)
    client.send(command(BaseCommand.CONNECT, client_version="raw"))
    client.expect_closed()


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (BaseCommand.CONNECTED, {"server_version": "x"}),
        (BaseCommand.SUCCESS, {"request_id": 1}),
        (BaseCommand.SEND_RECEIPT, {"producer_id": 1, "sequence_id": 1}),
        (BaseCommand.AUTH_RESPONSE, {}),
    ],
)
def test_commands_of_brokers_close(server: Server, kind: int, fields: dict[str, object]) -> None:
    client = Client(server.port)
    client.send(command(kind, **fields))
    client.expect_closed()


def frame(total: int, size: int, rest: bytes) -> bytes:
    return struct.pack(">II", total, size) + rest


PING = encode_command(command(BaseCommand.PING))

HOSTILE = {
    "larger than any frame": struct.pack(">I", MAX_FRAME + 1),
    "4 GiB": b"\xff\xff\xff\xff",
    "no command": struct.pack(">I", 0),
    "command larger than the frame": frame(10, 100, b"\x08\x12" + bytes(20)),
    "command size 2^32-1": frame(10, 2**32 - 1, bytes(20)),
    "empty command": frame(10, 0, bytes(20)),
    "no type": frame(8, 4, b"\x12\x02\x08\x01"),
    "unknown type": frame(7, 3, b"\x08\xe7\x07"),
    "type that is too long": frame(16, 12, b"\x08" + b"\xff" * 11),
    "sub-message cut short": frame(8, 4, b"\x08\x03\x1a\x7f"),
    "required fields missing": frame(8, 4, b"\x08\x05\x2a\x00"),
    "send without entry": encode_command(command(BaseCommand.SEND, producer_id=1, sequence_id=1)),
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls": bytes.fromhex("16030102000100"),
    "zeros": bytes(4096),
    "garbage behind a good frame": PING + b"\xde\xad\xbe\xef" * 4,
}


@pytest.mark.parametrize("case", HOSTILE)
def test_lying_frames_close_only_their_connection(server: Server, good: Client, case: str) -> None:
    client = Client(server.port)
    client.send_bytes(HOSTILE[case])
    client.expect_closed()


def test_lying_frames_as_the_first_bytes(server: Server, good: Client) -> None:
    for hostile in HOSTILE.values():
        connection = RawConnection(server.port)
        connection.send_bytes(hostile)
        assert connection.receive() is None


def test_random_garbage_leaves_the_broker_well(server: Server, good: Client) -> None:
    chance = random.Random(4)
    sound = [
        encode_command(command(BaseCommand.LOOKUP, topic="t", request_id=1)),
        encode_command(command(BaseCommand.FLOW, consumer_id=1, messagePermits=5)),
        encode_command(command(BaseCommand.CLOSE_CONSUMER, consumer_id=1, request_id=2)),
        encode_with_payload(command(BaseCommand.SEND, producer_id=1, sequence_id=1), entry_of(b"m")),
    ]
    for _ in range(60):
        data = bytearray(chance.choice(sound))
        for _ in range(chance.randint(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        client = Client(server.port)
        client.send_bytes(bytes(data))
        client.close()


def test_a_truncated_frame_waits_and_goes_with_its_connection(server: Server, good: Client) -> None:
    for cut in (1, 3, 4, 7, 8, len(PING) - 1):
        client = Client(server.port)
        client.send_bytes(PING[:cut])
        client.close()


def test_a_frame_may_come_byte_by_byte(server: Server) -> None:
    client = Client(server.port)
    for byte in PING + PING:
        client.send_bytes(bytes((byte,)))
    client.take(BaseCommand.PONG)
    client.take(BaseCommand.PONG)


def test_the_largest_payload_fits(server: Server, topic: str) -> None:
    client = Client(server.port)
    producer, _ = client.produce(topic)
    consumer = client.subscribe(topic, "s", permits=1)
    largest = os.urandom(5 * 1024 * 1024)
    client.published(producer, [largest])
    assert client.message(consumer)[1] == largest


def test_texts_that_are_not_utf8_close_and_spoil_no_statistics(server: Server, topic: str) -> None:
    client = Client(server.port)
    client.produce(topic)
    for broken in (
        command(BaseCommand.CONNECT, client_version="abcd", protocol_version=21),
        command(BaseCommand.PRODUCER, topic="abcd", producer_id=1, request_id=1),
        command(
            BaseCommand.PRODUCER,
            topic=topic,
            producer_id=1,
            request_id=1,
            metadata=[KeyValue(key="abcd", value="")],
        ),
        command(BaseCommand.LOOKUP, topic="abcd", request_id=1),
    ):
        connection = RawConnection(server.port)
        if broken.type != BaseCommand.CONNECT:
            connection.connect()
        connection.send_bytes(encode_command(broken).replace(b"abcd", b"\xff\xfe\xfd\xfc"))
        assert connection.receive() is None
    assert server.ask("GET", f"/admin/v2/{topic.replace('://', '/')}/stats")[0] == 200


# SEND


def test_a_wrong_checksum_is_told_and_the_producer_goes_on(server: Server, topic: str) -> None:
    client = Client(server.port)
    producer, _ = client.produce(topic)
    client.publish(producer, 0, entry_of(b"first"))
    damaged = bytearray(entry_of(b"second"))
    damaged[-1] ^= 1
    client.publish(producer, 1, bytes(damaged))
    client.publish(producer, 2, entry_of(b"third"))
    error = client.take(BaseCommand.SEND_ERROR)
    assert (error.producer_id, error.sequence_id) == (producer, 1)
    assert error.error == ServerErrorCode.CHECKSUM
    assert [client.take(BaseCommand.SEND_RECEIPT).sequence_id for _ in range(2)] == [0, 2]
    consumer = client.subscribe(topic, "s", permits=10)
    assert [text for _m, text in client.messages(consumer, 2)] == [b"first", b"third"]


def test_an_entry_without_checksum_is_stored_as_it_came(server: Server, topic: str) -> None:
    client = Client(server.port)
    producer, _ = client.produce(topic)
    plain = entry_of(b"old client")[6:]
    client.publish(producer, 0, plain)
    client.take(BaseCommand.SEND_RECEIPT)
    consumer = client.subscribe(topic, "s", permits=1)
    assert client.take_frame(BaseCommand.MESSAGE, consumer_id=consumer)[1] == plain


def test_an_entry_whose_sizes_lie_is_refused_alone(server: Server, topic: str) -> None:
    client = Client(server.port)
    producer, _ = client.produce(topic)
    client.publish(producer, 7, struct.pack(">I", 1000) + b"\x08\x01")
    assert client.take(BaseCommand.SEND_ERROR).sequence_id == 7
    assert client.published(producer, [b"m"])


def test_unreadable_metadata_hurts_no_reader(server: Server, topic: str) -> None:
    client = Client(server.port)
    producer, _ = client.produce(topic)
    client.publish(producer, 0, struct.pack(">I", 4) + b"\xff\xff\xff\xff" + b"x")
    client.take(BaseCommand.SEND_RECEIPT)
    consumer = client.subscribe(topic, "s", permits=10)
    client.take(BaseCommand.MESSAGE)
    last = client.ask(
        BaseCommand.GET_LAST_MESSAGE_ID, BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE, consumer_id=consumer
    )
    assert last.last_message_id.batch_index == -1
    client.ask(BaseCommand.SEEK, BaseCommand.SUCCESS, consumer_id=consumer, message_publish_time=1)


def test_send_for_an_unknown_producer_closes(server: Server) -> None:
    client = Client(server.port)
    client.publish(77, 0, entry_of(b"m"))
    client.expect_closed()


def test_a_transactional_send_for_an_unknown_producer_closes(server: Server) -> None:
    client = Client(server.port)
    client.publish(77, 0, entry_of(b"m"), txnid_least_bits=1, txnid_most_bits=1)
    client.expect_closed()


def test_send_for_a_producer_just_closed_is_ignored(server: Server, topic: str) -> None:
    client = Client(server.port)
    producer, _ = client.produce(topic)
    client.close_producer(producer)
    client.publish(producer, 0, entry_of(b"m"))
    client.barrier()
    other, _ = client.produce(topic)
    client.published(other, [b"seen"])
    consumer = client.subscribe(topic, "s", permits=10)
    assert client.message(consumer)[1] == b"seen"


def test_ack_flow_and_redelivery_of_unknown_consumers_are_ignored(server: Server) -> None:
    client = Client(server.port)
    client.flow(99, 10)
    client.redeliver(99)
    client.acknowledge(99, [])
    client.barrier()


def test_requests_for_unknown_ids_are_answered(server: Server) -> None:
    client = Client(server.port)
    for kind in (BaseCommand.UNSUBSCRIBE, BaseCommand.SEEK, BaseCommand.GET_LAST_MESSAGE_ID):
        with pytest.raises(Refused) as refused:
            client.ask(kind, BaseCommand.SUCCESS, consumer_id=99)
        assert refused.value.code == ServerErrorCode.CONSUMER_NOT_FOUND
    client.close_consumer(99)
    client.close_producer(99)


def test_huge_permits_and_ids_are_taken_as_they_are(server: Server, good: Client, topic: str) -> None:
    client = Client(server.port)
    consumer = client.subscribe(topic, "huge", consumer_id=2**64 - 1, permits=2**32 - 1)
    for _ in range(3):
        client.flow(consumer, 2**32 - 1)
    producer, _ = client.produce(topic, producer_id=2**64 - 1)
    client.published(producer, [b"m"])
    assert [text for _m, text in client.messages(consumer, 2)][-1] == b"m"
    client.close()
    # The good client has the message, too: it is not what it waits for next.
    good.take(BaseCommand.MESSAGE)
