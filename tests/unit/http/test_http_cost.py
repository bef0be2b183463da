"""HTTP must stay a small part of the process: what it adds to the broker, in memory and in imports."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, sys
from pathlib import Path
import asyncio, logging, magnetar.broker.admin.all, magnetar.broker.stats.snapshot, magnetar.io.real
def pages():
    return int(Path("/proc/self/statm").read_text().split()[1])
before, known = pages(), set(sys.modules)
import magnetar.http.server
print(json.dumps([(pages() - before) * 4096, sorted(set(sys.modules) - known)]))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_http_costs_little() -> None:
    runs = [
        json.loads(subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True).stdout)
        for _ in range(3)
    ]
    assert min(memory for memory, _modules in runs) < 12 << 20
    assert len([module for module in runs[0][1] if not module.startswith("magnetar.")]) < 25
