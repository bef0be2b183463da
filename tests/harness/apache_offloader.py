"""Apache's driver of tiered storage in file systems, and the settings with which its broker uses it."""

from __future__ import annotations

import fcntl
import subprocess
from pathlib import Path

from java_servers import SERVERS, class_path

_ARTIFACT = "tiered-storage-file-system"
_PROFILE = """<configuration>
  <property><name>io.file.buffer.size</name><value>4096</value></property>
  <property><name>io.seqfile.local.dir</name><value>{folder}/hadoop</value></property>
</configuration>
"""


def offloaders() -> Path:
    """Returns the folder with the archive of the driver, which is fetched if it is missing."""
    class_path()
    folder = SERVERS / "target" / "offloaders"
    with (SERVERS / ".building").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (broker,) = (SERVERS / "target" / "lib").glob("pulsar-broker-[0-9]*.jar")
        version = broker.stem.removeprefix("pulsar-broker-")
        fetched = folder / f"{_ARTIFACT}-{version}.jar"
        archive = fetched.with_suffix(".nar")
        if not archive.exists():
            command = ["mvn", "-B", "-q", "-ntp", "dependency:copy", f"-DoutputDirectory={folder}"]
            command.append(f"-Dartifact=org.apache.pulsar:{_ARTIFACT}:{version}")
            done = subprocess.run(command, cwd=SERVERS, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout[-3000:]
            # The broker looks for files of this name only.
            fetched.rename(archive)
    return folder


def file_system_settings(folder: Path, tiered: Path) -> dict[str, int | str]:
    """Returns settings with which brokers of both kinds offload to one folder.

    :param folder: an existing folder for files of Hadoop's
    :param tiered: where ledgers are offloaded to
    """
    profile = folder / "file_system.xml"
    profile.write_text(_PROFILE.format(folder=folder))
    return {
        "managedLedgerOffloadDriver": "filesystem",
        "fileSystemProfilePath": str(profile),
        "fileSystemURI": f"file://{tiered}",
    }
