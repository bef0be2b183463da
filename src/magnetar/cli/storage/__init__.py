"""``magnetar storage report``: reports the use of disk space as text, as JSON, or as an HTML page with
plots.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from magnetar.admin_client import AdminClient, AdminError
from magnetar.cli.cluster_access import AccessRefused, cluster_access
from magnetar.cli.command_lines import access_values
from magnetar.cli.printable import aligned, duration, printable, size, when
from magnetar.exit_codes import FAILED, SUCCEEDED

_COLUMNS = (
    ("stored", "storedBytes"),
    ("backlog", "backlogBytes"),
    ("retained", "retainedBytes"),
    ("open ledger", "openLedgerBytes"),
    ("reclaimable", "reclaimableBytes"),
)
_OFFLOADED = ("offloaded", "offloadedBytes")
"""Columns that are shown only if offloaded ledgers exist."""

_SHOWN_ORPHANS = 10


def run_report(parsed: argparse.Namespace) -> int:
    """Runs ``magnetar storage report``; returns the exit code: 0 success, 1 no report is available."""
    where = "the broker"
    try:
        access = cluster_access(access_values(parsed))
        where = access.admin_url
        admin = AdminClient(access.admin_url, authentication=access.authentication, tls=access.tls)
        report = admin.storage(parsed.namespace)
    except (AccessRefused, AdminError, OSError) as error:
        sys.stderr.write(f"magnetar: no report from {where}: {error}\n")
        return FAILED
    if parsed.html is not None:
        from magnetar.cli.storage.page import page

        try:
            parsed.html.write_text(page(report, parsed.top), encoding="utf-8")
        except OSError as error:
            sys.stderr.write(f"magnetar: cannot write {parsed.html}: {error.strerror}\n")
            return FAILED
    if parsed.json:
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
    else:
        sys.stdout.write(text(report, parsed.top))
    return SUCCEEDED


def text(report: dict[str, Any], top: int) -> str:
    """Returns the report as text for a terminal.

    :param top: maximum number of topics to list; 0: all topics
    """
    disk, store = report["disk"], report["store"]
    until_full = disk["secondsUntilFull"]
    foreseen = "in " + duration(until_full) if until_full is not None else "not expected"
    lines = [
        f"disk        {size(disk['totalBytes'])}, {disk['usedShare']:.1%} used, "
        f"{size(disk['freeBytes'])} free ({disk['state']}), full {foreseen}",
        f"ledgers     {size(store['storedBytes'])} in {store['segments']} segments: "
        f"{size(store['wantedBytes'])} needed, {size(store['reclaimableBytes'])} reclaimable, "
        f"{size(store['aheadBytes'])} preallocated",
        f"compaction  {_compactions(store['compactions'])}",
        *_orphaned(report["orphanedLedgers"]),
        "",
    ]
    topics = report["topics"][: top or None]
    lines += _table("namespace", report["namespaces"], topics=True)
    lines += ["", *_table("topic", topics, topics=False)]
    if len(topics) < len(report["topics"]):
        lines.append(f"and {len(report['topics']) - len(topics)} smaller topics")
    if report["notLoaded"]:
        lines.append(f"{report['notLoaded']} topics are not loaded and therefore not listed")
    return "\n".join(lines) + "\n"


def _compactions(done: dict[str, Any]) -> str:
    return (
        f"{done['minorSegments']} minor, {done['majorSegments']} major, {done['sortedSegments']} sorted "
        f"segments; {size(done['writtenBytes'])} written, {size(done['reclaimedBytes'])} reclaimed"
        f"{', at work now' if done['running'] else ''}"
    )


def _orphaned(ledgers: list[dict[str, Any]]) -> list[str]:
    if not ledgers:
        return []
    entries, stored = (sum(ledger[key] for ledger in ledgers) for key in ("entries", "bytes"))
    head = (
        f"orphaned    {len(ledgers)} ledgers that no metadata record refers to: {entries} entries, "
        f"{size(stored)}"
    )
    lines = [head]
    for ledger in ledgers[:_SHOWN_ORPHANS]:
        what = (
            f"{ledger['entries']} entries, {size(ledger['bytes'])}, deleted after {when(ledger['deletedMs'])}"
        )
        lines.append(f"            {ledger['ledger']}, created for {printable(ledger['owner'])}: {what}")
    if len(ledgers) > _SHOWN_ORPHANS:
        lines.append(f"            and {len(ledgers) - _SHOWN_ORPHANS} more; use --json to print all")
    return lines


def _table(what: str, rows: list[dict[str, Any]], *, topics: bool) -> list[str]:
    columns = [*_COLUMNS, *([_OFFLOADED] if any(row["offloadedBytes"] for row in rows) else [])]
    head = [what, *(["topics"] if topics else []), *(name for name, _ in columns), "oldest", "in a day"]
    body = [
        [
            printable(row[what]),
            *([str(row["topics"])] if topics else []),
            *(size(row[key]) for _, key in columns),
            when(row["oldestClosedMs"]),
            size(row["forecastBytes"]),
        ]
        for row in rows
    ]
    return aligned([head, *body], numbers=True)
