"""The ``pulsar-perf`` command."""

from __future__ import annotations

import sys

from magnetar.cli.not_yet import say_not_yet


def main() -> int:
    return say_not_yet("pulsar-perf", "0.2", "Apache Pulsar's own pulsar-perf, which works with this broker")


if __name__ == "__main__":
    sys.exit(main())
