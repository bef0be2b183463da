"""The ``pulsar-perf`` command: puts load on a broker and measures it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from magnetar.cli.command_lines import say_not_there
from magnetar.cli.perf.options import COMMANDS_OF_LATER, parser
from magnetar.cli.streams import on_standard_streams
from magnetar.exit_codes import MISUSED


@on_standard_streams
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code: 0 success, 1 failure, 2 wrong usage, 3 the measurement is not
    valid.
    """
    known = parser()
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given and given[0] in COMMANDS_OF_LATER:
        return say_not_there("pulsar-perf", given[0])
    parsed = known.parse_args(given)
    if parsed.command is None:
        known.print_help(sys.stderr)
        return MISUSED
    from magnetar.cli.perf.command import perform

    return perform(parsed, given)


if __name__ == "__main__":
    sys.exit(main())
