"""The ``pulsar-client`` command: sends and receives messages."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from magnetar.cli.client.options import COMMANDS_OF_LATER, parser
from magnetar.cli.command_lines import say_not_there
from magnetar.cli.streams import on_standard_streams
from magnetar.exit_codes import FAILED


@on_standard_streams
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code: 0 success, 1 failure or wrong usage, as Pulsar's tool does."""
    known = parser()
    parsed, rest = known.parse_known_args(arguments)
    if parsed.command in COMMANDS_OF_LATER:
        return say_not_there("pulsar-client", parsed.command)
    if rest:
        known.error(f"Unknown option: '{rest[0].partition('=')[0]}'")
    if parsed.command is None:
        known.print_help(sys.stderr)
        return FAILED
    from magnetar.cli.client.command import perform

    return perform(parsed)


if __name__ == "__main__":
    sys.exit(main())
