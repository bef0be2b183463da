"""The programs and commands of docs/transactions.md, in the order of the page."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from server import Server

PAGE = Path(__file__).parents[2] / "docs" / "transactions.md"
_MODULES = {"magnetar": "magnetar", "pulsar-admin": "magnetar.cli.pulsar_admin"}
_STEP = re.compile(
    r"^```python\n(?P<code>(?:[^`\n].*\n|\n)+)```$|(?P<block>(?:^    .*\n|^\n)+)", re.MULTILINE
)


def steps() -> Iterator[tuple[str, str, str]]:
    """The language of a step, what it is, and what it prints."""
    for found in _STEP.finditer(PAGE.read_text("utf-8")):
        if found["code"]:
            yield "python", found["code"], ""
            continue
        text = "\n".join(line.removeprefix("    ") for line in found["block"].strip("\n").splitlines())
        for step in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, printed = step.partition("\n")
            yield "command", command, printed.strip()


def comparable(text: str) -> str:
    """Without times, and without the number of the ledger, which depends on what else the server has made."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text.strip())
    text = re.sub(r"for [\d.]+ (ms|s|min)$", "for a while", text, flags=re.MULTILINE)
    text = re.sub(r"\b\d{13}\b", "MS", text)
    return " ".join(re.sub(r"\b\d+:(\d+)\b", r"LEDGER:\1", text).split())


def test_commands_say_what_the_page_says(start_server: Callable[..., Server]) -> None:
    server = start_server(transactionCoordinatorEnabled="true", brokerDeleteInactiveTopicsEnabled="false")
    environment = {**os.environ, "PULSAR_ADMIN_URL": server.http_url, "PULSAR_SERVICE_URL": server.url}
    environment.pop("PULSAR_CLIENT_CONF", None)
    names: dict[str, Any] = {}
    seen = 0
    try:
        for language, text, printed in steps():
            if language == "python":
                exec(text.replace("pulsar://localhost:6650", server.url), names)
                continue
            program, *arguments = shlex.split(text)
            ended = subprocess.run(
                [sys.executable, "-m", _MODULES[program], *arguments],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
                env=environment,
            )
            told = (ended.stdout + ended.stderr).replace(server.url, "pulsar://localhost:6650")
            if os.environ.get("SHOW"):
                print(f"$ {text}\n{told}")
            else:
                assert comparable(told) == comparable(printed), text
            seen += 1
    finally:
        names["client"].close()
    assert seen >= 8
