"""Tests against Apache Pulsar standalone, for the tools that run them.

Maven fetches Apache Pulsar (230 MB) the first time, into ``.bench``, which the benchmarks use, too. A server
is started on free ports, and stopped when the tests have ended.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.peer_jars import fetch_jars  # noqa: E402
from bench.servers import ApachePulsar  # noqa: E402

MEMORY = ["-Xms768m", "-Xmx768m", "-XX:MaxDirectMemorySize=768m"]


def run_tests(tests: Sequence[str], service: str, admin: str, settings: Mapping[str, str]) -> int:
    """Runs tests, and returns the exit code of pytest.

    :param tests: arguments of pytest
    :param service: the environment variable with the service URL for the tests
    :param admin: the environment variable with the URL of the admin interface
    :param settings: settings of the broker
    """
    jars = fetch_jars()
    with tempfile.TemporaryDirectory(prefix="pulsar-") as folder:
        server = ApachePulsar(
            "pulsar",
            "Apache Pulsar",
            "pulsar",
            Path(folder),
            jars=jars,
            memory=MEMORY,
            settings=dict(settings),
        )
        try:
            print(f"Apache Pulsar serves after {server.start():.0f} s at {server.url}", flush=True)
            environment = {**os.environ, service: server.url, admin: server.admin_url}
            command = [sys.executable, "-m", "pytest", "-q", "--timeout", "1200", *tests]
            return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        finally:
            server.stop()
