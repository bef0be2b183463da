"""HTTP must stay a small part of the process: at most 12 MB and 120 ms more than a broker needs anyway."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, time
from pathlib import Path
import asyncio, logging, magnetar.errors, magnetar.io.real, magnetar.naming.topic_name
def pages():
    return int(Path("/proc/self/statm").read_text().split()[1])
before, began = pages(), time.perf_counter()
import magnetar.http.server
print(json.dumps([(pages() - before) * 4096, time.perf_counter() - began]))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_http_costs_little() -> None:
    runs = [
        json.loads(subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True).stdout)
        for _ in range(3)
    ]
    assert min(memory for memory, _ in runs) < 12 << 20
    assert min(seconds for _, seconds in runs) < 0.12
