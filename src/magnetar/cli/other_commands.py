"""The commands of ``magnetar`` that do not start servers: their options and functions."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from magnetar.cli.backup import (
    add_backup,
    add_restore,
    add_verify_backup,
    run_backup,
    run_restore,
    run_verify_backup,
)
from magnetar.cli.check import add_check, add_doctor, run_check, run_doctor
from magnetar.cli.cluster_ledgers import (
    add_export_ledgers,
    add_orphaned_ledgers,
    run_export_ledgers,
    run_orphaned_ledgers,
)
from magnetar.cli.command_lines import add_access_flags, advice
from magnetar.cli.compact_topic import add_compact_topic, run_compact_topic
from magnetar.cli.completion import add_completion
from magnetar.cli.explain import add_explain, add_explain_placement, run_explain, run_explain_placement
from magnetar.cli.messages.flags import add_consume, add_produce, add_tail
from magnetar.cli.metadata import (
    add_initialize_cluster,
    add_initialize_coordinators,
    add_recover_metadata,
    run_initialize_cluster,
    run_initialize_coordinators,
    run_recover_metadata,
)
from magnetar.cli.tokens import add_tokens
from magnetar.cli.top.flags import add_top
from magnetar.cli.translate_positions import add_translate_positions, run_translate_positions
from magnetar.exit_codes import FAILED, MISUSED, SUCCEEDED


def add_others(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the commands that do not start servers, except ``version``."""
    _add_pipeline(commands)
    _add_storage(commands)
    add_initialize_cluster(commands)
    add_initialize_coordinators(commands)
    add_check(commands)
    add_doctor(commands)
    add_tail(commands)
    add_produce(commands)
    add_consume(commands)
    add_top(commands)
    add_explain(commands)
    add_explain_placement(commands)
    add_compact_topic(commands)
    add_export_ledgers(commands)
    add_translate_positions(commands)
    add_orphaned_ledgers(commands)
    add_recover_metadata(commands)
    add_backup(commands)
    add_restore(commands)
    add_verify_backup(commands)
    add_tokens(commands)
    add_completion(commands)


def _add_pipeline(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    pipeline = commands.add_parser(
        "pipeline",
        help="run a pipeline on Spark",
        description="Runs a pipeline on Spark (docs/pipelines.md); needs the extra spark (docs/install.md).",
    )
    pipeline.add_argument(
        "name",
        metavar="NAME",
        help="name of the pipeline; 'list' prints all names, and 'init PIPELINE' prints a configuration "
        "to start from",
    )
    pipeline.add_argument(
        "of", metavar="PIPELINE", nargs="?", help="after 'init': pipeline whose configuration is printed"
    )
    pipeline.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="file with the configuration of the pipeline, TOML or JSON",
    )
    pipeline.add_argument("--dry-run", action="store_true", help="print the planned steps; change nothing")
    pipeline.add_argument("--quiet", action="store_true", help="show no progress")


def _add_storage(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    storage = commands.add_parser("storage", help="report disk usage")
    report = storage.add_subparsers(dest="storage_command", metavar="COMMAND", required=True).add_parser(
        "report",
        help="report the space that topics use, retain and will need",
        description="Prints the space used on the disk, by the ledger store, by namespaces and by topics, "
        "and an estimate of the use one day from now.",
    )
    add_access_flags(report)
    report.add_argument("--namespace", metavar="TENANT/NAMESPACE", help="report only this namespace")
    report.add_argument(
        "--top", type=_count, default=20, metavar="N", help="print the N largest topics (%(default)s); 0: all"
    )
    report.add_argument("--json", action="store_true", help="print the whole report as JSON, with all topics")
    report.add_argument("--html", type=Path, metavar="FILE", help="write an HTML page with plots to FILE")


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number; give a whole number, 0 or more")
    return number


def _pipeline(parsed: argparse.Namespace) -> int:
    from magnetar.spark.pipelines.names import PIPELINES

    if parsed.name == "list":
        for name, each in PIPELINES.items():
            sys.stdout.write(f"{name:18}{each.summary}\n")
        return SUCCEEDED
    init = parsed.name == "init"
    name = parsed.of if init else parsed.name
    if name not in PIPELINES:
        said = "no pipeline given" if name is None else f"unknown pipeline {name!r}{advice(name, PIPELINES)}"
        return _misused(f"{said.rstrip('?')}; use one of {', '.join(PIPELINES)}")
    if not init and parsed.of is not None:
        return _misused(f"unexpected argument {parsed.of!r}")
    if not init and parsed.config is None:
        return _misused(
            "no configuration given; use --config FILE "
            f"(`magnetar pipeline init {name} > {name}.toml` writes one)"
        )
    try:
        from magnetar.spark.pipelines.run import init_pipeline, run_pipeline
    except ModuleNotFoundError as error:
        from magnetar.build_info import install_extra

        sys.stderr.write(f"magnetar: pipelines need Spark ({error}): {install_extra('spark')}\n")
        return FAILED
    if init:
        sys.stdout.write(init_pipeline(name))
        return SUCCEEDED
    return run_pipeline(name, parsed.config, dry_run=parsed.dry_run, quiet=parsed.quiet)


def _misused(problem: str) -> int:
    sys.stderr.write(f"magnetar: {problem}\n")
    return MISUSED


def _report(parsed: argparse.Namespace) -> int:
    from magnetar.cli.storage import run_report

    return run_report(parsed)


def _tail(parsed: argparse.Namespace) -> int:
    from magnetar.cli.messages.reading import run_tail

    return run_tail(parsed)


def _produce(parsed: argparse.Namespace) -> int:
    from magnetar.cli.messages.produce import run_produce

    return run_produce(parsed)


def _consume(parsed: argparse.Namespace) -> int:
    from magnetar.cli.messages.reading import run_consume

    return run_consume(parsed)


def _tokens(parsed: argparse.Namespace) -> int:
    from magnetar.cli.tokens import run_tokens

    return run_tokens(parsed)


def _top(parsed: argparse.Namespace) -> int:
    from magnetar.cli.top.live import run_top

    return run_top(parsed)


def _version(_parsed: argparse.Namespace) -> int:
    from magnetar.build_info import description

    sys.stdout.write(f"{description()}\n")
    return SUCCEEDED


OTHERS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "backup": run_backup,
    "check": run_check,
    "compact-topic": run_compact_topic,
    "consume": _consume,
    "doctor": run_doctor,
    "explain": run_explain,
    "explain-placement": run_explain_placement,
    "export-ledgers": run_export_ledgers,
    "initialize-cluster-metadata": run_initialize_cluster,
    "initialize-transaction-coordinator-metadata": run_initialize_coordinators,
    "orphaned-ledgers": run_orphaned_ledgers,
    "pipeline": _pipeline,
    "produce": _produce,
    "recover-metadata": run_recover_metadata,
    "restore": run_restore,
    "storage": _report,
    "tail": _tail,
    "tokens": _tokens,
    "top": _top,
    "translate-positions": run_translate_positions,
    "verify-backup": run_verify_backup,
    "version": _version,
}
"""The function of each command, except ``completion`` and the commands that start servers."""
