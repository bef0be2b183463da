"""Apache Pulsar's own ``pulsar-admin`` against Magnetar: what it prints is what it prints of Apache Pulsar.

``admin_answers.jsonl`` has a row for each command line: its exit code and, where it is 0, what Apache Pulsar
4.0.8 standalone answered (parsed where it is JSON). One JVM runs all of them.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import pytest
from admin_lines import ANSWERS, DIFFERENT, LINES, fits, lines_of
from printed import comparable, value_of
from server import Server
from test_clients import build

HERE = Path(__file__).parent
SECONDS = 300.0
SET = " get-subscription-types-enabled "
"""What Apache's tool keeps in a set of enumerators: each JVM prints it in an order of its own."""


@pytest.fixture(scope="module")
def java_admin() -> list[str]:
    """The command that runs lines of ``pulsar-admin``, but for the address."""
    if shutil.which("mvn") is None or shutil.which("java") is None:
        pytest.skip("needs mvn and java")
    folder = HERE / "admin"
    jar = folder / "target" / "admin-lines-1.jar"
    sources = [folder / "pom.xml", *folder.glob("src/**/*.java")]
    build(jar, sources, ["mvn", "-B", "-q", "-ntp", "package"], folder)
    classes = f"{jar}:{folder / 'target' / 'lib'}/*"
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return ["java", *options, "-cp", classes, "semantics.AdminLines"]


def _encoded(line: str) -> str:
    return " ".join(b64encode(word.encode()).decode() for word in shlex.split(line))


def run_lines(
    command: list[str], server: Server, lines: list[str], url: str | None = None, **settings: str
) -> list[tuple[int, Any, str]]:
    """Exit code, what was printed (parsed where it is JSON) and what was complained about, for each line.

    :param settings: of the tool's ``client.conf``
    """
    done = subprocess.run(
        [*command, url or server.http_url, *(f"{key}={value}" for key, value in settings.items())],
        input="".join(f"{_encoded(line)}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers = []
    for row in done.stdout.splitlines():
        code, out, err = row.split(" ")
        answers.append(
            (int(code), value_of(b64decode(out[1:]).decode().strip()), b64decode(err[1:]).decode())
        )
    return answers


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
