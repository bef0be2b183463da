"""Runs the same command in several processes that start at the same time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

from magnetar.cli.perf.pacing import SharedClock
from magnetar.client.exceptions import InvalidConfiguration

_START_SECONDS = 3.0


def spread(given: Sequence[str], processes: int) -> list[dict[str, object]]:
    """Returns the findings of each process.

    :param given: the arguments of the command
    :raises InvalidConfiguration: a process failed; it has printed the reason
    """
    begin_at = SharedClock().now() + round(_START_SECONDS * 1e9)
    command = [sys.executable, "-m", "magnetar.cli.pulsar_perf", *given]
    running = [
        subprocess.Popen(
            [*command, "--share", f"{index}/{processes}/{begin_at}"], stdout=subprocess.PIPE, text=True
        )
        for index in range(processes)
    ]
    outputs = [process.communicate()[0] for process in running]
    codes = [process.returncode for process in running]
    if any(codes):
        raise InvalidConfiguration(f"processes ended with {codes}")
    return [json.loads(output) for output in outputs]
