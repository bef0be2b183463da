"""Runs the Spark tests against Apache Pulsar standalone: ``tools/spark_on_pulsar.py [PYTEST ARGUMENTS]``.

Tests of Magnetar's own features are skipped, with the reason.
"""

from __future__ import annotations

import sys

from on_pulsar import run_tests

SETTINGS = {
    # Ledgers as short as those of Magnetar in the same tests, so that they roll and are trimmed often.
    "managedLedgerMaxEntriesPerLedger": "50",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
}


def main() -> int:
    """Returns the exit code of pytest."""
    return run_tests(
        sys.argv[1:] or ["tests/spark"], "MAGNETAR_SPARK_SERVICE_URL", "MAGNETAR_SPARK_ADMIN_URL", SETTINGS
    )


if __name__ == "__main__":
    sys.exit(main())
