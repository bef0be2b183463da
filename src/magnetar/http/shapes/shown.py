"""What a client sent, as an error shows it: enough to recognize it, however large it is."""

from __future__ import annotations

from itertools import islice
from reprlib import Repr
from typing import Any


class _Shorter(Repr):
    def repr_dict(self, value: dict[Any, Any], level: int) -> str:
        """Its first items; :class:`reprlib.Repr` would sort all of them for those that come first."""
        if not value or level <= 0:
            return "{...}" if value else "{}"
        pieces = [
            f"{self.repr1(key, level - 1)}: {self.repr1(item, level - 1)}"
            for key, item in islice(value.items(), self.maxdict)
        ]
        return f"{{{', '.join(pieces)}{', ...' if len(value) > self.maxdict else ''}}}"


_shorter = _Shorter()
_shorter.maxlist = _shorter.maxtuple = _shorter.maxdict = 6
_shorter.maxlevel = 3
_shorter.maxstring = _shorter.maxother = 200
_shorter.maxlong = 60


def shown(value: Any) -> str:
    """A JSON value in some hundreds of characters, as Python writes it; ``...`` is for what is left out."""
    return _shorter.repr(value)
