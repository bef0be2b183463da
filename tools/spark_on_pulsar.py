"""Runs the Spark tests against Apache Pulsar standalone: ``tools/spark_on_pulsar.py [PYTEST ARGUMENTS]``.

Maven fetches Apache Pulsar (230 MB) the first time, into ``.bench``, which the benchmarks use, too. The tool
starts a server on free ports and stops it again. Tests of Magnetar's own features are skipped, with the
reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.peer_jars import fetch_jars  # noqa: E402
from bench.servers import ApachePulsar  # noqa: E402

MEMORY = ["-Xms768m", "-Xmx768m", "-XX:MaxDirectMemorySize=768m"]
SETTINGS = {
    # Ledgers as short as those of Magnetar in the same tests, so that they roll and are trimmed often.
    "managedLedgerMaxEntriesPerLedger": "50",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
}


def main() -> int:
    """Returns the exit code of pytest."""
    jars = fetch_jars()
    with tempfile.TemporaryDirectory(prefix="pulsar-") as folder:
        server = ApachePulsar(
            "pulsar", "Apache Pulsar", "pulsar", Path(folder), jars=jars, memory=MEMORY, settings=SETTINGS
        )
        try:
            print(f"Apache Pulsar serves after {server.start():.0f} s at {server.url}", flush=True)
            addresses = {
                "MAGNETAR_SPARK_SERVICE_URL": server.url,
                "MAGNETAR_SPARK_ADMIN_URL": server.admin_url,
            }
            command = [sys.executable, "-m", "pytest", "-q", "--timeout", "1200"]
            command += sys.argv[1:] or ["tests/spark"]
            return subprocess.run(command, cwd=ROOT, env={**os.environ, **addresses}, check=False).returncode
        finally:
            server.stop()


if __name__ == "__main__":
    sys.exit(main())
