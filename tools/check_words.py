"""Finds words that docs/glossary.md replaces, in code and docs: ``python tools/check_words.py``.

The last column of the glossary's table lists them. A word counts also as part of a name: ``door`` also in
``open_doors`` and ``DoorTls``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GLOSSARY = "docs/glossary.md"
_LOOKED_AT = ("src", "docs", "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "deploy")
_SUFFIXES = {".py", ".pxd", ".pyi", ".md", ".tsv", ".html", ".js", ".conf", ".yaml"}
_PIECES = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def replaced(text: str) -> Mapping[str, str]:
    """Returns the words of the table's last column, with the terms to use."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 3 and cells[0] not in ("term", "---"):
            for word in filter(None, (word.strip() for word in cells[2].split(","))):
                found[word] = f"{found[word]} or {cells[0]}" if word in found else cells[0]
    return found


def words(line: str) -> Iterator[str]:
    """Yields the words of a line in singular and lower case, including those inside names."""
    for piece in _PIECES.findall(line):
        word = piece.lower()
        yield word
        if word.endswith("s"):
            yield word[:-1]


def main() -> int:
    wanted = replaced((ROOT / GLOSSARY).read_text())
    listed = subprocess.run(
        ["git", "ls-files", "-z", *_LOOKED_AT], cwd=ROOT, capture_output=True, text=True, check=True
    )
    wrong = 0
    for name in listed.stdout.split("\0"):
        if Path(name).suffix not in _SUFFIXES or name == GLOSSARY:
            continue
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
            for word in sorted(wanted.keys() & set(words(line))):
                wrong += 1
                sys.stderr.write(f"{name}:{number}: {word!r}: use {wanted[word]!r} ({GLOSSARY})\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
