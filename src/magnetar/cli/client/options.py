"""The flags of ``pulsar-client``, which are Pulsar's. Imports only :mod:`argparse` and its types."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from magnetar import __version__
from magnetar.cli.command_lines import SIZES, add_proxy_flags, count, positive, quantity
from magnetar.exit_codes import FAILED

_TYPES = ("Exclusive", "Shared", "Failover", "Key_Shared")
COMMANDS_OF_LATER = ("generate_documentation",)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Prints the error, and exits with 1, as Pulsar's tool does."""
        self.print_usage()
        self.exit(FAILED, f"{self.prog}: {message}\n")


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the whole command line."""
    root = _Parser(prog="pulsar-client", description="Sends and receives messages.", allow_abbrev=False)
    add = root.add_argument
    version = f"pulsar-client of Magnetar {__version__}"
    add("-v", "--version", action="version", version=version, help="print the version")
    add("--url", metavar="URL", help="service URL of the brokers (pulsar://localhost:6650)")
    add(
        "--auth-plugin",
        metavar="CLASS",
        help="authentication plugin: a Pulsar class name, or token, basic or tls",
    )
    add("--auth-params", metavar="TEXT", help="credentials for the authentication plugin")
    add("--listener-name", metavar="NAME", help="advertised listener to use")
    add("--tlsTrustCertsFilePath", metavar="FILE", help="PEM file with the trusted certificate authorities")
    add(
        "--memory-limit",
        "-ml",
        type=_size,
        metavar="SIZE",
        help="no effect: messages are sent one by one",
    )
    add_proxy_flags(root)
    commands = root.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    _produce(commands)
    _consume(commands)
    _read(commands)
    for name in COMMANDS_OF_LATER:
        commands.add_parser(name, help="not supported yet", add_help=False)
    return root


def _command(commands: Any, name: str, text: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
    made.add_argument("topic", metavar="TOPIC")
    return made


def _produce(commands: object) -> None:
    made = _command(commands, "produce", "send messages")
    add = made.add_argument
    add(
        "--messages",
        "-m",
        action="append",
        default=[],
        metavar="TEXT",
        help="contents of the messages, separated by the separator of -s (repeatable)",
    )
    add(
        "--files",
        "-f",
        action="append",
        default=[],
        metavar="FILE",
        help="file whose bytes are the content of one message (repeatable)",
    )
    add("--num-produce", "-n", type=positive, default=1, metavar="N", help="send all messages N times (1)")
    add(
        "--rate",
        "-r",
        type=_rate,
        default=0.0,
        metavar="R",
        help="maximum number of messages per second; 0: no limit (0)",
    )
    add("--disable-batching", "-db", action="store_true", help="store each message as a separate entry")
    add(
        "--separator",
        "-s",
        default=",",
        metavar="TEXT",
        help="separator between the messages of -m (,); if it is empty, each character is a message",
    )
    add(
        "--properties",
        "-p",
        action="append",
        default=[],
        metavar="K=V",
        help="property to add to each message (repeatable)",
    )
    add("--key", "-k", metavar="KEY", help="key of each message")
    add(
        "--value-schema",
        "-vs",
        default="bytes",
        metavar="SCHEMA",
        help="schema of the contents: bytes, string, avro:DEFINITION or json:DEFINITION (bytes)",
    )
    add("--disable-replication", "-dr", action="store_true", help="do not replicate the messages")
    add(
        "--chunking",
        "-c",
        action="store_true",
        help="if a message is larger than the maximum entry size, send it in chunks",
    )
    _add_keys(made)
    add(
        "--encryption-key-name",
        "-ekn",
        metavar="NAME",
        help="name of the encryption key",
    )
    add(
        "--encryption-key-value",
        "-ekv",
        metavar="URI",
        help="public key for encryption: a file: or data: URL of a PEM key",
    )


def _add_keys(made: argparse.ArgumentParser) -> None:
    """Adds the flags for messages with a key and a value (KEY_VALUE schemas)."""
    add = made.add_argument
    add(
        "--key-value-encoding-type",
        "-kvet",
        choices=("none", "separated", "inline"),
        default="none",
        help='encoding of key/value messages: "separated" puts the key in the message key, "inline" puts '
        'it in the content; "none", the default, sends messages that are not key/value messages',
    )
    add(
        "--key-value-key", "-kvk", metavar="KEY", help="key of a key/value message (default: the value of -k)"
    )
    add("--key-value-key-file", "-kvkf", metavar="FILE", help="file with the key of a key/value message")
    add(
        "--key-schema",
        "-ks",
        metavar="SCHEMA",
        help="schema of the key of key/value messages, in the form of --value-schema (string)",
    )


def _consume(commands: object) -> None:
    made = _command(commands, "consume", "receive messages")
    add = made.add_argument
    add("--subscription-name", "-s", required=True, metavar="NAME")
    add(
        "--subscription-type",
        "-t",
        choices=_TYPES,
        default="Exclusive",
        help="type of the subscription (Exclusive)",
    )
    add(
        "--subscription-mode",
        "-m",
        choices=("Durable", "NonDurable"),
        default="Durable",
        help="mode of the subscription (Durable)",
    )
    add(
        "--subscription-position",
        "-p",
        choices=("Latest", "Earliest"),
        default="Latest",
        help="start position of a new subscription (Latest)",
    )
    _add_printing(made)
    add("--replicated", "-rs", action="store_true", help="replicate the subscription's state")
    add(
        "--regex",
        action="store_true",
        help="treat TOPIC as a regular expression and consume all matching topics of its namespace",
    )
    add(
        "--start-timestamp",
        "-stp",
        type=int,
        default=0,
        metavar="MS",
        help="before receiving, move the subscription to this publish time, in ms since 1970; 0, the "
        "default, does not move it",
    )
    add(
        "--end-timestamp",
        "-etp",
        type=int,
        default=2**63 - 1,
        metavar="MS",
        help="stop at the first message published later than this time, in ms since 1970 (never)",
    )


def _read(commands: object) -> None:
    made = _command(commands, "read", "read messages without a durable subscription")
    add = made.add_argument
    add(
        "--start-message-id",
        "-m",
        default="latest",
        metavar="ID",
        help="where to start: earliest, latest, or after the message LEDGER:ENTRY (latest)",
    )
    add(
        "--start-message-id-inclusive",
        "-i",
        action="store_true",
        help="also read the message of --start-message-id",
    )
    _add_printing(made)


def _add_printing(made: argparse.ArgumentParser) -> None:
    """Adds the common flags of commands that print messages."""
    add = made.add_argument
    add(
        "--num-messages",
        "-n",
        type=count,
        default=1,
        metavar="N",
        help="stop after N messages; 0: no limit (1)",
    )
    add("--hex", action="store_true", help="print contents in hexadecimal")
    add("--hide-content", action="store_true", help="do not print contents")
    add(
        "--rate",
        "-r",
        type=_rate,
        default=0.0,
        metavar="R",
        help="maximum number of messages per second; 0: no limit (0)",
    )
    add(
        "--schema-type",
        "-st",
        choices=("bytes", "string", "auto_consume"),
        default="bytes",
        help="schema for printing contents (bytes); auto_consume uses the topic's schema and prints values "
        "as JSON",
    )
    add("--print-metadata", "-mp", action="store_true", help="also print the metadata of each message")
    add(
        "--queue-size",
        "-q",
        type=count,
        default=0,
        metavar="N",
        help="size of the receiver queue in messages; 0, the default, means 1000",
    )
    add(
        "--max_chunked_msg",
        "-mc",
        type=count,
        default=0,
        metavar="N",
        help="maximum number of incomplete chunked messages to keep; 0, the default, means 10",
    )
    add(
        "--auto_ack_chunk_q_full",
        "-ac",
        action="store_true",
        help="acknowledge the oldest incomplete chunked message when --max_chunked_msg is exceeded",
    )
    add(
        "--encryption-key-value",
        "-ekv",
        metavar="URI",
        help="private key for decryption: a file: or data: URL of a PEM key",
    )
    add(
        "--crypto-failure-action",
        "-ca",
        choices=("FAIL", "DISCARD", "CONSUME"),
        default="FAIL",
        help="if a message cannot be decrypted: FAIL, the default, leaves it unacknowledged; DISCARD "
        "acknowledges it; CONSUME prints it encrypted",
    )
    truths = ("true", "false")
    add(
        "--pool-messages",
        "-pm",
        choices=truths,
        default="true",
        help="no effect: configures buffers of the Java client",
    )


def _rate(text: str) -> float:
    number = float(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a rate; give messages per second, 0 or more")
    return number


def _size(text: str) -> int:
    return quantity(text, SIZES)
