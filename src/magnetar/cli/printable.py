"""Makes texts of clients safe for a terminal: on one line, within columns, without control characters."""

from __future__ import annotations

import unicodedata


def printable(text: str) -> str:
    """Returns the text on one line, without control sequences."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode()
        for each in text
    )


def cells(text: str) -> int:
    """Returns the number of columns of a printable text."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


def fitted(text: str, width: int) -> str:
    """Returns the text cut to ``width`` columns, with a sign for the missing part, or padded with blanks."""
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
