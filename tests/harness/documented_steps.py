"""Commands of a page of the documents, as its indented blocks show them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path


def commands_of(page: Path, heading: str, program: str = "magnetar") -> list[str]:
    """Commands of a section that can be run as they are: without what is to be filled in or chosen."""
    _, _, rest = page.read_text("utf-8").partition(f"\n{heading}\n")
    section = re.split(r"^#+ ", rest, maxsplit=1, flags=re.MULTILINE)[0]
    return re.findall(rf"^    ({re.escape(program)} [^\[\n]+)$", section, re.MULTILINE)


def blocks_of(page: Path, section: int = 1) -> list[str]:
    """The indented blocks of one of the sections of second order, without their indentation."""
    text = page.read_text("utf-8").split("\n## ")[section]
    found = re.findall(r"(?:^    .*\n|^\n)+", text, re.MULTILINE)
    texts = ["\n".join(line.removeprefix("    ") for line in block.splitlines()).strip() for block in found]
    return [text for text in texts if text]


def steps_of(page: Path) -> Iterator[tuple[str, str]]:
    """Commands, and what they print."""
    blocks = re.findall(r"(?:^    .*\n|^\n)+", page.read_text("utf-8"), re.MULTILINE)
    text = "\n".join(line.removeprefix("    ") for block in blocks for line in block.strip("\n").splitlines())
    for step in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, printed = step.partition("\n")
        yield command, printed.strip()
