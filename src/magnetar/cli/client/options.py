"""The flags of ``pulsar-client``, which are Pulsar's. Imports nothing but the parser."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from magnetar import __version__
from magnetar.cli.numbers import SIZES, count, positive, quantity

_TYPES = ("Exclusive", "Shared", "Failover", "Key_Shared")
COMMANDS_OF_LATER = ("generate_documentation",)

# (names, takes a value): Pulsar's flags for things that this command does not do.
_REFUSED_BY_ROOT = ((("--proxy-url",), True), (("--proxy-protocol",), True))


class _Refuse(argparse.Action):
    def __call__(
        self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: str | None = None
    ) -> NoReturn:
        parser.error(f"{option} is not supported by this pulsar-client")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Ends with 1, as Pulsar's."""
        self.print_usage()
        self.exit(1, f"{self.prog}: {message}\n")


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    root = _Parser(prog="pulsar-client", description="Sends and receives messages.", allow_abbrev=False)
    add = root.add_argument
    version = f"pulsar-client of Magnetar {__version__}"
    add("-v", "--version", action="version", version=version, help="print the version")
    add("--url", metavar="URL", help="where brokers are (pulsar://localhost:6650)")
    add(
        "--auth-plugin",
        metavar="CLASS",
        help="how to prove who asks: a class of Pulsar's, or token, basic, tls",
    )
    add("--auth-params", metavar="TEXT", help="what proves it")
    add("--listener-name", metavar="NAME", help="which of the advertised listeners to use")
    add("--tlsTrustCertsFilePath", metavar="FILE", help="who may have issued brokers' certificates")
    add(
        "--memory-limit",
        "-ml",
        type=_size,
        metavar="SIZE",
        help="changes nothing: messages are sent one by one",
    )
    _refuse(root, _REFUSED_BY_ROOT)
    commands = root.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    _produce(commands)
    _consume(commands)
    _read(commands)
    for name in COMMANDS_OF_LATER:
        commands.add_parser(name, help="not supported yet", add_help=False)
    return root


def _refuse(made: argparse.ArgumentParser, refused: Sequence[tuple[tuple[str, ...], bool]]) -> None:
    for names, value in refused:
        made.add_argument(*names, action=_Refuse, nargs=None if value else 0, help=argparse.SUPPRESS)


