"""The ``pulsar-admin`` command."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from magnetar import __version__, left_out
from magnetar.admin_client.errors import AdminError
from magnetar.admin_client.http import AdminHttp
from magnetar.cli.admin.arguments import (
    AdminCommand,
    Root,
    UsageError,
    commands,
    leading_options,
    trailing_options,
)
from magnetar.cli.admin.call import SILENT, Action, Call
from magnetar.cli.admin.rendering import render
from magnetar.cli.cluster_access import AccessRefused, cluster_access
from magnetar.cli.command_lines import advice
from magnetar.cli.streams import bold, on_standard_streams, red
from magnetar.exit_codes import FAILED, SUCCEEDED
from magnetar.naming.name_rules import InvalidName

_GROUP_ALIASES = {"source": "sources", "sink": "sinks"}
_ALIASES = {
    "broker-stats destinations": "broker-stats topics",
    "functions getstatus": "functions status",
    "sources getstatus": "sources status",
    "sinks getstatus": "sinks status",
}
"""Maps Pulsar's aliases of commands to the full names."""


@on_standard_streams
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code: 0 success, 1 failure or wrong usage, as Pulsar's tool does."""
    try:
        return _run(list(sys.argv[1:] if arguments is None else arguments))
    except (AccessRefused, AdminError, InvalidName, UsageError) as error:
        reason = str(error)
    except UnicodeEncodeError as error:
        reason = f"{error.object!r} is not UTF-8"
    sys.stderr.write(f"{red(sys.stderr, 'pulsar-admin:')} {reason}\n")
    return FAILED


def _run(words: list[str]) -> int:
    root = Root()
    rest = leading_options(root, words)
    group = rest.pop(0) if rest and not root.version else ""
    group = _GROUP_ALIASES.get(group, group)
    if group:
        _check(group, "", {name.partition(" ")[0] for name in _names()})
        rest = leading_options(root, rest)
    if root.version:
        return _version()
    if not rest:
        return _told(root, group)
    name = f"{group} {rest.pop(0)}"
    name = _ALIASES.get(name, name)
    _check(name, f"{group} ", [each for each in _names() if each.startswith(f"{group} ")])
    if name in left_out.commands():
        raise UsageError(f"{name}: {left_out.commands()[name].reason}")
    command = commands()[name]
    rest = trailing_options(root, command, rest)
    if root.version:
        return _version()
    if root.help:
        return _help_of(command)
    answer = _action(name)(Call(_http(root), command.parse(rest)))
    if answer is not SILENT:
        sys.stdout.write(render(answer, root.form))
    return SUCCEEDED


def _version() -> int:
    sys.stdout.write(f"pulsar-admin of Magnetar {__version__}\n")
    return SUCCEEDED


def _told(root: Root, group: str) -> int:
    """Prints help if the command line contains no complete command; returns the exit code: 0 if the command
    line requests help, otherwise 1.
    """
    from magnetar.cli.admin import help as told

    text = told.of_group(group) if group else told.overview() if root.help else told.guide()
    sys.stdout.write(_with_headings(text))
    return SUCCEEDED if root.help else FAILED


def _help_of(command: AdminCommand) -> int:
    from magnetar.cli.admin.help import of_command

    sys.stdout.write(_with_headings(of_command(command)))
    return SUCCEEDED


def _with_headings(text: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(bold(sys.stdout, line) if line.endswith(":\n") else line for line in lines)


def _names() -> list[str]:
    """Returns the names of all commands, including unsupported ones."""
    return [*commands(), *left_out.commands()]


def _check(wanted: str, shared: str, known: Iterable[str]) -> None:
    """Checks that a command exists.

    :param shared: the prefix that all names have in common; suggestions leave it out
    :raises UsageError: the command is unknown
    """
    known = list(known)
    if wanted in known:
        return
    near = advice(wanted.removeprefix(shared), [each.removeprefix(shared) for each in known])
    raise UsageError(f"Unknown command: '{wanted}'{near}")


def _warn(sentence: str) -> None:
    sys.stderr.write(f"pulsar-admin: warning: {sentence}\n")


def _http(root: Root) -> AdminHttp:
    return cluster_access(root.flags).http(timeout_seconds=root.timeout_seconds, warn=_warn)


def _action(name: str) -> Action:
    """Returns the function that carries out a command."""
    from magnetar.cli.admin import (
        brokers,
        help,
        messages,
        packages,
        policies,
        resources,
        schemas,
        topics,
        transactions,
    )

    tables: tuple[dict[str, Action], ...] = (
        topics.ACTIONS,
        messages.ACTIONS,
        topics.BACKLOG_ACTIONS,
        resources.ACTIONS,
        brokers.ACTIONS,
        brokers.BOOKIE_ACTIONS,
        brokers.LOAD_ACTIONS,
        brokers.PROXY_ACTIONS,
        topics.CLUSTER_LIST_ACTIONS,
        policies.ACTIONS,
        schemas.ACTIONS,
        packages.ACTIONS,
        transactions.ACTIONS,
        help.ACTIONS,
    )
    return next(table[name] for table in tables if name in table)


if __name__ == "__main__":
    sys.exit(main())
