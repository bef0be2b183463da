"""The flags of ``magnetar tail``, ``produce`` and ``consume``. Imports only :mod:`argparse` and its types."""

from __future__ import annotations

import argparse
import math
import re
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from magnetar.cli.command_lines import add_access_flags, count, positive

TYPES = ("Exclusive", "Shared", "Failover", "Key_Shared")
MOST_LAST = 1000
"""Maximum value of ``--last``; it is limited because the command collects all these messages before it prints
them.
"""
_Commands = argparse._SubParsersAction  # argparse has no other name for it.
_AGO = re.compile(r"(\d{1,9})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_ID = re.compile(r"(\d{1,18}):(\d{1,18})")


def add_tail(commands: _Commands[argparse.ArgumentParser]) -> None:
    tail = _command(
        commands,
        "tail",
        "print the messages of a topic as they arrive",
        "Prints the messages of a topic as they arrive, one per line. Other subscriptions are not affected.",
    )
    begin = tail.add_mutually_exclusive_group()
    begin.add_argument(
        "--from",
        "--since",
        dest="start",
        type=_start,
        metavar="POSITION",
        help="start position: earliest, latest, LEDGER:ENTRY, a time like 2026-01-31T12:00:00Z, or an "
        "age like 10m, with unit s, m, h or d (default: latest, or earliest with --no-follow)",
    )
    begin.add_argument(
        "-n",
        "--last",
        type=_last,
        metavar="N",
        help=f"start with the last N matching messages, at most {MOST_LAST}",
    )
    tail.add_argument(
        "--until",
        type=_time,
        metavar="TIME",
        help="print only messages published before this time, which must be in the past",
    )
    tail.add_argument(
        "--no-follow",
        action="store_true",
        help="stop at the end of the topic instead of waiting for new messages",
    )
    tail.add_argument("--key", metavar="GLOB", help="print only messages whose key matches the glob")
    _add_properties(tail, "NAME=GLOB", "print only messages with this property (repeatable; all must match)")
    _add_output(tail)


def add_consume(commands: _Commands[argparse.ArgumentParser]) -> None:
    consume = _command(
        commands,
        "consume",
        "consume messages of a subscription",
        "Prints the messages of a subscription, one per line, and acknowledges those printed.",
    )
    consume.add_argument("-s", "--subscription", required=True, metavar="NAME")
    consume.add_argument(
        "-n", "--count", type=count, default=0, metavar="N", help="stop after N messages; 0: no limit (0)"
    )
    consume.add_argument(
        "--type", choices=TYPES, default="Exclusive", help="type of the subscription (%(default)s)"
    )
    consume.add_argument(
        "--earliest",
        action="store_true",
        help="start a new subscription at the first message (default: after the last one)",
    )
    consume.add_argument(
        "--no-ack", action="store_true", help="acknowledge no messages, so that all are redelivered"
    )
    _add_output(consume)


def add_produce(commands: _Commands[argparse.ArgumentParser]) -> None:
    produce = _command(
        commands,
        "produce",
        "send messages",
        "Sends the given messages, or the lines of a file or of standard input, and prints their ids.",
    )
    produce.add_argument("messages", nargs="*", metavar="MESSAGE")
    produce.add_argument(
        "--file", type=Path, metavar="FILE", help="read the messages from this file, one per line"
    )
    produce.add_argument("--key", metavar="KEY", help="key of each message")
    _add_properties(produce, "NAME=VALUE", "property of each message (repeatable)")
    produce.add_argument(
        "--rate",
        type=_rate,
        default=0.0,
        metavar="R",
        help="maximum number of messages per second (no limit)",
    )
    produce.add_argument("--count", type=positive, metavar="N", help="send each MESSAGE N times (1)")
    produce.add_argument(
        "--json",
        action="store_true",
        help="read messages as JSON objects in the form that tail and consume print with -o json",
    )


def _command(
    commands: _Commands[argparse.ArgumentParser], name: str, summary: str, description: str
) -> argparse.ArgumentParser:
    made = commands.add_parser(name, help=summary, description=description)
    made.add_argument("topic", metavar="TOPIC", help="[persistent://]TENANT/NAMESPACE/NAME, or NAME alone")
    made.add_argument("--url", metavar="URL", help="service URL of the brokers (pulsar://localhost:6650)")
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
        help="private key for decryption, in PEM: a path, or a file: or data: URL",
    )
    made.add_argument(
        "-o",
        "--output",
        choices=("text", "json"),
        default="text",
        help="output format of a message (%(default)s)",
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
        raise argparse.ArgumentTypeError(f"{text!r} is not a property; use NAME=VALUE")
    return name, value


def _last(text: str) -> int:
    number = positive(text)
    if number > MOST_LAST:
        raise argparse.ArgumentTypeError(f"{text} exceeds the maximum, {MOST_LAST}; give a smaller number")
    return number


def _rate(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a rate; give messages per second, above 0")
    return number


@dataclass(frozen=True, slots=True)
class Start:
    """A start position: exactly one of the fields is set."""

    end: str = ""
    """``earliest`` or ``latest``; empty: another field is set."""
    position: tuple[int, int] | None = None
    """(ledger id, entry id); None: another field is set."""
    time_ms: int | None = None
    """Publish time in milliseconds since 1970; None: another field is set."""


def start_of(text: str, now: float) -> Start:
    """Parses ``earliest``, ``latest``, ``LEDGER:ENTRY`` or a time.

    :param now: the present time, in seconds since 1970
    :raises ValueError: the text is not one of these
    """
    if text in ("earliest", "latest"):
        return Start(end=text)
    found = _ID.fullmatch(text)
    if found is not None:
        return Start(position=(int(found[1]), int(found[2])))
    try:
        return Start(time_ms=time_of(text, now))
    except ValueError as error:
        raise ValueError(
            f"{text!r} is not a start position; use earliest, latest, LEDGER:ENTRY or a time"
        ) from error


def time_of(text: str, now: float) -> int:
    """Parses an ISO 8601 time, which is local if it has no time zone, or an age such as ``10m`` (units s, m,
    h and d).

    :param now: the present time, in seconds since 1970, from which an age is subtracted
    :returns: the time in milliseconds since 1970
    :raises ValueError: the text is not a time or an age
    """
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(0, int((now - int(ago[1]) * _SECONDS[ago[2]]) * 1000))
    try:
        return max(0, int(datetime.fromisoformat(text).timestamp() * 1000))
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"{text!r} is not a time; use a time like 2026-01-31T12:00:00Z or an age like 10m (s, m, h, d)"
        ) from error
