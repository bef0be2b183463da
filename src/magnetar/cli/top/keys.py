"""Decodes the keys that a terminal sends."""

from __future__ import annotations

import codecs
import re

_NAMES = {
    "A": "up",
    "B": "down",
    "H": "home",
    "F": "end",
    "1~": "home",
    "4~": "end",
    "5~": "page up",
    "6~": "page down",
    "7~": "home",
    "8~": "end",
}
_SEQUENCE = re.compile(r"\x1b(?:O(.)|\[([0-9;?]*)([@-~]))", re.DOTALL)
_BEGUN = re.compile(r"\x1b(?:O|\[[0-9;?]{0,16})?")
_LETTERS = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\b": "backspace", "\x1b": "escape"}


class Keys:
    """Decodes keys whose sequences may arrive in pieces."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        self._rest = ""

    @property
    def begun(self) -> bool:
        """Whether a sequence is incomplete."""
        return bool(self._rest)

    def of(self, data: bytes) -> list[str]:
        """Returns letters, and names of other keys, without unknown ones.

        :param data: empty: no more bytes follow, so an incomplete sequence was the key Escape
        """
        text = self._rest + self._decoder.decode(data)
        self._rest = ""
        found: list[str] = []
        while text:
            sequence = _SEQUENCE.match(text)
            if sequence is not None:
                known = _NAMES.get(sequence[1] or f"{sequence[2]}{sequence[3]}")
                found += [known] if known else []
                text = text[sequence.end() :]
                continue
            if data and _BEGUN.fullmatch(text):
                self._rest = text
                break
            found.append(_LETTERS.get(text[0], text[0]))
            text = text[1:]
        return found
