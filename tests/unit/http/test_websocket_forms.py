"""Forms and parameters of WebSockets; whatever comes is understood or refused, and never breaks anything."""

from __future__ import annotations

import json
import random
import re
from base64 import b64encode
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.client.dead_letters import DeadLetterPolicy
from magnetar.client.enums import CompressionType, ConsumerType, CryptoFailureAction, HashingScheme
from magnetar.client.exceptions import InvalidMessage
from magnetar.client.message import Message
from magnetar.client.message_id import MessageId
from magnetar.client.options import ConsumerOptions
from magnetar.client.outgoing_message import MessageOptions
from magnetar.errors import InvalidRequest
from magnetar.http.websocket.figures import Traffic, WebSocketFigures, by_namespace, by_topic
from magnetar.http.websocket.forms import (
    PART_BYTES,
    BadForm,
    consumer_command,
    consumer_message,
    consumer_message_parts,
    iso_time,
    producer_ack,
    producer_message,
)
from magnetar.http.websocket.parameters import consumer_options, producer_options, pulls, reader_options
from magnetar.protocol.metadata import Entry
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata

PAYLOAD = b64encode(b"x").decode()


def message(**fields: Any) -> str:
    return json.dumps({"payload": PAYLOAD, **fields})


def test_everything_a_message_may_say() -> None:
    found = producer_message(
        message(
            properties={"a": "b", "n": 1},
            key="k",
            context=7,
            replicationClusters=["here"],
            eventTime="2024-01-01T01:00:00.12+01:00",
            deliverAfterMs=5,
        ),
        1000,
    )
    assert (found.payload, found.context) == (b"x", "7")
    assert found.options == {
        "properties": {"a": "b", "n": "1"},
        "partition_key": "k",
        "replication_clusters": ["here"],
        "event_timestamp": 1704067200120,
        "deliver_at": 1005,
    }
    MessageOptions(**found.options)


def test_times_are_as_java_writes_them() -> None:
    assert iso_time(1704067200120) == "2024-01-01T00:00:00.12Z"
    assert iso_time(1704067200000) == "2024-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("ms", "told"),
    [
        (2**64 - 1, "1969-12-31T23:59:59.999Z"),
        (253402300800000, "+10000-01-01T00:00:00Z"),
        (2**63 - 1, "+292278994-08-17T07:12:55.807Z"),
        (2**63, "-292275055-05-16T16:47:04.192Z"),
    ],
)
def test_any_time_that_was_sent_can_be_told(ms: int, told: str) -> None:
    assert iso_time(ms) == told


@pytest.mark.parametrize(
    "text", ["{", "[]", "null", "1", "[" * 100_000, message(properties=[]), message(key={})]
)
def test_what_is_no_message_is_refused(text: str) -> None:
    with pytest.raises(BadForm) as error:
        producer_message(text, 0)
    assert error.value.code == 3


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
_NAMES = st.sampled_from(
    [
        "payload",
        "context",
        "properties",
        "key",
        "replicationClusters",
        "eventTime",
        "deliverAt",
        "deliverAfterMs",
    ]
)
_SOUND = st.text(max_size=5)
_COMMANDS = st.sampled_from(["type", "messageId", "permitMessages"])


@given(st.dictionaries(_NAMES, _VALUES))
def test_any_json_is_a_message_or_refused(fields: dict[str, Any]) -> None:
    with suppress(BadForm, InvalidMessage):
        MessageOptions(**producer_message(json.dumps(fields), 0).options).fill(MessageMetadata())


@pytest.mark.parametrize(
    "fields",
    [
        {"eventTime": "1969-12-31T23:59:59Z"},
        {"deliverAt": 2**63},
        {"deliverAfterMs": 2**63 - 1},
        {"replicationClusters": ["\ud800"]},
    ],
)
def test_what_has_no_room_in_a_message_is_refused_before_it_is_counted(fields: dict[str, Any]) -> None:
    with pytest.raises((BadForm, InvalidMessage)):
        MessageOptions(**producer_message(message(**fields), 1).options)


@given(st.dictionaries(_COMMANDS, _VALUES))
def test_any_json_is_a_command_or_refused(fields: dict[str, Any]) -> None:
    with suppress(BadForm):
        consumer_command(json.dumps(fields))


@given(
    st.builds(
        lambda before, fields, behind: before + json.dumps(fields, ensure_ascii=False) + behind,
        st.sampled_from(["", " ", "\n\t"]),
        st.dictionaries(_COMMANDS, st.text(), min_size=3),
        st.sampled_from(["", " ", "\r\n", "x", "{}"]),
    )
)
def test_what_is_around_a_command_is_space_or_too_much(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError:
        expected = None
    try:
        found = consumer_command(text)
    except BadForm:
        # Characters such as U+001F are space for some functions of Python and not for others.
        assert (
            expected is None or re.fullmatch(r"[ \t\r\n]*\d+[ \t\r\n]*", expected["permitMessages"]) is None
        )
        return
    assert (found.type, found.message_id) == (expected["type"], expected["messageId"])


_SINGLE = st.builds(
    MessageOptions,
    properties=st.dictionaries(_SOUND, _SOUND, max_size=3),
    partition_key=st.none() | _SOUND,
    event_timestamp=st.none() | st.integers(0, 2**63 - 1),
)


@given(options=_SINGLE, content=st.binary(max_size=40), redelivered=st.integers(0, 2**31 - 1))
def test_what_is_written_is_json_of_what_was_sent(
    options: MessageOptions, content: bytes, redelivered: int
) -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1704067200120)
    options.fill(metadata)
    told = b64encode(MessageId(-1, 3, 4).serialize()).decode()
    sent = Message("t", MessageId(-1, 3, 4), Entry(None, metadata, content), b"", content, redelivered)
    written = consumer_message(sent, told)
    form: dict[str, Any] = {
        "messageId": told,
        "payload": b64encode(content).decode(),
        "properties": options.properties,
        "publishTime": "2024-01-01T00:00:00.12Z",
        "redeliveryCount": redelivered,
    }
    if options.event_timestamp:
        form["eventTime"] = iso_time(options.event_timestamp)
    if options.partition_key is not None:
        form["key"] = options.partition_key
    assert written == json.dumps(form, separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES, 2 * PART_BYTES + 5])
