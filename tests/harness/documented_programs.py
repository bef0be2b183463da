"""The programs of a page: fenced blocks that continue each other, with what they print."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_RUN = ("python", "bash")
SECONDS = 180.0

# The blocks of a page share their names, as if they were one module. Each one's output ends with a mark.
_PROGRAM = r"""
import json, subprocess, sys

blocks = json.load(sys.stdin)
names = {"__name__": "__main__"}
for block in blocks:
    if block["language"] == "python":
        text = "\n" * block["line"] + block["text"]
        exec(compile(text, block["page"], "exec"), names)
    else:
        command = ["bash", "-euo", "pipefail", "-c", block["text"]]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    print("\x1e", end="", flush=True)
"""


@dataclass
class Block:
    """A program of a page."""

    language: str
    line: int
    """The line of its fence."""
    text: str
    printed: str = ""
    """The ``text`` block behind it; empty: it prints nothing."""


def blocks_of(page: Path) -> list[Block]:
    """Returns the programs of a page, each with the output that the page shows."""
    found: list[Block] = []
    text = page.read_text("utf-8")
    for match in _FENCE.finditer(text):
        language, content = match[1], match[2]
        line = text.count("\n", 0, match.start()) + 1
        if language == "text":
            assert found, f"{page.name}:{line}: output without a program"
            assert not found[-1].printed, f"{page.name}:{line}: a second output of one program"
            found[-1].printed = content
        else:
            assert language in _RUN, f"{page.name}:{line}: {language} is not run by a test"
            found.append(Block(language, line, content))
    return found


def differing(page: Path, folder: Path, replaced: Mapping[str, str]) -> list[str]:
    """Runs the programs of a page, and returns those that print something else than the page shows.

    :param folder: the working folder of the programs
    :param replaced: addresses of the page, and what is used instead
    """
    blocks = blocks_of(page)
    told = [
        {
            "page": str(page),
            "line": block.line,
            "language": block.language,
            "text": _with(block.text, replaced),
        }
        for block in blocks
    ]
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PULSAR_", "MAGNETAR_"))}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        cwd=folder,
        env=kept,
        input=json.dumps(told),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    # Warnings, errors of tasks and tracebacks of threads are written there.
    assert not done.stderr, done.stderr[-4000:]
    printed = done.stdout.split("\x1e")
    assert len(printed) == len(blocks) + 1, printed
    assert not printed[-1], printed
    back = {real: shown for shown, real in replaced.items()}
    return [
        f"{page.name}:{block.line} prints\n{_with(found, back)}"
        for block, found in zip(blocks, printed, strict=False)
        if _with(found, back) != block.printed
    ]


def _with(text: str, replaced: Mapping[str, str]) -> str:
    for shown, real in replaced.items():
        text = text.replace(shown, real)
    return text
