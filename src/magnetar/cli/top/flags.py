"""The flags of ``magnetar top``. Imports only :mod:`argparse` and its types."""

from __future__ import annotations

import argparse

from magnetar.cli.command_lines import add_access_flags

ORDERS = ("name", "in", "out", "backlog", "waiting")
MOST = 100
"""Maximum number of topics in one answer of a broker."""


def add_top(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    top = commands.add_parser(
        "top",
        help="show live rates and backlogs of topics, and why messages wait",
        description="Shows the topics of a broker, updated live. Keys: i, o (order by rate in, out), b "
        "(backlog), w (waiting), n (name); / (filter by name), arrows (mark a topic), Enter "
        "(explain the marked topic), q (quit).",
    )
    top.add_argument("--namespace", metavar="TENANT/NAMESPACE", help="show only topics of this namespace")
    top.add_argument(
        "--broker",
        metavar="HOST:PORT",
        default="",
        help="broker to show, if --admin-url is the address of a proxy",
    )
    top.add_argument("--order", choices=ORDERS, default="in", help="column to sort by (%(default)s)")
    top.add_argument(
        "-n", "--count", type=_count, metavar="N", help=f"number of topics to print, from 1 to {MOST} (20)"
    )
    top.add_argument(
        "--once",
        action="store_true",
        help="print one table and exit (default if the output is not a terminal)",
    )
    top.add_argument(
        "-o",
        "--output",
        choices=("text", "json"),
        default="text",
        help="output format (%(default)s); json prints one object",
    )
    add_access_flags(top)


def _count(text: str) -> int:
    number = int(text)
    if not 0 < number <= MOST:
        raise argparse.ArgumentTypeError(f"{text} is out of range; give a number from 1 to {MOST}")
    return number
