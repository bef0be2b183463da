"""Apache Pulsar's own ``pulsar-admin`` against Magnetar: what it prints is what it prints of Apache Pulsar.

``admin_answers.jsonl`` has a row for each command line: its exit code and, where it is 0, what Apache Pulsar
4.0.8 standalone answered (parsed where it is JSON). One JVM runs all of them.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import java_lines
import pytest
from admin_lines import ANSWERS, DIFFERENT, LINES, fits, lines_of
from java_lines import java_tool
from printed import comparable, value_of
from server import Server

SET = " get-subscription-types-enabled "
"""What Apache's tool keeps in a set of enumerators: each JVM prints it in an order of its own."""


@pytest.fixture(scope="module")
def java_admin() -> list[str]:
    """The command that runs lines of ``pulsar-admin``, but for the address."""
    return java_tool("AdminLines")


def run_lines(
    command: list[str], server: Server, lines: list[str], url: str | None = None, **settings: str
) -> list[tuple[int, Any, str]]:
    """As :func:`java_lines.run_lines`; what was printed is parsed where it is JSON."""
    answers = java_lines.run_lines(command, url or server.http_url, map(shlex.split, lines), **settings)
    return [(code, value_of(out.strip()), err) for code, out, err in answers]


def _in_order(line: str, printed: Any) -> Any:
    """What was printed; members of a set in an order that does not change from one JVM to the next."""
    return sorted(printed) if SET in line and isinstance(printed, list) else printed


def test_java_admin_prints_what_it_prints_of_apache_pulsar(start_server: Any, java_admin: list[str]) -> None:
    server = start_server()
    rows = lines_of(ANSWERS)
    answers = run_lines(java_admin, server, [line for line, _, _ in rows])
    assert len(answers) == len(rows)
    wrong = []
    for (line, code, expected), (got_code, got, complaint) in zip(rows, answers, strict=True):
        wanted = server.url if expected == "SERVICE_URL" else expected
        got, wanted = _in_order(line, got), _in_order(line, wanted)
        if got_code != code or (code == 0 and comparable(got) != comparable(wanted)):
            wrong.append((line, code, wanted, got_code, got, complaint))
    assert not wrong


_PACKAGE = "function://public/default/words@1"


def _package_lines(folder: Path) -> list[tuple[str, int, Any]]:
    """Packages from upload to deletion, and what Apache's tool makes of what it is told; with the file."""
    given, got, rest = folder / "given", folder / "got", "public/default --type function"
    given.write_bytes(b"words" * 100_000)
    done = f"The package '{_PACKAGE}' {{}} successfully"
    upload = f"packages upload {_PACKAGE} --description counts --contact me -PpackageKey=v --path {given}"
    return [
        (upload, 0, done.format(f"uploaded from path '{given}'")),
        (upload, 1, None),
        (f"packages list {rest}", 0, "words"),
        (f"packages list-versions {_PACKAGE}", 0, 1),
        (f"packages get-metadata {_PACKAGE}", 0, {"ANY": "object"}),
        (f"packages update-metadata {_PACKAGE} --description other", 0, {"ANY": "text"}),
        (f"packages download {_PACKAGE} --path {got}", 0, done.format(f"downloaded to path '{got}'")),
        (f"packages delete {_PACKAGE}", 0, done.format("deleted")),
        # Apache's tool leaves the refusal in the file.
        (f"packages download {_PACKAGE} --path {got}-no-more", 1, None),
        (f"packages list {rest}", 0, ""),
    ]


def test_all_other_commands_of_java_admin(start_server: Any, java_admin: list[str], tmp_path: Path) -> None:
    server = start_server(enablePackagesManagement="true")
    # Those of broker-stats close the tool's standard output, and nothing that follows is seen.
    rows = [row for row in lines_of(LINES) if not row[0].startswith("broker-stats")]
    rows += _package_lines(tmp_path)
    answers = run_lines(java_admin, server, [line for line, _, _ in rows])
    wrong = []
    for (line, code, expected), (got_code, got, complaint) in zip(rows, answers, strict=True):
        if got_code == code and (code != 0 or fits(_in_order(line, got), _in_order(line, expected))):
            continue
        if line not in DIFFERENT or DIFFERENT[line][0] != got_code:
            wrong.append((line, code, expected, got_code, got, complaint))
    assert not wrong
    assert (tmp_path / "got").read_bytes() == (tmp_path / "given").read_bytes()
