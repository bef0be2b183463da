"""``magnetar explain-placement BUNDLE``: why a bundle is at its broker, and what would move it."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from magnetar.cli.access_flags import access_values, add_access_flags


def add_explain_placement(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    explain = commands.add_parser(
        "explain-placement",
        help="explain why a broker owns a bundle",
        description="Asks the leader of a cluster why a broker serves a bundle, which other brokers could "
        "serve it and which could not, and what would move it.",
    )
    explain.add_argument(
        "bundle",
        metavar="TENANT/NAMESPACE/0xSTART_0xEND",
        help="bundle, as printed by pulsar-admin topics bundle-range",
    )
    add_access_flags(explain)
    explain.add_argument("--json", action="store_true", help="print everything as JSON")


def run_explain_placement(parsed: argparse.Namespace) -> int:
    """Returns the exit code: 0 success, 1 no explanation is available."""
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
        return 1
    sys.stdout.write(json.dumps(found, indent=2) + "\n" if parsed.json else text(found))
    return 0


def text(found: dict[str, Any]) -> str:
    """Returns the text for a terminal."""
    lines = [f"{found['bundle']}: {found['owner'] or 'not served'}", "", "Why:"]
    lines += [f"  {sentence}" for sentence in found["why"]]
    lines += ["", "Brokers:"]
    width = max((len(name) for name in found["brokers"]), default=0)
    lines += [f"  {name:{width}}  {word}" for name, word in found["brokers"].items()]
    lines += ["", "What would move it:"]
    lines += [f"  {sentence}" for sentence in found["wouldMove"]]
    return "\n".join(lines) + "\n"
