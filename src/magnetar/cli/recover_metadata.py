"""``magnetar recover-metadata``: rebuild the metadata of a standalone broker from its ledgers."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def add_recover_metadata(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "recover-metadata",
        help="rebuild lost metadata from the ledgers",
        description="Rebuilds the metadata of a standalone broker from its ledgers, when the metadata are "
        "lost, damaged or older than the ledgers. The broker must not run. The old files are kept.",
    )
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", default=Path("data"), help="data directory (%(default)s)"
    )
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help="the broker's configuration file")
    parser.add_argument("--check", action="store_true", help="only report what would be rebuilt")


def run_recover_metadata(parsed: argparse.Namespace) -> int:
    """Returns the exit code: 0 the metadata were rebuilt, 1 they were not."""
    from magnetar.config.settings import ConfigurationError, load
    from magnetar.ledger.interface import LedgerError
    from magnetar.managed_ledger.errors import ManagedLedgerError
    from magnetar.metadata.interface import MetadataError
    from magnetar.server.logs import configure_logging
    from magnetar.server.metadata_recovery import NotRecovered, recover_metadata

    configure_logging("text", "warning")
    try:
        settings = load(parsed.config, frozenset(), {}).settings
    except ConfigurationError as error:
        for problem in error.problems:
            sys.stderr.write(f"magnetar: {problem}\n")
        return 1

    def tell(sentence: str) -> None:
        print(sentence, flush=True)

    try:
        recover_metadata(settings, parsed.data_dir, tell, check=parsed.check)
    except (NotRecovered, LedgerError, ManagedLedgerError, MetadataError, OSError) as error:
        sys.stderr.write(f"magnetar: cannot recover the metadata: {error}\n")
        return 1
    return 0
