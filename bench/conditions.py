"""The conditions of a measurement, which each program prints before its figures."""

from __future__ import annotations

import os
import platform


def conditions() -> dict[str, str | float]:
    """Returns the machine, and its load average of the last minute (above 2: not quiet)."""
    return {
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}",
        "load": round(os.getloadavg()[0], 1),
    }
