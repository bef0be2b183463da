"""``magnetar doctor``: checks this machine for a broker, with advice."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from magnetar.server.machine_diagnosis import Finding


def add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    doctor = commands.add_parser(
        "doctor",
        help="check this machine for problems of a broker",
        description="Checks versions, compiled modules, limits, clock, settings, ports, disk space and the "
        "sync speed of the disk, and prints advice for each problem. The exit code is 1 if a start would "
        "fail or nothing could be published.",
    )
    doctor.add_argument(
        "--config", type=Path, metavar="FILE", help="a standalone.conf or broker.conf of Pulsar"
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
    """Returns the exit code: 0 no problems or only warnings, 1 a problem would prevent a start."""
    from magnetar.server.machine_diagnosis import FindingState

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
    return 1 if any(each.state is FindingState.FAIL for each in told) else 0


def _findings(parsed: argparse.Namespace) -> Iterator[Finding]:
    from magnetar.server.machine_diagnosis import machine

    yield from machine()
    # Imported after the first lines are printed, because it takes time.
    from magnetar.server.broker_diagnosis import broker

    yield from broker(parsed.config, parsed.data_dir)


def _line(finding: Finding) -> str:
    line = f"{finding.state.value:5}{finding.subject:13}{finding.found}\n"
    return line + (f"{'':18}do: {finding.advice}\n" if finding.advice else "")
