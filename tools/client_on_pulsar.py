"""Runs the tests of the client that any broker passes against Apache Pulsar standalone, also those beside the
official Java client: ``tools/client_on_pulsar.py [PYTEST ARGUMENTS]``.
"""

from __future__ import annotations

import sys

from on_pulsar import run_tests

TESTS = [
    f"tests/integration/test_{name}.py"
    for name in (
        "client_core",
        "client_cut_connections",
        "client_with_java",
        "official_programs",
    )
]


def main() -> int:
    """Returns the exit code of pytest."""
    return run_tests(sys.argv[1:] or TESTS, "MAGNETAR_PEER_URL", "MAGNETAR_PEER_ADMIN_URL", {})


if __name__ == "__main__":
    sys.exit(main())
