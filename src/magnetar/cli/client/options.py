"""The flags of ``pulsar-client``, which are Pulsar's. Imports nothing but the parser."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from magnetar import __version__
from magnetar.cli.numbers import count, positive

_TYPES = ("Exclusive", "Shared", "Failover", "Key_Shared")
COMMANDS_OF_LATER = ("generate_documentation",)

# (names, takes a value): Pulsar's flags for things that this command does not do.
_REFUSED_BY_ROOT = ((("--proxy-url",), True), (("--proxy-protocol",), True))
_REFUSED_BY_PRODUCE = (
    (("--chunking", "-c"), False),
    (("--key-value-key", "-kvk"), True),
    (("--key-value-key-file", "-kvkf"), True),
    (("--key-schema", "-ks"), True),
    (("--key-value-encoding-type", "-kvet"), True),
    (("--encryption-key-name", "-ekn"), True),
    (("--encryption-key-value", "-ekv"), True),
)
_REFUSED_BY_CONSUME = (
    (("--encryption-key-value", "-ekv"), True),
    (("--print-metadata", "-mp"), False),
    (("--start-timestamp", "-stp"), True),
    (("--end-timestamp", "-etp"), True),
)
_REFUSED_BY_READ = ((("--encryption-key-value", "-ekv"), True), (("--print-metadata", "-mp"), False))


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
    add("--memory-limit", "-ml", metavar="SIZE", help="changes nothing: messages are sent one by one")
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
    add("--separator", "-s", default=",", metavar="TEXT", help="splits -m; empty: it is one content (,)")
    add("--properties", "-p", action="append", default=[], metavar="K=V,...", help="properties")
    add("--key", "-k", metavar="KEY", help="of each message")
    add("--value-schema", "-vs", choices=("bytes", "string"), default="bytes", help="of contents (bytes)")
    add("--disable-replication", "-dr", action="store_true", help="keep the messages in this cluster")
    _refuse(made, _REFUSED_BY_PRODUCE)


def _consume(commands: Any) -> None:
    made = _command(commands, "consume", "receive messages")
    add = made.add_argument
    add("--subscription-name", "-s", required=True, metavar="NAME")
    add("--subscription-type", "-t", choices=_TYPES, default="Exclusive", help="(Exclusive)")
    add("--subscription-mode", "-m", choices=("Durable", "NonDurable"), default="Durable", help="(Durable)")
    add("--subscription-position", "-p", choices=("Latest", "Earliest"), default="Latest", help="(Latest)")
    _add_printing(made)
    add("--replicated", "-rs", action="store_true", help="replicate the subscription's state")
    _refuse(made, _REFUSED_BY_CONSUME)


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
    _refuse(made, _REFUSED_BY_READ)


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
    add("--schema-type", "-st", choices=("bytes",), default="bytes", help="(bytes)")
    add("--pool-messages", "-pm", metavar="TRUTH", help="changes nothing: buffers of Java")
    # Nothing can be decrypted, so that an encrypted message always fails.
    add("--crypto-failure-action", "-ca", choices=("FAIL",), default="FAIL", help=argparse.SUPPRESS)


def _rate(text: str) -> float:
    number = float(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no rate")
    return number
