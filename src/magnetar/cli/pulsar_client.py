"""The ``pulsar-client`` command."""

from __future__ import annotations

import sys

from magnetar.cli.not_yet import say_not_yet


def main() -> int:
    return say_not_yet(
        "pulsar-client", "0.3", "Apache Pulsar's own pulsar-client, which works with this broker"
    )


if __name__ == "__main__":
    sys.exit(main())
