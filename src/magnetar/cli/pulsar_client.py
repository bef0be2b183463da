"""The ``pulsar-client`` command."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from magnetar.cli.not_yet import say_not_yet
from magnetar.cli.streams import on_standard_streams


@on_standard_streams
def main(arguments: Sequence[str] | None = None) -> int:
    """Says where to turn; answers the exit code."""
    return say_not_yet(
        "pulsar-client", "0.3", "Apache Pulsar's own pulsar-client, which works with this broker"
    )


if __name__ == "__main__":
    sys.exit(main())
