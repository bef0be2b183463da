"""The flags of the commands. Imports nothing but the parser."""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

from magnetar.cli.access_flags import add_access_flags
from magnetar.cli.messages.places import Start, start_of, time_of
from magnetar.cli.numbers import count, positive

TYPES = ("Exclusive", "Shared", "Failover", "Key_Shared")
MOST_LAST = 1000
"""They are kept until all of them are there."""
_Commands = argparse._SubParsersAction  # argparse has no other name for it.


def add_tail(commands: _Commands[argparse.ArgumentParser]) -> None:
    tail = _command(
        commands,
        "tail",
        "print a topic's messages as they come",
        "Prints the messages of a topic, a line each, as they come. It takes them from nobody.",
    )
    begin = tail.add_mutually_exclusive_group()
    begin.add_argument(
        "--from",
        "--since",
        dest="start",
        type=_start,
        metavar="PLACE",
        help="earliest, latest, a LEDGER:ENTRY, a time like 2026-01-31T12:00:00Z, or 10m (s, m, h, d) ago "
        "(latest; with --no-follow: earliest)",
    )
    begin.add_argument(
        "-n",
        "--last",
        type=_last,
        metavar="N",
        help=f"begin with the last N that are wanted, at most {MOST_LAST}",
    )
    tail.add_argument(
        "--until", type=_time, metavar="TIME", help="only what was published before a time that has passed"
    )
    tail.add_argument("--no-follow", action="store_true", help="end at the end of the topic")
    tail.add_argument("--key", metavar="GLOB", help="only messages whose key is like it")
    _add_properties(tail, "NAME=GLOB", "only messages with such a property; given several times, all of them")
    _add_output(tail)


def add_consume(commands: _Commands[argparse.ArgumentParser]) -> None:
    consume = _command(
        commands,
        "consume",
        "take messages from a subscription",
        "Prints the messages of a subscription, a line each, and acknowledges what is printed.",
    )
    consume.add_argument("-s", "--subscription", required=True, metavar="NAME")
    consume.add_argument(
        "-n", "--count", type=count, default=0, metavar="N", help="end after N; 0: never (0)"
    )
    consume.add_argument(
        "--type", choices=TYPES, default="Exclusive", help="of the subscription (%(default)s)"
    )
    consume.add_argument(
        "--earliest", action="store_true", help="a new subscription begins at the first message"
    )
    consume.add_argument("--no-ack", action="store_true", help="acknowledge nothing: it all comes again")
    _add_output(consume)


def add_produce(commands: _Commands[argparse.ArgumentParser]) -> None:
    produce = _command(
        commands,
        "produce",
        "send messages",
        "Sends messages and prints their ids: those named, else lines of a file or of standard input.",
    )
    produce.add_argument("messages", nargs="*", metavar="MESSAGE")
    produce.add_argument("--file", type=Path, metavar="FILE", help="a message a line")
    produce.add_argument("--key", metavar="KEY", help="of each message")
    _add_properties(produce, "NAME=VALUE", "of each message; may be given several times")
    produce.add_argument("--rate", type=_rate, default=0.0, metavar="R", help="messages a second at most")
    produce.add_argument("--count", type=positive, metavar="N", help="send each MESSAGE N times (1)")
    produce.add_argument(
        "--json", action="store_true", help="messages are what tail and consume print with -o json"
    )


def _command(
    commands: _Commands[argparse.ArgumentParser], name: str, summary: str, description: str
) -> argparse.ArgumentParser:
    made = commands.add_parser(name, help=summary, description=description)
    made.add_argument("topic", metavar="TOPIC", help="[persistent://]TENANT/NAMESPACE/NAME, or NAME alone")
    made.add_argument("--url", metavar="URL", help="where brokers are (pulsar://localhost:6650)")
    add_access_flags(made)
    return made


def _add_properties(made: argparse.ArgumentParser, form: str, text: str) -> None:
    made.add_argument(
        "--property", dest="properties", type=_pair, action="append", default=[], metavar=form, help=text
    )


def _add_output(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--private-key",
        metavar="KEY",
        help="to decrypt contents with: a file, file: or data: URL with a key in PEM",
    )
    made.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="the form of a line (%(default)s)"
    )


def _start(text: str) -> Start:
    try:
        return start_of(text, time.time())
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _time(text: str) -> int:
    try:
        return time_of(text, time.time())
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _last(text: str) -> int:
    number = positive(text)
    if number > MOST_LAST:
        raise argparse.ArgumentTypeError(f"{text} is above {MOST_LAST}")
    return number


def _rate(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no rate")
    return number
