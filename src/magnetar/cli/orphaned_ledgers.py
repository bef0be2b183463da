"""``magnetar orphaned-ledgers``: finds ledgers on a cluster's bookies that no record names."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def add_orphaned_ledgers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "orphaned-ledgers",
        help="find ledgers of a cluster that no metadata record refers to",
        description="Finds ledgers that were created for a topic, subscription, schema or compaction but "
        "are not referred to by any metadata record, because a broker ended before it recorded "
        "them. Brokers may run meanwhile.",
    )
    parser.add_argument(
        "--config", type=Path, required=True, metavar="FILE", help="broker.conf of a broker of the cluster"
    )
    parser.add_argument(
        "--hours",
        type=_hours,
        default=24,
        metavar="N",
        help="minimum age of the ledgers in hours (%(default)s)",
    )
    parser.add_argument("--delete", action="store_true", help="delete the ledgers found")
    parser.add_argument(
        "--accept-unhonoured",
        action="append",
        default=[],
        metavar="KEY",
        help="same as for magnetar broker (repeatable)",
    )


def _hours(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) < 1 << 20):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of hours of 1 or more")
    return int(text)


def run_orphaned_ledgers(parsed: argparse.Namespace) -> int:
    """Returns the exit code: 0 the search is complete, 1 it failed."""
    from magnetar.config.settings import ConfigurationError, SettingsContradict, load
    from magnetar.errors import BrokerError
    from magnetar.exporting.errors import NotExported
    from magnetar.ledger.interface import LedgerError
    from magnetar.managed_ledger.errors import ManagedLedgerError
    from magnetar.metadata.interface import MetadataError
    from magnetar.server.logs import configure_logging
    from magnetar.server.orphaned_ledgers import orphaned_ledgers

    configure_logging("text", "warning")
    try:
        loaded = load(parsed.config, parsed.accept_unhonoured, cluster=True)
        assert loaded.cluster is not None
        count = orphaned_ledgers(
            loaded.settings,
            loaded.cluster,
            parsed.hours,
            lambda sentence: print(sentence, flush=True),
            delete=parsed.delete,
        )
    except ConfigurationError as error:
        for problem in error.problems:
            sys.stderr.write(f"magnetar: {problem}\n")
        return 1
    except (
        BrokerError,
        LedgerError,
        ManagedLedgerError,
        MetadataError,
        NotExported,
        OSError,
        SettingsContradict,
    ) as error:
        sys.stderr.write(f"magnetar: cannot look for orphaned ledgers: {error}\n")
        return 1
    more = "" if parsed.delete or not count else "; use --delete to delete them"
    sys.stdout.write(f"{count} orphaned ledgers{more}\n")
    return 0
