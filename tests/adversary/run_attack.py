"""``python run_attack.py NAME TARGET``: one attack, as a process that gives way to everybody else."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "harness")]
    os.nice(19)
    from target import Target

    importlib.import_module(f"attacks.{sys.argv[1]}").attack(Target.read(sys.argv[2]))
