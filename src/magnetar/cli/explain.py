"""``magnetar explain`` and ``explain-placement``: explain why messages wait, and why a broker owns a
bundle.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from textwrap import wrap
from typing import Any

from magnetar.cli.command_lines import access_values, add_access_flags
from magnetar.cli.printable import printable
from magnetar.exit_codes import FAILED, SUCCEEDED

_WIDTH = 100
"""Maximum width of sentences in characters; commands are not wrapped."""
_WELL = ("nothing", "at_end", "replicating", "resting")
"""The reasons that do not indicate a problem."""
_BOLD, _GREEN, _YELLOW, _CYAN = "1", "32", "33", "36"
Paint = Callable[[str, str], str]


def add_explain(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    explain = commands.add_parser(
        "explain",
        help="explain why messages of a topic do not arrive",
        description="Asks the broker of a topic why subscriptions receive nothing and why producers are "
        "refused or wait. Prints the reasons in words, with figures and the command that resolves "
        "the problem.",
    )
    explain.add_argument("topic", metavar="TOPIC", help="[persistent://]TENANT/NAMESPACE/NAME, or NAME alone")
    explain.add_argument("-s", "--subscription", metavar="NAME", help="explain only this subscription")
    explain.add_argument(
        "-o",
        "--output",
        choices=("text", "json"),
        default="text",
        help="output format (%(default)s)",
    )
    add_access_flags(explain)


def run_explain(parsed: argparse.Namespace) -> int:
    """Runs ``magnetar explain``; returns the exit code: 0 success, 1 no explanation is available."""
    from magnetar.admin_client import AdminClient, AdminError
    from magnetar.cli.cluster_access import AccessRefused, cluster_access
    from magnetar.naming.name_rules import InvalidName

    where = "the broker"
    try:
        access = cluster_access(access_values(parsed))
        where = access.admin_url
        admin = AdminClient(access.admin_url, authentication=access.authentication, tls=access.tls)
        found = admin.explain(parsed.topic, parsed.subscription)
    except (AccessRefused, AdminError, InvalidName, OSError) as error:
        sys.stderr.write(f"magnetar: no explanation from {where}: {error}\n")
        return FAILED
    if parsed.output == "json":
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        sys.stdout.write(text(found, _coloured if colours else _plain))
    return SUCCEEDED


def _plain(words: str, _colour: str) -> str:
    return words


def _coloured(words: str, colour: str) -> str:
    return f"\033[{colour}m{words}\033[0m"


def _printable(found: object) -> Any:
    """Returns the value with escapes for control characters in its strings, which contain names chosen by
    clients.
    """
    if isinstance(found, dict):
        return {printable(name): _printable(each) for name, each in found.items()}
    if isinstance(found, list):
        return [_printable(each) for each in found]
    return printable(found) if isinstance(found, str) else found


def text(found: dict[str, Any], paint: Paint = _plain) -> str:
    """Returns the explanation as text for a terminal."""
    found = _printable(found)
    if "partitions" in found:
        head = paint(found["topic"], _BOLD) + f": {len(found['partitions'])} partitions"
        return "\n\n".join([head, *(_topic(each, paint) for each in found["partitions"].values())]) + "\n"
    return _topic(found, paint) + "\n"


def _topic(found: dict[str, Any], paint: Paint) -> str:
    lines = [f"{paint(found['topic'], _BOLD)}, served by {found['servedBy']}"]
    lines += ["", *_side("producers", found["producers"], paint)]
    for name, each in found["subscriptions"].items():
        lines += ["", *_side(f"subscription {name}", each, paint)]
    if "transactions" in found:
        lines += ["", *_side("transactions", found["transactions"], paint)]
    if "offloading" in found:
        lines += ["", *_side("offloading", found["offloading"], paint)]
    for name, each in found.get("replication", {}).items():
        lines += ["", *_side(f"replication to {name}", each, paint)]
    for name, each in found.get("replicatedFrom", {}).items():
        lines += ["", *_side(f"replication from {name}", each, paint)]
    if not found["subscriptions"]:
        lines += ["", "The topic has no subscriptions, so no messages are kept for consumers."]
    return "\n".join(lines)


def _side(title: str, side: dict[str, Any], paint: Paint) -> list[str]:
    """Returns the lines on publishing or on a subscription: title and reason, the explanation, numbers, and
    commands.
    """
    reason = side["reason"]
    since = f" for {duration(side['seconds'])}" if "seconds" in side and reason not in _WELL else ""
    lines = [f"{title}: {paint(reason, _GREEN if reason in _WELL else _YELLOW)}{since}"]
    lines += _wrapped(side["sentence"])
    plain = {name: value for name, value in side["figures"].items() if isinstance(value, (str, int, float))}
    if plain:
        figures = ", ".join(f"{name} {_figure(value)}" for name, value in plain.items())
        lines += _wrapped(figures)
    lines += [f"  {word}: {paint(side[word], _CYAN)}" for word in ("try", "look") if word in side]
    for each in side.get("refused", ()):
        if each["reason"] != reason:
            lines.append(f"  refused before: {each['reason']}, {each['times']} times: {each['message']}")
    return lines


def _wrapped(words: str) -> list[str]:
    return wrap(words, _WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)


def _figure(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)


def duration(seconds: float) -> str:
    """Formats a duration, such as ``4.2 s``, ``3 min``, ``5 h`` or ``2 days``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min"
    if seconds < 2 * 86_400:
        return f"{seconds // 3600:.0f} h"
    return f"{seconds // 86_400:.0f} days"


def add_explain_placement(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    explain = commands.add_parser(
        "explain-placement",
        help="explain why a broker owns a bundle",
        description="Asks the leader of a cluster why a broker owns a bundle, which other brokers could own "
        "it and which could not, and what would cause a move.",
    )
    explain.add_argument(
        "bundle",
        metavar="TENANT/NAMESPACE/0xSTART_0xEND",
        help="bundle, in the form printed by pulsar-admin topics bundle-range",
    )
    add_access_flags(explain)
    explain.add_argument("--json", action="store_true", help="print all findings as JSON")


def run_explain_placement(parsed: argparse.Namespace) -> int:
    """Runs ``magnetar explain-placement``; returns the exit code: 0 success, 1 no explanation is
    available.
    """
    from magnetar.admin_client import AdminClient, AdminError
    from magnetar.cli.cluster_access import AccessRefused, cluster_access

    where = "the broker"
    try:
        access = cluster_access(access_values(parsed))
        where = access.admin_url
        admin = AdminClient(access.admin_url, authentication=access.authentication, tls=access.tls)
        found = admin.explain_placement(parsed.bundle)
    except (AccessRefused, AdminError, OSError) as error:
        sys.stderr.write(f"magnetar: no explanation from {where}: {error}\n")
        return FAILED
    sys.stdout.write(json.dumps(found, indent=2) + "\n" if parsed.json else placement_text(found))
    return SUCCEEDED


def placement_text(found: dict[str, Any]) -> str:
    """Returns the explanation of a placement as text for a terminal."""
    lines = [f"{found['bundle']}: {found['owner'] or 'not served'}", "", "Why:"]
    lines += [f"  {sentence}" for sentence in found["why"]]
    lines += ["", "Brokers:"]
    width = max((len(name) for name in found["brokers"]), default=0)
    lines += [f"  {name:{width}}  {word}" for name, word in found["brokers"].items()]
    lines += ["", "What would move it:"]
    lines += [f"  {sentence}" for sentence in found["wouldMove"]]
    return "\n".join(lines) + "\n"
