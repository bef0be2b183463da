"""Under which conditions something was measured: what each program prints before its figures."""

from __future__ import annotations

import os
import platform


def conditions() -> dict[str, str | float]:
    """The machine, and how many processes wanted to run in the minute before (above 2: not quiet)."""
    return {
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}",
        "load": round(os.getloadavg()[0], 1),
    }
