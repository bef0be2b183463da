"""Runs the tests of the client beside the official Java client against Apache Pulsar standalone:
``tools/client_on_pulsar.py [PYTEST ARGUMENTS]``.
"""

from __future__ import annotations

import sys

from on_pulsar import run_tests

TESTS = ["tests/integration/test_client_with_java.py"]


def main() -> int:
    """Returns the exit code of pytest."""
    return run_tests(sys.argv[1:] or TESTS, "MAGNETAR_PEER_URL", "MAGNETAR_PEER_ADMIN_URL", {})


if __name__ == "__main__":
    sys.exit(main())
