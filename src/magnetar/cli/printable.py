"""What others have written, on a terminal: on one line, in its columns, without what would command it."""

from __future__ import annotations

import unicodedata


def printable(text: str) -> str:
    """On one line, and without what would command a terminal."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode()
        for each in text
    )


def cells(text: str) -> int:
    """How many columns of a terminal it takes; it is printable."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


def fitted(text: str, width: int) -> str:
    """Cut to so many columns, with a sign that something is missing, or filled up with blanks."""
    missing = width - cells(text)
    if missing >= 0:
        return text + " " * missing
    kept, taken = "", 0
    for each in text:
        if taken + _cells_of(each) >= width:
            break
        kept, taken = kept + each, taken + _cells_of(each)
    return (kept + "…" + " " * (width - taken - 1)) if width else ""


def _cells_of(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1
