"""``python -m magnetar.hot build`` compiles the hot modules, ``status`` prints whether they run compiled or
interpreted."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from magnetar.hot import MODULES, SERVING, status
from magnetar.hot.build import build, obstacle


def main() -> int:
    """Returns 0 on success or if compiling is not possible here, 1 if a module does not compile."""
    parser = argparse.ArgumentParser(prog="python -m magnetar.hot", description=__doc__)
    parser.add_argument("action", choices=["build", "status"])
    parser.add_argument("--force", action="store_true", help="also compile modules that are up to date")
    parser.add_argument("--serving", action="store_true", help="handle only the modules that a broker uses")
    arguments = parser.parse_args()
    modules = SERVING if arguments.serving else MODULES
    if arguments.action == "status":
        for module, form in status(modules).forms.items():
            print(f"{module}: {form.value}")
        return 0
    reason = obstacle()
    if reason is not None:
        print(f"hot modules stay interpreted: {reason}")
        return 0
    build(Path(__file__).resolve().parent.parent, modules, force=arguments.force)
    return 0


if __name__ == "__main__":
    sys.exit(main())
