"""Which seeds a run of tests takes."""

from __future__ import annotations

import os


def seeds(default: int) -> range:
    """``MAGNETAR_SIMULATED_SEEDS`` of them, from ``MAGNETAR_FIRST_SEED`` on."""
    first = int(os.environ.get("MAGNETAR_FIRST_SEED", "0"))
    return range(first, first + int(os.environ.get("MAGNETAR_SIMULATED_SEEDS", str(default))))
