"""Apache's drivers of tiered storage, and the settings with which its broker uses them."""

from __future__ import annotations

import fcntl
import subprocess
from pathlib import Path

from bucket import BUCKET, KEY, REGION, SECRET, Bucket
from java_servers import SERVERS, class_path

FILES, OBJECTS = "tiered-storage-file-system", "tiered-storage-jcloud"
"""The archives with the drivers for file systems and for object stores."""
_PROFILE = """<configuration>
  <property><name>io.file.buffer.size</name><value>4096</value></property>
  <property><name>io.seqfile.local.dir</name><value>{folder}/hadoop</value></property>
</configuration>
"""


def offloaders(artifact: str) -> Path:
    """Returns the folder with one of the archives, which is fetched if it is missing."""
    class_path()
    folder = SERVERS / "target" / "offloaders" / artifact
    with (SERVERS / ".building").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (broker,) = (SERVERS / "target" / "lib").glob("pulsar-broker-[0-9]*.jar")
        version = broker.stem.removeprefix("pulsar-broker-")
        fetched = folder / f"{artifact}-{version}.jar"
        archive = fetched.with_suffix(".nar")
        if not archive.exists():
            command = ["mvn", "-B", "-q", "-ntp", "dependency:copy", f"-DoutputDirectory={folder}"]
            command.append(f"-Dartifact=org.apache.pulsar:{artifact}:{version}")
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


def bucket_settings(bucket: Bucket) -> dict[str, int | str]:
    """Returns settings with which Apache's broker offloads to a bucket; the environment needs
    :func:`credentials`.

    Its driver ``aws-s3`` asks Amazon for the location of the bucket, whatever the endpoint is. Its driver
    ``S3`` writes the same objects.
    """
    return {
        "managedLedgerOffloadDriver": "S3",
        "managedLedgerOffloadBucket": BUCKET,
        "managedLedgerOffloadRegion": REGION,
        "managedLedgerOffloadServiceEndpoint": bucket.url,
    }


def credentials() -> dict[str, str]:
    """Returns the variables from which the driver ``S3`` takes an access key."""
    return {"ACCESS_KEY_ID": KEY, "ACCESS_KEY_SECRET": SECRET}
