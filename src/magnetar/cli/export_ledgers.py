"""``magnetar export-ledgers``: topics go from a standalone broker's data to a cluster, or back."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.exporting.export import Selection
    from magnetar.server.export_ledgers import Place

_IDS_CHANGE = (
    "message ids change: name a --mapping FILE, by which magnetar translate-positions translates those that "
    "are kept elsewhere (stored positions of readers, checkpoints of Spark), or say --no-mapping if none are"
)


def add_export_ledgers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "export-ledgers",
        help="carry topics from a standalone broker to a cluster, or back",
        description="Carries topics with all they have from one place to another: copies, checks, and "
        "removes them where they were. Nobody may serve either side. What was cut short goes on with the "
        "same command.",
        epilog="A place is the data directory of a standalone broker, or the broker.conf of a cluster.",
    )
    parser.add_argument("--from", dest="source", type=Path, required=True, metavar="PLACE")
    parser.add_argument("--to", dest="target", type=Path, required=True, metavar="PLACE")
    parser.add_argument("-t", "--topic", action="append", default=[], metavar="TOPIC", help="(repeatable)")
    parser.add_argument(
        "-n", "--namespace", action="append", default=[], metavar="TENANT/NAMESPACE", help="(repeatable)"
    )
    parser.add_argument("--all", action="store_true", help="everything")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--check", action="store_true", help="say what would go and what not; change nothing"
    )
    instead.add_argument(
        "--give-up",
        action="store_true",
        help="remove what was cut short from the target, as far as it has not left its source",
    )
    ids = parser.add_mutually_exclusive_group()
    ids.add_argument("--mapping", type=Path, metavar="FILE", help="gets a line for each ledger")
    ids.add_argument("--no-mapping", action="store_true", help="nobody keeps message ids elsewhere")
    parser.add_argument(
        "--policies",
        choices=("source", "target"),
        help="whose policies count for a namespace that has others on the other side (none: it is refused)",
    )
    parser.add_argument(
        "--standalone-config", type=Path, metavar="FILE", help="of the standalone broker, if it has one"
    )
    parser.add_argument(
        "--accept-unhonoured",
        action="append",
        default=[],
        metavar="KEY",
        help="as for magnetar broker (repeatable)",
    )


def run_export_ledgers(parsed: argparse.Namespace) -> int:
    """Answers the exit code: 0 everything went, or can go; 1 not; 2 not understood."""
    from magnetar.config.settings import ConfigurationError, SettingsContradict
    from magnetar.errors import BrokerError
    from magnetar.exporting.errors import NotExported
    from magnetar.exporting.namespaces import WhichPolicies
    from magnetar.ledger.interface import LedgerError
    from magnetar.managed_ledger.errors import ManagedLedgerError
    from magnetar.metadata.interface import MetadataError
    from magnetar.naming.errors import InvalidName
    from magnetar.server.export_ledgers import Wanted, export_ledgers
    from magnetar.server.logs import configure_logging

    if not (parsed.mapping or parsed.no_mapping or parsed.give_up):
        sys.stderr.write(f"magnetar: {_IDS_CHANGE}\n")
        return 2
    if parsed.all == bool(parsed.topic or parsed.namespace):
        sys.stderr.write("magnetar: what is to go: --topic, --namespace, or --all\n")
        return 2
    configure_logging("text", "warning")
    try:
        wanted = Wanted(
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
        return 2
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
        sys.stderr.write(f"magnetar: not exported: {error}\n")
        return 1
    return 0 if went else 1


def _place(parsed: argparse.Namespace, path: Path) -> Place:
    from magnetar.config.settings import load
    from magnetar.server.export_ledgers import Place

    if path.is_file():
        return Place(load(path, parsed.accept_unhonoured, cluster=True), None)
    return Place(load(parsed.standalone_config, parsed.accept_unhonoured), path)


def _selection(parsed: argparse.Namespace) -> Selection:
    """:raises InvalidName: a name is none"""
    from magnetar.exporting.export import Selection
    from magnetar.naming.namespace_name import NamespaceName
    from magnetar.naming.topic_name import TopicName

    return Selection(
        frozenset(TopicName.parse(text).base for text in parsed.topic),
        frozenset(NamespaceName.parse(text) for text in parsed.namespace),
    )
