"""The commands of docs/explain.md, run one after the other: each has to say what the page says it does."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from documented_steps import steps_of
from server import Server

PAGE = Path(__file__).parents[2] / "docs" / "explain.md"
_MODULES = {
    "magnetar": "magnetar",
    "pulsar-admin": "magnetar.cli.pulsar_admin",
    "pulsar-client": "magnetar.cli.pulsar_client",
}


def comparable(text: str) -> str:
    """Without what differs from run to run: how long something lasts."""
    return re.sub(r"for [\d.]+ (s|min)$", "for a while", text.strip(), flags=re.MULTILINE)


def test_commands_say_what_the_page_says(start_server: Callable[..., Server]) -> None:
    server = start_server()
    environment = {**os.environ, "PULSAR_ADMIN_URL": server.http_url, "PULSAR_SERVICE_URL": server.url}
    environment.pop("PULSAR_CLIENT_CONF", None)
    found = list(steps_of(PAGE))
    assert [command.split()[:2] for command, _ in found].count(["magnetar", "explain"]) == 2
    for command, printed in found:
        program, *arguments = shlex.split(command)
        ended = subprocess.run(
            [sys.executable, "-m", _MODULES[program], *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=environment,
        )
        told = (ended.stdout + ended.stderr).replace(server.url, "pulsar://localhost:6650")
        assert comparable(told) == comparable(printed), command
