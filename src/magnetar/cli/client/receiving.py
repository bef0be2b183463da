"""``pulsar-client consume`` and ``read``, and the format in which they print messages."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator

from magnetar.cli.command_lines import Refused
from magnetar.cli.messages.lines import SchemaDecoders, time_text
from magnetar.cli.messages.run import paced, private_key
from magnetar.client import Client, ConsumerType, CryptoFailureAction, InitialPosition, MessageId, Timeout
from magnetar.client.message import Message
from magnetar.client.opening import TopicsArguments
from magnetar.client.options import ConsumerOptions
from magnetar.client.readable import id_text

_POLL_MS = 5_000
_ID = re.compile(r"(\d{1,18}):(\d{1,18})")
_HEX_WIDTH = 16
_BOUNDARY = "----- got message -----"


def prepared(parsed: argparse.Namespace) -> TopicsArguments:
    """Returns the client options that the commands ``consume`` and ``read`` share.

    :raises Refused: options contradict each other
    :raises CryptoError: the private key cannot be read
    """
    if parsed.command == "consume" and not 0 <= parsed.start_timestamp <= parsed.end_timestamp:
        raise Refused(
            "--start-timestamp and --end-timestamp must be ms since 1970, and the end must be "
            "later than the start"
        )
    options: TopicsArguments = {
        "crypto_failure_action": CryptoFailureAction[parsed.crypto_failure_action],
        "crypto_key_reader": private_key("--encryption-key-value", parsed.encryption_key_value),
        "auto_ack_oldest_chunked_message_on_queue_full": parsed.auto_ack_chunk_q_full,
    }
    if parsed.command == "read":
        # Refused before a connection is opened.
        _message_id(parsed.start_message_id)
    # 0 means the default of clients.
    if parsed.queue_size:
        options["receiver_queue_size"] = parsed.queue_size
    if parsed.max_chunked_msg:
        options["max_pending_chunked_message"] = parsed.max_chunked_msg
    return options


def consume(client: Client, parsed: argparse.Namespace, options: TopicsArguments) -> str:
    """Prints and acknowledges messages; returns a summary for the user."""
    subscribe = client.subscribe_to_pattern if parsed.regex else client.subscribe
    options["consumer_type"] = ConsumerType[parsed.subscription_type.replace("_", "")]
    options["initial_position"] = InitialPosition[parsed.subscription_position]
    options["durable"] = parsed.subscription_mode == "Durable"
    options["replicate_subscription_state_enabled"] = parsed.replicated
    consumer = subscribe(parsed.topic, parsed.subscription_name, **options)
    if parsed.start_timestamp:
        consumer.seek(parsed.start_timestamp)
    taken = 0
    for message in _printed(client, consumer.receive, parsed, until_ms=parsed.end_timestamp):
        consumer.acknowledge(message)
        taken += 1
    return f"{taken} messages successfully consumed"


def read(client: Client, parsed: argparse.Namespace, options: TopicsArguments) -> str:
    """Prints messages; returns a summary for the user.

    :raises Refused: the topic has several partitions
    """
    if len(client.get_topic_partitions(parsed.topic, create=False)) > 1:
        raise Refused("read: the topic is partitioned; name one of its partitions")
    reader = client.create_reader(
        parsed.topic,
        _message_id(parsed.start_message_id),
        start_message_id_inclusive=parsed.start_message_id_inclusive,
        crypto_failure_action=options["crypto_failure_action"],
        crypto_key_reader=options["crypto_key_reader"],
        auto_ack_oldest_chunked_message_on_queue_full=options[
            "auto_ack_oldest_chunked_message_on_queue_full"
        ],
        receiver_queue_size=options.get("receiver_queue_size", ConsumerOptions.receiver_queue_size),
        max_pending_chunked_message=options.get(
            "max_pending_chunked_message", ConsumerOptions.max_pending_chunked_message
        ),
    )
    taken = sum(1 for _ in _printed(client, reader.read_next, parsed))
    return f"{taken} messages successfully read"


def _message_id(text: str) -> MessageId:
    if text in ("earliest", "latest"):
        return MessageId.earliest if text == "earliest" else MessageId.latest
    found = _ID.fullmatch(text)
    if found is None:
        raise Refused(
            f"--start-message-id: {text!r} is not a message id; use earliest, latest or LEDGER:ENTRY"
        )
    return MessageId(-1, int(found[1]), int(found[2]))


def _printed(
    client: Client,
    receive: Callable[[int], Message],
    parsed: argparse.Namespace,
    *,
    until_ms: int | None = None,
) -> Iterator[Message]:
    """Prints the requested number of messages unless ``--hide-content`` is given, and yields each of them.

    :param receive: waits for the next message; the argument is the maximum time to wait, in milliseconds
    :param until_ms: stop before the first message that was published after this time, in milliseconds since
        1970; None: no such limit
    """
    pace = paced(parsed.rate)
    shown = shower(parsed, SchemaDecoders(client, _warn))
    taken = 0
    while parsed.num_messages == 0 or taken < parsed.num_messages:
        try:
            message = receive(_POLL_MS)
        except Timeout:
            continue
        if until_ms is not None and message.publish_timestamp() > until_ms:
            return
        next(pace)
        if not parsed.hide_content:
            sys.stdout.write(shown(message))
            sys.stdout.flush()
        yield message
        taken += 1


def _warn(words: str) -> None:
    sys.stderr.write(f"pulsar-client: {words}\n")


def shower(parsed: argparse.Namespace, contents: SchemaDecoders) -> Callable[[Message], str]:
    """Returns a function that formats a message as the flags require.

    :param contents: decodes payloads with the schemas of their topics
    """

    def content(message: Message) -> str:
        if parsed.schema_type == "auto_consume":
            decoded = contents.decoded(message)
            if decoded is not None:
                return json.dumps(decoded[1], ensure_ascii=False)
        return dump(message.data()) if parsed.hex else message.data().decode("utf-8", "replace")

    def shown(message: Message) -> str:
        behind = metadata(message) if parsed.print_metadata else ""
        return f"{_BOUNDARY}\n{described(message, content(message))}{behind}\n"

    return shown


def described(message: Message, content: str) -> str:
    """Formats a message: its fields, followed by its content.

    :param content: the payload, as it is to be printed
    """
    properties = ", ".join(f"{key}={value}" for key, value in message.properties().items())
    return (
        f"publishTime:[{message.publish_timestamp()}], eventTime:[{message.event_timestamp()}], "
        f"key:[{message.partition_key() or 'null'}], properties:[{properties}], content:{content}"
    )


def metadata(message: Message) -> str:
    """Returns the lines that ``--print-metadata`` adds."""
    version = message.schema_version()
    event_time = time_text(message.event_timestamp()).replace(".000Z", "Z")
    return (
        f", event-time:{event_time}, message-id:{id_text(message.message_id())}, "
        f"producer-name:{message.producer_name()}, sequence-id:{message.sequence_id()}, "
        f"replicated-from:{message.replicated_from() or 'null'}, "
        f"redelivery-count:{message.redelivery_count()}, ordering-key:{message.ordering_key()}, "
        f"schema-version:{int.from_bytes(version, 'big', signed=True) if version else ''}"
    )


def dump(data: bytes) -> str:
    """Returns a hex dump: lines of 16 bytes with offset, hexadecimal digits and text."""
    lines = []
    for at in range(0, len(data), _HEX_WIDTH):
        part = data[at : at + _HEX_WIDTH]
        digits = "".join(f"{byte:02X} " for byte in part).ljust(3 * _HEX_WIDTH)
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08X} {digits}{text}\n")
    return "".join(lines)
