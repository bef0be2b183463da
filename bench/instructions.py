"""Counts the processor's instructions per entry under callgrind, which other load does not change.

    python -m bench.instructions [--record] [PATH ...]

Each path of :mod:`bench.paths` runs twice, with few and with more turns; the difference is the cost of a
turn. ``--record`` adds a line for this commit to ``docs/measurements/benchmarks/instructions.tsv``. Valgrind
is required. It has no instruction for checksums, which adds about 15 instructions per byte to those of a real
run.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.codec import ENTRIES
from bench.paths import PATHS

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "docs" / "measurements" / "benchmarks" / "instructions.tsv"
_COLLECTED = re.compile(r"Collected : (\d+)")
_FEW, _MORE = 2, 6


def instructions(path: str, turns: int) -> int:
    """Returns the instructions of a process with this number of turns."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out"]
        command += [sys.executable, "-m", "bench.paths", path, str(turns)]
        environment = os.environ | {"PYTHONHASHSEED": "0", "PYTHONMALLOC": "pymalloc"}
        ended = subprocess.run(
            command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False
        )
    found = _COLLECTED.search(ended.stderr)
    if ended.returncode or found is None:
        raise SystemExit(f"{path}: {ended.stderr[-1000:]}")
    return int(found[1])


def an_entry(path: str) -> float:
    """Returns the instructions per entry."""
    return (instructions(path, _MORE) - instructions(path, _FEW)) / ((_MORE - _FEW) * ENTRIES)


def record(figures: dict[str, float]) -> None:
    """Adds a line to the file, whose columns are the paths."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, cwd=ROOT, check=True
    ).stdout.strip()
    names = list(PATHS)
    if not RECORD.exists():
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        RECORD.write_text("\t".join(("commit", "date", "python", *names)) + "\n")
    version = ".".join(str(part) for part in sys.version_info[:3])
    values = [f"{figures[name]:.0f}" for name in names]
    with RECORD.open("a") as file:
        file.write("\t".join((commit, time.strftime("%Y-%m-%d"), version, *values)) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.instructions")
    parser.add_argument("paths", nargs="*", metavar="PATH")
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is not installed")
    unknown = [path for path in arguments.paths if path not in PATHS]
    if unknown:
        parser.error(f"no such path: {unknown[0]}; there are {', '.join(PATHS)}")
    figures = {}
    for path in arguments.paths or PATHS:
        figures[path] = an_entry(path)
        sys.stdout.write(f"{figures[path]:>10,.0f}  {path}\n")
        sys.stdout.flush()
    if arguments.record:
        if len(figures) < len(PATHS):
            parser.error("a record holds all paths")
        record(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
