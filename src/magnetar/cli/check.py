"""``magnetar check FILE`` and ``magnetar doctor``: check a configuration and the machine without starting a
broker.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.cli.printable import aligned
from magnetar.exit_codes import FAILED, SUCCEEDED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from magnetar.server.configuration_check import Checked
    from magnetar.server.diagnosis import Finding

_KINDS = ("standalone", "broker", "proxy", "websocket")
_WIDEST = 40
"""Maximum number of characters of a setting's value in the table; longer values are truncated."""


def add_check(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    check = commands.add_parser(
        "check",
        help="report which settings of a Pulsar configuration are honoured",
        description="Reports for each setting of a standalone.conf, broker.conf, proxy.conf or "
        "websocket.conf whether it is honoured, ignored or refused, without starting anything. The exit code "
        "is 1 if a setting prevents a start. Ports, disks, keys and certificates are not checked.",
    )
    check.add_argument("file", type=Path, metavar="FILE")
    check.add_argument(
        "--as",
        dest="kind",
        choices=_KINDS,
        help="the kind of process that reads the file (default: derived from the settings in it)",
    )
    check.add_argument(
        "--accept-unhonoured",
        action="append",
        default=[],
        metavar="KEY",
        help="accept the unsupported setting KEY, as a server does if it is started with this flag "
        "(repeatable)",
    )
    check.add_argument(
        "-o",
        "--output",
        choices=("table", "text", "json"),
        default="table",
        help="output format (%(default)s): table shows all settings, text shows the messages that a "
        "start prints, json shows both",
    )


def run_check(parsed: argparse.Namespace) -> int:
    """Runs ``magnetar check``; returns the exit code: 0 a broker would start with the file; 1 it would refuse
    to start, or the file cannot be read.
    """
    from magnetar.config.reading import ConfigurationError
    from magnetar.server.configuration_check import check, kind_of

    path: Path = parsed.file
    try:
        kind = parsed.kind or kind_of(path)
        checked = check(path, kind, parsed.accept_unhonoured)
    except ConfigurationError as error:
        for problem in error.problems:
            sys.stderr.write(f"magnetar: {problem}\n")
        return FAILED
    if parsed.output == "json":
        sys.stdout.write(_json(kind, checked))
    else:
        rows = _table(checked) if parsed.output == "table" else []
        sys.stdout.write("\n".join([*rows, *_sentences(kind, checked)]) + "\n")
    return FAILED if checked.problems else SUCCEEDED


def _json(kind: str, checked: Checked) -> str:
    settings = [
        {"name": each.name, "value": each.value, "fate": each.fate.value, "said": each.said}
        for each in checked.findings
    ]
    found = {
        "as": kind,
        "starts": not checked.problems,
        "problems": checked.problems,
        "warnings": list(checked.warnings),
        "settings": settings,
    }
    return json.dumps(found, indent=2) + "\n"


def _table(checked: Checked) -> list[str]:
    """Returns the lines of a table of the settings, sorted by status, the most serious status first."""
    from magnetar.config.fates import Fate

    order = list(Fate)
    found = sorted(checked.findings, key=lambda each: (order.index(each.fate), each.name))
    rows = [("SETTING", "FATE", "VALUE"), *((each.name, each.fate.value, _cut(each.value)) for each in found)]
    return [*aligned(rows), ""]


def _cut(value: str) -> str:
    shown = value if value.isprintable() else repr(value)[1:-1]
    return shown if len(shown) <= _WIDEST else f"{shown[: _WIDEST - 3]}..."


def _sentences(kind: str, checked: Checked) -> list[str]:
    """Returns sentences: what a start would print about the settings, and whether the start would succeed.

    :param kind: the command that would start the server, such as ``standalone``
    """
    from magnetar.config.fates import Fate

    told = [each for each in checked.findings if each.fate in (Fate.NOT_HONOURED, Fate.UNKNOWN)]
    counts = [
        f"{number} {fate.value}"
        for fate in reversed(Fate)
        if (number := sum(each.fate is fate for each in checked.findings))
    ]
    warnings = [f"WARNING: {each}" for each in checked.warnings]
    lines = [*checked.problems, *warnings, *(each.said for each in told)]
    ends = f"magnetar {kind} would not start" if checked.problems else f"magnetar {kind} would start"
    return [*lines, f"{ends} with it: {', '.join(counts) or 'the file has no settings'}"]


def add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    doctor = commands.add_parser(
        "doctor",
        help="check whether this machine is fit for a broker",
        description="Checks versions, compiled modules, limits, clock, settings, ports, disk space and the "
        "sync speed of the disk, and prints advice for each problem. The exit code is 1 if a start would "
        "fail or nothing could be published.",
    )
    doctor.add_argument(
        "--config", type=Path, metavar="FILE", help="a standalone.conf or broker.conf in Pulsar's format"
    )
    doctor.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        default=Path("data"),
        help="data directory of a standalone broker (data)",
    )
    doctor.add_argument(
        "-o",
        "--output",
        choices=("text", "json"),
        default="text",
        help="output format (%(default)s)",
    )


def run_doctor(parsed: argparse.Namespace) -> int:
    """Runs ``magnetar doctor``; returns the exit code: 0 no problems or only warnings, 1 a problem would
    prevent a start.
    """
    from magnetar.server.diagnosis import FindingState

    told: list[Finding] = []
    for finding in _findings(parsed):
        told.append(finding)
        if parsed.output == "text":
            sys.stdout.write(_line(finding))
            sys.stdout.flush()
    if parsed.output == "json":
        found = [
            {"subject": each.subject, "state": each.state.value, "found": each.found, "advice": each.advice}
            for each in told
        ]
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    return FAILED if any(each.state is FindingState.FAIL for each in told) else SUCCEEDED


def _findings(parsed: argparse.Namespace) -> Iterator[Finding]:
    from magnetar.server.diagnosis import machine

    yield from machine()
    # Imported after the first lines are printed, because it takes time.
    from magnetar.server.diagnosis import broker

    yield from broker(parsed.config, parsed.data_dir)


def _line(finding: Finding) -> str:
    line = f"{finding.state.value:5}{finding.subject:13}{finding.found}\n"
    return line + (f"{'':18}do: {finding.advice}\n" if finding.advice else "")
