"""The help of ``pulsar-admin``: an introduction, the commands of a group, or one command with an example."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from magnetar import left_out
from magnetar.cli.admin.arguments import USAGE, AdminCommand, Option, UsageError, commands
from magnetar.cli.admin.call import Action, Call
from magnetar.cli.admin.rendering import Rows

_USAGE = "Usage: pulsar-admin [OPTIONS] GROUP COMMAND [OPTIONS] [NAMES]"
_FIRST = (
    ("list namespaces", "pulsar-admin namespaces list public"),
    (
        "create a topic",
        "pulsar-admin topics create-partitioned-topic persistent://public/default/orders -p 4",
    ),
    (
        "show subscriptions and their backlogs",
        "pulsar-admin topics partitioned-stats persistent://public/default/orders",
    ),
    ("keep messages for a day", "pulsar-admin namespaces set-retention public/default --time 1d --size 10G"),
    ("explain why nothing arrives", "magnetar explain persistent://public/default/orders"),
)
_SAMPLES = {
    "topicName": "persistent://public/default/orders",
    "topic": "persistent://public/default/orders",
    "namespace": "public/default",
    "namespaceName": "public/default",
    "namespaces": "public/.*",
    "tenant": "public",
    "cluster": "standalone",
    "clusterName": "standalone",
    "clusters": "standalone",
    "subscription": "billing",
    "sub": "billing",
    "role": "alice",
    "roles": "alice,bob",
    "actions": "produce,consume",
    "bundle": "0x00000000_0x40000000",
    "config": "dispatchThrottlingRateInMsg",
    "value": "1000",
    "datetime": "2026-01-31T12:00:00Z",
    "delete-mode": "delete_when_no_subscriptions",
    "policy": "producer_exception",
    "subscription-auth-mode": "Prefix",
    "types": "Shared,Failover",
    "properties": "owner=alice",
    "params": "public/standalone",
    "url": "127.0.0.1:8080",
    "broker": "127.0.0.1:8080",
    "bookie": "127.0.0.1:3181",
    "filename": "schema.json",
    "packageName": "function://public/default/words@1",
    "auto-failover-policy-type": "min_available",
    "auto-failover-policy-params": "min_limit=1,usage_threshold=80",
}
_BY_KIND = {"int": "10", "long": "10", "double": "0.5", "duration": "1h", "size": "10M"}


def guide() -> str:
    """Returns a short introduction, which a call without arguments prints."""
    width = max(len(line) for _, line in _FIRST)
    lines = [
        "pulsar-admin queries and changes the broker at http://localhost:8080, or at --admin-url.",
        "",
        _USAGE,
    ]
    lines += ["", "To begin with:", *(f"  {line:<{width}}  {what}" for what, line in _FIRST)]
    lines += ["", "pulsar-admin --help lists the groups, pulsar-admin GROUP --help the commands, and"]
    lines += ["pulsar-admin GROUP COMMAND --help shows the options and an example."]
    return _text(lines)


def overview() -> str:
    """Returns the help on common options and on groups of commands."""
    groups: dict[str, int] = {}
    for name in commands():
        group = name.partition(" ")[0]
        groups[group] = groups.get(group, 0) + 1
    lines = [_USAGE, "Options, before or after the command:", *USAGE, "Groups:"]
    lines += [
        f"  {group:<22} {number} command{'s' * (number > 1)}" for group, number in sorted(groups.items())
    ]
    for subject in left_out.subjects().values():
        names = {name.partition(" ")[0] for name in subject.commands} - groups.keys()
        lines += [f"  {name:<22} {subject.reason}" for name in sorted(names)]
    return _text(lines)


def of_group(group: str) -> str:
    """Returns the help on the commands of a group."""
    found = {name: command.purpose for name, command in commands().items()}
    for subject in left_out.subjects().values():
        found |= {name: f"(not supported) {what}" for name, what in subject.commands.items()}
    lines = [f"Usage: pulsar-admin {group} COMMAND [OPTIONS] [NAMES]", "Commands:"]
    lines += [
        f"  {name.partition(' ')[2]:<44} {what}"
        for name, what in found.items()
        if name.startswith(f"{group} ")
    ]
    return _text(lines)


def of_command(command: AdminCommand) -> str:
    """Returns the help on one command: its options, operands and an example."""
    lines = [f"Usage: pulsar-admin {command.name} {_names(command)}".rstrip(), f"  {command.purpose}"]
    if command.options:
        lines.append("Options:")
    for option in command.options:
        default = "" if option.default in ("-", "false") else f" (default {option.default})"
        needed = " (required)" if option.required else ""
        lines.append(f"  {', '.join(option.names):<40} {option.purpose}{default}{needed}")
    lines += ["Example:", f"  pulsar-admin {command.name} {shlex.join(example(command))}".rstrip()]
    return _text(lines)


def example(command: AdminCommand) -> list[str]:
    """Returns the words of an example call of the command."""
    words = [_sample(operand) for operand in command.operands if operand.required]
    for option in command.options:
        if option.required:
            words += [next(name for name in option.names if name.startswith("-")), _sample(option)]
    # Some commands require one of several options.
    if any(option.key == "enable" for option in command.options):
        words.append("--enable")
    return words


def _sample(option: Option) -> str:
    if option.key in _SAMPLES:
        return _SAMPLES[option.key]
    kind = option.type.removesuffix(" comma")
    for name, value in _BY_KIND.items():
        if kind.startswith(name):
            return value
    if kind.startswith("enum"):
        return kind[5:-1].split(",")[0]
    if kind.startswith("map"):
        return "key=value"
    return f"my-{option.key.removesuffix('Name').replace('Name', '').lower()}"


def _names(command: AdminCommand) -> str:
    options = ["[OPTIONS]"] if command.options else []
    operands = (f"<{each.key}>" if each.required else f"[<{each.key}>]" for each in command.operands)
    return " ".join((*options, *operands))


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def markdown(groups: Iterable[str]) -> Iterator[str]:
    """Yields the lines, with line ends, of a Markdown page on the commands of the groups.

    :raises UsageError: a group is unknown
    """
    for group in groups:
        yield f"# {group}\n"
        for command in commands().values():
            if command.name.startswith(f"{group} "):
                yield from _section(command)


def _section(command: AdminCommand) -> Iterator[str]:
    yield f"\n## {command.name.partition(' ')[2]}\n\n{command.purpose}\n\n"
    yield f"    pulsar-admin {command.name} {_names(command)}".rstrip() + "\n"
    if command.options:
        yield "\n| option | meaning | default |\n| --- | --- | --- |\n"
    for option in command.options:
        names = ", ".join(f"`{name}`" for name in option.names)
        yield f"| {names} | {option.purpose} | {'' if option.default == '-' else f'`{option.default}`'} |\n"


def _generate(call: Call) -> object:
    known = list(dict.fromkeys(name.partition(" ")[0] for name in commands()))
    wanted = call["modules"] or known
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise UsageError(f"unknown group {unknown[0]!r}; run pulsar-admin --help for the groups")
    lines = list(markdown(wanted))
    return Rows(lines, "".join(lines))


ACTIONS: dict[str, Action] = {"documents generate": _generate}
