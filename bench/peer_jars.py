"""Apache Pulsar's jars according to ``peers/pom.xml``: given by the user, or fetched by Maven once."""

from __future__ import annotations

import argparse
import subprocess
from hashlib import sha256
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".bench"
FILES, OBJECTS = "tiered-storage-file-system", "tiered-storage-jcloud"
"""The archives with Apache Pulsar's drivers for file systems and for object stores."""
_POM = Path(__file__).resolve().parent / "peers" / "pom.xml"


def add_jars(parser: argparse.ArgumentParser) -> None:
    """Adds the flag for a folder, which is made absolute because servers have their own working folders."""
    parser.add_argument(
        "--jars",
        metavar="JARS",
        type=lambda path: Path(path).absolute(),
        help="the folder with Apache Pulsar's jars; fetched if missing",
    )


def chosen_jars(options: argparse.Namespace) -> Path:
    """Returns the folder of :func:`add_jars`, or the one that Maven fetches to."""
    given: Path | None = options.jars
    return given or fetch_jars()


def fetch_jars() -> Path:
    """Returns the folder with the jars; fetches them if they are missing or ``pom.xml`` has changed.

    :raises subprocess.CalledProcessError: Maven failed
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


def fetch_offloaders(artifact: str) -> Path:
    """Returns the folder with an archive of Apache Pulsar's drivers, of the same version as the jars; fetches
    it if it is missing.

    :raises subprocess.CalledProcessError: Maven failed
    """
    (broker,) = fetch_jars().glob("pulsar-broker-[0-9]*.jar")
    version = broker.stem.removeprefix("pulsar-broker-")
    folder = CACHE / "offloaders" / artifact
    fetched = folder / f"{artifact}-{version}.jar"
    archive = fetched.with_suffix(".nar")
    if not archive.exists():
        command = ["mvn", "-B", "-q", "-ntp", "dependency:copy", f"-DoutputDirectory={folder}"]
        subprocess.run([*command, f"-Dartifact=org.apache.pulsar:{artifact}:{version}"], check=True)
        # The broker looks for files of this name only.
        fetched.rename(archive)
    return folder
