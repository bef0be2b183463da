"""``magnetar top``: prints one table, or runs the interactive screen."""

from __future__ import annotations

import argparse
import json
import sys
import time

from magnetar.admin_client.errors import AdminError
from magnetar.cli.access_flags import access_values
from magnetar.cli.cluster_access import AccessRefused, cluster_access
from magnetar.cli.top.asking import TIMEOUT_SECONDS, Shown, TopicSelection, first_shown
from magnetar.cli.top.flags import MOST
from magnetar.cli.top.table import head, place, table
from magnetar.naming.errors import InvalidName

_COUNT = 20


def run_top(parsed: argparse.Namespace) -> int:
    """Returns the exit code: 0 success, also after an interrupt; 1 topics are not available; 128 plus a
    signal."""
    where = "the broker"
    try:
        access = cluster_access(access_values(parsed))
        where = access.admin_url
        http = access.http(timeout_seconds=TIMEOUT_SECONDS)
        namespace = parsed.namespace or ""
        if not (parsed.once or parsed.output == "json"):
            from magnetar.cli.top.screen import at_terminal, rows

            if at_terminal():
                from magnetar.cli.top.feed import Newest
                from magnetar.cli.top.live import watch
                from magnetar.cli.top.view import View

                view, most = View(parsed.order, namespace), parsed.count or MOST
                asked = view.asked(min(rows(), most))
                return watch(http, view, Newest(asked, first_shown(http, asked)), most)
        asked = TopicSelection(parsed.order, parsed.count or _COUNT, namespace=namespace)
        _print(first_shown(http, asked), parsed)
    except (AccessRefused, AdminError, InvalidName) as error:
        sys.stderr.write(f"magnetar: cannot watch {where}: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


def _print(shown: Shown, parsed: argparse.Namespace) -> None:
    if parsed.output == "json":
        sys.stdout.write(json.dumps(shown, indent=2) + "\n")
        return
    title = f"{place(shown, parsed.namespace or '')}   {head(shown)}"
    lines = [title, "", *table(shown["topics"], None, int(time.time() * 1000))]
    left = shown["total"] - len(shown["topics"])
    if left > 0:
        lines.append(f"and {left:,} more")
    sys.stdout.write("\n".join(lines) + "\n")
