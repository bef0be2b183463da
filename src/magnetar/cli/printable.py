"""Formats text for a terminal: removes control characters, fits text to columns, and makes sizes and times
readable.
"""

from __future__ import annotations

import datetime
import unicodedata
from collections.abc import Iterable, Sequence

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def printable(text: str) -> str:
    """Returns the text on one line; characters that are not printable are replaced by escapes."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode()
        for each in text
    )


def cells(text: str) -> int:
    """Returns the number of terminal columns that a printable text takes."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


def aligned(lines: Sequence[Sequence[str]], *, numbers: bool = False) -> list[str]:
    """Returns the lines of a table with aligned columns, without trailing spaces.

    :param lines: the cells of each line; all lines have the same number of cells
    :param numbers: align all columns but the first to the right
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if numbers and column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def fitted(text: str, width: int) -> str:
    """Returns the text padded with spaces, or cut with an ellipsis, to ``width`` columns."""
    if cells(text) <= width:
        return text + " " * (width - cells(text))
    kept, blanks = _kept(text, width)
    return (kept + "…" + blanks) if width else ""


def fitted_end(text: str, width: int) -> str:
    """Like :func:`fitted`, but keeps the end of a text that is too long, because names differ at the end."""
    if cells(text) <= width:
        return fitted(text, width)
    kept, blanks = _kept(reversed(text), width)
    return (blanks + "…" + kept[::-1]) if width else ""


def _kept(letters: Iterable[str], width: int) -> tuple[str, str]:
    """Returns the letters that fit into ``width`` columns beside the ellipsis, and the spaces that fill the
    rest.
    """
    kept, taken = "", 1
    for each in letters:
        if taken + _cells_of(each) > width:
            break
        kept, taken = kept + each, taken + _cells_of(each)
    return kept, " " * (width - taken)


def _cells_of(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def size(count: float) -> str:
    """Formats a number of bytes, with a unit and about three digits."""
    value, unit = float(count), 0
    while abs(value) >= 1024 and unit < len(_UNITS) - 1:
        value /= 1024
        unit += 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 or value >= 100 else f"{value:.1f} {_UNITS[unit]}"


def duration(seconds: float) -> str:
    """Formats a duration with its two largest units."""
    minutes = int(seconds) // 60
    if minutes < 1:
        return f"{int(seconds)} s"
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def when(milliseconds: int) -> str:
    """Formats a time, given in milliseconds since 1970, in UTC; ``-`` for 0."""
    if not milliseconds:
        return "-"
    moment = datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)
    return moment.strftime("%Y-%m-%d %H:%M")