def test_parts_of_a_message_are_the_message(size: int) -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1704067200120)
    content = random.Random(size).randbytes(size)
    sent = Message("t", MessageId(-1, 3, 4), Entry(None, metadata, content), b"", content, 0)
    parts = list(consumer_message_parts(sent, "CAMQBA=="))
    assert "".join(part for part, _ in parts) == consumer_message(sent, "CAMQBA==")
    assert [last for _, last in parts] == [False] * (len(parts) - 1) + [True]
    assert len(parts) == -(-size // PART_BYTES) + 1


@given(st.none() | st.text(), st.binary(max_size=20))
def test_what_became_of_a_message_is_json(context: str | None, message_id: bytes) -> None:
    told = {"result": "ok", "messageId": b64encode(message_id).decode()}
    given_back = {} if context is None else {"context": context}
    form = {**told, **given_back, "errorCode": 0, "schemaVersion": 0}
    written = producer_ack(message_id, context)
    assert written == json.dumps(form, separators=(",", ":"), ensure_ascii=False)


@given(st.text())
def test_any_text_is_a_command_or_refused(text: str) -> None:
    with suppress(BadForm):
        consumer_command(text)


def test_parameters_of_producers() -> None:
    options = producer_options(
        {
            "producerName": "p",
            "batchingEnabled": "true",
            "compressionType": "ZSTD",
            "hashingScheme": "Murmur3_32Hash",
            "initialSequenceId": "5",
            "batchingMaxPublishDelay": "7",
        }
    )
    assert options["compression_type"] is CompressionType.ZSTD
    assert options["hashing_scheme"] is HashingScheme.Murmur3_32Hash
    assert (options["producer_name"], options["initial_sequence_id"]) == ("p", 5)
    assert (options["batching_enabled"], options["batching_max_publish_delay_ms"]) == (True, 7)


def test_parameters_of_consumers() -> None:
    options = consumer_options(
        {
            "subscriptionType": "Key_Shared",
            "subscriptionMode": "NonDurable",
            "subscriptionInitialPosition": "Earliest",
            "receiverQueueSize": "5000",
            "ackTimeoutMillis": "10",
            "maxRedeliverCount": "3",
            "deadLetterTopic": "dead",
            "cryptoFailureAction": "DISCARD",
        }
    )
    assert options["consumer_type"] is ConsumerType.KeyShared
    assert options["start_message_id"] == MessageId.earliest
    assert options["receiver_queue_size"] == 1000
    assert options["unacked_messages_timeout_ms"] == 10
    assert options["dead_letter_policy"] == DeadLetterPolicy(3, "dead")
    assert options["crypto_failure_action"] is CryptoFailureAction.DISCARD
    assert pulls({"pullMode": "TRUE"})


def test_parameters_of_readers() -> None:
    start, _ = reader_options({"messageId": b64encode(MessageId(-1, 3, 4).serialize()).decode()})
    assert start == MessageId(-1, 3, 4)
    assert reader_options({})[0] == MessageId.latest
    _, named = reader_options({"readerName": "r", "receiverQueueSize": "5"})
    options = ConsumerOptions(**named)
    assert (options.consumer_name, options.receiver_queue_size) == ("r", 5)


@pytest.mark.parametrize(
    "query",
    [
        {"subscriptionType": "shared"},
        {"receiverQueueSize": ""},
        {"cryptoFailureAction": "x"},
        {"priorityLevel": "-3"},
        {"negativeAckRedeliveryDelay": "-1"},
        {"priorityLevel": "2147483648"},
        {"ackTimeoutMillis": "1" + "0" * 400},
        {"maxRedeliverCount": "9" * 12},
    ],
)
def test_parameters_that_are_none_are_refused(query: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match="Invalid query params"):
        consumer_options(query)


@pytest.mark.parametrize(
    "query",
    [
        {"initialSequenceId": "-2"},
        {"initialSequenceId": "9223372036854775808"},
        {"sendTimeoutMillis": "1" + "0" * 400},
    ],
)
def test_parameters_of_producers_that_are_none_are_refused(query: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match="Invalid query params"):
        producer_options(query)


def test_figures() -> None:
    traffic = Traffic()
    traffic.was_published(10, 0.0007)
    traffic.was_published(10, 9.0)
    later = Traffic()
    later.add(traffic)
    later.was_delivered(4)
    [told] = by_namespace({"public/default": later}, {"public/default": traffic})
    assert told["dimensions"] == {"namespace": "public/default"}
    assert (told["metrics"]["ns_msg_publish_rate"], told["metrics"]["ns_byte_deliver_rate"]) == (0, 4)
    [told] = by_namespace({"public/default": later}, {})
    assert told["metrics"]["ns_msg_publish_latency_1000"] == 1
    assert told["metrics"]["ns_msg_publish_latency_1000000_higher"] == 1
    shown = by_topic(
        [
            WebSocketFigures(("t",), "p:1", traffic),
            WebSocketFigures(("t", "u"), "p:2", later, "s", "Shared", True),
        ]
    )
    assert shown["t"]["producerStats"] == [{"remoteConnection": "/p:1", "numberOfMsgPublished": 2}]
    assert shown["u"]["consumerStats"][0]["subscriptionMode"] == "Durable"
