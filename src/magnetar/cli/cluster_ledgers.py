"""``magnetar export-ledgers`` and ``magnetar orphaned-ledgers``: commands for the ledgers of a cluster."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.exit_codes import FAILED, MISUSED, SUCCEEDED

if TYPE_CHECKING:
    from magnetar.exporting.export import Selection
    from magnetar.server.export_ledgers import ExportPlace

_IDS_CHANGE = (
    "message ids change: use --mapping FILE to write the old and new ids, with which magnetar "
    "translate-positions translates message ids stored elsewhere (positions of readers, checkpoints of "
    "Spark), or --no-mapping if no ids are stored"
)


def add_export_ledgers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "export-ledgers",
        help="move topics from a standalone broker to a cluster, or back",
        description="Moves topics with all their data between a standalone broker and a cluster: copies "
        "them, checks the copy, and removes them from the source. The brokers of both sides must be "
        "stopped. Run the same command again to resume an interrupted export.",
        epilog="SOURCE and TARGET are the data directory of a standalone broker or the broker.conf of a "
        "cluster.",
    )
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        required=True,
        metavar="SOURCE",
        help="data directory or broker.conf that the topics are moved from",
    )
    parser.add_argument(
        "--to",
        dest="target",
        type=Path,
        required=True,
        metavar="TARGET",
        help="data directory or broker.conf that the topics are moved to",
    )
    parser.add_argument(
        "-t", "--topic", action="append", default=[], metavar="TOPIC", help="topic to move (repeatable)"
    )
    parser.add_argument(
        "-n",
        "--namespace",
        action="append",
        default=[],
        metavar="TENANT/NAMESPACE",
        help="move all topics of a namespace (repeatable)",
    )
    parser.add_argument("--all", action="store_true", help="move all topics")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--check",
        action="store_true",
        help="report which topics can be moved and which cannot; change nothing",
    )
    instead.add_argument(
        "--give-up",
        action="store_true",
        help="abandon an interrupted export: remove its topics from the target, except topics that the "
        "source no longer has",
    )
    ids = parser.add_mutually_exclusive_group()
    ids.add_argument(
        "--mapping",
        type=Path,
        metavar="FILE",
        help="file to which the old and new id of each ledger are written",
    )
    ids.add_argument(
        "--no-mapping",
        action="store_true",
        help="write no mapping; only for topics whose message ids no application has stored",
    )
    parser.add_argument(
        "--policies",
        choices=("source", "target"),
        help="side whose policies to keep if the policies of a namespace differ (default: refuse the export)",
    )
    parser.add_argument(
        "--standalone-config",
        type=Path,
        metavar="FILE",
        help="configuration file of the standalone broker (none)",
    )
    _add_accepted(parser)


def run_export_ledgers(parsed: argparse.Namespace) -> int:
    """Runs ``magnetar export-ledgers``; returns the exit code: 0 all topics were (or can be) exported, 1 some
    were not (or cannot be), 2 wrong usage.
    """
    from magnetar.exporting.namespaces import WhichPolicies
    from magnetar.naming.name_rules import InvalidName
    from magnetar.server.export_ledgers import ExportRequest, export_ledgers
    from magnetar.server.logs import configure_logging

    if not (parsed.mapping or parsed.no_mapping or parsed.give_up):
        sys.stderr.write(f"magnetar: {_IDS_CHANGE}\n")
        return MISUSED
    if parsed.all == bool(parsed.topic or parsed.namespace):
        sys.stderr.write("magnetar: no topics given; use --topic, --namespace or --all\n")
        return MISUSED
    configure_logging("text", "warning")
    try:
        wanted = ExportRequest(
            _place(parsed, parsed.source),
            _place(parsed, parsed.target),
            _selection(parsed),
            WhichPolicies(parsed.policies or "refuse"),
            parsed.mapping,
            parsed.check,
            parsed.give_up,
        )
        went = export_ledgers(wanted, lambda sentence: print(sentence, flush=True))
    except InvalidName as error:
        sys.stderr.write(f"magnetar: {error}\n")
        return MISUSED
    except _failures() as error:
        return _failed("not exported", error)
    return SUCCEEDED if went else FAILED


def _add_accepted(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--accept-unhonoured",
        action="append",
        default=[],
        metavar="KEY",
        help="accept that the broker.conf sets KEY, which this release does not honour (repeatable)",
    )


def _failures() -> tuple[type[Exception], ...]:
    """Returns the exception classes of expected failures in ledgers, metadata and configuration."""
    from magnetar.config.settings import ConfigurationError, SettingsContradict
    from magnetar.errors import BrokerError
    from magnetar.exporting.stored_topics import NotExported
    from magnetar.ledger.interface import LedgerError
    from magnetar.managed_ledger.errors import ManagedLedgerError
    from magnetar.metadata.interface import MetadataError

    return (
        BrokerError,
        ConfigurationError,
        LedgerError,
        ManagedLedgerError,
        MetadataError,
        NotExported,
        OSError,
        SettingsContradict,
    )


def _failed(what: str, error: Exception) -> int:
    """Prints which step failed, and the error; returns the exit code 1."""
    from magnetar.config.settings import ConfigurationError

    problems = error.problems if isinstance(error, ConfigurationError) else [f"{what}: {error}"]
    for problem in problems:
        sys.stderr.write(f"magnetar: {problem}\n")
    return FAILED


def _place(parsed: argparse.Namespace, path: Path) -> ExportPlace:
    from magnetar.config.settings import load
    from magnetar.server.export_ledgers import ExportPlace

    if path.is_file():
        return ExportPlace(load(path, parsed.accept_unhonoured, cluster=True), None)
    return ExportPlace(load(parsed.standalone_config, parsed.accept_unhonoured), path)


def _selection(parsed: argparse.Namespace) -> Selection:
    """Returns the topics to export.

    :raises InvalidName: a name is not valid
    """
    from magnetar.exporting.export import Selection
    from magnetar.naming.namespace_name import NamespaceName
    from magnetar.naming.topic_name import TopicName

    return Selection(
        frozenset(TopicName.parse(text).base for text in parsed.topic),
        frozenset(NamespaceName.parse(text) for text in parsed.namespace),
    )


def add_orphaned_ledgers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "orphaned-ledgers",
        help="find ledgers of a cluster that no metadata record refers to",
        description="Finds ledgers that a broker created for a topic, subscription, schema or compaction but "
        "did not record in the metadata before it stopped. Brokers may keep running.",
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
    parser.add_argument(
        "--delete", action="store_true", help="delete the listed ledgers; without it they are only listed"
    )
    _add_accepted(parser)


def _hours(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) < 1 << 20):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of hours; give a whole number, 1 or more")
    return int(text)


def run_orphaned_ledgers(parsed: argparse.Namespace) -> int:
    """Runs ``magnetar orphaned-ledgers``; returns the exit code: 0 the search is complete, 1 the search
    failed.
    """
    from magnetar.config.settings import load
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
    except _failures() as error:
        return _failed("cannot look for orphaned ledgers", error)
    more = "" if parsed.delete or not count else "; use --delete to delete them"
    sys.stdout.write(f"{count} orphaned ledgers{more}\n")
    return SUCCEEDED
