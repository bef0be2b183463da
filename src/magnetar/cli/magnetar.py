"""The ``magnetar`` command. Commands that start servers do not import the other commands."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from magnetar.cli.command_lines import CommandParser
from magnetar.cli.serving import SERVERS, add_servers
from magnetar.cli.streams import on_standard_streams
from magnetar.exit_codes import MISUSED


@on_standard_streams
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code: 0 success, 1 failure, 2 wrong usage."""
    words = sys.argv[1:] if arguments is None else arguments
    if words and words[0] in SERVERS:
        parser = _parser(servers_alone=True)
        parsed = parser.parse_args(words)
        return SERVERS[parsed.command](parsed)
    parser = _parser()
    parsed = parser.parse_args(words)
    if parsed.command == "completion":
        from magnetar.cli.completion import run_completion

        return run_completion(parsed, parser)
    from magnetar.cli.other_commands import OTHERS

    run = OTHERS.get(parsed.command)
    if run is None:
        parser.print_help(sys.stderr)
        return MISUSED
    return run(parsed)


class _Version(argparse.Action):
    """The option ``--version``: prints the version and exits. The details are collected only if the option is
    given, because collecting them takes time.
    """

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_given: object, **_options: object) -> None:
        from magnetar.build_info import description

        sys.stdout.write(f"{description()}\n")
        parser.exit()


def _parser(*, servers_alone: bool = False) -> argparse.ArgumentParser:
    """Returns the parser of the whole command line.

    :param servers_alone: whether to include only the commands that start servers
    """
    parser: argparse.ArgumentParser = CommandParser(
        prog="magnetar", description="A messaging system that speaks Apache Pulsar's protocols."
    )
    parser.add_argument(
        "--version",
        action=_Version,
        help="print the version, the commit, and whether the hot modules are compiled",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    if servers_alone:
        add_servers(commands)
        return parser
    from magnetar.cli.other_commands import add_others

    commands.add_parser("version", help="print the version")
    add_servers(commands)
    add_others(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
