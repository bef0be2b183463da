"""The ``pulsar-admin`` command."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from magnetar import __version__
from magnetar.admin_client.errors import AdminError
from magnetar.admin_client.http import AdminHttp
from magnetar.cli.admin.arguments import Command, UsageError, commands
from magnetar.cli.admin.call import SILENT, Action, Call
from magnetar.cli.admin.rendering import render
from magnetar.cli.admin.root import USAGE, Root, root_options
from magnetar.cli.cluster_access import AccessRefused, cluster_access
from magnetar.cli.not_there import not_there
from magnetar.cli.streams import on_standard_streams
from magnetar.naming.errors import InvalidName

_HELP = ("-h", "--help")


@on_standard_streams
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; answers the exit code: 0 well, 1 failed or not understood, as Pulsar's does."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        root, words = root_options(words)
        if root.version:
            sys.stdout.write(f"pulsar-admin of Magnetar {__version__}\n")
            return 0
        command, rest = _command(words)
        if command is None:
            sys.stderr.write(_overview(words))
            return 0 if any(word in _HELP for word in words) else 1
        if any(word in _HELP for word in rest):
            sys.stdout.write(command.usage())
            return 0
        action = _action(command.name)
        answer = action(Call(_http(root), command.parse(rest)))
    except (AccessRefused, AdminError, InvalidName, UsageError) as error:
        sys.stderr.write(f"pulsar-admin: {error}\n")
        return 1
    _print(answer)
    return 0


def _warn(sentence: str) -> None:
    sys.stderr.write(f"pulsar-admin: warning: {sentence}\n")


def _http(root: Root) -> AdminHttp:
    return cluster_access(root.flags).http(timeout_seconds=root.timeout_seconds, warn=_warn)


def _command(words: list[str]) -> tuple[Command | None, list[str]]:
    """The command that is named, and what follows it; None where only a group is, or nothing.

    :raises UsageError: there is no such command
    """
    if not words or words[0] in _HELP:
        return None, []
    groups = {name.partition(" ")[0] for name in commands()}
    if words[0] not in groups:
        raise UsageError(f"Unknown command: '{words[0]}'")
    if len(words) == 1 or words[1] in _HELP:
        return None, []
    command = commands().get(f"{words[0]} {words[1]}")
    if command is None:
        raise UsageError(f"Unknown command: '{words[0]} {words[1]}'")
    return command, words[2:]


def _action(name: str) -> Action:
    """:raises UsageError: this release does not have it"""
    from magnetar.cli.admin import (
        backlogs,
        bookies,
        load,
        messages,
        policies,
        proxies,
        resources,
        schemas,
        topics,
    )

    tables: tuple[dict[str, Action], ...] = (
        topics.ACTIONS,
        messages.ACTIONS,
        backlogs.ACTIONS,
        resources.ACTIONS,
        bookies.ACTIONS,
        load.ACTIONS,
        proxies.ACTIONS,
        policies.ACTIONS,
        schemas.ACTIONS,
    )
    for table in tables:
        if name in table:
            return table[name]
    raise UsageError(not_there(name))


def _overview(words: list[str]) -> str:
    """The groups, or the commands of one."""
    group = next((word for word in words if not word.startswith("-")), None)
    lines = ["Usage: pulsar-admin [OPTIONS] GROUP COMMAND ..."]
    if group is None:
        lines += USAGE
        lines += sorted({f"  {name.partition(' ')[0]}" for name in commands()})
    else:
        lines += [
            f"  {name.partition(' ')[2]:<44} {command.purpose}"
            for name, command in commands().items()
            if name.partition(" ")[0] == group
        ]
    return "\n".join(lines) + "\n"


def _print(answer: Any) -> None:
    if answer is not SILENT:
        sys.stdout.write(render(answer))


if __name__ == "__main__":
    sys.exit(main())