def _command(commands: Any, name: str, text: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
    made.add_argument("topic", metavar="TOPIC")
    return made


def _produce(commands: Any) -> None:
    made = _command(commands, "produce", "send messages")
    add = made.add_argument
    add(
        "--messages",
        "-m",
        action="append",
        default=[],
        metavar="TEXT",
        help="contents, split at the separator",
    )
    add("--files", "-f", action="append", default=[], metavar="FILE", help="files with a content each")
    add("--num-produce", "-n", type=positive, default=1, metavar="N", help="send all of them N times (1)")
    add(
        "--rate",
        "-r",
        type=_rate,
        default=0.0,
        metavar="R",
        help="messages a second at most; 0: no bound (0)",
    )
    add("--disable-batching", "-db", action="store_true", help="each message is an entry")
    add("--separator", "-s", default=",", metavar="TEXT", help="splits -m; empty: each character is one (,)")
    add("--properties", "-p", action="append", default=[], metavar="K=V", help="a property; several times")
    add("--key", "-k", metavar="KEY", help="of each message")
    add(
        "--value-schema",
        "-vs",
        default="bytes",
        metavar="SCHEMA",
        help="of contents: bytes, string, avro:DEFINITION or json:DEFINITION (bytes)",
    )
    add("--disable-replication", "-dr", action="store_true", help="keep the messages in this cluster")
    add("--chunking", "-c", action="store_true", help="send what is larger than an entry in several")
    _add_keys(made)
    add("--encryption-key-name", "-ekn", metavar="NAME", help="of the key that contents are encrypted for")
    add("--encryption-key-value", "-ekv", metavar="URI", help="that public key: file: or data:, in PEM")


def _add_keys(made: argparse.ArgumentParser) -> None:
    """Of messages that have a key and a value."""
    add = made.add_argument
    add(
        "--key-value-encoding-type",
        "-kvet",
        choices=("none", "separated", "inline"),
        default="none",
        help="contents have a key and a value; where the key is (none)",
    )
    add("--key-value-key", "-kvk", metavar="KEY", help="that key (it of -k)")
    add("--key-value-key-file", "-kvkf", metavar="FILE", help="a file that has it")
    add("--key-schema", "-ks", metavar="SCHEMA", help="of that key, as --value-schema (string)")


def _consume(commands: Any) -> None:
    made = _command(commands, "consume", "receive messages")
    add = made.add_argument
    add("--subscription-name", "-s", required=True, metavar="NAME")
    add("--subscription-type", "-t", choices=_TYPES, default="Exclusive", help="(Exclusive)")
    add("--subscription-mode", "-m", choices=("Durable", "NonDurable"), default="Durable", help="(Durable)")
    add("--subscription-position", "-p", choices=("Latest", "Earliest"), default="Latest", help="(Latest)")
    _add_printing(made)
    add("--replicated", "-rs", action="store_true", help="replicate the subscription's state")
    add("--regex", action="store_true", help="TOPIC is an expression; all topics of a namespace that match")
    add(
        "--start-timestamp",
        "-stp",
        type=int,
        default=0,
        metavar="MS",
        help="first move the subscription to what was published then, in ms since 1970; 0: do not (0)",
    )
    add(
        "--end-timestamp",
        "-etp",
        type=int,
        default=2**63 - 1,
        metavar="MS",
        help="end at the first message that was published later",
    )


def _read(commands: Any) -> None:
    made = _command(commands, "read", "read messages, without a subscription that is kept")
    add = made.add_argument
    add(
        "--start-message-id",
        "-m",
        default="latest",
        metavar="ID",
        help="behind which it begins: earliest, latest or LEDGER:ENTRY (latest)",
    )
    add("--start-message-id-inclusive", "-i", action="store_true", help="it begins with that one")
    _add_printing(made)


def _add_printing(made: argparse.ArgumentParser) -> None:
    """What commands that print messages have in common."""
    add = made.add_argument
    add("--num-messages", "-n", type=count, default=1, metavar="N", help="then it ends; 0: no end (1)")
    add("--hex", action="store_true", help="print contents in hexadecimal")
    add("--hide-content", action="store_true", help="print no contents")
    add(
        "--rate",
        "-r",
        type=_rate,
        default=0.0,
        metavar="R",
        help="messages a second at most; 0: no bound (0)",
    )
    add(
        "--schema-type",
        "-st",
        choices=("bytes", "string", "auto_consume"),
        default="bytes",
        help="auto_consume: print contents as JSON by the topic's schema (bytes)",
    )
    add("--print-metadata", "-mp", action="store_true", help="print the metadata, too")
    add("--queue-size", "-q", type=count, default=0, metavar="N", help="messages ahead; 0: 1000 (0)")
    add(
        "--max_chunked_msg",
        "-mc",
        type=count,
        default=0,
        metavar="N",
        help="messages of which some chunks are waited for; 0: 10 (0)",
    )
    add(
        "--auto_ack_chunk_q_full",
        "-ac",
        action="store_true",
        help="acknowledge the oldest when there are more",
    )
    add("--encryption-key-value", "-ekv", metavar="URI", help="a private key: file: or data:, in PEM")
    add(
        "--crypto-failure-action",
        "-ca",
        choices=("FAIL", "DISCARD", "CONSUME"),
        default="FAIL",
        help="of what it does not decrypt: leave it, acknowledge it, or print it as it is (FAIL)",
    )
    truths = ("true", "false")
    add("--pool-messages", "-pm", choices=truths, default="true", help="changes nothing: buffers of Java")


def _rate(text: str) -> float:
    number = float(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no rate")
    return number


def _size(text: str) -> int:
    return quantity(text, SIZES)
