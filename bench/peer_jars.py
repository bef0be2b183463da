"""Apache Pulsar's jars, those that ``peers/pom.xml`` names: given by the user, or fetched by Maven once."""

from __future__ import annotations

import argparse
import subprocess
from hashlib import sha256
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".bench"
_POM = Path(__file__).resolve().parent / "peers" / "pom.xml"


def add_jars(parser: argparse.ArgumentParser) -> None:
    """The flag that names a folder: made absolute, since servers have working folders of their own."""
    parser.add_argument(
        "--jars",
        metavar="JARS",
        type=lambda path: Path(path).absolute(),
        help="the folder with Apache Pulsar's jars; fetched if missing",
    )


def chosen_jars(options: argparse.Namespace) -> Path:
    """The folder of :func:`add_jars`, or the one they are fetched to."""
    given: Path | None = options.jars
    return given or fetch_jars()


def fetch_jars() -> Path:
    """The folder with the jars, fetched when they are missing or when other ones are named now.

    :raises subprocess.CalledProcessError: Maven says no
    """
    jars = CACHE / "pulsar-jars"
    complete = CACHE / "pulsar-jars.complete"
    named = sha256(_POM.read_bytes()).hexdigest()
    if not complete.exists() or complete.read_text() != named:
        CACHE.mkdir(parents=True, exist_ok=True)
        command = ["mvn", "-B", "-q", "-ntp", "-f", str(_POM), "dependency:copy-dependencies"]
        subprocess.run([*command, f"-DoutputDirectory={jars}", "-DincludeScope=runtime"], check=True)
        complete.write_text(named)
    return jars
