"""Command lines of Apache Pulsar's own tools, many of them in one JVM."""

from __future__ import annotations

import subprocess
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from pathlib import Path

from client_programs import built_with_maven

HERE = Path(__file__).parent
SECONDS = 300.0


def java_tool(name: str) -> list[str]:
    """The command that runs lines of a tool, but for the address.

    :param name: the class, ``AdminLines`` or ``ClientLines``
    """
    jar = built_with_maven(HERE / "admin", "admin-lines-1.jar")
    classes = f"{jar}:{jar.parent / 'lib'}/*"
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return ["java", *options, "-cp", classes, f"semantics.{name}"]


def run_lines(
    command: Sequence[str], url: str, lines: Iterable[Sequence[str]], **settings: str
) -> list[tuple[int, str, str]]:
    """Exit code, what was printed and what was complained about, for each line, which are words.

    :param settings: of the tool's ``client.conf``
    """
    done = subprocess.run(
        [*command, url, *(f"{key}={value}" for key, value in settings.items())],
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
        answers.append((int(code), _decoded(out), _decoded(err)))
    return answers


def _encoded(words: Sequence[str]) -> str:
    return " ".join(b64encode(word.encode()).decode() for word in words)


def _decoded(field: str) -> str:
    return b64decode(field[1:]).decode(errors="replace")
